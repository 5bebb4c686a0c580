"""Indexing: x[...] has NumPy's meaning, eager and traced."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tetrad as td
from tests.compiler.engine import jit
from tetrad.core.errors import BoundsError, DtypeError, ShapeError, TraceError, UnsupportedError


def sizes(max_rank: int = 4) -> st.SearchStrategy[tuple[int, ...]]:
    return st.lists(st.integers(0, 4), max_size=max_rank).map(tuple)


@st.composite
def keys(draw: st.DrawFn, shape: tuple[int, ...], arrays: bool) -> tuple[Any, ...]:
    """An index for some of the axes; with `arrays` integer arrays that broadcast with each
    other."""
    count = draw(st.integers(0, len(shape)))
    common = draw(st.lists(st.integers(1, 3), max_size=2))
    from_end = draw(st.booleans()) and not arrays
    axes = shape[len(shape) - count :] if from_end else shape[:count]
    key: list[Any] = [draw(one_index(n, arrays, tuple(common))) for n in axes]
    if from_end:
        key.insert(0, Ellipsis)
    for _ in range(draw(st.integers(0, 2))):
        key.insert(draw(st.integers(0, len(key))), None)
    return tuple(key)


@st.composite
def one_index(draw: st.DrawFn, n: int, arrays: bool, common: tuple[int, ...]) -> Any:
    choices = ["slice", "int", "array"] if arrays else ["slice", "int"]
    what = draw(st.sampled_from(choices if n else ["slice"]))
    if what == "slice":
        return draw(st.slices(n))
    if what == "int":
        return draw(st.integers(-n, n - 1))
    values = draw(
        st.lists(
            st.integers(-n, n - 1), min_size=int(np.prod(common)), max_size=int(np.prod(common))
        )
    )
    return np.array(values, draw(st.sampled_from([np.int32, np.int64]))).reshape(common)


def check(shape: tuple[int, ...], key: tuple[Any, ...]) -> None:
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    want = values[key]
    x = td.asarray(values)
    for got in (x[key], jit(lambda x: x[key])(x)):
        assert got.shape == want.shape
        np.testing.assert_array_equal(got, want)


@given(st.data())
def test_slices_ints_and_new_axes(data: st.DataObject) -> None:
    shape = data.draw(sizes())
    check(shape, data.draw(keys(shape, arrays=False)))


@given(st.data())
def test_integer_arrays(data: st.DataObject) -> None:
    shape = data.draw(sizes())
    check(shape, data.draw(keys(shape, arrays=True)))


@given(st.data())
def test_traced_integer_arrays(data: st.DataObject) -> None:
    shape = (3, 4, 5)
    index = data.draw(one_index(4, True, (2, 3)))
    if not isinstance(index, np.ndarray):
        index = np.array([1, -1])
    values = np.arange(60).reshape(shape)
    got = jit(lambda x, i: (x[:, i], x[0, i, i], x[i % 3, :, 2]))(values, index)
    for one, want in zip(
        got, (values[:, index], values[0, index, index], values[index % 3, :, 2]), strict=True
    ):
        np.testing.assert_array_equal(one, want)


def test_masks_work_outside_jit_only() -> None:
    values = np.arange(6).reshape(2, 3)
    x, mask = td.asarray(values), values % 2 == 0
    np.testing.assert_array_equal(x[mask], values[mask])
    np.testing.assert_array_equal(x[x > 2], values[values > 2])
    np.testing.assert_array_equal(
        x[:, np.array([True, False, True])], values[:, [True, False, True]]
    )
    with pytest.raises(TraceError, match=r"(?s)mask bool\[2,3\] selects.*test_indexing.*td.where"):
        jit(lambda x: x[x > 2])(x)


@pytest.mark.parametrize("key", [3, -4, (0, 9), np.array([0, 3]), (np.array([0]), np.array([-6]))])
def test_out_of_range(key: Any) -> None:
    with pytest.raises(BoundsError, match="out of range"):
        td.zeros((3, 5))[key]


@pytest.mark.parametrize(
    "index", [np.uint32(2**32 - 1), np.uint64(2**63), np.uint64(2**64 - 1)], ids=repr
)
def test_large_unsigned_indices_do_not_count_from_the_end(index: np.integer) -> None:
    """As signed numbers of the same width they would be -1, or the least there is."""
    for take in (lambda x, i: x[i], jit(lambda x, i: x[i])):
        with pytest.raises(IndexError, match="out of range"):
            take(td.zeros((3, 5)), np.array([index]))


def test_a_part_out_of_range_is_refused_when_the_merged_index_is_inside() -> None:
    two = jit(lambda x, i, j: x[i, j])
    x = np.arange(6).reshape(2, 3)
    assert two(x, np.array([1]), np.array([-3])).tolist() == [3]
    with pytest.raises(IndexError):
        two(x, np.array([0]), np.array([5]))


def test_wrong_indices_say_what_is_allowed() -> None:
    with pytest.raises(BoundsError, match="3 indices for"):
        td.zeros((2, 2))[0, 0, 0]
    with pytest.raises(BoundsError, match="one Ellipsis"):
        td.zeros((2, 2))[..., ...]
    with pytest.raises(DtypeError, match="an integer array"):
        td.zeros((2, 2))[td.asarray([0.5])]
    with pytest.raises(BoundsError, match="bad slice"):
        td.zeros(3)[::0]


def test_axes_of_symbolic_size() -> None:
    n = td.Dim("n", max=64)
    f = jit(lambda x: (x[1:], x[:-1], x[:, 0], x[-1], x[1:-1]), dims=({0: n},))
    values = np.arange(10.0).reshape(5, 2)
    want = (values[1:], values[:-1], values[:, 0], values[-1], values[1:-1])
    for a, b in zip(f(values), want, strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(UnsupportedError, match="symbolic size n"):
        jit(lambda x: x[:3], dims=({0: n},))(values)


def test_rows_without_elements_are_not_looked_at_and_no_rows_take_nothing() -> None:
    def far(x: td.Array) -> td.Array:
        return td.take(x, td.asarray([9]), axis=0)

    for call in (far, td.jit(far)):
        assert call(td.zeros((3, 0))).shape == (1, 0)

    def nowhere(x: td.Array) -> td.Array:
        return td.scatter_add(x, td.asarray([0]), 0)

    for call in (nowhere, td.jit(nowhere)):
        with pytest.raises(ShapeError, match=r"there are no rows to add f32\[1\] to"):
            call(td.ones(1))
