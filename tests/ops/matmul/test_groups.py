"""Products with weights in groups: against NumPy on the same numbers, equal bits for any batch,
tile and machine, and no matrix of the weight's size in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.compiled import run as run_compiled
from tests.ops.groups.test_kernel import on_evaluator, same
from tetrad.backends.cpu.isa import LEVELS, current_target
from tetrad.backends.cpu.llvm import assembly
from tetrad.backends.llvm.module import emit_module
from tetrad.backends.llvm.target import Target
from tetrad.compiler.driver import compile_graph
from tetrad.compiler.pipeline import lower_graph, optimise
from tetrad.core.dtypes import f32
from tetrad.graph.nodes import Graph
from tetrad.lower.lower import Lowerer
from tetrad.ops.matmul.op import matmul, round_rows
from tetrad.schedule.nodes import Launch, programs_of

SCHEMES: list[tuple[str, dict[str, Any]]] = [
    ("int4", {}),
    ("int4", {"symmetric": True}),
    ("int4", {"zero_point": "float"}),
    ("nf4", {}),
]
IDS = ["affine", "symmetric", "float", "nf4"]
# outputs, columns, group: groups along rows, rows along groups, and neither
NATURAL = [(7, 64, 32), (33, 256, 128), (5, 192, 64), (16, 96, 192), (1, 160, 32), (9, 384, 96)]
OTHERS = [(6, 48, 7), (5, 33, 40), (4, 64, 16), (3, 32, 33), (1, 1, 1), (8, 5, 1000)]


def random(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def weight(
    shape: tuple[int, int], group: int, name: str, settings: dict[str, Any]
) -> tuple[td.quant.GroupQuantized, np.ndarray]:
    q = td.quant.quantize(random(shape), name, group=group, **settings)
    return q, np.asarray(q.dequantize()).astype(np.float64)


def product(x: td.Array, q: td.quant.GroupQuantized) -> td.Array:
    return x @ q.dequantize().T  # type: ignore[no-any-return]


def rounded(x: td.Array, q: td.quant.GroupQuantized) -> td.Array:
    return td.quant.matmul(x, q, activations="int8")  # type: ignore[no-any-return]


@pytest.mark.parametrize("rows", [1, 5, 17])
@pytest.mark.parametrize(("name", "settings"), SCHEMES, ids=IDS)
def test_products_agree_with_numpy(name: str, settings: dict[str, Any], rows: int) -> None:
    shapes = NATURAL + OTHERS if rows == 5 else NATURAL[:3] + OTHERS[:1]
    for outputs, columns, group in shapes:
        q, numbers = weight((outputs, columns), group, name, settings)
        x = random((rows, columns), 1)
        bound = 1e-6 * (np.abs(x) @ np.abs(numbers.T)) + 1e-30
        found = np.asarray(td.jit(product)(x, q))
        assert (np.abs(found - x.astype(np.float64) @ numbers.T) <= bound).all()
        assert found.shape == (rows, outputs)


@pytest.mark.parametrize(("name", "settings"), SCHEMES, ids=IDS)
def test_rows_in_8_bits_keep_their_bound(name: str, settings: dict[str, Any]) -> None:
    """Each number of x is off by at most 1/254 of the largest of its 128 (1/253 with rounding), an
    entry of the table by 2**-15 of the scale."""
    for outputs, columns, group in NATURAL + OTHERS[:3]:
        q, numbers = weight((outputs, columns), group, name, settings)
        x = random((5, columns), 1)
        found, exact = np.asarray(rounded(td.asarray(x), q)), x.astype(np.float64) @ numbers.T
        tops = np.concatenate(
            [np.abs(x[:, c : c + 128]).max(1, keepdims=True).repeat(min(128, columns - c), 1)
             for c in range(0, columns, 128)], axis=1
        )  # fmt: skip
        scales = np.repeat(np.asarray(q.scale), group)[: numbers.size].reshape(numbers.shape)
        of_table = np.abs(x) @ scales.T * (2.0**-15 if name == "nf4" else 0)
        of_sums = 3e-6 * np.abs(x) @ (np.abs(numbers) + 15 * np.abs(scales)).T
        assert (np.abs(found - exact) <= tops @ np.abs(numbers.T) / 253 + of_table + of_sums).all()
        kept = round_rows(x).astype(np.float64) @ numbers.T
        assert (np.abs(found - kept) <= of_table * 1.01 + of_sums).all()


@pytest.mark.parametrize("run", [product, rounded])
@pytest.mark.parametrize(("name", "group"), [("int4", 64), ("int4", 128), ("nf4", 32)])
def test_bits_do_not_depend_on_the_batch(run: Callable[..., Any], name: str, group: int) -> None:
    q, _ = weight((19, 256), group, name, {})
    x, call = random((37, 256), 2), td.jit(run)
    together = np.asarray(call(x, q))
    for count in (1, 2, 5, 16):
        parts = [np.asarray(call(x[i : i + count], q)) for i in range(0, 37, count)]
        same(np.concatenate(parts), together)
    sized = td.jit(run, dims=({0: td.Dim("rows", max=64)}, None))
    for count in (1, 3, 16, 37):
        same(sized(x[:count], q), together[:count])
    assert sized.compiles == 1
    vmapped = td.jit(td.vmap(run, in_axes=(0, None)))
    same(vmapped(x[:36].reshape(4, 9, 256), q), together[:36])


@pytest.mark.parametrize("activations", ["", "int8"])
@pytest.mark.parametrize(("name", "group"), [("int4", 64), ("int4", 128), ("nf4", 128)])
def test_every_machine_and_the_evaluator_have_the_same_bits(
    name: str, group: int, activations: str
) -> None:
    q, _ = weight((6, 256), group, name, {})

    def run(x: td.Array, *parts: td.Array) -> td.Array:
        settings = {"scheme": name, "group": group, "activations": activations}
        return matmul(x, *parts, transposed=True, **settings)  # type: ignore[no-any-return]

    for rows in (3, 17):
        arrays = [td.asarray(random((rows, 256), 3)), *q.parts]
        want = np.asarray(td.jit(run)(*arrays))
        for machine in {target.machine for target in LEVELS.values()}:
            same(on_evaluator(run, arrays, machine)[0], want)


@pytest.mark.parametrize("dtype", [td.float16, td.bfloat16, td.float64], ids=str)
@pytest.mark.parametrize("group", [32, 7])
def test_other_floats_are_products_of_the_rounded_numbers(dtype: Any, group: int) -> None:
    w, x = (td.asarray(random(s, i)).astype(dtype) for i, s in enumerate([(9, 96), (4, 96)]))
    q = td.quant.quantize(w, "int4", group=group)
    found = td.jit(product)(x, q)
    numbers, left = (np.asarray(a.astype(td.float64)) for a in (q.dequantize(), x))
    step = {td.float16: 2.0**-10, td.bfloat16: 2.0**-7}.get(dtype, 1e-14)
    assert found.dtype is dtype and q.dequantize().dtype is dtype
    bound = step * np.abs(left @ numbers.T) + 1e-6 * np.abs(left) @ np.abs(numbers.T)
    assert (np.abs(np.asarray(found.astype(td.float64)) - left @ numbers.T) <= bound).all()


def test_nan_and_infinity_in_rows() -> None:
    q, _ = weight((8, 256), 128, "int4", {})
    x = random((3, 256))
    x[0, 5], x[1, 200] = np.nan, np.inf
    for run in (td.jit(product), rounded):
        found = np.asarray(run(td.asarray(x), q))
        assert np.isnan(found[0]).all() and not np.isfinite(found[1]).any()
        assert np.isfinite(found[2]).all()


# -- memory ----------------------------------------------------------------------------------------


def largest_float(graph: Graph) -> int:
    """Elements of the largest array of floats that kernels store or read."""
    schedule = lower_graph(graph, Lowerer(current_target().machine))
    launches = [step for step in schedule.steps if isinstance(step, Launch)]
    assert launches
    slots = {slot for launch in launches for slot in launch.slots}
    return max(int(slot.type.size) for slot in slots if slot.type.dtype.is_float)  # type: ignore[arg-type]


SHAPE = (96, 128)


@pytest.mark.parametrize("group", [32, 256, 48, 7])
@pytest.mark.parametrize(("name", "settings"), SCHEMES, ids=IDS)
def test_no_matrix_of_the_weights_size_is_in_memory(
    name: str, settings: dict[str, Any], group: int
) -> None:
    q, _ = weight(SHAPE, group, name, settings)
    rows = td.Spec((3, SHAPE[1]), f32)

    def by_parts(x: td.Array, scale: td.Array, *zero: td.Array) -> td.Array:
        made = td.quant.from_parts(q.codes, scale, *zero, scheme=name, group=group)
        return td.sum(td.tanh(product(x, made)))

    factors = q.parts[1:]
    gradient = td.grad(by_parts, argnums=tuple(range(1 + len(factors))))
    other = td.Spec((3, SHAPE[0]), f32)
    stacked = td.vmap(lambda w: td.quant.quantize(w, name, group=group, **settings))(
        random((2, *SHAPE))
    )
    for graph in (
        td.trace(product)(rows, q),
        td.trace(lambda x, q: x @ q.dequantize())(other, q),
        td.trace(td.vmap(product, in_axes=(0, None)))(td.Spec((2, 3, SHAPE[1]), f32), q),
        td.trace(gradient)(rows, *factors),
        td.trace(lambda x, q: x @ q.dequantize(td.float16).T.astype(f32))(rows, q),
        td.trace(td.vmap(product))(td.Spec((2, 3, SHAPE[1]), f32), stacked),
    ):
        assert largest_float(graph) < SHAPE[0] * SHAPE[1]


def test_the_rule_that_reads_groups_in_place() -> None:
    q, _ = weight(SHAPE, 64, "int4", {})
    graph = optimise(td.trace(product)(td.Spec((3, SHAPE[1]), f32), q))
    (found,) = [n for n in graph.nodes() if n.op.name != "parameter"]
    assert found.op is matmul and found.param("transposed") and found.param("group") == 64
    both = optimise(td.trace(lambda x, q: (product(x, q), q.dequantize()))(td.ones((1, 128)), q))
    assert {"matmul", "dequantize_groups"} <= {n.op.name for n in both.nodes()}


# -- derivatives -----------------------------------------------------------------------------------


@pytest.mark.parametrize("group", [32, 192, 5])
@pytest.mark.parametrize(("name", "settings"), SCHEMES, ids=IDS)
def test_derivatives_are_those_of_the_numbers(
    name: str, settings: dict[str, Any], group: int
) -> None:
    """Against NumPy: dx = up W, dscale = sum of (code - zero) G, dzero = -scale * sum of G, where
    G = up^T x."""
    shape = (6, 96)
    q, numbers = weight(shape, group, name, settings)
    x, up = random((4, shape[1]), 1), random((4, shape[0]), 2)

    def loss(x: td.Array, scale: td.Array, *zero: td.Array) -> td.Array:
        made = td.quant.from_parts(q.codes, scale, *zero, scheme=name, group=group)
        return td.sum(product(x, made) * up)

    factors = q.parts[1:]
    each = tuple(range(1 + len(factors)))
    padding = -numbers.size % group
    by_group = np.pad((up.T.astype(np.float64) @ x).reshape(-1), (0, padding)).reshape(-1, group)
    scale = np.asarray(q.scale).astype(np.float64)
    unscaled = np.pad(numbers.reshape(-1), (0, padding)).reshape(-1, group) / scale[:, None]
    want = [up @ numbers, (by_group * unscaled).sum(1), -scale * by_group.sum(1)]
    for run in (td.grad(loss, argnums=each), td.jit(td.grad(loss, argnums=each))):
        for got, expected in zip(run(td.asarray(x), *factors), want, strict=False):
            np.testing.assert_allclose(np.asarray(got), expected, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("group", [32, 5])
def test_derivatives_are_finite_differences(group: int) -> None:
    q = td.quant.quantize(random((3, 64)).astype(np.float64), "int4", group=group)
    x = td.asarray(random((2, 64), 1).astype(np.float64))

    def loss(scale: td.Array, zero: td.Array) -> td.Array:
        made = td.quant.from_parts(q.codes, scale, zero, group=group)
        return td.sum(td.sin(product(x, made)))

    parts = [q.scale, q.zero_point]
    gradients = td.jit(td.grad(loss, argnums=(0, 1)))(*parts)
    for which, gradient in enumerate(gradients):
        for at in (0, 1, gradient.size - 1):
            ends = []
            for step in (1e-6, -1e-6):
                moved = np.array(parts[which])
                moved[at] += step
                ends.append(float(loss(*parts[:which], td.asarray(moved), *parts[which + 1 :])))
            want = (ends[0] - ends[1]) / 2e-6
            assert abs(float(gradient[at]) - want) <= 1e-4 * max(1, abs(want))


def test_rounding_to_8_bits_is_no_change_to_derivatives() -> None:
    for group in (64, 7):
        q, _ = weight((6, 128), group, "int4", {})
        x = td.asarray(random((3, 128), 1))

        def loss(x: td.Array, q: td.quant.GroupQuantized, run: Callable[..., Any]) -> td.Array:
            return td.sum(run(x, q))

        for jitted in (False, True):
            exact, found = (
                td.grad(lambda x, run=run: loss(x, q, run))  # noqa: B023
                for run in (product, rounded)
            )
            if jitted:
                exact, found = td.jit(exact), td.jit(found)
            np.testing.assert_allclose(
                np.asarray(found(x)), np.asarray(exact(x)), rtol=1e-5, atol=1e-6
            )


def test_wrong_operands_of_the_op() -> None:
    q, _ = weight((6, 48), 7, "int4", {})
    with pytest.raises(td.errors.ShapeError, match="needs rows of whole groups"):
        matmul(td.ones((1, 48)), *q.parts, transposed=True, scheme="int4", group=7)
    natural, _ = weight((6, 64), 32, "int4", {})
    with pytest.raises(td.errors.DtypeError, match="int9"):
        matmul(
            td.ones((1, 64)), *natural.parts, transposed=True, scheme="int4", group=32,
            activations="int9",
        )  # fmt: skip


# -- machines --------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", LEVELS.values(), ids=lambda target: target.name)
@pytest.mark.parametrize("activations", ["", "int8"])
def test_products_compile_for_every_machine(activations: str, target: Target) -> None:
    """Also for those that cannot run here; with AVX-512 a table of sixteen is one instruction."""
    for name, group in (("int4", 128), ("nf4", 64)):
        q, _ = weight((16, 256), group, name, {})

        def run(x: td.Array, *parts: td.Array, name: str = name, group: int = group) -> td.Array:
            settings = {"scheme": name, "group": group, "activations": activations}
            return matmul(x, *parts, transposed=True, **settings)  # type: ignore[no-any-return]

        specs = [td.Spec(part.shape, part.dtype) for part in q.parts]
        graph = td.trace(run)(td.Spec((td.Dim("rows", max=64), 256), f32), *specs)
        schedule = lower_graph(graph, Lowerer(target.machine))
        programs = {f"k{i}": program for i, program in enumerate(programs_of(schedule))}
        text = assembly(emit_module(programs, target), target)
        if target.vector_bits == 512 and not activations:
            assert "vpermps" in text or "vpermd" in text
        if target.machine.dots_mixed_bytes and activations and "x86" in target.name:
            assert "vpdpbusd" in text


def test_bits_do_not_depend_on_threads() -> None:
    for run in (product, rounded):
        q, _ = weight((70, 256), 64, "int4", {})
        arrays = [td.asarray(random((19, 256), 4)), *q.parts]

        def call(x: td.Array, *parts: td.Array, run: Callable[..., Any] = run) -> td.Array:
            return run(x, td.quant.from_parts(*parts, group=64))  # type: ignore[no-any-return]

        compiled = compile_graph(td.trace(call)(*[td.Spec(a.shape, a.dtype) for a in arrays]))
        views = [np.asarray(a.memory) for a in arrays]
        first = run_compiled(compiled, views)[0]
        for threads in (2, 3):
            same(run_compiled(compiled, views, threads=threads, poison=0)[0], first)
