"""Arrays, NumPy's names: polynomials by their coefficients, the highest power first.

Receives arrays of coefficients, returns them, and values: compositions of products and sums.
"""

from __future__ import annotations

from operator import index
from typing import Any

import numpy as np

from tetrad.arrays.creation import arange, asarray, zeros
from tetrad.arrays.linear import matmul
from tetrad.arrays.manipulation import concat, expand_dims, pad, reshape
from tetrad.arrays.numpy.common import floating_one, floats
from tetrad.arrays.numpy.grids import diag, vander
from tetrad.arrays.numpy.signals import convolve
from tetrad.arrays.statistics import sum as total
from tetrad.core import lazy
from tetrad.core.errors import SettingError, ShapeError
from tetrad.tracing.array import Array, TracedArray, fail
from tetrad.tracing.operands import apply, as_array, common, convert


def _coefficients(name: str, *polynomials: Any) -> list[Array]:
    found = [asarray(p) for p in polynomials]
    found = common([reshape(p, (1,)) if p.ndim == 0 else p for p in found])
    for p in found:
        if p.ndim != 1:
            fail(ShapeError, f"{name}: coefficients are vectors, got {p.type}")
    return found


def polyval(p: Any, x: Any, *, unroll: int = 16) -> Array:
    """The value of a polynomial at x; x may be an array of any shape.

    >>> import tetrad as td
    >>> td.polyval(td.asarray([1.0, 0.0, -2.0]), td.asarray([3.0, 1.0]))
    Array([ 7., -1.], float32)
    """
    (coefficients,) = _coefficients("polyval", p)
    coefficients, at = common((coefficients, asarray(x)))
    found = apply("multiply", at, 0)
    for i in range(coefficients.shape[0]):
        found = apply("add", apply("multiply", found, at), coefficients[i])
    return found


def polyadd(a1: Any, a2: Any) -> Array:
    """The sum of two polynomials.

    >>> import tetrad as td
    >>> td.polyadd(td.asarray([1, 2]), td.asarray([9, 5, 4]))
    Array([9, 6, 6], int32)
    """
    a, b = _same_length("polyadd", a1, a2)
    return apply("add", a, b)


def polysub(a1: Any, a2: Any) -> Array:
    """The difference of two polynomials."""
    a, b = _same_length("polysub", a1, a2)
    return apply("subtract", a, b)


def _same_length(name: str, a1: Any, a2: Any) -> list[Array]:
    parts = _coefficients(name, a1, a2)
    size = max(p.shape[0] for p in parts)
    return [pad(p, (size - p.shape[0], 0)) for p in parts]


def polymul(a1: Any, a2: Any, *, trim_leading_zeros: bool = False) -> Array:
    """The product of two polynomials.

    >>> import tetrad as td
    >>> td.polymul(td.asarray([1, 2]), td.asarray([1, -2]))
    Array([ 1,  0, -4], int32)
    """
    a, b = _coefficients("polymul", a1, a2)
    if trim_leading_zeros:
        a, b = _trimmed("polymul", a), _trimmed("polymul", b)
    return convolve(a if a.shape[0] else zeros(1, a.dtype), b if b.shape[0] else zeros(1, b.dtype))


def polydiv(u: Any, v: Any, *, trim_leading_zeros: bool = False) -> tuple[Array, Array]:
    """The quotient of two polynomials, and the remainder, with as many coefficients as u has (or,
    with `trim_leading_zeros`, without zeros in front, outside of compiled code).

    >>> import tetrad as td
    >>> td.polydiv(td.asarray([1.0, 0.0, -4.0]), td.asarray([1.0, -2.0]))
    (Array([1., 2.], float32), Array([0., 0., 0.], float32))
    """
    rest, by = floats(*_coefficients("polydiv", u, v))
    steps = rest.shape[0] - by.shape[0] + 1
    quotient = []
    for i in range(max(steps, 0)):
        share = apply("divide", rest[i], by[0])
        quotient.append(reshape(share, (1,)))
        taken = pad(apply("multiply", share, by), (i, rest.shape[0] - i - by.shape[0]))
        rest = apply("subtract", rest, taken)
        rest = concat([zeros(i + 1, rest.dtype), rest[i + 1 :]])  # exact zeros
    if trim_leading_zeros:
        rest = _trimmed("polydiv", rest)
    return concat(quotient) if quotient else zeros(1, rest.dtype), rest


