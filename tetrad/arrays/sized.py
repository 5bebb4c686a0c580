"""Arrays, sizes: where a mask is true and what it selects, as many as the values say or as `size=`
says.

Receives arrays; returns places or elements. Without a size it works outside jit only, where values
are known; with one it works everywhere: the first `size` are given, and `fill_value` behind the
last.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any, NoReturn

import numpy as np

from tetrad.arrays.creation import arange, full
from tetrad.arrays.indexing import take_axis
from tetrad.arrays.manipulation import reshape, stack
from tetrad.arrays.statistics import cumulative_sum, sum
from tetrad.core.dtypes import bool_, default_int
from tetrad.core.errors import ShapeError, TraceError
from tetrad.tracing.array import Array, TracedArray, fail
from tetrad.tracing.operands import apply, as_array, axis_of, convert, run


def checked_size(name: str, size: Any) -> int | None:
    """The number of results that was asked for, if it was."""
    if size is None:
        return None
    try:
        count = index(size)
    except TypeError:
        fail(ShapeError, f"{name}: size must be an int, got {size!r}", "a traced value is no size")
    if count < 0:
        fail(ShapeError, f"{name}: size must be at least 0, got {count}")
    return count


def needs_size(name: str, what: str) -> NoReturn:
    message = f"{name}: {what} is only known when the program runs"
    fail(TraceError, message, f"say how many at most: td.{name}(..., size=n, fill_value=...)")


def true_places(mask: Array, size: int, fill: Any) -> Array:
    """Where a mask with one axis is true: the first `size` places, then `fill`."""
    dtype = default_int()
    out = full((size,), fill, dtype=dtype)
    if not size or mask.type.shape == (0,):
        return out
    behind = cumulative_sum(convert(mask, dtype))
    # places behind the last are out of range, and dropped
    target = apply("where", mask, behind - 1, size)
    filled: Array = out.at[target].set(arange(mask.shape[0], dtype=dtype), mode="drop")
    return filled


def line(x: Any) -> Array:
    """The elements in one row."""
    return reshape(as_array(x), (-1,))


def as_mask(x: Any) -> Array:
    given = as_array(x)
    return given if given.dtype is bool_ else given != 0


# -- places ----------------------------------------------------------------------------------------


def nonzero(x: Any, *, size: int | None = None, fill_value: Any = None) -> tuple[Array, ...]:
    """The indices of elements that are not zero, one array per axis. Under jit give `size`.

    size         how many are given: the first, and `fill_value` (one, or one per axis; 0) behind

    >>> import tetrad as td
    >>> td.nonzero(td.asarray([0, 7, 0, 8]))[0].tolist()
    [1, 3]
    >>> td.jit(lambda x: td.nonzero(x, size=3, fill_value=-1))(td.asarray([0, 7, 0, 8]))
    (Array([ 1,  3, -1], int32),)
    """
    return places_of("nonzero", x, size, fill_value)


def places_of(name: str, x: Any, size: Any, fill: Any) -> tuple[Array, ...]:
    given = as_array(x)
    count = checked_size(name, size)
    if not given.ndim:
        fail(ShapeError, f"{name}: an array without axes has no places", "td.atleast_1d(x)")
    if count is None:
        return _all_places(name, given)
    fills = _fills(name, fill, given.ndim)
    mask = line(as_mask(given))
    flat = true_places(mask, count, 0)
    is_there = arange(count, dtype=flat.dtype) < sum(convert(mask, flat.dtype))
    return tuple(
        apply("where", is_there, place, convert(one, flat.dtype))
        for place, one in zip(_unline(flat, given), fills, strict=True)
    )


def _all_places(name: str, x: Array) -> tuple[Array, ...]:
    if isinstance(x, TracedArray):
        needs_size(name, "how many elements are not zero")
    found = np.nonzero(x.elements)
    return tuple(convert(Array.from_numpy(i.astype(np.int64)), default_int()) for i in found)


def _fills(name: str, fill: Any, axes: int) -> Sequence[Any]:
    fills = fill if isinstance(fill, tuple | list) else (0 if fill is None else fill,) * axes
    if len(fills) != axes:
        fail(ShapeError, f"{name}: fill_value has {len(fills)} entries for {axes} axes")
    return fills


def _unline(flat: Array, x: Array) -> list[Array]:
    """Places in an array from places in its elements, row by row."""
    found: list[Array] = []
    for size in reversed(x.shape[1:]):
        divisor = apply("maximum", size, 1)
        found.insert(0, flat % divisor)
        flat = flat // divisor
    return [flat, *found]


def flatnonzero(a: Any, *, size: int | None = None, fill_value: Any = None) -> Array:
    """Where the elements, in one row, are not zero.

    >>> import tetrad as td
    >>> td.flatnonzero(td.asarray([[0, 7], [8, 0]])).tolist()
    [1, 2]
    """
    return places_of("flatnonzero", line(a), size, fill_value)[0]


def argwhere(a: Any, *, size: int | None = None, fill_value: Any = None) -> Array:
    """The indices of elements that are not zero, a row for each.

    >>> import tetrad as td
    >>> td.argwhere(td.asarray([[0, 7], [8, 0]])).tolist()
    [[0, 1], [1, 0]]
    """
    x = as_array(a)
    if x.ndim:
        return stack(places_of("argwhere", x, size, fill_value), axis=-1)
    rows = places_of("argwhere", line(x), size, fill_value)[0].shape[0]
    return full((rows, 0), 0, dtype=default_int())


def where(
    condition: Any,
    x: Any = None,
    y: Any = None,
    *,
    size: int | None = None,
    fill_value: Any = None,
) -> Any:
    """x where the condition holds, y elsewhere; of a condition alone the places where it holds, as
    `nonzero`.

    >>> import tetrad as td
    >>> td.where(td.asarray([True, False]), 1.0, td.asarray([5.0, 6.0]))
    Array([1., 6.], float32)
    """
    if x is None and y is None:
        return places_of("where", condition, size, fill_value)
    if size is not None or fill_value is not None:
        fail(TraceError, "where: size and fill_value belong to where(condition) alone")
    if x is None or y is None:
        fail(TraceError, "where: expected one argument or three, got two", "td.where(mask, x, y)")
    return apply("where", condition, x, y)


# -- elements --------------------------------------------------------------------------------------


def compress(
    condition: Any,
    a: Any,
    axis: int | None = None,
    out: None = None,
    *,
    size: int | None = None,
    fill_value: Any = 0,
) -> Array:
    """The parts of an array along an axis (None: its elements in one row) where a condition holds.

    >>> import tetrad as td
    >>> td.compress(td.asarray([True, False, True]), td.asarray([5, 6, 7])).tolist()
    [5, 7]
    """
    return selected("compress", condition, a, axis, size, fill_value)


def extract(condition: Any, arr: Any, *, size: int | None = None, fill_value: Any = 0) -> Array:
    """The elements of an array, in one row, where a condition of its shape holds.

    >>> import tetrad as td
    >>> x = td.asarray([[5, 6], [7, 8]])
    >>> td.extract(x > 5, x, size=4).tolist()
    [6, 7, 8, 0]
    """
    return selected("extract", line(as_mask(condition)), arr, None, size, fill_value)


def selected(name: str, condition: Any, a: Any, axis: int | None, size: Any, fill: Any) -> Array:
    x, mask, count = as_array(a), as_mask(condition), checked_size(name, size)
    if mask.ndim != 1:
        fail(ShapeError, f"{name}: the condition has one axis, got {mask.type}")
    x, at = (line(x), 0) if axis is None else (x, axis_of(name, axis, x.ndim))
    length = min(mask.shape[0], x.shape[at])
    if mask.shape[0] > x.shape[at]:
        fail(ShapeError, f"{name}: {mask.type} is longer than the axis of size {x.shape[at]}")
    if count is not None and count > length:
        fail(ShapeError, f"{name}: size is {count}, there are {length} places to choose from")
    if count is None:
        if isinstance(mask, TracedArray):
            needs_size(name, "how many elements are chosen")
        return take_axis(x, as_array(np.flatnonzero(mask.memory)), at)
    return gathered(x, true_places(mask, count, x.shape[at]), at, fill)


def gathered(x: Array, places: Array, axis: int, fill: Any) -> Array:
    """The parts of an array at these places; `fill` where a place is the size of the axis."""
    size = x.shape[axis]
    is_there = places < size
    shape = (*x.shape[:axis], places.shape[0], *x.shape[axis + 1 :])
    if not size:
        return full(shape, fill, dtype=x.dtype)
    at = apply("minimum", places, size - 1)
    flags = reshape(is_there, (-1, *(1 for _ in x.shape[axis + 1 :])))
    return apply("where", flags, take_axis(x, at, axis), convert(fill, x.dtype))


def repeated(x: Array, repeats: Array, axis: int, total: int) -> Array:
    """`repeat` with a number of results that is known: cut, or the last place again."""
    count = x.shape[axis]
    shape = (*x.shape[:axis], total, *x.shape[axis + 1 :])
    if not total or not count:
        return full(shape, 0, dtype=x.dtype)
    dtype = default_int()
    each = run("expand", convert(repeats, dtype), shape=(count,))
    starts = cumulative_sum(each) - each
    marks = full((total,), 0, dtype=dtype).at[starts].add(1, mode="drop")
    return take_axis(x, cumulative_sum(marks) - 1, axis)
