"""Arrays, NumPy's names: whether arrays are equal or close, and what kind of values they hold.

Receives arrays or anything else, returns truth values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tetrad.arrays.creation import asarray
from tetrad.arrays.manipulation import broadcast_arrays, broadcast_shapes
from tetrad.arrays.sorting import isin
from tetrad.arrays.statistics import all as every
from tetrad.core.dtypes import bool_
from tetrad.core.errors import TetradError
from tetrad.tracing.array import Array
from tetrad.tracing.operands import apply, as_floats, convert, dtype_of


def isclose(
    a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Array:
    """Where |a - b| <= atol + rtol |b|; infinities are close to themselves, NaN if `equal_nan`.

    >>> import tetrad as td
    >>> td.isclose(td.asarray([1.0, 2.0]), td.asarray([1.000001, 2.1]))
    Array([ True, False], bool)
    """
    a, b = broadcast_arrays(as_floats(a), as_floats(b))
    near = apply("abs", a - b) <= atol + rtol * apply("abs", b)
    close = apply("where", apply("isfinite", a) & apply("isfinite", b), near, a == b)
    return close | (apply("isnan", a) & apply("isnan", b)) if equal_nan else close


def allclose(
    a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Array:
    """Whether all elements are close, as `isclose` says."""
    return every(isclose(a, b, rtol, atol, equal_nan))


def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Array:
    """Whether two arrays have one shape and equal elements; NaN equals nothing, or NaN if
    `equal_nan`.

    >>> import tetrad as td
    >>> td.array_equal([1, 2], td.asarray([1, 2]))
    Array(True, bool)
    """
    x, y = asarray(a1), asarray(a2)
    return _equal(x, y, equal_nan) if x.shape == y.shape else convert(False, bool_)


def array_equiv(a1: Any, a2: Any) -> Array:
    """Whether two arrays have equal elements once they are broadcast."""
    x, y = asarray(a1), asarray(a2)
    try:
        broadcast_shapes(x.shape, y.shape)
    except TetradError:
        return convert(False, bool_)
    return _equal(x, y, False)


def _equal(x: Array, y: Array, equal_nan: bool) -> Array:
    same = apply("equal", x, y)
    if equal_nan and all(v.dtype.is_float or v.dtype.is_complex for v in (x, y)):
        both = apply("logical_and", apply("isnan", x), apply("isnan", y))
        same = apply("logical_or", same, both)
    return every(same)


def iscomplexobj(x: Any) -> bool:
    """Is the dtype complex, whatever the values?"""
    kind = getattr(x, "dtype", None)
    if kind is not None:
        return dtype_of(kind).is_complex
    return isinstance(x, complex) or (isinstance(x, list | tuple) and asarray(x).dtype.is_complex)


def isrealobj(x: Any) -> bool:
    """Is the dtype not complex, whatever the values?"""
    return not iscomplexobj(x)


def isscalar(element: Any) -> bool:
    """Is it a number without axes? Arrays without axes are, as in JAX.

    >>> import tetrad as td
    >>> td.isscalar(3.0), td.isscalar(td.asarray(3.0)), td.isscalar([3.0])
    (True, True, False)
    """
    if isinstance(element, Array | np.ndarray):
        return element.ndim == 0
    return bool(np.isscalar(element))


def iterable(y: Any) -> bool:
    """Can one go through it with `for`?"""
    if isinstance(y, Array):
        return y.ndim > 0
    return bool(np.iterable(y))


def in1d(ar1: Any, ar2: Any, assume_unique: bool = False, invert: bool = False) -> Array:
    """`isin` of the flattened array.

    >>> import tetrad as td
    >>> td.in1d([[1, 2], [3, 4]], [2, 3])
    Array([False,  True,  True, False], bool)
    """
    return isin(asarray(ar1).ravel(), asarray(ar2), assume_unique, invert)
