"""Arrays, segments: rows folded by the segment that each belongs to.

Receives rows and, for each, the number of its segment; returns one row a segment. Rows may have any
number of leading axes, those of the numbers. A number that names no segment leaves its row out. The
rows of a segment are folded in their order (`ops.scatter.update`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tetrad.arrays.creation import full
from tetrad.arrays.indexing import as_indices
from tetrad.core.dtypes import DType, bool_
from tetrad.core.errors import DtypeError, ShapeError, TraceError
from tetrad.tracing.array import Array, TracedArray, fail
from tetrad.tracing.operands import apply, as_array, scalar


def segment_sum(data: Any, segment_ids: Any, num_segments: int | None = None) -> Array:
    """The sum of the rows of each segment; 0 of none.

    >>> import tetrad as td
    >>> td.segment_sum(td.asarray([1.0, 2.0, 4.0]), td.asarray([0, 2, 0]), 4)
    Array([5., 0., 2., 0.], float32)
    """
    return folded("segment_sum", "add", data, segment_ids, num_segments)


def segment_prod(data: Any, segment_ids: Any, num_segments: int | None = None) -> Array:
    """The product of the rows of each segment; 1 of none."""
    return folded("segment_prod", "multiply", data, segment_ids, num_segments)


def segment_max(data: Any, segment_ids: Any, num_segments: int | None = None) -> Array:
    """The largest of the rows of each segment; of none the least number there is, -inf of floats.

    >>> import tetrad as td
    >>> td.segment_max(td.asarray([1, 7, 4]), td.asarray([0, 1, 0]))
    Array([4, 7], int32)
    """
    return folded("segment_max", "max", data, segment_ids, num_segments)


def segment_min(data: Any, segment_ids: Any, num_segments: int | None = None) -> Array:
    """The smallest of the rows of each segment; of none the largest number there is."""
    return folded("segment_min", "min", data, segment_ids, num_segments)


def folded(
    name: str, how: str, data: Any, segment_ids: Any, count: int | None, mode: str = "drop"
) -> Array:
    """One row a segment, by a method of `x.at[...]`; `mode` says what becomes of other numbers."""
    x, ids = as_array(data), as_array(segment_ids)
    if not ids.dtype.is_integer:
        fail(DtypeError, f"{name}: segments are numbered by integers, got {ids.type}")
    if ids.ndim < 1 or x.shape[: ids.ndim] != ids.shape:
        fail(ShapeError, f"{name}: needs a number for each row of {x.type}, got {ids.type}")
    segments = _count(name, ids) if count is None else count
    start = full((segments, *x.shape[ids.ndim :]), _neutral(how, x.dtype), dtype=x.dtype)
    # an index from the end is none here
    given = as_indices(ids)
    away = scalar(segments, given.dtype)
    inside = apply("where", given >= 0, given, away)
    found: Array = getattr(start.at[inside], how)(x, mode=mode)
    return found


def _count(name: str, ids: Array) -> int:
    if isinstance(ids, TracedArray):
        message = f"{name}: how many segments there are is only known when the program runs"
        fail(TraceError, message, "say num_segments=")
    return int(ids.memory.max(initial=-1)) + 1


def _neutral(how: str, dtype: DType) -> Any:
    if how in ("add", "multiply"):
        return int(how == "multiply")
    if dtype is bool_:
        return how == "min"
    if dtype.is_float:
        return float("-inf" if how == "max" else "inf")
    limits = np.iinfo(dtype.np)
    return int(limits.min if how == "max" else limits.max)
