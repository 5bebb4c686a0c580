"""Arrays, sets: the different elements of arrays, and what arrays have in common.

Receives arrays; returns elements in order, with their places. Without a size it works outside jit
only; with `size=` it works everywhere: the first `size` are given, and `fill_value` behind the
last.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tetrad.arrays.creation import arange, full
from tetrad.arrays.indexing import take_axis
from tetrad.arrays.manipulation import concat, moveaxis, reshape
from tetrad.arrays.sized import checked_size, gathered, needs_size, true_places
from tetrad.arrays.sorting import argsort, isin, searchsorted
from tetrad.arrays.statistics import any, cumulative_sum, sum
from tetrad.core.dtypes import bool_, default_int
from tetrad.core.errors import ShapeError
from tetrad.core.record import record
from tetrad.tracing.array import Array, TracedArray, fail
from tetrad.tracing.loops import scan
from tetrad.tracing.operands import apply, as_array, axis_of, common, convert, run


class UniqueAll(NamedTuple):
    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCounts(NamedTuple):
    values: Array
    counts: Array


class UniqueInverse(NamedTuple):
    values: Array
    inverse_indices: Array


def unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    size: int | None = None,
    fill_value: Any = None,
    sorted: bool = True,
) -> Any:
    """The different elements in order (along an axis: the different parts); on request where each
    comes first, which one each element is, and how often each comes. Under jit give `size`.

    size         how many are given: the first, and `fill_value` (None: the first of all) behind

    >>> import tetrad as td
    >>> td.unique(td.asarray([3, 1, 3]))
    Array([1, 3], int32)
    >>> td.jit(lambda x: td.unique(x, size=3, fill_value=-1))(td.asarray([3, 1, 3]))
    Array([ 1,  3, -1], int32)
    """
    found = unique_parts("unique", ar, axis, equal_nan, size, fill_value)
    asked = (True, return_index, return_inverse, return_counts)
    given = tuple(part for part, wanted in zip(found, asked, strict=True) if wanted)
    return given if len(given) > 1 else given[0]


def unique_parts(
    name: str, ar: Any, axis: int | None, equal_nan: bool, size: Any, fill: Any
) -> UniqueAll:
    x, count = as_array(ar), checked_size(name, size)
    at = None if axis is None else axis_of(name, axis, x.ndim)
    if count is None:
        return _unique_now(name, x, at, equal_nan)
    line = reshape(x, (-1,)) if at is None else moveaxis(x, at, 0)
    if not line.shape[0]:
        return _none_of(name, line, x, at, count, fill)
    return _unique_of(line, x, at, equal_nan, count, fill)


def _unique_now(name: str, x: Array, axis: int | None, equal_nan: bool) -> UniqueAll:
    """By NumPy, where values are known."""
    if isinstance(x, TracedArray):
        needs_size(name, "how many elements differ")
    settings: Any = {"return_index": True, "return_inverse": True, "return_counts": True}
    found = np.unique(x.elements, axis=axis, equal_nan=equal_nan, **settings)
    values, *told = (Array.from_numpy(np.asarray(a)) for a in found)
    indices, inverse, counts = (convert(a, default_int()) for a in told)
    return UniqueAll(values, indices, _as_whole(inverse, x, axis), counts)


def _as_whole(inverse: Array, x: Array, axis: int | None) -> Array:
    """Which one each element is: in the shape of all elements, or along the axis."""
    return reshape(inverse, x.shape if axis is None else (x.shape[axis],))


def _none_of(
    name: str, line: Array, x: Array, axis: int | None, count: int, fill: Any
) -> UniqueAll:
    if count and fill is None:
        fail(ShapeError, f"{name}: nothing is different in {x.type}", "give fill_value=")
    values = full((count, *line.shape[1:]), 0 if fill is None else fill, dtype=x.dtype)
    zeros = full((count,), 0, dtype=default_int())
    placed = values if axis is None else moveaxis(values, 0, axis)
    return UniqueAll(placed, zeros, _as_whole(zeros[:0], x, axis), zeros)


@record(eq=False)
class Ordered:
    """Parts in order: where each was, and whether it differs from the one before."""

    places: Array
    is_first: Array


def _unique_of(
    line: Array, x: Array, axis: int | None, equal_nan: bool, count: int, fill: Any
) -> UniqueAll:
    size, dtype = line.shape[0], default_int()
    found = ordered(line, equal_nan)
    bounds = true_places(found.is_first, count + 1, size)  # a group ends where the next begins
    starts = bounds[:-1]
    which = cumulative_sum(convert(found.is_first, dtype)) - 1
    inverse = full((size,), 0, dtype=dtype).at[found.places].set(which)
    first = found.places[:1]
    indices = gathered(found.places, starts, 0, first)
    values = gathered(line, indices, 0, 0)
    if fill is not None:
        flags = reshape(starts < size, (count, *(1 for _ in line.shape[1:])))
        values = apply("where", flags, values, convert(fill, x.dtype))
    placed = values if axis is None else moveaxis(values, 0, axis)
    return UniqueAll(placed, indices, _as_whole(inverse, x, axis), bounds[1:] - starts)


def ordered(line: Array, equal_nan: bool) -> Ordered:
    """The parts along the first axis in order, the first element of each before the second."""
    columns = _columns(line)
    places = in_order(columns)
    sorted_columns = take_axis(columns, places, 1)
    before, after = sorted_columns[:, :-1], sorted_columns[:, 1:]
    differs = before != after
    if equal_nan and columns.dtype.is_float:
        differs = differs & ~((before != before) & (after != after))
    first = full((1,), True, dtype=bool_)
    return Ordered(places, concat([first, any(differs, axis=0)]))


def _columns(line: Array) -> Array:
    """What parts are compared by, one row each; complex numbers by real part, then imaginary."""
    rows = reshape(line, (line.shape[0], -1)).T
    if not rows.dtype.is_complex:
        return convert(rows, default_int()) if rows.dtype is bool_ else rows
    shape = (rows.shape[0], 1, rows.shape[1])
    both = [reshape(run(part, rows), shape) for part in ("real", "imag")]
    return reshape(concat(both, axis=1), (-1, rows.shape[1]))


def in_order(columns: Array) -> Array:
    """The places that put parts in order: by the last column first, since sorting is stable."""
    if columns.shape[0] == 1:
        return convert(argsort(columns[0]), default_int())

    def step(places: Array, column: Array) -> tuple[Array, None]:
        order = argsort(take_axis(column, places, 0))
        return take_axis(places, order, 0), None

    first = arange(columns.shape[1], dtype=default_int())
    places: Array = scan(step, first, columns, reverse=True)[0]
    return places


def unique_all(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> UniqueAll:
    """The different elements in order, where each comes first, which one each element is, and how
    often each comes. Every NaN differs from every other."""
    return unique_parts("unique_all", x, None, False, size, fill_value)


def unique_counts(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> UniqueCounts:
    """The different elements in order, and how often each comes.

    >>> import tetrad as td
    >>> td.unique_counts(td.asarray([3, 1, 3])).counts.tolist()
    [1, 2]
    """
    found = unique_parts("unique_counts", x, None, False, size, fill_value)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> UniqueInverse:
    """The different elements in order, and which of them each element is."""
    found = unique_parts("unique_inverse", x, None, False, size, fill_value)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> Array:
    """The different elements, in order.

    >>> import tetrad as td
    >>> td.unique_values(td.asarray([3, 1, 3]))
    Array([1, 3], int32)
    """
    return unique_parts("unique_values", x, None, False, size, fill_value).values


# -- of two arrays ---------------------------------------------------------------------------------


def lines(ar1: Any, ar2: Any) -> tuple[Array, Array]:
    """Both arrays with one dtype and one axis."""
    first, second = (reshape(x, (-1,)) for x in common((ar1, ar2)))
    return first, second


def union1d(ar1: Any, ar2: Any, *, size: int | None = None, fill_value: Any = None) -> Array:
    """The different elements of both arrays, in order.

    >>> import tetrad as td
    >>> td.union1d(td.asarray([3, 1]), td.asarray([2, 3])).tolist()
    [1, 2, 3]
    """
    return unique_parts(
        "union1d", concat(list(lines(ar1, ar2))), None, True, size, fill_value
    ).values


def setdiff1d(
    ar1: Any,
    ar2: Any,
    assume_unique: bool = False,
    *,
    size: int | None = None,
    fill_value: Any = None,
) -> Array:
    """The different elements of the first array that the second has not.

    assume_unique   the first has no element twice: they keep their order

    >>> import tetrad as td
    >>> td.setdiff1d(td.asarray([3, 1, 2]), td.asarray([2])).tolist()
    [1, 3]
    """
    first, second = lines(ar1, ar2)
    kept, is_there = (first, None) if assume_unique else different("setdiff1d", first, size)
    mask = ~isin(kept, second)
    mask = mask if is_there is None else mask & is_there
    return kept_where("setdiff1d", kept, mask, size, 0 if fill_value is None else fill_value)


def setxor1d(
    ar1: Any,
    ar2: Any,
    assume_unique: bool = False,
    *,
    size: int | None = None,
    fill_value: Any = None,
) -> Array:
    """The different elements that one of the arrays has, and not the other, in order.

    >>> import tetrad as td
    >>> td.setxor1d(td.asarray([3, 1]), td.asarray([2, 3])).tolist()
    [1, 2]
    """
    first, second = lines(ar1, ar2)
    kept, is_there = different("setxor1d", concat([first, second]), size)
    mask = isin(kept, first) != isin(kept, second)
    mask = mask if is_there is None else mask & is_there
    return kept_where("setxor1d", kept, mask, size, fill_value)


def intersect1d(
    ar1: Any,
    ar2: Any,
    assume_unique: bool = False,
    return_indices: bool = False,
    *,
    size: int | None = None,
    fill_value: Any = None,
) -> Any:
    """The different elements that both arrays have, in order; on request where each comes first in
    them.

    >>> import tetrad as td
    >>> td.intersect1d(td.asarray([3, 1, 3]), td.asarray([2, 3])).tolist()
    [3]
    """
    first, second = lines(ar1, ar2)
    kept, is_there = different("intersect1d", first, size)
    mask = isin(kept, second)
    mask = mask if is_there is None else mask & is_there
    values = kept_where("intersect1d", kept, mask, size, fill_value)
    if not return_indices:
        return values
    there = None if size is None else arange(values.shape[0], dtype=default_int()) < sum(mask)
    return values, *(first_place(x, values, there) for x in (first, second))


def different(name: str, x: Array, size: Any) -> tuple[Array, Array | None]:
    """The different elements of an array; with a size as many as it has, and which count."""
    if checked_size(name, size) is None:
        if isinstance(x, TracedArray):
            needs_size(name, "how many elements there are")
        return unique_parts(name, x, None, True, None, None).values, None
    count = x.shape[0]
    found = unique_parts(name, x, None, True, count, 0)
    return found.values, found.counts > 0


def kept_where(name: str, x: Array, mask: Array, size: Any, fill: Any) -> Array:
    """The elements where a mask holds; `fill` (None: the first of them) behind."""
    count = checked_size(name, size)
    if count is None:
        if isinstance(mask, TracedArray):
            needs_size(name, "how many elements there are")
        return take_axis(x, as_array(np.flatnonzero(mask.memory)), 0)
    if not x.shape[0]:
        return full((count,), 0 if fill is None else fill, dtype=x.dtype)
    places = true_places(mask, count, x.shape[0])
    if fill is None:
        fill = take_axis(x, true_places(mask, 1, 0), 0)
    return gathered(x, places, 0, fill)


def first_place(x: Array, values: Array, there: Array | None) -> Array:
    """Where each value comes first; the size of the array where there is none."""
    size = x.shape[0]
    if not size:
        return full(values.shape, 0, dtype=default_int())
    order = convert(argsort(x), default_int())
    at = searchsorted(take_axis(x, order, 0), values)
    found = take_axis(order, apply("where", at < size, at, 0), 0)
    return found if there is None else apply("where", there, found, size)
