"""Sums over all rows that join the kernel of a rows group: the bits of sums that do not, and when
they may."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.compiled import evaluate_lowered
from tetrad.compiler.pipeline import optimise
from tetrad.graph.group import inputs_of
from tetrad.passes.fuse import fuse
from tetrad.passes.questions import SUMMED_ROWS

ROWS = SUMMED_ROWS + 37  # the last chunk is short


def backward(x: Any, w: Any, ct: Any) -> Any:
    y, pullback = td.vjp(lambda x, w, b: td.nn.layer_norm(x, w, b), x, w, w)
    return y, *pullback(ct)


def kinds(function: Any, *shapes: Any) -> list[str]:
    graph = optimise(td.trace(function)(*map(td.Spec, shapes)))
    return [group.kind for group in fuse(graph)]


@pytest.mark.parametrize("columns", [64, 131])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_gradients_of_weights_have_the_bits_of_sums_alone(columns: int, dtype: Any) -> None:
    rng = np.random.default_rng(1)
    x, ct = (rng.standard_normal((ROWS, columns)).astype(dtype) for _ in range(2))
    w = rng.standard_normal(columns).astype(dtype)
    _, _, _, bias = td.jit(backward)(x, w, ct)
    np.testing.assert_array_equal(bias, td.jit(lambda ct: td.sum(ct, axis=0))(ct))


def test_one_kernel_reads_what_it_sums_once() -> None:
    assert kinds(backward, (ROWS, 64), (64,), (ROWS, 64)) == ["rows"]
    assert kinds(backward, (ROWS // 8, 8, 64), (64,), (ROWS // 8, 8, 64)) == ["rows"]


def test_machine_code_is_the_evaluator_to_the_bit() -> None:
    rng = np.random.default_rng(2)
    x, ct = (rng.standard_normal((ROWS, 70)).astype(np.float32) for _ in range(2))
    w = rng.standard_normal(70).astype(np.float32)
    graph = td.trace(backward)(*(td.Spec(a.shape) for a in (x, w, ct)))
    for got, want in zip(
        td.jit(backward)(x, w, ct), evaluate_lowered(graph, [x, w, ct]), strict=True
    ):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("reduce", [td.max, td.min, td.prod, td.sum])
def test_any_reduction_joins(reduce: Any) -> None:
    x = np.random.default_rng(3).uniform(0.9, 1.1, (ROWS, 64)).astype(np.float32)
    function = lambda x: (td.sum(x, axis=1), reduce(x, axis=0))  # noqa: E731
    assert kinds(function, x.shape) == ["rows"]
    alone = td.jit(lambda x: reduce(x, axis=0))(x)
    np.testing.assert_array_equal(td.jit(function)(x)[1], alone)


def test_few_rows_short_rows_and_other_axes_stay_apart() -> None:
    both = lambda x: (td.sum(x, axis=1), td.sum(x, axis=0))  # noqa: E731
    assert kinds(both, (256, 64)) == ["rows", "columns"]
    assert kinds(both, (ROWS, 8)) == ["rows", "columns"]
    first = lambda x: (td.sum(x, axis=2), td.sum(x, axis=0))  # noqa: E731
    assert kinds(first, (ROWS, 4, 64)) == ["rows", "columns"]


def test_a_row_that_needs_the_sum_waits_for_it() -> None:
    """Columns are known when all rows have passed: what reads them is another kernel."""
    centred = lambda x: td.sum(x - td.sum(x, axis=0), axis=1)  # noqa: E731
    assert "columns" in kinds(centred, (ROWS, 64))
    x = np.random.default_rng(4).standard_normal((ROWS, 64)).astype(np.float32)

    def mixed(x: Any) -> Any:
        total = td.sum(x, axis=1, keepdims=True)
        return td.sum((x - td.sum(x, axis=0)) * total, axis=1)

    want = ((x - x.sum(0)) * x.sum(1, keepdims=True)).sum(1)
    np.testing.assert_allclose(td.jit(mixed)(x), want, rtol=1e-4, atol=1e-2)


def test_the_sum_of_an_intermediate_that_others_read() -> None:
    """It is written for them, and summed on the way."""

    def function(x: Any, w: Any) -> Any:
        y = td.nn.softmax(x)
        return td.sum(y, axis=0), y @ w

    x = np.random.default_rng(5).standard_normal((ROWS, 64)).astype(np.float32)
    total, product = td.jit(function)(x, np.ones((64, 3), np.float32))
    np.testing.assert_allclose(total, np.asarray(td.nn.softmax(x)).sum(0), rtol=1e-5)
    np.testing.assert_allclose(product, 1, rtol=1e-5)


def test_reductions_that_read_one_array_are_one_kernel() -> None:
    """Whatever each does with its elements, in any order."""

    def function(x: Any, y: Any) -> Any:
        return td.sum(td.square(x), axis=1), td.sum(x * y, axis=1), td.max(x, axis=1)

    assert kinds(function, (100, 64), (100, 64)) == ["rows"]
    x, y = np.random.default_rng(6).standard_normal((2, 100, 64)).astype(np.float32)
    for got, want in zip(td.jit(function)(x, y), function(x, y), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_a_reduction_that_waits_for_another_kernel_stays_apart() -> None:
    """It reads the same array, and a product that needs the first reduction."""

    def function(x: Any, w: Any) -> Any:
        scaled = x * td.sum(x, axis=1, keepdims=True)
        return td.sum(x * (scaled @ w), axis=1)

    x = np.random.default_rng(7).standard_normal((64, 64)).astype(np.float32)
    got = td.jit(function)(x, np.eye(64, dtype=np.float32))
    np.testing.assert_allclose(got, (x * x).sum(1) * x.sum(1), rtol=1e-3, atol=1e-3)


def test_what_another_kernel_regroups_is_stored() -> None:
    """A value of rows that is cheap to compute again, but read in another shape."""

    def function(x: Any, y: Any) -> Any:
        apart = x - td.mean(x, axis=1, keepdims=True)
        return td.reshape(apart, (2, 2, 4)) * td.sum(y, axis=2, keepdims=True)

    rng = np.random.default_rng(8)
    x, y = rng.standard_normal((2, 8)), rng.standard_normal((2, 2, 4))
    want = (x - x.mean(1, keepdims=True)).reshape(2, 2, 4) * y.sum(2, keepdims=True)
    np.testing.assert_allclose(td.jit(function)(x, y), want)
    graph = optimise(td.trace(function)(td.Spec((2, 8)), td.Spec((2, 2, 4))))
    groups = fuse(graph)
    written = {output for group in groups for output in group.outputs}
    assert all(i in written or i.op.leaf for g in groups for i in inputs_of(g, written))