def _trimmed(name: str, p: Array) -> Array:
    if isinstance(p, TracedArray):
        fail(ShapeError, f"{name}: how many leading zeros there are is only known at run time")
    places = np.flatnonzero(p.memory)
    return p[int(places[0]) :] if places.size else p[p.shape[0] - 1 :]


def polyder(p: Any, m: int = 1) -> Array:
    """The m-th derivative of a polynomial.

    >>> import tetrad as td
    >>> td.polyder(td.asarray([1, 1, 1]))
    Array([2, 1], int32)
    """
    (found,) = _coefficients("polyder", p)
    if index(m) < 0:
        raise SettingError("polyder: m", "an int of at least 0", m)
    for _ in range(index(m)):
        powers = arange(found.shape[0] - 1, 0, -1)
        found = apply("multiply", found[:-1], convert(powers, found.dtype))
    return found


def polyint(p: Any, m: int = 1, k: Any = None) -> Array:
    """The m-th integral of a polynomial, with the constants k.

    >>> import tetrad as td
    >>> td.polyint(td.asarray([2.0, 1.0]), k=5.0)
    Array([1., 1., 5.], float32)
    """
    (found,) = _coefficients("polyint", floating_one(asarray(p)))
    if index(m) < 0:
        raise SettingError("polyint: m", "an int of at least 0", m)
    constants = reshape(convert(asarray(0.0 if k is None else k), found.dtype), (-1,))
    if constants.shape[0] not in (1, index(m)):
        fail(ShapeError, f"polyint: {m} constants, or one, got {constants.type}")
    for i in range(index(m)):
        powers = convert(arange(found.shape[0], 0, -1), found.dtype)
        constant = constants[i if constants.shape[0] > 1 else 0]
        found = concat([apply("divide", found, powers), reshape(constant, (1,))])
    return found


def poly(seq_of_zeros: Any) -> Array:
    """The polynomial with these zeros, or the characteristic polynomial of a square matrix.

    >>> import tetrad as td
    >>> td.poly(td.asarray([1.0, 2.0]))
    Array([ 1., -3.,  2.], float32)
    """
    x = floating_one(asarray(seq_of_zeros))
    is_real_matrix = x.ndim == 2 and not x.dtype.is_complex
    if x.ndim == 2:
        x = lazy.provided("linear algebra").eigvals(x)
    found = asarray([1.0], x.dtype)
    for i in range(x.shape[0] if x.ndim else 1):
        zero = x[i] if x.ndim else x
        found = concat([found, zeros(1, x.dtype)]) - concat([zeros(1, x.dtype), found * zero])
    return found.real if is_real_matrix else found


