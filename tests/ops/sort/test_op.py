"""ops.sort and the functions on it: against NumPy, with NaN, zeros of both signs and equals, in
short and long rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tests.test_conformance as conformance
import tetrad as td
from tests.compiled import difference, run
from tetrad.compiler.driver import compile_graph
from tetrad.core.errors import ShapeError, TraceError
from tetrad.core.op import REGISTRY, Case
from tetrad.ops.cases import random_array
from tetrad.ops.rules import ALL

AWKWARD = np.float32(
    [0.0, -0.0, np.nan, 1.5, -0.0, np.inf, -np.inf, 0.0, -1.5, np.nan, 1.5, 1e-45, -1e-45]
)


def awkward(size: int, dtype: td.DType, seed: int = 0) -> np.ndarray:
    """Many equals, and everything that compares strangely."""
    rng = np.random.default_rng(seed)
    if dtype.is_float:
        some = rng.choice(AWKWARD, size).astype(dtype.np)
        return np.where(rng.random(size) < 0.5, some, random_array(rng, dtype, (size,)))
    return random_array(rng, dtype, (size,), special=0.3)


def brute(x: np.ndarray, descending: bool) -> list[int]:
    """Positions in order, by Python's own stable sort and the rules as they are written."""
    numbers = [
        (0.0, 1) if v != v else (float(v), 0) if x.dtype.kind not in "iub" else (int(v), 0)
        for v in x
    ]
    backwards = sorted(range(len(x) - 1, -1, -1), key=lambda i: numbers[i][::-1])[::-1]
    return backwards if descending else sorted(range(len(x)), key=lambda i: numbers[i][::-1])


def same_places(got: Any, want: np.ndarray) -> None:
    same(got, want.astype(np.int32))


def same(got: Any, want: np.ndarray) -> None:
    assert difference(np.asarray(got), want) is None


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_compiled_and_eager_sorts_are_the_rules_as_written(
    dtype: td.DType, descending: bool
) -> None:
    def both(a: td.Array) -> tuple[td.Array, td.Array]:
        return td.sort(a, descending=descending), td.argsort(a, descending=descending)

    for size in (5, 150):
        x = awkward(size, dtype)
        places = np.array(brute(x, descending))
        for transform in (lambda f: f, td.jit):
            values, found = transform(both)(td.asarray(x))
            same(values, x[places])
            same_places(found, places)


@given(st.lists(st.sampled_from(AWKWARD.tolist()), max_size=40), st.booleans())
@settings(max_examples=100)
def test_eager_order_of_anything(values: list[float], descending: bool) -> None:
    x = np.array(values, np.float32)
    assert np.asarray(td.argsort(x, descending=descending)).tolist() == brute(x, descending)


@pytest.mark.parametrize("size", [0, 1, 2, 9, 17, 33, 64, 128, 129])
def test_rows_of_any_length(size: int) -> None:
    rng = np.random.default_rng(size)
    x = (rng.standard_normal((19, size)) * 50).astype(np.float32)
    same(td.jit(td.sort)(td.asarray(x)), np.sort(x, axis=-1))
    x = x.astype(np.int64)
    same_places(td.jit(td.argsort)(td.asarray(x)), np.argsort(x, axis=-1, kind="stable"))


