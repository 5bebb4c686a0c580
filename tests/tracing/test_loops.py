"""Loops as users write them, against Python's own loops: at once, traced and evaluated,
compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.compiler.engine import jit
from tetrad.core.errors import DtypeError, ShapeError, TraceError

WAYS: dict[str, Callable[..., Any]] = {"eager": lambda f: f, "traced": jit, "compiled": td.jit}
ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())


def numbers(*shape: int, seed: int = 0, dtype: Any = np.float64) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def same(got: Any, want: Any) -> None:
    leaves, tree = td.tree.flatten(got)
    expected, wanted = td.tree.flatten(want)
    assert tree == wanted
    for a, b in zip(leaves, expected, strict=True):
        assert a.shape == np.shape(b)
        np.testing.assert_allclose(np.asarray(a), b, rtol=1e-12, atol=1e-15)


# -- scan ------------------------------------------------------------------------------------------


@ways
@pytest.mark.parametrize("reverse", [False, True])
def test_scan_with_trees(way: Any, reverse: bool) -> None:
    def step(carry: Any, x: Any) -> Any:
        total = carry["total"] + x[0] * x[1]
        return {"total": total, "count": carry["count"] + 1}, (total, {"twice": 2 * carry["total"]})

    xs = (numbers(6, 3), numbers(6, 3, seed=1))
    carry = {"total": np.zeros(3), "count": np.int64(0)}
    sums, doubles = np.empty((6, 3)), np.empty((6, 3))
    total = np.zeros(3)
    for t in reversed(range(6)) if reverse else range(6):
        doubles[t] = 2 * total
        total = total + xs[0][t] * xs[1][t]
        sums[t] = total
    got = way(lambda c, x: td.scan(step, c, x, reverse=reverse))(carry, xs)
    same(got, ({"total": total, "count": np.int64(6)}, (sums, {"twice": doubles})))


@ways
def test_scan_without_rows_counts_steps(way: Any) -> None:
    final, ys = way(lambda c: td.scan(lambda c, _: (c * 2, None), c, length=10))(np.float64(3))
    assert final.item() == 3072 and ys is None


@ways
def test_scan_of_no_steps(way: Any) -> None:
    final, ys = way(lambda c, x: td.scan(lambda c, x: (c + x, c), c, x))(
        np.ones(3), np.zeros((0, 3))
    )
    same((final, ys), (np.ones(3), np.zeros((0, 3))))


@ways
def test_what_a_body_uses_from_outside_is_a_constant(way: Any) -> None:
    weights, large = numbers(2, 2), numbers(40, 40)

    def run(w: Any, c: Any, xs: Any) -> Any:
        return td.scan(lambda c, x: (td.tanh(w @ c + x) + td.sum(td.asarray(large)), w), c, xs)[0]

    c, xs = numbers(2, seed=1), numbers(5, 2, seed=2)
    want = c
    for x in xs:
        want = np.tanh(weights @ want + x) + large.sum()
    np.testing.assert_allclose(np.asarray(way(run)(weights, c, xs)), want, rtol=1e-9)


@ways
def test_scan_inside_scan(way: Any) -> None:
    def inner(c: Any, x: Any) -> Any:
        return td.scan(lambda c, v: (c * 0.5 + v, c), c, x)

    rows = numbers(4, 3)
    want = 1.0
    for x in rows.reshape(-1):
        want = want * 0.5 + x
    final, ys = way(lambda c, x: td.scan(inner, c, x))(np.float64(1), rows)
    np.testing.assert_allclose(final.item(), want)
    assert ys.shape == (4, 3)


@pytest.mark.parametrize(
    "init, xs, dtype",
    [
        (0.0, np.float32, "float32"),
        (0.0, np.float64, "float64"),
        (0, np.float32, "float32"),
        (0, np.int64, "int64"),
        (False, np.int32, "int32"),
    ],
)
@ways
def test_numbers_take_the_dtype_that_the_body_gives(
    way: Any, init: Any, xs: Any, dtype: str
) -> None:
    final, _ = way(lambda x: td.scan(lambda c, x: (c + x, None), init, x))(np.ones(3, xs))
    assert final.item() == 3 and final.dtype.name == dtype


def test_a_half_stays_one() -> None:
    xs = td.ones((3,), dtype=td.bfloat16)
    final, ys = td.scan(lambda c, x: (c * x + 1, c), 1.0, xs)
    assert final.dtype is td.bfloat16 and ys.dtype is td.bfloat16


def test_a_number_that_is_only_passed_on_has_its_usual_dtype() -> None:
    final, _ = td.scan(lambda c, x: (c, None), 3, td.ones((2,)))
    assert final.dtype is td.int32 and final.item() == 3


@ways
def test_vectors_of_the_specification(way: Any) -> None:
    """SC1 to SC5 of the specification of transforms; the solves are products with the inverse."""
    grow = way(lambda c: td.scan(lambda c, _: (c + 0.1 * c, None), c, length=10)[0])
    np.testing.assert_allclose(np.asarray(grow(np.ones(3))), 1.1**10, rtol=1e-12)
    add = way(lambda c, x: td.scan(lambda c, x: (c + x, None), c, x)[0])
    np.testing.assert_array_equal(
        np.asarray(add(np.zeros(3), np.arange(1.0, 13).reshape(4, 3))), [22, 26, 30]
    )
    inverse, driven = inverse_of(3, 0.1), np.zeros((4, 3))
    driven[0, 0] = 1
    euler = way(lambda m, c, x: td.scan(lambda c, x: (m @ (c + x), None), c, x)[0])
    want = [0.517426643152104, 0.172361678867289, 0.035173556732351]
    np.testing.assert_allclose(np.asarray(euler(inverse, np.zeros(3), driven)), want, atol=1e-12)
    heat = way(lambda m, c: td.scan(lambda c, _: (m @ c, m @ c), c, length=5))
    final, rows = heat(inverse_of(4, 0.05), np.eye(4)[1])
    want = [0.145277406469901, 0.660351038757152, 0.147364583538478, 0.019809376942064]
    np.testing.assert_allclose(np.asarray(final), want, atol=1e-12)
    sums = [0.997830802603, 0.993784143685, 0.988117228910, 0.981056744878, 0.972802405708]
    np.testing.assert_allclose(np.asarray(rows).sum(1), sums, atol=1e-12)
    first = [0.041493954167651, 0.912866991688323, 0.041579862975452, 0.001889993771611]
    np.testing.assert_allclose(np.asarray(rows)[0], first, atol=1e-12)
    np.testing.assert_array_equal(np.asarray(rows)[-1], np.asarray(final))


def inverse_of(n: int, dt: float) -> np.ndarray:
    return np.linalg.inv(np.eye(n) * (1 + 2 * dt) - dt * (np.eye(n, k=1) + np.eye(n, k=-1)))


# -- while, for, branches --------------------------------------------------------------------------


@ways
def test_while_loop(way: Any) -> None:
    def run(x: Any, limit: Any) -> Any:
        return td.while_loop(
            lambda s: s["x"] < limit, lambda s: {"x": s["x"] * 2, "n": s["n"] + 1}, {"x": x, "n": 0}
        )

    got = way(run)(np.float64(3), np.float64(100))
    assert (got["x"].item(), got["n"].item()) == (192, 6)
    assert way(run)(np.float64(300), np.float64(100))["n"].item() == 0


@ways
def test_fori_loop_with_known_and_traced_bounds(way: Any) -> None:
    known = way(lambda x: td.fori_loop(2, 6, lambda i, v: v * i + x, x))(np.float64(0.5))
    open_ = way(lambda x, n: td.fori_loop(2, n, lambda i, v: v * i + x, x))(
        np.float64(0.5), np.int32(6)
    )
    want = 0.5
    for i in range(2, 6):
        want = want * i + 0.5
    assert known.item() == open_.item() == want
    assert way(lambda x: td.fori_loop(3, 1, lambda i, v: v + 1, x))(np.float64(7)).item() == 7
    same(
        way(lambda x: td.fori_loop(2, 6, lambda i, v: v * i + x, x, unroll=3))(np.float64(0.5)),
        np.asarray(known),
    )


@ways
@pytest.mark.parametrize("choice", [True, False])
def test_cond(way: Any, choice: bool) -> None:
    outside = td.asarray(np.full(2, 10.0))

    def run(p: Any, x: Any, y: Any) -> Any:
        return td.cond(p, lambda x: (x + outside, y), lambda x: (x * 3, x), x)

    x, y = numbers(2), numbers(2, seed=3)
    same(way(run)(np.bool_(choice), x, y), (x + 10, y) if choice else (x * 3, x))


@ways
@pytest.mark.parametrize("index, want", [(-1, 6), (0, 6), (1, 50), (2, 5), (77, 5)])
def test_switch(way: Any, index: int, want: int) -> None:
    run = way(lambda i, x: td.switch(i, [lambda x: x + 1, lambda x: x * 10, lambda x: x], x))
    for dtype in (np.int32, np.int64, np.uint8):
        if index >= 0 or dtype is not np.uint8:
            assert run(dtype(index), np.float64(5)).item() == want


def test_branches_agree_on_the_dtype_of_numbers() -> None:
    got = td.cond(True, lambda: 1, lambda: td.ones((), dtype=td.float64))
    assert got.dtype is td.float64 and got.item() == 1


def test_a_condition_may_be_a_number() -> None:
    for number in (2.0, 0.5, -1, td.asarray(-3), np.nan):  # not 0: true, as in Python
        assert td.cond(number, lambda: 1, lambda: 0).item() == 1
    for number in (0, -0.0, td.asarray(0)):
        assert td.cond(number, lambda: 1, lambda: 0).item() == 0


# -- errors ----------------------------------------------------------------------------------------


def test_errors_name_the_leaf_both_types_and_the_line() -> None:
    init = {"h": td.zeros((2,)), "n": td.asarray(0)}
    with pytest.raises(
        ShapeError, match=r"carry\['h'\] is f32\[2\] before a step and f32\[4\] after it"
    ) as caught:
        td.scan(
            lambda c, x: ({"h": td.concat([c["h"], c["h"]]), "n": c["n"]}, None), init, td.zeros(3)
        )
    assert "test_loops.py" in str(caught.value)
    with pytest.raises(
        DtypeError, match=r"carry\['n'\] is i32\[\] before a step and f32\[\] after it"
    ):
        td.scan(lambda c, x: ({"h": c["h"], "n": c["n"] + x}, None), init, td.zeros(3))
    with pytest.raises(DtypeError, match=r"while_loop: carry is i32\[\] before a step and f32\[\]"):
        td.while_loop(lambda c: c < 3, lambda c: c * 0.5, td.asarray(1))


def test_errors_of_rows() -> None:
    with pytest.raises(ShapeError, match=r"leading axes differ: xs\['a'\] has 3, xs\['b'\] has 4"):
        td.scan(lambda c, x: (c, None), 0.0, {"a": td.zeros(3), "b": td.zeros(4)})
    with pytest.raises(ShapeError, match="xs has 3, length is 5"):
        td.scan(lambda c, x: (c, None), 0.0, td.zeros(3), length=5)
    with pytest.raises(ShapeError, match=r"xs\[1\] is f32\[\], it needs a leading axis"):
        td.scan(lambda c, x: (c, None), 0.0, (td.zeros(3), 1.0))
    with pytest.raises(ShapeError, match="give length="):
        td.scan(lambda c, x: (c, None), 0.0)


def test_errors_of_structure() -> None:
    with pytest.raises(TraceError, match=r"must return a pair \(carry, y\)"):
        td.scan(lambda c, x: c, 0.0, td.zeros(3))
    with pytest.raises(TraceError, match=r"the carry is \*, <lambda> returns \(\*, \*\) for it"):
        td.scan(lambda c, x: ((c, c), None), 0.0, td.zeros(3))
    with pytest.raises(
        TraceError, match=r"\(\*, \{'a': \*\}\), <lambda> returns \[\*, \{'a': \*\}\]"
    ):
        td.scan(lambda c, x: ([c[0], c[1]], None), (0.0, {"a": 0.0}), td.zeros(3))
    with pytest.raises(TraceError, match="arrays and numbers, not a str"):
        td.scan(lambda c, x: (c, "y"), 0.0, td.zeros(3))
    with pytest.raises(TraceError, match="checkpoint is 'all'"):
        td.scan(lambda c, x: (c, None), 0.0, td.zeros(3), checkpoint="all")
    with pytest.raises(ShapeError, match="unroll is 0"):
        td.scan(lambda c, x: (c, None), 0.0, td.zeros(3), unroll=0)


def test_errors_of_branches_and_conditions() -> None:
    with pytest.raises(ShapeError, match=r"cond: result is f32\[4\] in .* and f32\[2\] in"):
        td.cond(True, lambda x: x, lambda x: td.concat([x, x]), td.zeros(2))
    with pytest.raises(
        TraceError, match=r"false_fun <lambda> returns \*, true_fun <lambda> returns \(\*, \*\)"
    ):
        td.cond(True, lambda x: (x, x), lambda x: x, td.zeros(2))
    with pytest.raises(DtypeError, match=r"one bool without axes, got f32\[2\]"):
        td.cond(td.zeros(2), lambda: 1, lambda: 2)
    with pytest.raises(DtypeError, match=r"index must be an integer without axes, got f32\[\]"):
        td.switch(1.5, [lambda: 1])
    with pytest.raises(DtypeError, match=r"must return one bool without axes, it returns f32\[\]"):
        td.while_loop(lambda c: c, lambda c: c, 1.0)
    with pytest.raises(DtypeError, match=r"a bound is f32\[\], it must be an integer"):
        td.fori_loop(0, 1.5, lambda i, v: v, 0.0)
    with pytest.raises(TraceError, match="unroll is 2, but how many steps"):
        td.fori_loop(0, td.asarray(3), lambda i, v: v, 0.0, unroll=2)


@ways
def test_operands_in_every_form(way: Callable[..., Any]) -> None:
    x = numbers(3)
    up, down = lambda a: a + 1.0, lambda a: a - 1.0
    for choice in (True, False):
        want = x + 1 if choice else x - 1
        same(way(lambda p, x: td.cond(p, up, down, operand=x))(choice, x), want)
        same(
            way(lambda p, x: td.cond(p, lambda _: x + 1.0, lambda _: x - 1.0, operand=None))(
                choice, x
            ),
            want,
        )
        same(
            way(lambda p, x: td.cond(p, x, up, 2 * x, down))(choice, x),
            want if choice else 2 * x - 1,
        )
        same(way(lambda p, x: td.switch(p + 0, [down, up], operand=x))(np.int32(choice), x), want)


NO_FUNCTIONS: list[tuple[Callable[[Any], Any], str, str]] = [
    (
        lambda x: td.scan(x, lambda c, x: (c, x), 0.0),
        r"scan: f: expected a function, got f32",
        "td.scan(f, init, xs)",
    ),
    (
        lambda x: td.cond(True, x, abs, x),
        r"cond: true_fun: expected a function, got f32",
        "td.cond(pred, true_fun",
    ),
    (
        lambda x: td.cond(True, abs, 1, x),
        "cond: false_fun: expected a function, got an int",
        "td.cond(pred, true_fun",
    ),
    (
        lambda x: td.switch(9.5, [abs, x], x),
        r"switch: branch 1: expected a function, got f32",
        "[f, g], *operands",
    ),
    (
        lambda x: td.switch(0, x, abs),
        r"switch: the branches must be a list .* got f32\[3\]",
        "[f, g], *operands",
    ),
    (
        lambda x: td.while_loop(x, abs, abs),
        r"while_loop: cond_fun: expected a function, got f32",
        "td.while_loop(cond",
    ),
    (
        lambda x: td.while_loop(abs, x, abs),
        r"while_loop: body_fun: expected a function, got f32",
        "td.while_loop(cond",
    ),
    (
        lambda x: td.fori_loop(0, 3, x, abs),
        r"fori_loop: body_fun: expected a function, got f32",
        "lower, upper, body",
    ),
    (lambda x: td.map(x, abs), r"map: f: expected a function, got f32\[3\]", "td.map(f, xs)"),
    (
        lambda x: td.associative_scan(x, abs),
        r"associative_scan: fn: expected a function, got f32",
        "(fn, elems)",
    ),
]


@pytest.mark.parametrize(("call", "message", "hint"), NO_FUNCTIONS, ids=range(len(NO_FUNCTIONS)))
def test_what_is_no_function_is_said_first(
    call: Callable[[Any], Any], message: str, hint: str
) -> None:
    for way in (lambda f: f, td.jit):
        with pytest.raises(TraceError, match=f"^{message}") as caught:
            way(call)(td.ones(3))
        assert caught.value.source is not None and caught.value.source.file == __file__
        assert hint in (caught.value.hint or "")


def test_errors_name_the_function_that_was_called() -> None:
    with pytest.raises(
        ShapeError, match=r"fori_loop: carry is f32\[3\] before a step and f32\[2\] after it"
    ):
        td.fori_loop(0, 3, lambda i, c: c[:2], td.zeros(3))
    with pytest.raises(ShapeError, match="fori_loop: unroll is -1"):
        td.fori_loop(0, 3, lambda i, c: c, 0.0, unroll=-1)
    with pytest.raises(
        TraceError, match="switch: the branches must be a list of functions, got a function"
    ):
        td.switch(1, lambda x: x, 1.0)
    with pytest.raises(TraceError, match="cond: operand= beside 1 other operands"):
        td.cond(True, lambda x: x, lambda x: x, 1.0, operand=2.0)
    with pytest.raises(DtypeError, match="convert one of them with astype"):
        td.cond(True, lambda x: x, lambda x: x.astype(td.int32), td.zeros(2))


def test_bounds_of_64_bits_are_kept() -> None:
    zero, big = td.asarray(0, dtype=td.int64), 2**40

    def total(lower: Any, upper: Any) -> td.Array:
        return td.fori_loop(lower, upper, lambda i, s: s + i, zero)

    want = sum(range(big, big + 3))
    assert int(total(big, big + 3)) == want
    assert int(td.jit(lambda n: total(n, n + 3))(td.asarray(big, dtype=td.int64))) == want
    assert int(td.jit(lambda n: total(big, n))(td.asarray(big + 3, dtype=td.int64))) == want
    assert td.jit(lambda n: td.fori_loop(0, n, lambda i, _: i, td.asarray(0)))(3).dtype == td.int32
