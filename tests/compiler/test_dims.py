"""Dims: one program for every size. A new size fills a new table and compiles nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tetrad as td
from tests.compiled import difference, run, run_on_evaluator
from tests.graph.graphs import arg
from tests.oracle import too_far
from tetrad.backends.cpu.compile import KERNELS
from tetrad.compiler.driver import compile_graph
from tetrad.core.dtypes import f32, i32
from tetrad.core.errors import ShapeError
from tetrad.core.sizes import Dim, Size, bind
from tetrad.graph.build import make_constant, make_graph
from tetrad.graph.evaluate import evaluate
from tetrad.graph.nodes import Graph, Node
from tetrad.kernel.verify import verify
from tetrad.ops.arg_extremes.op import argmax
from tetrad.ops.arithmetic import add, multiply, square, subtract
from tetrad.ops.cases import random_array
from tetrad.ops.matmul.op import matmul
from tetrad.ops.movement import concat, expand, pad, reshape, slice_, transpose
from tetrad.ops.quotients import divide
from tetrad.ops.reduce import reduce_max, reduce_sum
from tetrad.ops.running.op import cumsum
from tetrad.ops.scatter.op import scatter_add
from tetrad.ops.transcendental import exp
from tetrad.schedule.nodes import programs_of

MOST = 70
SIZES = (1, 2, 15, 16, 17, 33, 64, 65, MOST, 0)
n = Dim("n", max=MOST)
long = Dim("long", max=10000)


def elementwise() -> Graph:
    x, y = arg(0, f32, n, 3), arg(1, f32, 3)
    return make_graph("elementwise", [x, y], [add(multiply(x, x), expand(y, shape=(n, 3)))])


def rows() -> Graph:
    x = arg(0, f32, 3, n)
    top = expand(reshape(reduce_max(x, axes=(1,)), shape=(3, 1)), shape=(3, n))
    powers = exp(subtract(x, top))
    total = expand(reshape(reduce_sum(powers, axes=(1,)), shape=(3, 1)), shape=(3, n))
    return make_graph("rows", [x], [divide(powers, total), reduce_max(x, axes=(1,))])


def columns() -> Graph:
    x = arg(0, f32, n, 5)
    return make_graph(
        "columns", [x], [reduce_max(x, axes=(0,)), reduce_sum(square(x), axes=(0, 1))]
    )


def products() -> Graph:
    x, w = arg(0, f32, n, 9), arg(1, f32, 9, 18)
    weights = make_constant(np.arange(36, dtype=np.float32).reshape(18, 2))
    return make_graph(
        "products", [x, w], [matmul(matmul(x, w), weights), matmul(transpose(x, perm=(1, 0)), x)]
    )


def moved() -> Graph:
    x = arg(0, f32, n, 4)
    turned = transpose(x, perm=(1, 0))
    longer = concat(x, pad(x, low=(1, 0), high=(0, 0), value=2.0), axis=0)
    back = slice_(x, starts=(n - 1, 0), sizes=(n, 4), steps=(-1, 1))
    return make_graph("moved", [x], [turned, longer, back, reshape(turned, shape=(2 * n, 2))])


def walked() -> Graph:
    x, i = arg(0, f32, n, 2), arg(1, i32, n)
    return make_graph(
        "walked", [x, i], [cumsum(x, axis=0, exclusive=False), scatter_add(x, i, size=1)]
    )


GRAPHS: list[Callable[[], Graph]] = [elementwise, rows, columns, products, moved, walked]


def arguments(graph: Graph, dims: dict[str, int]) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    made = []
    for node in graph.inputs:
        shape = tuple(bind(size, dims) for size in node.type.shape)
        ints = node.type.dtype is i32
        made.append(
            np.zeros(shape, np.int32)
            if ints
            else random_array(rng, node.type.dtype, shape, special=0.0)
        )
    return made


@pytest.mark.parametrize("make", GRAPHS, ids=lambda f: f.__name__)
def test_every_size_from_one_program(make: Callable[[], Graph]) -> None:
    graph = make()
    compiled = compile_graph(graph)
    for program in programs_of(compiled.schedule):
        verify(program)
    before = KERNELS.compiled
    for size in SIZES:
        dims = {"n": size}
        arrays = arguments(graph, dims)
        want = run_on_evaluator(compiled, arrays, dims)
        for threads in (1, 2):
            for got, wanted in zip(run(compiled, arrays, dims, threads), want, strict=True):
                assert difference(got, wanted) is None, (size, threads)
        for got, meant in zip(want, evaluate(graph, arrays), strict=True):
            assert too_far(got, meant, 0) is None or np.allclose(
                got, meant, rtol=1e-5, atol=1e-4
            ), size
    assert KERNELS.compiled == before


@pytest.mark.parametrize("make", [elementwise, rows, columns, products], ids=lambda f: f.__name__)
def test_a_size_that_is_a_dim_gives_the_bits_of_one_that_is_not(make: Callable[[], Graph]) -> None:
    graph = make()
    for size in (1, 17, 65):
        arrays = arguments(graph, {"n": size})
        fixed = compile_graph(bound(graph, {"n": size}))
        for a, b in zip(
            run(compile_graph(graph), arrays, {"n": size}), run(fixed, arrays), strict=True
        ):
            assert difference(a, b) is None, size


def bound(graph: Graph, dims: dict[str, int]) -> Graph:
    """The same ops on inputs of known sizes."""
    made: dict[Node, Node] = {}
    for i, node in enumerate(graph.inputs):
        made[node] = arg(i, node.type.dtype, *(bind(size, dims) for size in node.type.shape))
    for node in graph.nodes():
        if node in made or not node.inputs:
            made.setdefault(node, node)
            continue
        params = {name: fixed(value, dims) for name, value in node.params}
        made[node] = node.op(*(made[i] for i in node.inputs), **params)
    return make_graph(graph.name, [made[i] for i in graph.inputs], [made[o] for o in graph.outputs])


def fixed(value: object, dims: dict[str, int]) -> object:
    if isinstance(value, tuple):
        return tuple(fixed(part, dims) for part in value)
    return (
        bind(value, dims)
        if not isinstance(value, bool | int | float) and hasattr(value, "terms")
        else value
    )


def test_rows_longer_than_a_chunk() -> None:
    x = arg(0, f32, 2, long)
    graph = make_graph("sums", [x], [reduce_sum(x, axes=(1,)), argmax(x, axis=1)])
    compiled = compile_graph(graph)
    for size in (1, 100, 4095, 4096, 4097, 9999):
        array = arguments(graph, {"long": size})[0]
        got = run(compiled, [array], {"long": size}, threads=2)
        exact = array.astype(np.float64).sum(axis=1)
        assert (
            np.abs(got[0] - exact) <= size * 2.0**-24 * np.abs(array.astype(np.float64)).sum(axis=1)
        ).all()
        np.testing.assert_array_equal(got[1], array.argmax(axis=1))


# -- through jit -----------------------------------------------------------------------------------


def marked(*sizes: Size) -> tuple[dict[int, Size], ...]:
    return tuple({0: size} for size in sizes)


def test_jit_compiles_once_for_all_sizes() -> None:
    f = td.jit(lambda x, y: td.sum(x * y + 1, axis=0), dims=marked(n, n))
    for size in (3, 1, 17, MOST, 5):
        x = np.random.default_rng(size).standard_normal((size, 4)).astype(np.float32)
        np.testing.assert_allclose(np.asarray(f(x, x)), (x * x + 1).sum(axis=0), rtol=1e-5)
    assert f.compiles == 1


def test_sizes_of_one_dim_must_agree() -> None:
    f = td.jit(lambda x, y: x + y, dims=marked(n, n))
    with pytest.raises(ShapeError, match="n"):
        f(np.zeros((3, 2), np.float32), np.zeros((4, 2), np.float32))


def test_a_size_above_the_bound_is_an_error() -> None:
    f = td.jit(lambda x: x + 1, dims=marked(n))
    f(np.zeros((MOST,), np.float32))
    with pytest.raises(ShapeError, match=f"{MOST}"):
        f(np.zeros((MOST + 1,), np.float32))
