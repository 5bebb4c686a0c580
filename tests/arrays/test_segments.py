"""arrays.segments: rows folded by segment, against sums by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.core.errors import DtypeError, ShapeError, TraceError

WAYS = pytest.mark.parametrize("way", [lambda f: f, td.jit], ids=["eager", "compiled"])
FOLDS = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


@WAYS
@pytest.mark.parametrize("name", FOLDS)
@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8"])
def test_rows_are_folded_by_segment(way: Any, name: str, dtype: str) -> None:
    x = np.array([[3, 1], [2, 5], [4, 4], [1, 2]], dtype)
    ids = np.array([2, 0, 2, 2])
    fold = way(lambda x, ids: getattr(td, f"segment_{name}")(x, ids, 4))
    got = np.asarray(fold(x, ids))
    assert got.dtype == x.dtype and got[0].tolist() == [2, 5]
    assert got[2].tolist() == FOLDS[name].reduce(x[[0, 2, 3]], dtype=x.dtype).tolist()
    empty = {"sum": 0, "prod": 1, "max": least(dtype)[0], "min": least(dtype)[1]}[name]
    assert (got[[1, 3]] == empty).all()


def least(dtype: str) -> tuple[float, float]:
    if dtype == "float32":
        return -np.inf, np.inf
    return np.iinfo(dtype).min, np.iinfo(dtype).max


@WAYS
def test_numbers_that_name_no_segment_leave_rows_out(way: Any) -> None:
    fold = way(lambda x, ids: td.segment_sum(x, ids, 2))
    assert fold(np.arange(1.0, 6.0), np.array([0, 2, -1, 1, 0])).tolist() == [6, 4]


def test_segments_are_counted_outside_programs() -> None:
    assert td.segment_sum(np.ones(3), np.array([0, 4, 0])).tolist() == [2, 0, 0, 0, 1]
    assert td.segment_sum(np.ones(0), np.array([], np.int32)).shape == (0,)
    with pytest.raises(TraceError, match="segment_max: how many segments"):
        td.jit(lambda x, i: td.segment_max(x, i))(np.ones(3), np.array([0, 4, 0]))


def test_errors() -> None:
    with pytest.raises(DtypeError, match="segment_sum: segments are numbered by integers"):
        td.segment_sum(np.ones(2), np.ones(2))
    with pytest.raises(ShapeError, match="segment_min: needs a number for each row"):
        td.segment_min(np.ones(2), np.array([0]))


@WAYS
def test_bools_are_folded(way: Any) -> None:
    x, ids = np.array([True, False, True]), np.array([0, 0, 2])
    for name, want in {
        "sum": [1, 0, 1],
        "prod": [0, 1, 1],
        "max": [1, 0, 1],
        "min": [0, 1, 1],
    }.items():
        fold = way(lambda x, ids, name=name: getattr(td, f"segment_{name}")(x, ids, 3))
        assert fold(x, ids).tolist() == [bool(v) for v in want]


@WAYS
def test_rows_may_have_several_leading_axes(way: Any) -> None:
    x, ids = np.arange(12.0).reshape(2, 2, 3), np.array([[0, 1], [1, -1]])
    fold = way(lambda x, ids: td.segment_sum(x, ids, 2))
    assert fold(x, ids).tolist() == [[0, 1, 2], [9, 11, 13]]


def test_derivatives() -> None:
    by = td.jit(td.grad(lambda x, i: td.sum(td.segment_max(x, i, 2) * np.array([2.0, 3.0]))))
    assert by(np.array([1.0, 4.0, 5.0]), np.array([0, 0, 1])).tolist() == [0, 2, 3]
