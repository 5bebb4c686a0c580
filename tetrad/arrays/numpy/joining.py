"""Arrays, NumPy's names: arrays put together, taken apart, grown and shrunk.

Receives arrays and places, returns arrays. Places decide shapes, so they are known while tracing.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any, SupportsIndex

import numpy as np

from tetrad.arrays.creation import asarray, zeros
from tetrad.arrays.indexing import getitem, take_axis
from tetrad.arrays.manipulation import broadcast_to, concat, moveaxis, reshape
from tetrad.core.errors import BoundsError, ShapeError, TraceError
from tetrad.core.sizes import product
from tetrad.tracing.array import Array, TracedArray, fail
from tetrad.tracing.operands import as_array, axis_of, check_shape, convert


def append(arr: Any, values: Any, axis: int | None = None) -> Array:
    """An array with values behind it along an axis; without one both are flattened.

    >>> import tetrad as td
    >>> td.append(td.asarray([1, 2]), 3)
    Array([1, 2, 3], int32)
    """
    x, more = asarray(arr), asarray(values)
    if axis is None:
        return concat([reshape(x, (-1,)), reshape(more, (-1,))], axis=0)
    return concat([x, more], axis=axis)


def _known(name: str, obj: Any) -> np.ndarray | slice:
    """Places as NumPy's integers (a mask as those it marks), or a slice."""
    if isinstance(obj, slice):
        return obj
    if isinstance(obj, TracedArray):
        fail(
            TraceError,
            f"{name}: places that are traced give no shape",
            "pass NumPy's integers, or a static argument",
        )
    places = np.asarray(obj)
    places = places if places.size else places.astype(np.int64)
    return np.flatnonzero(places) if places.dtype == bool else places


def delete(
    arr: Any, obj: Any, axis: int | None = None, *, assume_unique_indices: bool = False
) -> Array:
    """An array without the places along an axis; without an axis it is flattened.

    >>> import tetrad as td
    >>> td.delete(td.asarray([1, 2, 3, 4]), [0, -1])
    Array([2, 3], int32)
    """
    x = asarray(arr)
    x, axis = (reshape(x, (-1,)), 0) if axis is None else (x, axis)
    at = axis_of("delete", axis, x.ndim)
    places = _known("delete", obj)
    try:
        kept = np.delete(np.arange(x.shape[at]), places)
    except IndexError as error:
        fail(BoundsError, f"delete: {error}")
    return take_axis(x, as_array(kept), at)


def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Array:
    """An array with values before the places along an axis; without an axis it is flattened.

    >>> import tetrad as td
    >>> td.insert(td.asarray([1, 2, 3]), 1, 9)
    Array([1, 9, 2, 3], int32)
    """
    x = asarray(arr)
    x, axis = (reshape(x, (-1,)), 0) if axis is None else (x, axis)
    at = axis_of("insert", axis, x.ndim)
    new = convert(values, x.dtype) if not hasattr(values, "__len__") else asarray(values, x.dtype)
    given, size = _known("insert", obj), x.shape[at]
    where = np.arange(size)[given] if isinstance(given, slice) else given
    places = _inside(np.atleast_1d(where), size)
    if len(places) == 1:  # NumPy: one place takes all slices of the values
        new = reshape(new, (1,) * (x.ndim - new.ndim) + new.shape)
        new = moveaxis(new, 0, at) if np.ndim(where) == 0 else new
        places = np.repeat(places, new.shape[at])
    count = len(places)
    shape = (*x.shape[:at], count, *x.shape[at + 1 :])
    rows = broadcast_to(new, shape)
    order = np.argsort(np.concatenate([places, np.arange(size)]), kind="stable")
    return take_axis(concat([rows, x], axis=at), as_array(order), at)


def _inside(places: np.ndarray, size: int) -> np.ndarray:
    """Counted from the front; the end is a place too."""
    if places.size and not (-size <= places.min() and places.max() <= size):
        fail(BoundsError, f"insert: places go from {-size} to {size}, got {places.tolist()}")
    return np.where(places < 0, places + size, places).astype(np.int64)


def block(arrays: Any) -> Array:
    """Arrays in nested lists put together: the innermost lists along the last axis, the next along
    the one before it.

    >>> import tetrad as td
    >>> td.block([[td.ones((2, 2)), td.zeros((2, 1))]])
    Array([[1., 1., 0.],
           [1., 1., 0.]], float32)
    """
    depth = _depth(arrays)
    rank = int(np.max([depth, *(x.ndim for x in _leaves(arrays))]))
    return _joined(arrays, depth, rank)


def _depth(arrays: Any) -> int:
    if not isinstance(arrays, list):
        return 0
    depths = {_depth(part) for part in arrays}
    if len(depths) != 1:
        fail(ShapeError, "block: lists are nested equally deep, and none is empty")
    return 1 + depths.pop()


