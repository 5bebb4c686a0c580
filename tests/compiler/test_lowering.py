"""Graphs with a known way of being fused and lowered: compiled = evaluator to the bit = reference,
at telling sizes."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tests.compiled import difference, run, run_on_evaluator
from tests.graph.graphs import arg
from tetrad.backends.cpu.executable import Executable
from tetrad.compiler.driver import compile_graph
from tetrad.core.dtypes import (
    DType,
    bf16,
    bool_,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
)
from tetrad.core.sizes import Shape
from tetrad.graph.build import make_constant, make_graph
from tetrad.graph.evaluate import evaluate
from tetrad.graph.nodes import Node
from tetrad.kernel.build import KernelBuilder
from tetrad.kernel.verify import verify
from tetrad.loopnest.index import Sizes, Space
from tetrad.loopnest.reader import index_key
from tetrad.ops.arg_extremes.op import argmax
from tetrad.ops.arithmetic import add, multiply, sqrt, square, subtract
from tetrad.ops.compare import logical_not
from tetrad.ops.convert import cast
from tetrad.ops.gather import gather
from tetrad.ops.matmul.op import matmul
from tetrad.ops.movement import concat, expand, pad, reshape, slice_, transpose
from tetrad.ops.quotients import divide
from tetrad.ops.reduce import reduce_max, reduce_sum
from tetrad.ops.running.op import cumsum
from tetrad.ops.scatter.op import scatter_add
from tetrad.ops.transcendental import exp, tanh
from tetrad.schedule.nodes import programs_of

Spec = tuple[DType, Shape]
Build = Callable[..., Node | Sequence[Node]]
EPS = {f32: 2.0**-23, f64: 2.0**-52, f16: 2.0**-10, bf16: 2.0**-7}


def random(dtype: DType, shape: Shape, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype is bool_:
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.is_float:
        return np.asarray(rng.standard_normal(shape)).astype(dtype.np)
    return np.asarray(rng.integers(-5 if dtype.is_signed else 0, 6, shape)).astype(dtype.np)


def compiled_from(build: Build, specs: Sequence[Spec]) -> Executable:
    inputs = [arg(i, dtype, *shape) for i, (dtype, shape) in enumerate(specs)]
    made = build(*inputs)
    return compile_graph(make_graph("f", inputs, [made] if isinstance(made, Node) else list(made)))


def check(
    build: Build, *specs: Spec, arrays: list[np.ndarray] | None = None, units: float = 0
) -> Executable:
    """`units`: how many eps of 1 + |x| a result may be from the reference; 0 is exact."""
    compiled = compiled_from(build, specs)
    for program in programs_of(compiled.schedule):
        verify(program)
    given = arrays or [random(dtype, shape, i) for i, (dtype, shape) in enumerate(specs)]
    want = run_on_evaluator(compiled, given)
    for threads in (1, 2, 3):
        for a, b in zip(run(compiled, given, threads=threads), want, strict=True):
            assert difference(a, b) is None, f"{threads} threads: {difference(a, b)}"
    for a, b, kind in zip(want, evaluate(compiled.graph, given), compiled.outputs, strict=True):
        if units == 0:
            assert difference(a, b) is None, difference(a, b)
        else:
            near = units * EPS[kind.dtype] * (1 + np.abs(b.astype(np.float64)))
            assert (np.abs(a.astype(np.float64) - b.astype(np.float64)) <= near).all()
    return compiled


def kernels(compiled: Executable) -> list[str]:
    return [program.name for program in programs_of(compiled.schedule)]


# -- rows ------------------------------------------------------------------------------------------


def spread(x: Node, shape: Shape) -> Node:
    """A row value back over its row."""
    return expand(reshape(x, shape=(*shape[:-1], 1)), shape=shape)


def softmax(x: Node) -> Node:
    shape, last = x.type.shape, (x.type.rank - 1,)
    powers = exp(subtract(x, spread(reduce_max(x, axes=last), shape)))
    return divide(powers, spread(reduce_sum(powers, axes=last), shape))


def layer_norm(x: Node) -> tuple[Node, Node]:
    shape, last = x.type.shape, (x.type.rank - 1,)
    ones = (*shape[:-1], 1)

    def number(value: float) -> Node:
        return expand(make_constant(np.asarray(value, x.type.dtype.np)), shape=ones)

    mean = divide(reshape(reduce_sum(x, axes=last), shape=ones), number(shape[-1]))
    centred = subtract(x, expand(mean, shape=shape))
    variance = divide(
        reshape(reduce_sum(square(centred), axes=last), shape=ones), number(shape[-1])
    )
    return divide(centred, expand(sqrt(add(variance, number(1e-5))), shape=shape)), mean


@pytest.mark.parametrize("n", [2, 16, 17, 257, 4097])
def test_softmax_and_norms_are_one_kernel(n: int) -> None:
    assert len(kernels(check(softmax, (f32, (3, n)), units=8))) == 1
    assert len(kernels(check(layer_norm, (f32, (3, n)), units=64))) == 1


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 4096, 4097])
def test_sums_over_rows_and_columns(n: int) -> None:
    check(lambda x: reduce_sum(x, axes=(1,)), (f64, (5, n)), units=n + 1)
    check(lambda x: reduce_sum(x, axes=(0, 1)), (f32, (3, n)), units=3 * n + 1)
    if n < 1000:
        check(lambda x: reduce_sum(x, axes=(0,)), (f32, (n, 37)), units=n + 1)
        check(lambda x: reduce_max(x, axes=(1,)), (f32, (2, n, 3)))
        check(lambda x: reduce_sum(x, axes=(0, 1)), (i8, (n, 2, 3)))


def test_sum_and_maximum_of_one_array_share_a_sweep() -> None:
    made = check(
        lambda x: (reduce_sum(x, axes=(1,)), reduce_max(x, axes=(1,))), (f32, (2, 300)), units=300
    )
    assert len(kernels(made)) == 1


def test_a_reduction_of_a_constant() -> None:
    check(
        lambda x: add(
            x, reduce_sum(expand(make_constant(np.float32(0.5)), shape=(2, 64)), axes=(1,))
        ),
        (f32, (2,)),
    )


# -- transposes ------------------------------------------------------------------------------------

PERMUTED = [
    ((3, 5), (1, 0)), ((16, 64), (1, 0)), ((17, 65), (1, 0)), ((100, 70), (1, 0)), ((2, 3, 4), (2,
    0, 1)),
    ((5, 33, 17), (0, 2, 1)), ((4, 1, 30), (2, 1, 0)), ((2, 3, 20, 19), (0, 2, 1, 3)), ((20, 3, 65),
    (2, 1, 0)),
    ((2, 3, 4, 5), (1, 2, 0, 3)),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "perm"), PERMUTED, ids=str)
def test_transposes(shape: Shape, perm: tuple[int, ...]) -> None:
    for dtype in (f32, i8, f64):
        check(lambda x: transpose(x, perm=perm), (dtype, shape))
    check(lambda x: square(transpose(multiply(x, x), perm=perm)), (f32, shape))


# -- matrix products -------------------------------------------------------------------------------

PRODUCTS = [
    (1, 1, 1),
    (1, 5, 3),
    (6, 16, 16),
    (7, 33, 65),
    (20, 3, 64),
    (3, 1025, 2),
    (5, 0, 4),
    (30, 7, 70),
]


@pytest.mark.parametrize(("m", "k", "n"), PRODUCTS)
def test_matrix_products(m: int, k: int, n: int) -> None:
    units = 2.0 * k + 1
    check(matmul, (f32, (m, k)), (f32, (k, n)), units=units)
    check(
        lambda a, b: matmul(a, transpose(b, perm=(1, 0))), (f32, (m, k)), (f32, (n, k)), units=units
    )
    check(
        lambda a, b: matmul(transpose(a, perm=(1, 0)), b), (f32, (k, m)), (f32, (k, n)), units=units
    )
    weights = make_constant(random(f32, (k, n)))
    check(lambda a: matmul(a, weights), (f32, (m, k)), units=units)


@pytest.mark.parametrize(
    "dtype", [f64, i8, i16, i32, i64, u8, u16, u32, u64, bool_, bf16, f16], ids=str
)
def test_matrix_products_of_other_types(dtype: DType) -> None:
    units = 50 if dtype.is_float else 0
    check(matmul, (dtype, (7, 17)), (dtype, (17, 18)), units=units)
    check(matmul, (dtype, (2, 3, 5, 4)), (dtype, (1, 3, 4, 6)), units=units)


def test_a_layer_is_one_kernel() -> None:
    """Product, bias and activation, with weights that are constants or not."""
    made = check(
        lambda a, b, c: tanh(add(matmul(a, b), expand(c, shape=(5, 33)))),
        (f32, (5, 20)), (f32, (20, 33)), (f32, (33,)), units=60,
    )  # fmt: skip
    assert len(kernels(made)) == 1


# -- movement and the rest -------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(5,), (3, 40), (2, 3, 20), (1,), (4, 17, 3)], ids=str)
def test_running_sums_and_positions(shape: Shape) -> None:
    for axis in range(len(shape)):
        check(lambda x, axis=axis: cumsum(x, axis=axis, exclusive=False), (f32, shape))
        check(lambda x, axis=axis: cumsum(x, axis=axis, exclusive=True), (i32, shape))
        check(lambda x, axis=axis: argmax(x, axis=axis), (f32, shape))


INDICES = np.array([2, 0, -1, 1])


def test_indices() -> None:
    table, wide = random(f32, (3, 20)), random(f32, (20, 3))
    check(lambda x, i: gather(x, i, axis=0), (f32, (3, 20)), (i64, (4,)), arrays=[table, INDICES])
    check(lambda x, i: gather(x, i, axis=1), (f32, (20, 3)), (i64, (4,)), arrays=[wide, INDICES])
    for dtype in (f32, f16, bf16, i8):
        rows = random(dtype, (4, 20))
        check(
            lambda u, i: scatter_add(u, i, size=3),
            (dtype, (4, 20)),
            (i64, (4,)),
            arrays=[rows, INDICES],
        )
        check(
            lambda u, i: scatter_add(u, i, size=3),
            (dtype, (4,)),
            (i64, (4,)),
            arrays=[rows[:, 0].copy(), INDICES],
        )


def test_one_element_of_a_line() -> None:
    """A result without axes that is read from somewhere."""
    where = np.array(-2)
    check(
        lambda x, i: gather(x, i, axis=0), (f32, (7,)), (i64, ()), arrays=[random(f32, (7,)), where]
    )
    check(lambda x: reshape(slice_(x, starts=(3,), sizes=(1,), steps=(1,)), shape=()), (f32, (7,)))


def test_sums_of_halves_round_once() -> None:
    """2048 + 1 is 2048 in f16, eight times over."""
    updates = np.array([2048] + [1] * 8, np.float16)
    made = compiled_from(lambda u, i: scatter_add(u, i, size=1), ((f16, (9,)), (i32, (9,))))
    assert run(made, [updates, np.zeros(9, np.int32)])[0] == 2056


@pytest.mark.parametrize(
    ("given", "goal", "bits"), [(f64, f16, 11), (f64, bf16, 8), (i64, bf16, 8), (i32, bf16, 8)]
)
def test_casts_to_halves_round_once(given: DType, goal: DType, bits: int) -> None:
    """A little above the middle between two halves: through f32 it would be the middle, and go to
    the even one."""
    top = 0 if given.is_float else 30 if given is i32 else 60
    middle = 2.0**top + 2.0 ** (top - bits)
    little = 2.0**-40 if given.is_float else 1
    values = (
        [middle + little, middle - little] if given.is_float else [int(middle) + 1, int(middle) - 1]
    )
    check(lambda x: cast(x, dtype=goal), (given, (2,)), arrays=[np.array(values, given.np)])


def test_movement() -> None:
    check(lambda a, b: concat(a, b, axis=1), (f32, (3, 20)), (f32, (3, 5)))
    check(lambda a, b: square(concat(a, b, axis=0)), (f32, (3, 20)), (f32, (2, 20)))
    check(lambda a: pad(a, low=(1, 2), high=(0, 3), value=1.5), (f32, (3, 20)))
    check(lambda a: slice_(a, starts=(1, 19), sizes=(2, 10), steps=(1, -2)), (f32, (3, 20)))
    check(lambda a: square(reshape(multiply(a, a), shape=(6, 10))), (f32, (3, 20)))
    check(lambda a: square(reshape(transpose(a, perm=(1, 0)), shape=(6, 10))), (f32, (3, 20)))
    heads = (2, 5, 4, 16)
    check(
        lambda a: reshape(transpose(reshape(a, shape=heads), perm=(0, 2, 1, 3)), shape=(8, 5, 16)),
        (f32, (2, 5, 64)),
    )
    check(lambda x, b: add(x, expand(b, shape=(4, 6, 33))), (f32, (4, 6, 33)), (f32, (33,)))
    check(
        lambda x, b: add(x, expand(reshape(b, shape=(6, 1)), shape=(4, 6, 33))),
        (f32, (4, 6, 33)),
        (f32, (6,)),
    )


@pytest.mark.parametrize("dtype", [f16, bf16, i32, i64, u8, u32, i8], ids=str)
def test_arithmetic_in_every_type(dtype: DType) -> None:
    check(lambda a, b: add(multiply(a, b), b), (dtype, (3, 21)), (dtype, (3, 21)))


def test_results_that_other_results_are_made_of() -> None:
    made = check(
        lambda a: (square(a), add(square(a), a), multiply(square(a), add(square(a), a))),
        (f32, (3, 20)),
    )
    assert len(kernels(made)) == 1


def test_a_kernel_does_not_read_back_what_it_writes() -> None:
    """A result read again inside the same kernel, through a node that is none: it is in a
    register."""

    def build(x: Node) -> list[Node]:
        truth = cast(x, dtype=bool_)
        return [square(cast(truth, dtype=i32)), truth, logical_not(truth)]

    check(build, (f32, (31, 3)))


def test_a_shared_value_keeps_its_index_space() -> None:
    """Values are shared by where they stand. An address alone is used again by the next space: the
    key must hold it."""
    k = KernelBuilder("k", 16)
    space = Space(k, Sizes(k), (2, 3), k.global_id())
    held, key = weakref.ref(space), index_key(space.axes()[0])
    del space
    gc.collect()
    assert held() is not None
    del key
