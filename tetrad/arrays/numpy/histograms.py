"""Arrays, NumPy's names: how many elements fall where.

Receives arrays and edges, returns counts: searches and additions to places.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tetrad.arrays.creation import asarray, linspace, zeros
from tetrad.arrays.manipulation import flip, reshape
from tetrad.arrays.numpy.common import floats, where
from tetrad.arrays.sorting import searchsorted
from tetrad.arrays.statistics import diff, max, min
from tetrad.arrays.statistics import sum as total
from tetrad.core.dtypes import default_int, i32
from tetrad.core.errors import BoundsError, DtypeError, ShapeError, TraceError
from tetrad.tracing.array import Array, TracedArray, fail
from tetrad.tracing.operands import apply, as_array, convert


def bincount(
    x: Any, weights: Any = None, minlength: int = 0, *, length: int | None = None
) -> Array:
    """How often each of 0, 1, 2, ... comes, or the sum of its weights.

    `length`: of so many numbers, larger ones left out and negative ones counted as 0; a compiled
    function has to say it, since its results have a shape.

    >>> import tetrad as td
    >>> td.bincount(td.asarray([1, 3, 1]))
    Array([0, 2, 0, 1], int32)
    """
    at = asarray(x)
    if at.ndim != 1 or not (at.dtype.is_integer or at.dtype.kind == "b" or at.size == 0):
        fail(DtypeError, f"bincount: expected integers along one axis, got {at.type}")
    if length is None:
        length = _length(at, minlength)
    at = apply("maximum", convert(at, i32) if not at.dtype.is_integer else at, 0)
    counted: Any = 1 if weights is None else as_array(weights)
    if weights is not None and counted.shape != at.shape:
        fail(ShapeError, f"bincount: weights {counted.type} for {at.type}")
    dtype = default_int() if weights is None else counted.dtype
    made: Array = zeros(length, dtype).at[at].add(counted, mode="drop")
    return made


def _length(at: Array, minlength: int) -> int:
    if isinstance(at, TracedArray):
        fail(
            TraceError,
            "bincount: the largest number is only known when the program runs",
            "say how many there are: td.bincount(x, length=n)",
        )
    values = at.elements
    if values.size and values.min() < 0:
        fail(BoundsError, f"bincount: {values.min()} is negative", "length= counts it as 0")
    return int(np.max([minlength, values.max() + 1 if values.size else 0]))


def digitize(x: Any, bins: Any, right: bool = False, *, method: str | None = None) -> Array:
    """The number of the interval between ascending (or descending) edges that each element is in; 0
    is before the first. Intervals have their left edge, or with `right` their right one.

    >>> import tetrad as td
    >>> td.digitize(td.asarray([0.5, 1.0, 7.0]), td.asarray([0.0, 1.0, 2.0]))
    Array([1, 2, 3], int32)
    """
    edges = asarray(bins)
    if edges.ndim != 1:
        fail(ShapeError, f"digitize: edges have one axis, got {edges.type}")
    side = "left" if right else "right"
    up = searchsorted(edges, x, side)
    if edges.shape[0] == 0:
        return up
    down = apply("subtract", edges.shape[0], searchsorted(flip(edges), x, side))
    return where(apply("less_equal", edges[0], edges[-1]), up, down)


def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Array:
    """The edges of so many intervals of equal width over the range of the elements, or over one
    given; edges that are given are those."""
    if isinstance(bins, str):
        return _edges_by_rule(a, bins, range)
    if np.ndim(bins) == 1:
        return asarray(bins)
    (x,) = floats(asarray(a))
    count = int(bins)
    if count < 1:
        fail(ShapeError, f"histogram: the number of intervals is at least 1, got {bins}")
    if range is not None:
        low, high = (convert(v, x.dtype) for v in range)
    elif x.size == 0:
        low, high = convert(0, x.dtype), convert(1, x.dtype)
    else:
        low, high = min(x), max(x)
    is_point = apply("equal", low, high)
    low, high = where(is_point, low - 0.5, low), where(is_point, high + 0.5, high)
    edges: Array = linspace(low, high, count + 1)
    return edges


def _edges_by_rule(a: Any, bins: str, range: Any) -> Array:
    """A rule that finds the number of intervals from the elements: outside of compiled code."""
    x = asarray(a)
    if isinstance(x, TracedArray):
        message = f"histogram: how many intervals bins={bins!r} makes is only known at run time"
        fail(TraceError, message, "name their number, or their edges")
    return asarray(np.histogram_bin_edges(np.asarray(x), bins, range), x.dtype)


def histogram(
    a: Any, bins: Any = 10, range: Any = None, density: bool | None = None, weights: Any = None
) -> tuple[Array, Array]:
    """How many elements are in each interval, and its edges; `density`: so that the integral is 1.
    The last interval has both its edges.

    >>> import tetrad as td
    >>> td.histogram(td.asarray([0.0, 1.0, 1.5, 4.0]), bins=2)
    (Array([3, 1], int32), Array([0., 2., 4.], float32))
    """
    x = reshape(asarray(a), (-1,))
    edges = histogram_bin_edges(x, bins, range, weights)
    w = None if weights is None else reshape(asarray(weights), (-1,))
    counts = _counted([x], [edges], w)
    if density:
        share, _ = floats(counts, edges)
        counts = apply("divide", apply("divide", share, diff(edges)), total(share))
    return counts, edges


def _counted(columns: Sequence[Array], edges: Sequence[Array], weights: Array | None) -> Array:
    """One count for each box of intervals. What is outside along any axis falls into a place that
    is not counted."""
    sizes = [int(e.shape[0]) - 1 for e in edges]
    place: Any = 0
    inside: Any = True
    for x, e, size in zip(columns, edges, sizes, strict=True):
        (value, line) = floats(x, e)
        at = apply("subtract", searchsorted(line, value, "right"), 1)
        at = where(apply("equal", value, line[-1]), size - 1, at)
        is_in = apply("logical_and", apply("greater_equal", at, 0), apply("less", at, size))
        inside = apply("logical_and", inside, is_in)
        place = place * size + at
    count = int(np.prod(sizes))
    place = where(inside, place, count)
    found = bincount(place, weights, length=count + 1)
    return reshape(found[:-1], tuple(sizes))


def histogramdd(
    sample: Any, bins: Any = 10, range: Any = None, density: bool | None = None, weights: Any = None
) -> tuple[Array, list[Array]]:
    """How many points, the rows of a matrix (or given by column), are in each box of intervals, and
    the edges along each axis."""
    columns = (
        list(sample)
        if isinstance(sample, tuple | list)
        else [asarray(sample)[:, i] for i in _numbers(asarray(sample))]
    )
    parts = [asarray(c) for c in columns]
    many = list(bins) if isinstance(bins, tuple | list) else [bins] * len(parts)
    if len(many) != len(parts):
        fail(ShapeError, f"histogramdd: {len(many)} bins for {len(parts)} axes")
    ranges = [None] * len(parts) if range is None else list(range)
    edges = [
        histogram_bin_edges(x, b, r, weights) for x, b, r in zip(parts, many, ranges, strict=True)
    ]
    found = _counted(parts, edges, None if weights is None else asarray(weights))
    counts = convert(found, floats(*edges)[0].dtype) if weights is None else found
    if density:
        counts = apply("divide", counts, total(counts))
        for axis, e in enumerate(edges):
            width = reshape(diff(e), tuple(-1 if i == axis else 1 for i in _numbers_to(len(edges))))
            counts = apply("divide", counts, width)
    return counts, edges


def _numbers(x: Array) -> Any:
    if x.ndim != 2:
        fail(ShapeError, f"histogramdd: points are the rows of a matrix, got {x.type}")
    return _numbers_to(x.shape[1])


def _numbers_to(count: int) -> list[int]:
    return list(np.arange(count).tolist())


def histogram2d(
    x: Any,
    y: Any,
    bins: Any = 10,
    range: Any = None,
    density: bool | None = None,
    weights: Any = None,
) -> tuple[Array, Array, Array]:
    """How many points are in each rectangle of intervals, and the edges along both axes.

    >>> import tetrad as td
    >>> counts, _, _ = td.histogram2d(td.asarray([0.0, 1.0]), td.asarray([0.0, 1.0]), bins=2)
    >>> counts
    Array([[1., 0.],
           [0., 1.]], float32)
    """
    # one line of edges is for both axes
    both = [bins, bins] if not isinstance(bins, tuple | list) or len(bins) != 2 else list(bins)
    counts, edges = histogramdd([asarray(x), asarray(y)], both, range, density, weights)
    return counts, edges[0], edges[1]