def _leaves(arrays: Any) -> list[Array]:
    if not isinstance(arrays, list):
        return [asarray(arrays)]
    return [leaf for part in arrays for leaf in _leaves(part)]


def _joined(arrays: Any, depth: int, rank: int) -> Array:
    if depth == 0:
        x = asarray(arrays)
        return reshape(x, (1,) * (rank - x.ndim) + x.shape)
    return concat([_joined(part, depth - 1, rank) for part in arrays], axis=-depth)


# -- parts -----------------------------------------------------------------------------------------


def split(ary: Any, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Array]:
    """Equal parts along an axis, so many; or the parts between given places.

    >>> import tetrad as td
    >>> td.split(td.arange(5), [2, 3])
    [Array([0, 1], int32), Array([2], int32), Array([3, 4], int32)]
    """
    ary = as_array(ary)
    at = axis_of("split", axis, ary.ndim)
    size = ary.shape[at]
    if isinstance(indices_or_sections, Array) and indices_or_sections.ndim:
        indices_or_sections = [int(i) for i in indices_or_sections]
    if isinstance(indices_or_sections, SupportsIndex):
        count = index(indices_or_sections)
        if count < 1 or size % count:
            fail(
                ShapeError,
                f"split: axis {at} of {ary.type} has no {count} equal parts",
                "give the places instead",
            )
        places = [i * (size // count) for i in range(1, count)]
    else:
        places = [index(i) for i in indices_or_sections]
    ends = zip([0, *places], [*places, size], strict=True)
    return [getitem(ary, (*(slice(None),) * at, slice(start, stop))) for start, stop in ends]


def array_split(ary: Any, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Array]:
    """Parts along an axis, so many and as equal as can be; or the parts between given places.

    >>> import tetrad as td
    >>> [part.tolist() for part in td.array_split(td.arange(5), 3)]
    [[0, 1], [2, 3], [4]]
    """
    x = asarray(ary)
    at = axis_of("array_split", axis, x.ndim)
    if not isinstance(indices_or_sections, SupportsIndex) or np.ndim(indices_or_sections):
        return split(x, indices_or_sections, axis=at)
    count, size = index(indices_or_sections), x.shape[at]
    if count < 1:
        fail(ShapeError, f"array_split: the number of parts is at least 1, got {count}")
    small, larger = divmod(size, count)
    ends = np.cumsum([small + (i < larger) for i in range(count)])
    return split(x, ends[:-1].tolist(), axis=at)


def vsplit(ary: Any, indices_or_sections: int | Sequence[int]) -> list[Array]:
    """Parts along the first axis, of an array with at least two."""
    return split(_ranked("vsplit", ary, 2), indices_or_sections, axis=0)


def hsplit(ary: Any, indices_or_sections: int | Sequence[int]) -> list[Array]:
    """Parts along the second axis, or the only one of a vector."""
    x = _ranked("hsplit", ary, 1)
    return split(x, indices_or_sections, axis=0 if x.ndim == 1 else 1)


def dsplit(ary: Any, indices_or_sections: int | Sequence[int]) -> list[Array]:
    """Parts along the third axis."""
    return split(_ranked("dsplit", ary, 3), indices_or_sections, axis=2)


def _ranked(name: str, ary: Any, least: int) -> Array:
    x = asarray(ary)
    if x.ndim < least:
        fail(ShapeError, f"{name}: needs at least {least} axes, got {x.type}")
    return x


def resize(a: Any, new_shape: Any) -> Array:
    """The elements in row-major order, as often as it takes, under another shape.

    >>> import tetrad as td
    >>> td.resize(td.asarray([1, 2, 3]), (2, 4))
    Array([[1, 2, 3, 1],
           [2, 3, 1, 2]], int32)
    """
    x = reshape(asarray(a), (-1,))
    shape = check_shape("resize", new_shape)
    count = product(shape)
    if x.size == 0 or count == 0:
        return zeros(shape, x.dtype)
    places = np.arange(count) % x.shape[0]  # type: ignore[arg-type]
    return reshape(take_axis(x, as_array(places), 0), shape)


def trim_zeros(filt: Any, trim: str = "fb") -> Array:
    """A vector without the zeros at its front ("f") and its back ("b"). Outside jit only.

    >>> import tetrad as td
    >>> td.trim_zeros(td.asarray([0, 1, 0, 2, 0]))
    Array([1, 0, 2], int32)
    """
    x = asarray(filt)
    if isinstance(x, TracedArray):
        message = "trim_zeros: how many zeros there are is only known when the program runs"
        fail(TraceError, message, "call it outside jit")
    if x.ndim != 1:
        fail(ShapeError, f"trim_zeros: expected a vector, got {x.type}")
    places = np.flatnonzero(x.elements)
    if not places.size:
        return getitem(x, slice(0, 0))
    sides = trim.lower()
    start = int(places[0]) if "f" in sides else 0
    stop = int(places[-1]) + 1 if "b" in sides else x.shape[0]
    return getitem(x, slice(start, stop))
