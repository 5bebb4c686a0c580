"""Special functions, wide: how they are computed.

Receives what users give, calls a function of f64 arrays, returns what it gives in the dtype of the
arguments: f32 and halves are rounded from f64, so their last bit is right nearly always. Here are
the sums that such functions are made of, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tetrad.arrays import functions as td
from tetrad.core.dtypes import f32, f64
from tetrad.core.errors import DtypeError
from tetrad.core.promotion import as_float
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import broadcast, common_dtype, convert

INF, NAN = float("inf"), float("nan")


def floats(name: str, *args: Any) -> list[Array]:
    """The arguments as arrays of one real float dtype and one shape."""
    dtype = common_dtype(args)
    if dtype.is_complex:
        fail(DtypeError, f"{name}: expected real numbers, got {dtype}", "take td.real(x)")
    wanted = as_float(dtype)
    return broadcast(name, [convert(x, wanted) for x in args])


def wide(name: str, function: Callable[..., Array], *args: Any) -> Array:
    """A function of f64 arrays, applied to arguments of any real dtype."""
    given = floats(name, *args)
    return convert(function(*(convert(x, f64) for x in given)), given[0].dtype)


def powers(coefficients: Sequence[float], t: Any) -> Any:
    """The polynomial with these coefficients of 1, t, t^2, ..., by Horner's scheme."""
    total = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        total = total * t + c
    return total


def series(coefficients: Sequence[float], t: Array) -> Array:
    """The sum of Chebyshev polynomials with these coefficients, by Clenshaw's scheme."""
    double, last, now = 2.0 * t, 0.0 * t, coefficients[-1] + 0.0 * t
    for c in reversed(coefficients[1:-1]):
        last, now = now, double * now - last + c
    return t * now - last + coefficients[0]  # type: ignore[no-any-return]


def sin_pi(x: Array) -> Array:
    """sin(pi x), 0 at whole numbers."""
    half = x * 0.5
    r = 2.0 * (half - td.round(half))  # in [-1, 1], exact
    near = td.where(td.abs(r) > 0.5, td.where(r > 0.0, 1.0 - r, -1.0 - r), r)
    return td.sin(np.pi * near)


def is_whole(x: Array) -> Array:
    return td.floor(x) == x  # type: ignore[no-any-return]


def halves(x: Array) -> tuple[Array, Array]:
    """x as a sum of two numbers, the first with so few bits that its square is exact."""
    first = convert(convert(x, f32), f64)
    first = td.where(td.isfinite(first), first, x)
    return first, td.where(td.isfinite(x), x - first, 0.0)


def exp_square(x: Array, sign: float) -> Array:
    """exp(sign x^2), without the error that rounding x^2 would bring."""
    first, rest = halves(td.clip(x, -40.0, 40.0))
    return td.exp(sign * first * first) * td.exp(sign * rest * (x + first))  # type: ignore[no-any-return]


def log1p_less(u: Array) -> Array:
    """log(1 + u) - u: with s = u / (2 + u), -s u + 2 s^3 / 3 + 2 s^5 / 5 + ..."""
    is_near = (u > -0.4) & (u < 0.6)
    v = td.where(is_near, u, 0.0)
    s = v / (2.0 + v)
    sums = powers([2.0 / (2 * k + 3) for k in range(14)], s * s)
    far = td.where(is_near, 0.0, u)
    return td.where(is_near, s * (s * s * sums - v), td.log1p(far) - far)  # type: ignore[no-any-return]