@pytest.mark.parametrize("shape", [(9, 300), (9, 4500)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_many_rows_of_middle_length(dtype: type, shape: tuple[int, int]) -> None:
    x = np.random.default_rng(8).integers(-50, 50, shape).astype(dtype)
    same(td.jit(td.sort)(td.asarray(x)), np.sort(x))
    same_places(td.jit(td.argsort)(td.asarray(x)), np.argsort(x, kind="stable"))


def test_a_long_row() -> None:
    x = np.random.default_rng(1).standard_normal(200_000).astype(np.float32)
    same(td.jit(td.sort)(td.asarray(x)), np.sort(x))
    same_places(
        td.jit(lambda a: td.argsort(a, descending=True))(td.asarray(x)),
        np.argsort(-x, kind="stable"),
    )


@pytest.mark.parametrize("shape", [(4, 5, 6), (3, 40, 2), (0, 3), (3, 0), (2, 0, 2)])
def test_along_any_axis(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(2).integers(-9, 9, shape).astype(np.int32)
    for axis in range(-len(shape), len(shape)):
        same(td.sort(x, axis=axis), np.sort(x, axis=axis))
        same_places(td.argsort(x, axis=axis), np.argsort(x, axis=axis, kind="stable"))


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("name", ["sort", "argsort"])
def test_any_number_of_threads_gives_the_same(name: str, threads: int) -> None:
    x = np.stack([awkward(90, td.float32, seed) for seed in range(40)])
    graph = conformance.graph_of(REGISTRY[name], Case((x,), {"descending": True}))
    (got,) = run(compile_graph(graph), [x], threads=threads)
    same(got, REGISTRY[name].reference(x, descending=True))


@pytest.mark.parametrize("size", [33, 140])
@pytest.mark.parametrize("name", ["sort", "argsort"])
def test_long_rows_conform(name: str, size: int) -> None:
    for dtype in (td.float32, td.float64):
        x = np.stack([awkward(size, dtype, 3), awkward(size, dtype, 4)])
        conformance.conforms(REGISTRY[name], Case((x,), {"descending": False}))
    conformance.conforms(REGISTRY["topk"], Case((x,), {"k": 20, "largest": True}))


def test_a_size_known_at_the_call() -> None:
    f = td.jit(lambda a: (td.sort(a), td.topk(a, 1)[1]), dims=({0: td.Dim("n", max=1000)},))
    for size in (1, 33, 500):
        x = np.random.default_rng(size).standard_normal(size).astype(np.float32)
        values, places = f(td.asarray(x))
        same(values, np.sort(x))
        same_places(places, np.argsort(-x, kind="stable")[:1])


# -- the greatest few ------------------------------------------------------------------------------


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", [td.float32, td.float16, td.int64], ids=str)
def test_topk_is_the_start_of_the_order(dtype: td.DType, largest: bool) -> None:
    for size, k in ((7, 3), (60, 0), (60, 5), (300, 60)):
        x = np.stack([awkward(size, dtype, seed) for seed in range(3)])
        places = np.array([brute(row, largest)[:k] for row in x], np.int64).reshape(3, k)
        for transform in (lambda f: f, td.jit):
            values, found = transform(lambda a, k=k: td.topk(a, k, largest=largest))(td.asarray(x))
            same(values, np.take_along_axis(x, places, -1))
            same_places(found, places)


def test_few_and_many_of_a_long_row() -> None:
    x = np.random.default_rng(9).integers(0, 1000, (2, 20_000)).astype(np.float32)
    for k in (3, 10, 200):
        values, places = td.jit(lambda a, k=k: td.topk(a, k, largest=False))(td.asarray(x))
        same_places(places, np.argsort(x, kind="stable")[:, :k])
        same(values, np.sort(x)[:, :k])


def test_topk_along_an_axis_and_under_the_other_name() -> None:
    x = np.random.default_rng(5).permutation(60).reshape(5, 4, 3).astype(np.float32)
    values, places = td.topk(x, 2, axis=0)
    same(values, -np.sort(-x, axis=0)[:2])
    same_places(places, np.argsort(-x, axis=0)[:2])
    same(td.top_k(x, 2)[0], -np.sort(-x)[..., :2])


def test_errors_say_what_is_wrong() -> None:
    with pytest.raises(
        ShapeError, match="topk: k = 4 is out of range for the last axis of f32\\[3\\]"
    ):
        td.topk(td.ones(3), 4)
    with pytest.raises(ShapeError, match="sort: an array without axes has no order"):
        td.sort(td.asarray(1.0))
    with pytest.raises(ShapeError, match="argsort: axis 2 is out of range"):
        td.argsort(td.ones((2, 2)), axis=2)


# -- derivatives and batches -----------------------------------------------------------------------


def test_changes_go_where_elements_go() -> None:
    x, t = (
        np.random.default_rng(6).permutation(24).reshape(2, 3, 4).astype(np.float32)
        for _ in range(2)
    )
    _, tangent = td.jvp(
        lambda a: td.sort(a, axis=1, descending=True), (td.asarray(x),), (td.asarray(t),)
    )
    same(tangent, np.take_along_axis(t, np.argsort(-x, axis=1), 1))
    weights = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    slope = td.grad(lambda a: td.sum(td.sort(a) * weights))(td.asarray(x))
    same(slope, np.take_along_axis(weights, np.argsort(np.argsort(x)), -1))
    best = td.jit(td.grad(lambda a: td.sum(td.square(td.topk(a, 2)[0]))))(td.asarray(x))
    same(best, np.where(x >= -np.sort(-x)[..., 1:2], 2 * x, 0))


def test_vmap_sorts_each_row() -> None:
    x = np.random.default_rng(7).integers(0, 5, (3, 4, 40)).astype(np.int32)
    same(td.vmap(td.sort)(td.asarray(x)), np.sort(x))
    same_places(
        td.jit(td.vmap(lambda a: td.argsort(a, axis=0)))(td.asarray(x)),
        np.argsort(x, axis=1, kind="stable"),
    )
    values, _ = td.vmap(lambda a: td.topk(a, 3), in_axes=1)(td.asarray(x))
    same(values, -np.sort(-x)[..., :3].transpose(1, 0, 2))


# -- searching and sets ----------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("size", [0, 1, 2, 7, 8, 100])
def test_searchsorted(size: int, side: str) -> None:
    rng = np.random.default_rng(size)
    line = np.sort(
        np.append(rng.integers(-5, 5, max(size - 1, 0)).astype(np.float32), [np.nan] * min(size, 1))
    )
    wanted = np.append(rng.integers(-6, 7, (3, 5)).astype(np.float32), [np.inf, -np.inf, np.nan])
    want = np.searchsorted(line, wanted, side=side)
    same_places(td.searchsorted(line, wanted, side=side), want)
    same_places(
        td.jit(lambda a, b: td.searchsorted(a, b, side=side))(td.asarray(line), td.asarray(wanted)),
        want,
    )


def test_searchsorted_in_an_order() -> None:
    x = np.int32([5, 1, 3])
    same_places(td.searchsorted(x, np.int32([2, 4]), sorter=np.argsort(x)), np.int64([1, 2]))


def test_different_elements() -> None:
    x = np.float32([[3, 1, np.nan], [3, np.nan, 1]])
    found = td.unique_all(x)
    same(found.values, np.float32([1, 3, np.nan, np.nan]))
    assert np.asarray(found.counts).tolist() == [2, 2, 1, 1]
    assert np.asarray(found.indices).tolist() == [1, 0, 2, 4]
    same(td.take(td.unique_inverse(x).values, td.unique_inverse(x).inverse_indices), x)
    same(td.unique_values(np.int32([2, 1, 2])), np.int32([1, 2]))
    with pytest.raises(TraceError, match="only known when the program runs"):
        td.jit(td.unique_values)(td.ones(3))
