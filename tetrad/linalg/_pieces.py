"""Linear algebra, products and pieces: `cross`, `outer`, `diagonal`, `trace`.

Receives arrays, returns arrays. Nothing is solved or taken apart here.
"""

from __future__ import annotations

from typing import Any

from tetrad.arrays.indexing import reshaped, sliced
from tetrad.arrays.manipulation import (
    broadcast_arrays,
    concat,
    expand_dims,
)
from tetrad.arrays.statistics import sum as total
from tetrad.core.errors import ShapeError
from tetrad.core.sizes import Size
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import apply, as_array, axis_of, common


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Array:
    """The cross product of vectors of three elements along an axis; the others broadcast.

    >>> import tetrad as td
    >>> td.linalg.cross(td.asarray([1, 0, 0]), td.asarray([0, 1, 0]))
    Array([0, 0, 1], int32)
    """
    a, b = broadcast_arrays(*common((x1, x2)))
    along = axis_of("cross", axis, a.ndim)
    if a.shape[along] != 3:
        fail(ShapeError, f"cross: needs three elements along axis {axis}, got {a.type}")
    one, two = ([_element(x, along, i) for i in range(3)] for x in (a, b))
    parts = [
        apply("subtract", apply("multiply", one[i], two[j]), apply("multiply", one[j], two[i]))
        for i, j in ((1, 2), (2, 0), (0, 1))
    ]
    return concat(parts, axis=along)


def _element(x: Array, axis: int, i: int) -> Array:
    """One position along an axis, which keeps size 1."""
    starts = tuple(i if a == axis else 0 for a in range(x.ndim))
    return sliced(
        x, starts, tuple(1 if a == axis else n for a, n in enumerate(x.shape)), (1,) * x.ndim
    )


def diagonal(x: Any, /, *, offset: int = 0) -> Array:
    """The diagonals of matrices; above the main one for a positive offset, below it for a negative
    one.

    >>> import tetrad as td
    >>> td.linalg.diagonal(td.asarray([[1, 2], [3, 4]]))
    Array([1, 4], int32)
    """
    a = as_array(x)
    if a.ndim < 2:
        fail(
            ShapeError, f"diagonal: expected a matrix, or matrices along leading axes, got {a.type}"
        )
    lead, (m, n) = a.shape[:-2], a.shape[-2:]
    count = _diagonal_size(a, m, n, offset)
    flat = reshaped(a, (*lead, m * n))
    first = (offset if offset >= 0 else -offset * n) if count != 0 else 0
    step = (
        n + 1
        if isinstance(n, int)
        else fail(ShapeError, f"diagonal: the columns of {a.type} must be known")
    )
    return sliced(flat, (*(0,) * len(lead), first), (*lead, count), (*(1,) * len(lead), step))


def _diagonal_size(a: Array, m: Size, n: Size, offset: int) -> Size:
    if m == n and offset == 0:
        return m
    if not isinstance(m, int) or not isinstance(n, int):
        fail(ShapeError, f"diagonal: both sizes of the matrices must be known, got {a.type}")
    return max(0, min(m, n - offset) if offset >= 0 else min(m + offset, n))


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Array:
    """The sum of the diagonals of matrices.

    >>> import tetrad as td
    >>> td.linalg.trace(td.asarray([[1, 2], [3, 4]]))
    Array(5, int32)
    """
    return total(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def outer(x1: Any, x2: Any, /) -> Array:
    """The products of all elements of one vector with all of another.

    >>> import tetrad as td
    >>> td.linalg.outer(td.asarray([1, 2]), td.asarray([3, 4]))
    Array([[3, 4],
           [6, 8]], int32)
    """
    a, b = common((x1, x2))
    if a.ndim != 1 or b.ndim != 1:
        fail(ShapeError, f"outer: expected two vectors, got {a.type} and {b.type}")
    return apply("multiply", expand_dims(a, axis=1), expand_dims(b, axis=0))
