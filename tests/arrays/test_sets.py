"""Different elements and sets: as NumPy where values are known, padded where a size is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.arrays.test_sized import both, told
from tetrad.core.errors import ShapeError

X = td.asarray([5, 3, 5, 1, 3, 3])
F = td.asarray([2.0, float("nan"), -0.0, 0.0, float("nan"), 2.0])
ROWS = td.asarray([[1, 2], [0, 5], [1, 2], [0, 4]])
A, B = td.asarray([5, 3, 5, 1]), td.asarray([3, 9, 1, 3])


def everything(size: int, **settings: Any) -> Any:
    return lambda x: td.unique(x, True, True, True, size=size, **settings)


def test_a_size_cuts_and_fills() -> None:
    inverse = [2, 1, 2, 0, 1, 1]
    assert both(everything(2), X) == [[1, 3], [3, 1], inverse, [1, 3]]
    assert both(everything(3), X) == [[1, 3, 5], [3, 1, 0], inverse, [1, 3, 2]]
    assert both(everything(5), X) == [[1, 3, 5, 1, 1], [3, 1, 0, 3, 3], inverse, [1, 3, 2, 0, 0]]
    filled = [[1, 3, 5, -7, -7], [3, 1, 0, 3, 3], inverse, [1, 3, 2, 0, 0]]
    assert both(everything(5, fill_value=-7), X) == filled
    assert both(lambda x: td.unique(x, size=0), X) == []


def test_parts_along_an_axis() -> None:
    rows = [[[0, 4], [0, 5], [1, 2], [0, 4]], [3, 1, 0, 3], [2, 1, 2, 0], [1, 1, 2, 0]]
    assert both(everything(4, axis=0), ROWS) == rows
    columns = [[[1, 2, 8], [0, 5, 8], [1, 2, 8], [0, 4, 8]], [0, 1, 0], [0, 1], [1, 1, 0]]
    assert both(everything(3, axis=1, fill_value=8), ROWS) == columns
    whole = [[0, 1, 2], [2, 0, 1], [[1, 2], [0, 4], [1, 2], [0, 3]], [2, 2, 2]]
    assert both(everything(3), ROWS) == whole


def test_nan_once_or_each_for_itself() -> None:
    for equal_nan, counts in ((True, [2, 2, 2, 0]), (False, [2, 2, 1, 1])):
        found = td.jit(everything(4, equal_nan=equal_nan))(F)
        assert told(found[3]) == counts
        wanted = np.unique(np.asarray(F), equal_nan=equal_nan)
        np.testing.assert_array_equal(np.asarray(found[0])[: len(wanted)], wanted)


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint8", "int64", "float16", "float64", "complex64"]
)
@pytest.mark.parametrize("count", [1, 2, 31])
def test_every_dtype_and_size(dtype: str, count: int) -> None:
    values = np.random.default_rng(count).integers(-3, 4, (2, count))
    made = (values[0] + 1j * values[1]) if dtype == "complex64" else abs(values[0])
    x = made.astype(dtype)
    wanted = np.unique(x, True, True, True)
    found = td.jit(everything(len(wanted[0])))(td.asarray(x))
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(got), want)
    for got, want in zip(td.unique(td.asarray(x), True, True, True), wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(got), want)


def test_nothing_to_tell_apart() -> None:
    empty = td.zeros((0,))
    assert told(td.unique(empty)) == []
    assert both(lambda x: td.unique(x, size=2, fill_value=1.0), empty) == [1, 1]
    with pytest.raises(ShapeError, match="give fill_value="):
        td.unique(empty, size=2)


def test_the_names_of_the_standard_take_sizes() -> None:
    assert both(lambda x: tuple(td.unique_all(x, size=4)), X)[0] == [1, 3, 5, 1]
    filled = both(lambda x: tuple(td.unique_counts(x, size=4, fill_value=9)), X)
    assert filled == [[1, 3, 5, 9], [1, 3, 2, 0]]
    assert both(lambda x: tuple(td.unique_inverse(x, size=3)), X)[1] == [2, 1, 2, 0, 1, 1]
    assert both(lambda x: td.unique_values(x, size=3), X) == [1, 3, 5]


@pytest.mark.parametrize(
    ("name", "filled", "default"),
    [
        ("union1d", [1, 3, 5, 9, -7], [1, 3, 5, 9, 1]),
        ("intersect1d", [1, 3, -7, -7, -7], [1, 3, 1, 1, 1]),
        ("setdiff1d", [5, -7, -7, -7, -7], [5, 0, 0, 0, 0]),
        ("setxor1d", [5, 9, -7, -7, -7], [5, 9, 5, 5, 5]),
    ],
)
def test_sets(name: str, filled: list[int], default: list[int]) -> None:
    function, reference = getattr(td, name), getattr(np, name)
    assert both(lambda a, b: function(a, b, size=5, fill_value=-7), A, B) == filled
    assert both(lambda a, b: function(a, b, size=5), A, B) == default
    assert both(lambda a, b: function(a, b, size=2, fill_value=-7), A, B) == filled[:2]
    assert told(function(A, B)) == reference(np.asarray(A), np.asarray(B)).tolist()
    none = td.zeros((0,), dtype=td.int32)
    for pair in ((A, none), (none, B), (none, none)):
        wanted = reference(*map(np.asarray, pair)).tolist()
        assert told(function(*pair)) == wanted
        found = both(lambda a, b: function(a, b, size=4, fill_value=-7), *pair)
        assert found == [*wanted, -7, -7, -7, -7][:4]


def test_places_of_what_is_in_both() -> None:
    found = both(lambda a, b: td.intersect1d(a, b, return_indices=True, size=3), A, B)
    assert found == [[1, 3, 1], [3, 1, 4], [2, 0, 4]]
    wanted = np.intersect1d(np.asarray(A), np.asarray(B), return_indices=True)
    got = td.intersect1d(A, B, return_indices=True)
    assert told(got) == [x.tolist() for x in wanted]
    assert told(td.setdiff1d(td.asarray([3, 1, 2]), td.asarray([1]), assume_unique=True)) == [3, 2]


def test_rows_of_a_batch() -> None:
    rows = td.asarray([[1, 1, 2], [3, 2, 1]])
    assert told(td.vmap(lambda r: td.unique(r, size=3))(rows)) == [[1, 2, 1], [1, 2, 3]]
