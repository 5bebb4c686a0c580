"""Arrays, NumPy's names: products of vectors, matrices and more, and what lies on diagonals.

Receives arrays, returns arrays: compositions of `arrays.linear`.
"""

from __future__ import annotations

from typing import Any

from tetrad.arrays.creation import asarray, eye
from tetrad.arrays.indexing import getitem
from tetrad.arrays.linear import check_precision, matmul, tensordot
from tetrad.arrays.manipulation import concat, moveaxis, reshape
from tetrad.core.errors import ShapeError
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import apply, as_array, axis_of, common, convert, dtype_of


def dot(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Array:
    """The sum of products over the last axis of a and the last but one of b (the only one of a
    vector); with a number the plain product.

    >>> import tetrad as td
    >>> td.dot(td.asarray([1.0, 2.0]), td.asarray([3.0, 4.0]))
    Array(11., float32)
    """
    check_precision("dot", precision)
    x, y = common((a, b))
    if x.ndim == 0 or y.ndim == 0:
        return _times(x, y, preferred_element_type)
    if x.ndim <= 2 and y.ndim <= 2:
        return matmul(x, y, preferred_element_type=preferred_element_type)
    axes = ((-1,), (-2 if y.ndim > 1 else -1,))
    return tensordot(x, y, axes=axes, preferred_element_type=preferred_element_type)


def _times(x: Array, y: Array, dtype: Any) -> Array:
    if dtype is not None:
        x, y = (convert(v, dtype_of(dtype)) for v in (x, y))
    return apply("multiply", x, y)


def inner(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Array:
    """The sum of products over the last axes of both; with a number the plain product.

    >>> import tetrad as td
    >>> td.inner(td.ones((2, 3)), td.ones((4, 3))).shape
    (2, 4)
    """
    check_precision("inner", precision)
    x, y = common((a, b))
    if x.ndim == 0 or y.ndim == 0:
        return _times(x, y, preferred_element_type)
    return tensordot(x, y, axes=((-1,), (-1,)), preferred_element_type=preferred_element_type)


def vdot(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Array:
    """The sum of products of all elements, those of a conjugated.

    >>> import tetrad as td
    >>> td.vdot(td.asarray([[1.0, 2.0]]), td.asarray([[3.0], [4.0]]))
    Array(11., float32)
    """
    check_precision("vdot", precision)
    x, y = (reshape(asarray(v), (-1,)) for v in (a, b))
    return matmul(apply("conj", x), y, preferred_element_type=preferred_element_type)


def outer(a: Any, b: Any, out: None = None) -> Array:
    """All products of an element of a and one of b, both flattened.

    >>> import tetrad as td
    >>> td.outer(td.asarray([1, 2]), td.asarray([3, 4]))
    Array([[3, 4],
           [6, 8]], int32)
    """
    x, y = (asarray(v) for v in (a, b))
    return apply("multiply", reshape(x, (-1, 1)), reshape(y, (1, -1)))


def kron(a: Any, b: Any) -> Array:
    """Every element of a times the whole of b.

    >>> import tetrad as td
    >>> td.kron(td.asarray([1, 10]), td.asarray([1, 2]))
    Array([ 1,  2, 10, 20], int32)
    """
    x, y = common((asarray(a), asarray(b)))
    rank = max(x.ndim, y.ndim)
    left, right = ((1,) * (rank - v.ndim) + v.shape for v in (x, y))
    apart = apply(
        "multiply",
        reshape(x, tuple(size for n in left for size in (n, 1))),
        reshape(y, tuple(size for n in right for size in (1, n))),
    )
    return reshape(apart, tuple(m * n for m, n in zip(left, right, strict=True)))


def cross(
    a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Array:
    """The cross product of vectors of three elements; two elements are vectors in a plane, and two
    of those give one number.

    >>> import tetrad as td
    >>> td.cross(td.asarray([1, 0, 0]), td.asarray([0, 1, 0]))
    Array([0, 0, 1], int32)
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = common((asarray(a), asarray(b)))
    one, two = (
        _elements(moveaxis(v, axis_of("cross", at, v.ndim), -1))
        for v, at in ((x, axisa), (y, axisb))
    )
    if len(one) == len(two) == 2:
        return _difference(one[0], two[1], one[1], two[0])
    (p, q, r), (s, t, u) = ((*v, None) if len(v) == 2 else tuple(v) for v in (one, two))
    parts = [_difference(q, u, r, t), _difference(r, s, p, u), _difference(p, t, q, s)]
    whole = concat([reshape(part, (*part.shape, 1)) for part in parts], axis=-1)
    return moveaxis(whole, -1, axis_of("cross", axisc, whole.ndim))


def _elements(x: Array) -> list[Array]:
    if x.shape[-1] not in (2, 3):
        fail(ShapeError, f"cross: vectors have two or three elements, got {x.type}")
    return [getitem(x, (Ellipsis, i)) for i in range(x.shape[-1])]


def _difference(a: Any, b: Any, c: Any, d: Any) -> Array:
    """a b - c d; what is None is zero."""
    first = None if a is None or b is None else apply("multiply", a, b)
    second = None if c is None or d is None else apply("multiply", c, d)
    if first is None:
        return apply("negative", second)
    return first if second is None else apply("subtract", first, second)


def identity(n: Any, dtype: Any = None) -> Array:
    """A square matrix with ones on its diagonal."""
    return eye(n, dtype=dtype)


def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """The diagonals of the matrices that two axes make, as the last axis; above the main one for a
    positive offset.

    >>> import tetrad as td
    >>> td.diagonal(td.asarray([[1, 2], [3, 4]]))
    Array([1, 4], int32)
    """
    x = as_array(a)
    if x.ndim < 2:
        fail(ShapeError, f"diagonal: needs at least two axes, got {x.type}")
    one, two = (axis_of("diagonal", axis, x.ndim) for axis in (axis1, axis2))
    if one == two:
        fail(ShapeError, f"diagonal: axis1 and axis2 are the same axis, {axis1}")
    last = moveaxis(x, (one, two), (-2, -1))
    rows, columns = last.shape[-2:]
    return _on_diagonal(last, rows, columns, offset)


def _on_diagonal(x: Array, rows: int, columns: int, offset: int) -> Array:
    """Elements of the last two axes a row and a column apart: every (columns + 1)-th of them."""
    down, right = max(-offset, 0), max(offset, 0)
    count = max(min(rows - down, columns - right), 0)
    if count == 0:
        return getitem(reshape(x, (*x.shape[:-2], rows * columns)), (Ellipsis, slice(0, 0)))
    flat = reshape(x, (*x.shape[:-2], rows * columns))
    begin = down * columns + right
    stop = begin + (count - 1) * (columns + 1) + 1
    return getitem(flat, (Ellipsis, slice(begin, stop, columns + 1)))


def matvec(x1: Any, x2: Any, /) -> Array:
    """Matrices times vectors; leading axes broadcast.

    >>> import tetrad as td
    >>> td.matvec(td.ones((5, 2, 3)), td.ones(3)).shape
    (5, 2)
    """
    a, b = common((x1, x2))
    if a.ndim < 2 or b.ndim < 1:
        fail(ShapeError, f"matvec: expected matrices and vectors, got {a.type} and {b.type}")
    found = matmul(a, reshape(b, (*b.shape, 1)))
    return reshape(found, found.shape[:-1])


def vecmat(x1: Any, x2: Any, /) -> Array:
    """Conjugated vectors times matrices; leading axes broadcast."""
    a, b = common((x1, x2))
    if a.ndim < 1 or b.ndim < 2:
        fail(ShapeError, f"vecmat: expected vectors and matrices, got {a.type} and {b.type}")
    found = matmul(reshape(apply("conj", a), (*a.shape[:-1], 1, a.shape[-1])), b)
    return reshape(found, (*found.shape[:-2], found.shape[-1]))
