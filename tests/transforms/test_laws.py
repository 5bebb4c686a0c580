"""Laws of derivatives and batching, for every op of the registry. A new op needs no line here.

    jvp      the change it tells is the difference quotient, for all operands together and for each
             alone
    vjp      <ct, J t> = <J^T ct, t>: reverse mode is forward mode turned around
    twice    the jvp of a vjp is the difference quotient of that vjp, and its own vjp is its
             transpose
    vmap     a batch is its rows one after the other, for every choice of operands that have the
             axis, wherever it is
    jit      compiled code agrees with all of this; vmapped code gives the same bits as the rows do

Difference quotients are taken in double precision with four points, at operands from
`tests/transforms/examples.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.compiled import difference
from tests.transforms.examples import (
    OPS,
    Array,
    Rng,
    is_differentiable_case,
    is_smooth,
    kinds,
    random_like,
    result_types,
    rng_for,
    small_cases,
    smooth,
    wild,
)
from tetrad.core.dtypes import DType, bf16, c64, c128, f16, f32, f64
from tetrad.core.op import REGISTRY, Case, Op

STEP = 1e-3
Function = Callable[..., tuple[Array, ...]]

# Ops that a batch applies to one row after the other, and why nothing better is needed.
RUNNING = "serves a running model, which has its own batch"
COMPILING = "put in by the compiler, after batching"
ROW_BY_ROW = {
    **dict.fromkeys(("after", "product_parts", "cumprod_parts", "product_groups"), COMPILING),
    **dict.fromkeys(("put_cache", "put_scales", "sample", "top_tokens"), RUNNING),
    **dict.fromkeys(("quantize_rows", "lowbit_rows", "interleave", "text_attention"), RUNNING),
    **dict.fromkeys(("byte_rows", "dequantize", "top_experts", "grouped_matmul"), RUNNING),
    "kernel_call": "a program of the user's: its rows are launched one after the other",
    "tie": "batched with the effects it waits for: tetrad/transforms/effect_rules.py",
}
# Ops that draw no cases, and the tests that prove their rules.
SYSTEMS = ("lu", "linear_solve", "triangular_solve", "cholesky", "lu_det")
LINALG = (*SYSTEMS, "qr", "eig", "eigh", "eigvalsh", "svd", "svdvals")
ELSEWHERE = {
    **dict.fromkeys(LINALG, "tests/linalg/test_linalg.py"),
    **dict.fromkeys(("dequantize_groups", "reduce_groups"), "tests/arrays/test_groups.py"),
    "tie": "tests/tracing/test_callbacks.py",
}
ALL_OPS = [o for o in REGISTRY.values() if o.kind != "structural"]


def has_rule(op: Op) -> bool:
    return any((op.jvp_rules, op.transpose_rules, op.joint_jvp, op.joint_transpose))


@cache
def can_change(op: Op) -> bool:
    """Whether some case has floats on both sides."""
    cases = small_cases(op, rng_for("can change", op), largest=10**6, tries=60)
    return any(is_differentiable_case(op, case) for case in cases)


# its derivative is not that of what it computes: tests/transforms/test_composition.py
DENIES = ("stop_gradient",)
DIFFERENTIABLE = [o for o in OPS if not o.no_derivative and o.name not in DENIES and can_change(o)]
EACH = [
    pytest.param(o, d, id=f"{o.name}-{d}")
    for o in DIFFERENTIABLE
    for d, wide in ((f64, f64), (c128, c64))
    if d in o.dtypes or wide in o.dtypes
]


# -- the registry ----------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ALL_OPS, ids=lambda o: o.name)
def test_an_op_has_a_derivative_or_says_why_not(op: Op) -> None:
    assert has_rule(op) or op.no_derivative or (op.cases is not None and not can_change(op)), (
        f"{op.name}: attach jvp or transpose rules, or say not_differentiable(why)"
    )
    assert not (has_rule(op) and op.no_derivative), f"{op.name} has rules and a reason to have none"


@pytest.mark.parametrize("op", [o for o in ALL_OPS if has_rule(o)], ids=lambda o: o.name)
def test_rules_are_proved_here_or_elsewhere(op: Op) -> None:
    assert (op.cases is not None) != (op.name in ELSEWHERE), (
        f"{op.name}: give it cases, or list who proves its rules"
    )


@pytest.mark.parametrize("op", ALL_OPS, ids=lambda o: o.name)
def test_an_op_has_a_batching_rule_or_is_on_the_list(op: Op) -> None:
    is_batched = op.kind == "elementwise" or op.batch_rule is not None
    assert is_batched != (op.name in ROW_BY_ROW), (
        f"{op.name}: attach a batch rule, or list it with a reason"
    )


# -- derivatives -----------------------------------------------------------------------------------


def is_table(op: Op, i: int) -> bool:
    """Is the operand a constant by what the op says, without derivatives and batches?"""
    return op.name == "resample" and i > 0


def function_of(op: Op, case: Case) -> tuple[Function, list[int]]:
    """The op as a function of its float operands, which gives the float results; and which operands
    those are."""
    places = [
        i
        for i, kind in enumerate(kinds(case.args))
        if is_smooth(kind.dtype) and not is_table(op, i)
    ]
    wanted = [i for i, kind in enumerate(result_types(op, case)) if is_smooth(kind.dtype)]

    def function(*floats: Array) -> tuple[Array, ...]:
        args = [td.asarray(a) for a in case.args]
        for place, value in zip(places, floats, strict=True):
            args[place] = value
        made = op(*args, **case.params)
        return tuple((made if isinstance(made, tuple) else (made,))[i] for i in wanted)

    return function, places


def quotient(function: Function, at: Sequence[Array], direction: Sequence[Array]) -> list[Array]:
    """(8 (f(x + h) - f(x - h)) - (f(x + 2h) - f(x - 2h))) / 12 h"""

    def value(steps: int) -> list[Array]:
        pairs = zip(at, direction, strict=True)
        moved = [td.asarray(np.asarray(x + steps * STEP * t)) for x, t in pairs]
        return [np.asarray(y) for y in function(*moved)]

    far, near = ([change(a, b) for a, b in zip(value(n), value(-n), strict=True)] for n in (2, 1))
    return [(8 * b - a) / (12 * STEP) for a, b in zip(far, near, strict=True)]


def change(a: Array, b: Array) -> Array:
    """a - b; nothing where both are one infinity."""
    same = a == b
    return np.where(same, 0, a) - np.where(same, 0, b)


def arrays(values: Sequence[Array]) -> tuple[Array, ...]:
    return tuple(td.asarray(v) for v in values)


def inner(a: Sequence[Array], b: Sequence[Array]) -> float:
    """The real part of the sum of products: complex cotangents are not conjugated."""
    return float(sum(np.sum(np.asarray(x) * np.asarray(y)).real for x, y in zip(a, b, strict=True)))


def assert_near(got: Sequence[Array], want: Sequence[Array], within: float, what: object) -> None:
    for x, y in zip(got, want, strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert x.shape == y.shape, (x.shape, y.shape, what)
        apart = np.max(np.abs(change(x, y)), initial=0)
        scale = 1 + np.max(np.abs(y), initial=0, where=np.isfinite(y))
        assert apart <= within * scale, f"{what}: {apart} apart\n{x}\n{y}"


def directions(rng: Rng, floats: Sequence[Array]) -> list[list[Array]]:
    """One that changes all operands, and for several operands those that change one of them."""
    every = [random_like(rng, x) for x in floats]
    alone = [
        [t if i == j else np.zeros_like(t) for j, t in enumerate(every)] for i in range(len(every))
    ]
    return [every, *(alone if len(every) > 1 else [])]


@pytest.mark.parametrize(("op", "dtype"), EACH)
def test_jvp_is_the_difference_quotient(op: Op, dtype: DType) -> None:
    rng = rng_for("jvp", op, dtype)
    cases = smooth(op, dtype, 4)
    assert cases
    for case in cases:
        function, places = function_of(op, case)
        floats = [case.args[i] for i in places]
        for direction in directions(rng, floats):
            value, change = td.jvp(function, arrays(floats), arrays(direction))
            assert_near(change, quotient(function, floats, direction), 1e-8, (op, case))
            assert_near(value, function(*arrays(floats)), 0, (op, case))


@pytest.mark.parametrize(("op", "dtype"), EACH)
def test_one_operand_alone_changes_the_result_by_its_own_part(op: Op, dtype: DType) -> None:
    """The others are not zero changes here but no changes: rules see that difference."""
    rng = rng_for("alone", op, dtype)
    for case in smooth(op, dtype, 2):
        function, places = function_of(op, case)
        floats = [case.args[i] for i in places]
        for i, x in enumerate(floats):
            t = random_like(rng, x)

            def of_one(
                z: Array, i: int = i, floats: list[Array] = floats, function: Function = function
            ) -> Any:
                return function(*arrays(floats[:i]), z, *arrays(floats[i + 1 :]))

            _, change = td.jvp(of_one, arrays([x]), arrays([t]))
            assert_near(change, quotient(of_one, [x], [t]), 1e-8, (op, case, i))
            value, back = td.vjp(of_one, td.asarray(x))
            cotangents = [random_like(rng, y) for y in value]
            (found,) = back(arrays(cotangents))
            np.testing.assert_allclose(
                inner([found], [t]), inner(cotangents, change), rtol=1e-9, atol=1e-9
            )


@pytest.mark.parametrize(("op", "dtype"), EACH)
def test_vjp_is_jvp_turned_around(op: Op, dtype: DType) -> None:
    rng = rng_for("vjp", op, dtype)
    for case in smooth(op, dtype, 4):
        function, places = function_of(op, case)
        floats = [case.args[i] for i in places]
        direction = [random_like(rng, x) for x in floats]
        value, change = td.jvp(function, arrays(floats), arrays(direction))
        cotangents = [random_like(rng, y) for y in value]
        same, back = td.vjp(function, *arrays(floats))
        found = back(arrays(cotangents))
        assert kinds(found) == kinds(floats), (op, case)
        np.testing.assert_allclose(
            inner(found, direction), inner(cotangents, change), rtol=1e-9, atol=1e-9
        )
        assert_near(same, value, 0, (op, case))
        _, linear = td.linearize(function, *arrays(floats))
        assert_near(linear(*arrays(direction)), change, 1e-12, (op, case))


@pytest.mark.parametrize(("op", "dtype"), EACH)
def test_second_derivatives(op: Op, dtype: DType) -> None:
    """Forward over reverse is the quotient of the gradient; reverse over reverse is its
    transpose."""
    rng = rng_for("second", op, dtype)
    for case in smooth(op, dtype, 2):
        function, places = function_of(op, case)
        floats = [case.args[i] for i in places]
        cotangents = arrays([random_like(rng, y) for y in function(*arrays(floats))])

        def gradient(
            *xs: Array, function: Function = function, cotangents: Any = cotangents
        ) -> Any:
            return td.vjp(function, *xs)[1](cotangents)

        direction = [random_like(rng, x) for x in floats]
        _, change = td.jvp(gradient, arrays(floats), arrays(direction))
        assert_near(change, quotient(gradient, floats, direction), 1e-7, (op, case))
        again = [random_like(rng, x) for x in floats]
        back = td.vjp(gradient, *arrays(floats))[1](arrays(again))
        np.testing.assert_allclose(
            inner(back, direction), inner(again, change), rtol=1e-8, atol=1e-8
        )


QUADRANTS = np.array([x + 1j * y for x in (0.6, -0.6, 1.7, -1.7) for y in (0.8, -0.8)])
COMPLEX_FUNCTIONS = [
    o
    for o in DIFFERENTIABLE
    if o.kind == "elementwise" and c128 in o.dtypes and o.promote == "float"
]


@pytest.mark.parametrize(
    "op", [o for o in COMPLEX_FUNCTIONS if o.name not in ("divide", "pow")], ids=lambda o: o.name
)
def test_complex_functions_on_all_sides_of_their_cuts(op: Op) -> None:
    """A root of a product may be the negative of the product of roots: signs must be right
    everywhere."""
    direction = [np.full(8, 0.3 - 0.4j)]
    _, changed = td.jvp(lambda z: (op(z),), arrays([QUADRANTS]), arrays(direction))
    assert_near(changed, quotient(lambda z: (op(z),), [QUADRANTS], direction), 1e-8, op)


@pytest.mark.parametrize("dtype", (f32, f16, bf16, "q8_0"), ids=str)
def test_products_with_weights_as_files_hold_them(dtype: DType | str) -> None:
    rng = np.random.default_rng(5)
    x, ct = (
        td.asarray(rng.standard_normal((3, 32)).astype("f")),
        td.asarray(rng.standard_normal((3, 16)).astype("f")),
    )
    floats = td.asarray(rng.standard_normal((16, 32)).astype("f"))
    w = td.quant.quantize(floats, dtype) if isinstance(dtype, str) else floats.astype(dtype)
    op = REGISTRY["matmul"]
    product = partial(op, transposed=True)
    numbers = np.asarray(w.dequantize() if isinstance(dtype, str) else w).astype(np.float64)
    by_x = td.vjp(lambda x: product(x, w), x)[1](ct)[0]
    assert_near([by_x], [np.asarray(ct) @ numbers], 1e-6, op)
    assert_near(
        [td.jvp(lambda x: product(x, w), (x,), (x,))[1]], [np.asarray(x) @ numbers.T], 1e-6, op
    )
    if not isinstance(dtype, str):
        by_w = td.vjp(lambda w: product(x, w), w)[1](ct)[0]
        assert by_w.dtype is dtype
        assert_near([np.asarray(by_w).astype("f")], [np.asarray(ct).T @ np.asarray(x)], 1e-2, op)


@pytest.mark.parametrize("narrow", (f32, f16, bf16), ids=str)
def test_a_cast_to_fewer_bits_casts_changes_and_casts_back(narrow: DType) -> None:
    x, t = td.asarray([1.5, -2.7]), td.asarray([0.1, 3.3])
    narrowed = t.astype(narrow)
    _, change = td.jvp(lambda x: x.astype(narrow), (x.astype(f64),), (t.astype(f64),))
    assert change.dtype is narrow and difference(np.asarray(change), np.asarray(narrowed)) is None
    (back,) = td.vjp(lambda x: x.astype(narrow), x.astype(f64))[1](narrowed)
    assert (
        back.dtype is f64 and difference(np.asarray(back), np.asarray(narrowed.astype(f64))) is None
    )


@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=lambda o: o.name)
def test_single_precision_is_double_precision_rounded(op: Op) -> None:
    """Types stay what they are, and values are those of f64."""
    for narrow, wide in ((f32, f64), (c64, c128)):
        rng = rng_for("f32", op, narrow)
        for case in smooth(op, narrow, 2) if narrow in op.dtypes else []:
            function, places = function_of(op, case)
            floats = [case.args[i] for i in places]
            direction = [random_like(rng, x) for x in floats]
            value, change = td.jvp(function, arrays(floats), arrays(direction))
            assert kinds(value) == kinds(change)
            if not all(k.dtype in (narrow, narrow.real) for k in kinds(value)):
                continue  # a cast: the precise function is another one
            wider = Case(tuple(widened(a, narrow, wide) for a in case.args), case.params)
            precise = function_of(op, wider)[0]
            wide_at, wide_direction = (
                [widened(a, narrow, wide) for a in each] for each in (floats, direction)
            )
            if narrow not in case.params.values():
                want = td.jvp(precise, arrays(wide_at), arrays(wide_direction))[1]
                assert_near(change, want, 1e-5, (op, case))


def widened(a: Array, narrow: DType, wide: DType) -> Array:
    """A float, or its real part, in twice the bits; anything else as it is."""
    found = kinds([a])[0].dtype
    return (
        a.astype({narrow: wide, narrow.real: wide.real}[found].np)
        if found in (narrow, narrow.real)
        else a
    )


# -- batches ---------------------------------------------------------------------------------------


def rows_of(op: Op, i: int, a: Array, size: int) -> list[Array]:
    """Operands like the given one: its elements, moved on. (Ops of running models have tables that
    must fit.)"""
    moves = i == 0 or op.name not in ROW_BY_ROW
    return [np.roll(np.asarray(a).reshape(-1), b * moves).reshape(np.shape(a)) for b in range(size)]


def each_row(op: Op, case: Case, batched: Sequence[bool], size: int) -> list[tuple[Array, ...]]:
    """The operands of one row after the other."""
    flags = enumerate(zip(case.args, batched, strict=True))
    each = [rows_of(op, i, a, size) if flag else [np.asarray(a)] * size for i, (a, flag) in flags]
    return list(zip(*each, strict=True))


def choices(count: int) -> list[tuple[bool, ...]]:
    """Which operands have the axis: every choice, of many operands a few."""
    if count <= 3:
        return [c for c in itertools.product((True, False), repeat=count) if any(c)]
    return [(True,) * count, *(tuple(j == i for j in range(count)) for i in (0, count - 1))]


def looped(op: Op, case: Case, batched: Sequence[bool], size: int) -> list[Array]:
    """The op on one row after the other, stacked."""
    found = [op.reference(*row, **case.params) for row in each_row(op, case, batched, size)]
    results = [f if isinstance(f, tuple) else (f,) for f in found]
    types = result_types(op, case)
    return [np.stack([np.asarray(r[i]) for r in results]) if size else np.zeros((0, *t.shape),
    t.dtype.np)
            for i, t in enumerate(types)]  # fmt: skip


def batches(
    op: Op, case: Case, batched: Sequence[bool], size: int, rng: Rng
) -> tuple[list[Array], list[int | None]]:
    """The operands with their rows along some axis, and which."""
    made, axes = [], []
    for i, (a, flag) in enumerate(zip(case.args, batched, strict=True)):
        rank = np.ndim(a) + 1
        axis = int(rng.integers(-rank, rank)) if flag else None
        rows = (
            np.stack(rows_of(op, i, a, size))
            if size
            else np.zeros((0, *np.shape(a)), np.asarray(a).dtype)
        )
        made.append(np.moveaxis(rows, 0, axis) if flag else np.asarray(a))  # type: ignore[arg-type]
        axes.append(axis)
    return made, axes


def vmapped(
    op: Op, params: dict[str, Any], axes: Sequence[int | None], out: int
) -> Callable[..., Any]:
    return td.vmap(lambda *xs: op(*xs, **params), in_axes=tuple(axes), out_axes=out)


@pytest.mark.parametrize("op", OPS, ids=lambda o: o.name)
def test_vmap_is_a_loop(op: Op) -> None:
    rng = rng_for("vmap", op)
    is_slow = op.name in ROW_BY_ROW
    for case in wild(op, 1 if is_slow else 5, 10**6 if is_slow else 150):
        for batched in choices(len(case.args)):
            batched = tuple(flag and not is_table(op, i) for i, flag in enumerate(batched))
            if not any(batched):
                continue
            size = int(rng.choice((0, 1, 2, 3)))
            made, axes = batches(op, case, batched, size, rng)
            least = min(len(t.shape) for t in result_types(op, case)) + 1
            out = int(rng.integers(-least, least))
            with np.errstate(all="ignore"):
                found = vmapped(op, case.params, axes, out)(*arrays(made))
                wanted = looped(op, case, batched, size)
            for got, want in zip(
                found if isinstance(found, tuple) else (found,), wanted, strict=True
            ):
                wrong = difference(np.moveaxis(np.asarray(got), out, 0), want)
                assert wrong is None, (
                    f"{op} {kinds(case.args)} {case.params} {batched} {axes} {out}: {wrong}"
                )


# -- compiled --------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", [o for o in DIFFERENTIABLE if f32 in o.dtypes], ids=lambda o: o.name)
def test_compiled_derivatives_agree(op: Op) -> None:
    rng = rng_for("compiled", op)
    (case, *_) = smooth(op, f32, 1)
    function, places = function_of(op, case)
    floats = [case.args[i] for i in places]
    direction = [random_like(rng, x) for x in floats]
    cotangents = arrays([random_like(rng, y) for y in function(*arrays(floats))])

    def both(xs: Any, ts: Any, cts: Any) -> Any:
        return td.jvp(function, xs, ts), td.vjp(function, *xs)[1](cts)

    given = arrays(floats), arrays(direction), cotangents
    for got, want in zip(td.jit(both)(*given), both(*given), strict=True):
        for g, w in zip(leaves(got), leaves(want), strict=True):
            assert_near([g], [w], 1e-5, (op, case))


def leaves(tree: Any) -> list[Any]:
    return list(td.tree.flatten(tree)[0])


BATCHED_OPS = [o for o in OPS if o.batch_rule is not None and o.dtypes]


@pytest.mark.parametrize("op", BATCHED_OPS, ids=lambda o: o.name)
def test_compiled_batches_have_the_bits_of_their_rows(op: Op) -> None:
    rng = rng_for("compiled vmap", op)
    case = next(
        c for c in wild(op, 30) if kinds(c.args)[0].dtype in op.dtypes and np.size(c.args[0]) > 2
    )
    batched = choices(len(case.args))[int(rng.integers(len(choices(len(case.args)))))]
    made, axes = batches(op, case, batched, 3, rng)
    found = td.jit(vmapped(op, case.params, axes, 0))(*arrays(made))
    alone = td.jit(lambda *xs: op(*xs, **case.params))
    rows = [alone(*arrays(row)) for row in each_row(op, case, batched, 3)]
    for b, row in enumerate(rows):
        pairs = zip(*((x if isinstance(x, tuple) else (x,)) for x in (found, row)), strict=True)
        for got, want in pairs:
            wrong = difference(np.asarray(got)[b].copy(), np.asarray(want))
            assert wrong is None, f"{op} {kinds(case.args)} {case.params} {batched}: {wrong}"