def roots(p: Any, *, strip_zeros: bool = True) -> Array:
    """The zeros of a polynomial, which are complex: eigenvalues of its companion matrix. Zeros in
    front of the coefficients are left out, outside of compiled code; `strip_zeros=False` says that
    there are none.

    >>> import tetrad as td
    >>> td.round(td.sort_complex(td.roots(td.asarray([1.0, 0.0, -4.0]))), 3)
    Array([-2.+0.j,  2.+0.j], complex64)
    """
    (c,) = _coefficients("roots", floating_one(asarray(p)))
    extra = 0
    if strip_zeros:
        if isinstance(c, TracedArray):
            fail(
                ShapeError,
                "roots: how many leading zeros there are is only known when the program runs",
                "strip_zeros=False, if the first coefficient is not 0",
            )
        places = np.flatnonzero(c.memory)
        first, last = (int(places[0]), int(places[-1])) if places.size else (0, -1)
        extra = c.shape[0] - 1 - last if places.size else 0
        c = c[first : last + 1]
    kind = c.dtype.complex
    if c.shape[0] < 2:
        return zeros(extra, kind)
    below = diag(expand_ones(c.shape[0] - 2, c), k=-1)
    ratio = expand_dims(apply("divide", apply("negative", c[1:]), c[0]), axis=0)
    companion = concat([ratio, below[1:]], axis=0)
    found: Array = lazy.provided("linear algebra").eigvals(companion)
    return concat([found, zeros(extra, found.dtype)])


def expand_ones(count: int, like: Array) -> Array:
    return convert(asarray(np.ones(count)), like.dtype)


def polyfit(
    x: Any,
    y: Any,
    deg: int,
    rcond: float | None = None,
    full: bool = False,
    w: Any = None,
    cov: Any = False,
) -> Any:
    """The polynomial of a degree that is nearest to points, by least squares; `w`: how much each
    counts. `full`: and residuals, rank, singular values and rcond; `cov`: and the covariances of
    the coefficients (scaled by the residuals, unless "unscaled").

    >>> import tetrad as td
    >>> td.round(td.polyfit(td.arange(4.0), td.asarray([1.0, 3.0, 5.0, 7.0]), 1), 3)
    Array([2., 1.], float32)
    """
    at, values = floats(x, y)
    if at.ndim != 1 or values.ndim not in (1, 2) or values.shape[0] != at.shape[0]:
        fail(ShapeError, f"polyfit: points {at.type} and values {values.type} do not fit")
    size = index(deg) + 1
    share = at.shape[0] * _eps(at) if rcond is None else float(rcond)
    left, right = vander(at, size), values
    if w is not None:
        weights = convert(as_array(w), at.dtype)
        left = apply("multiply", left, weights[:, None])
        right = apply("multiply", right, weights[:, None] if values.ndim == 2 else weights)
    scale = apply("sqrt", total(apply("square", left), axis=0))
    svd = lazy.provided("linear algebra").svd(apply("divide", left, scale), full_matrices=False)
    kept = apply("greater", svd.S, apply("multiply", svd.S[0], share))
    inverse = apply("where", kept, apply("divide", 1.0, apply("where", kept, svd.S, 1.0)), 0.0)
    turned = matmul(svd.U.T, right)
    weighted = inverse[:, None] * turned if values.ndim == 2 else inverse * turned
    solved = matmul(svd.Vh.T, weighted)
    found = apply("divide", solved, scale[:, None] if values.ndim == 2 else scale)
    apart = apply("subtract", right, matmul(left, found))
    residuals = reshape(total(apply("square", apart), axis=0), (-1,))
    if full:
        rank = total(convert(kept, arange(1).dtype))
        return found, residuals, rank, svd.S, share
    if not cov:
        return found
    base = matmul(svd.Vh.T * apply("square", inverse), svd.Vh)
    base = apply("divide", base, apply("multiply", scale[:, None], scale[None, :]))
    if cov == "unscaled":
        return found, base
    return found, _by_residuals(base, residuals, at.shape[0] - size, values.ndim == 1)


def _by_residuals(base: Array, residuals: Array, spare: Any, is_line: bool) -> Array:
    """Covariances scaled by the residuals over how many points there are to spare."""
    if spare <= 0:
        message = f"polyfit: cov takes more than {base.shape[0]} points"
        fail(ShapeError, message, 'cov="unscaled"')
    factor = apply("divide", residuals, float(spare))
    if is_line:
        return apply("multiply", base, factor[0])
    return apply("multiply", base[:, :, None], factor)


def _eps(x: Array) -> float:
    return float(np.finfo(x.dtype.np).eps)
