"""Arrays, NumPy's names: the same elements in another arrangement, and arrays side by side.

Receives arrays and static settings, returns arrays: compositions of `arrays.manipulation`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tetrad.arrays.creation import asarray
from tetrad.arrays.manipulation import (
    concat,
    expand_dims,
    flip,
    matrix_transpose,
    moveaxis,
    permute_dims,
    reshape,
)
from tetrad.core.errors import ShapeError
from tetrad.core.sizes import Size, product
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import as_array, axes_of, axis_of


def shape(a: Any) -> tuple[Any, ...]:
    """The sizes of the axes of an array, a number or nested lists.

    >>> import tetrad as td
    >>> td.shape([[1, 2, 3]]), td.shape(1.0)
    ((1, 3), ())
    """
    found: tuple[Any, ...] = a.shape if hasattr(a, "shape") else asarray(a).shape
    return tuple(found)


def ndim(a: Any) -> int:
    """How many axes an array, a number or nested lists have."""
    return len(shape(a))


def size(a: Any, axis: int | Sequence[int] | None = None) -> Size:
    """How many elements there are, in all or along axes."""
    sizes = shape(a)
    return product(sizes[i] for i in axes_of("size", axis, len(sizes)))


def copy(a: Any, order: str = "K") -> Array:
    """An array with these values, which nobody else may change.

    >>> import tetrad as td
    >>> td.copy([1, 2])
    Array([1, 2], int32)
    """
    return asarray(a, copy=True)


def ravel(a: Any, order: str = "C") -> Array:
    """The elements along one axis, row by row, or column by column ("F").

    >>> import tetrad as td
    >>> td.ravel(td.asarray([[1, 2], [3, 4]]), order="F")
    Array([1, 3, 2, 4], int32)
    """
    return reshape(a, (-1,), order=order)


def swapaxes(a: Any, axis1: int, axis2: int) -> Array:
    """Two axes in each other's place.

    >>> import tetrad as td
    >>> td.swapaxes(td.zeros((2, 3, 4)), 0, 2).shape
    (4, 3, 2)
    """
    x = as_array(a)
    one, two = (axis_of("swapaxes", axis, x.ndim) for axis in (axis1, axis2))
    order = list(range(x.ndim))
    order[one], order[two] = two, one
    return permute_dims(x, order)


def rollaxis(a: Any, axis: int, start: int = 0) -> Array:
    """An axis moved before the one that is at `start`; `moveaxis` says it plainer."""
    x = as_array(a)
    source = axis_of("rollaxis", axis, x.ndim)
    if not -x.ndim <= start <= x.ndim:
        fail(ShapeError, f"rollaxis: start is from {-x.ndim} to {x.ndim}, got {start}")
    place = start + x.ndim if start < 0 else start
    return moveaxis(x, source, place - 1 if source < place else place)


def flipud(m: Any) -> Array:
    """The order of rows (the first axis) reversed."""
    return flip(_with_axes("flipud", m, 1), 0)


def fliplr(m: Any) -> Array:
    """The order of columns (the second axis) reversed."""
    return flip(_with_axes("fliplr", m, 2), 1)


def _with_axes(name: str, m: Any, least: int) -> Array:
    x = as_array(m)
    if x.ndim < least:
        fail(ShapeError, f"{name}: needs at least {least} axes, got {x.type}")
    return x


def rot90(m: Any, k: int = 1, axes: Sequence[int] = (0, 1)) -> Array:
    """The array turned k times by 90 degrees, from the first of two axes towards the second.

    >>> import tetrad as td
    >>> td.rot90(td.asarray([[1, 2], [3, 4]]))
    Array([[2, 4],
           [1, 3]], int32)
    """
    x = as_array(m)
    one, two = _two_axes(x, axes)
    if k % 4 == 0:
        return x
    if k % 4 == 2:
        return flip(x, (one, two))
    return swapaxes(flip(x, two), one, two) if k % 4 == 1 else flip(swapaxes(x, one, two), two)


def _two_axes(x: Array, axes: Sequence[int]) -> tuple[int, int]:
    found = [axis_of("rot90", axis, x.ndim) for axis in axes]
    if len(found) != 2 or found[0] == found[1]:
        fail(ShapeError, f"rot90: axes are two different ones, got {tuple(axes)}")
    return found[0], found[1]


# -- at least so many axes -------------------------------------------------------------------------


def atleast_1d(*arys: Any) -> Any:
    """Arrays with at least one axis; of several a list.

    >>> import tetrad as td
    >>> td.atleast_1d(3.0)
    Array([3.], float32)
    """
    return _each(arys, lambda x: reshape(x, (1,)) if x.ndim == 0 else x)


def atleast_2d(*arys: Any) -> Any:
    """Arrays with at least two axes, a vector as a row; of several a list."""
    return _each(arys, _two_dimensional)


def atleast_3d(*arys: Any) -> Any:
    """Arrays with at least three axes, a vector along the middle one; of several a list."""
    return _each(arys, _three_dimensional)


def _each(arys: Sequence[Any], function: Any) -> Any:
    found = [function(asarray(x)) for x in arys]
    return found[0] if len(found) == 1 else found


def _two_dimensional(x: Array) -> Array:
    return reshape(x, (1, *((1,) if x.ndim == 0 else x.shape))) if x.ndim < 2 else x


def _three_dimensional(x: Array) -> Array:
    if x.ndim < 2:
        return expand_dims(_two_dimensional(x), 2)
    return expand_dims(x, 2) if x.ndim == 2 else x


# -- side by side ----------------------------------------------------------------------------------


def vstack(tup: Any, dtype: Any = None) -> Array:
    """Arrays above each other: along the first axis, vectors as rows.

    >>> import tetrad as td
    >>> td.vstack([td.asarray([1, 2]), td.asarray([3, 4])])
    Array([[1, 2],
           [3, 4]], int32)
    """
    return concat([atleast_2d(x) for x in _parts("vstack", tup)], axis=0, dtype=dtype)


def hstack(tup: Any, dtype: Any = None) -> Array:
    """Arrays beside each other: along the second axis, vectors along their only one.

    >>> import tetrad as td
    >>> td.hstack([td.asarray([1, 2]), td.asarray([3])])
    Array([1, 2, 3], int32)
    """
    parts = [atleast_1d(x) for x in _parts("hstack", tup)]
    return concat(parts, axis=0 if parts[0].ndim == 1 else 1, dtype=dtype)


def dstack(tup: Any, dtype: Any = None) -> Array:
    """Arrays behind each other: along the third axis."""
    return concat([atleast_3d(x) for x in _parts("dstack", tup)], axis=2, dtype=dtype)


def column_stack(tup: Any) -> Array:
    """Vectors as columns of a matrix, beside matrices.

    >>> import tetrad as td
    >>> td.column_stack([td.asarray([1, 2]), td.asarray([3, 4])])
    Array([[1, 3],
           [2, 4]], int32)
    """
    parts = [asarray(x) for x in _parts("column_stack", tup)]
    columns = [matrix_transpose(atleast_2d(x)) if x.ndim < 2 else x for x in parts]
    return concat(columns, axis=1)


def _parts(name: str, tup: Any) -> list[Any]:
    if np.ndim(tup) == 0 if isinstance(tup, Array | np.ndarray) else not hasattr(tup, "__iter__"):
        fail(ShapeError, f"{name}: expected a list of arrays", f"td.{name}([x, y])")
    return list(tup) or fail(ShapeError, f"{name}: needs at least one array")
