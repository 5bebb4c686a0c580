"""Special functions, incomplete: the incomplete gamma functions, and their derivatives in both
arguments.

With zp(x) = x^a exp(-x) / Gamma(a), the density of log x, P = zp left and 1 - P = zp right, where
`left` and `right` are integrals over log t from x on (`quadrature.py`); their changes with a are
such integrals too. Nothing is lost where P is too small for floats: random gamma numbers are
differentiated by `log_gamma_slope`, which is a quotient of such integrals.
"""

from __future__ import annotations

import math
from typing import Any

from tetrad.arrays import functions as td
from tetrad.special.coefficients import LOG_GAMMA
from tetrad.special.gamma import STIRLING, digammas, log_gamma, stirling_rest
from tetrad.special.quadrature import DEPTH, expm1_less, integrals
from tetrad.special.wide import INF, NAN, log1p_less, powers, wide
from tetrad.tracing.array import Array
from tetrad.transforms.custom import custom_jvp

STEPS = 8  # so many terms are taken before the integral where a is small
CORNER = [(-1.0) ** n / math.factorial(n) for n in range(1, 21)]


def _left(a: Array, x: Array, log: Array) -> tuple[Array, Array]:
    """P over zp and dP/da over zp, for x up to about a: terms of 1, then an integral down from x
    for a + 8, where that falls quickly."""
    is_small = a < STEPS
    up = td.where(is_small, a + STEPS, a)
    digamma, h, slope = digammas(up), DEPTH / up, (up - x) / up
    far = h + td.sqrt(2.0 * h)
    reach = td.where(slope * far > h, h / td.where(slope > 0.0, slope, 1.0), far)
    one, less, middle, top = x[..., None], (up - x)[..., None], log[..., None], digamma[..., None]
    value, change = integrals(
        reach, lambda y: -(one * expm1_less(-y) + less * y), lambda y: middle - y - top
    )
    for k in reversed(range(STEPS)):
        step = a + float(k)
        share, known = x / step, (log - digamma) / step
        value = td.where(is_small, 1.0 / step + share * value, value)
        change = td.where(is_small, known + share * change, change)
        digamma = digamma - 1.0 / step
    return value, change


def _right(a: Array, x: Array, log: Array) -> tuple[Array, Array]:
    """(1 - P) over zp and its change with a, for x above a and at least 1."""
    digamma = digammas(a)[..., None]
    value, change = tail(a, x, lambda y: log[..., None] + y - digamma)
    return value, change


def tail(a: Array, x: Array, *factors: Any) -> list[Array]:
    """The integral of (t / x)^a exp(x - t) over log t from log x on, for x above a."""
    more = x - a
    far = td.sqrt(2.0 * DEPTH / x)
    far = td.minimum(far, td.log1p((DEPTH + td.maximum(a, 0.0) * far) / x))
    reach = td.where(more * far > DEPTH, DEPTH / td.where(more > 0.0, more, 1.0), far)
    one, less = x[..., None], more[..., None]
    return integrals(reach, lambda y: -(one * expm1_less(y) + less * y), *factors)


def log_density(a: Array, x: Array, log: Array) -> Array:
    """log of x^a exp(-x) / Gamma(a), without large differences where a is large."""
    is_far = a >= STIRLING
    b = td.where(is_far, a, STIRLING)
    away = (x - b) / b
    ratio = td.where(td.abs(away) < 0.5, log1p_less(away), log - td.log(b) - away)
    far = b * ratio + 0.5 * td.log(b / (2.0 * math.pi)) - stirling_rest(b)
    near = td.where(is_far, 1.0, a)
    return td.where(is_far, far, near * log - x - log_gamma(near))  # type: ignore[no-any-return]


def _parts(a: Array, x: Array, log: Array) -> tuple[Array, Array, Array]:
    """Whether P is known (else 1 - P), it over zp, and its change with a over zp."""
    is_left = (x <= a) | (x < 1.0)
    low, low_change = _left(td.where(is_left, a, 1.0), *_kept(is_left, x, log, 0.5))
    high, high_change = _right(td.where(is_left, 1.0, a), *_kept(~is_left, x, log, 2.0))
    return is_left, td.where(is_left, low, high), td.where(is_left, low_change, high_change)


def _kept(chosen: Array, x: Array, log: Array, other: float) -> tuple[Array, Array]:
    return td.where(chosen, x, other), td.where(chosen, log, math.log(other))


def log_gamma_slope(a: Array, log: Array) -> Array:
    """How the logarithm of a gamma number moves with its parameter a while its probability P stays:
    -(dP/da) / zp, also where the number itself is too small for floats."""
    is_left, _, change = _parts(a, td.exp(log), log)
    return td.where(is_left, -change, change)  # type: ignore[no-any-return]


def _corner(a: Array, x: Array, log: Array) -> Array:
    """1 - P for a and x up to 1, which may be small: 1 - x^a / Gamma(1 + a) (1 + a sum of
    (-x)^n / ((a + n) n!))."""
    power = a * (log - (a - 1.0) * powers(LOG_GAMMA, a - 1.0))
    total, term = 0.0 * x, -x
    for n, c in enumerate(CORNER, 1):
        total = total + (abs(c) * term) / (a + float(n))
        term = term * -x
    return -td.expm1(power) - td.exp(power) * a * total  # type: ignore[no-any-return]


def _both(a: Array, x: Array) -> tuple[Array, Array]:
    """P and 1 - P, each as exact as it can be."""
    is_inside = (a > 0.0) & (x > 0.0) & (a < INF) & (x < INF)
    b, y = td.where(is_inside, a, 1.0), td.where(is_inside, x, 1.0)
    log = td.log(y)
    is_left, share, _ = _parts(b, y, log)
    part = td.minimum(td.exp(log_density(b, y, log)) * share, 1.0)
    is_corner = (b < 1.0) & (y < 1.0)
    small, low, logs = (td.where(is_corner, z, 0.5) for z in (b, y, log))
    corner = _corner(small, low, logs)
    lower = td.where(is_left, part, 1.0 - part)
    upper = td.where(is_corner, corner, td.where(is_left, 1.0 - part, part))
    edge = td.where((x == 0.0) | (a == INF), 0.0, 1.0)
    is_bad = (a < 0.0) | (x < 0.0) | ((a == 0.0) & (x == 0.0)) | ((a == INF) & (x == INF))
    edge = td.where(is_bad | td.isnan(a) | td.isnan(x), NAN, edge)
    return td.where(is_inside, lower, edge), td.where(is_inside, upper, 1.0 - edge)


def _slopes(a: Array, x: Array) -> tuple[Array, Array]:
    """dP/da and dP/dx."""
    is_inside = (a > 0.0) & (x > 0.0) & (a < INF) & (x < INF)
    b, y = td.where(is_inside, a, 1.0), td.where(is_inside, x, 1.0)
    log = td.log(y)
    is_left, _, change = _parts(b, y, log)
    density = td.exp(log_density(b, y, log))
    in_a = density * td.where(is_left, change, -change)
    edge = td.where((x == 0.0) & (a <= 1.0), td.where(a == 1.0, 1.0, INF), 0.0)
    edge = td.where((a > 0.0) & (x >= 0.0), edge, NAN)
    return td.where(is_inside, in_a, 0.0 * edge), td.where(is_inside, density / y, edge)


@custom_jvp
def lower_gamma(a: Array, x: Array) -> Array:
    return _both(a, x)[0]


@lower_gamma.defjvp
def _lower_gamma_jvp(primals: Any, tangents: Any) -> Any:
    (a, x), (da, dx) = primals, tangents
    in_a, in_x = _slopes(a, x)
    return lower_gamma(a, x), in_a * da + in_x * dx


@custom_jvp
def upper_gamma(a: Array, x: Array) -> Array:
    return _both(a, x)[1]


@upper_gamma.defjvp
def _upper_gamma_jvp(primals: Any, tangents: Any) -> Any:
    (a, x), (da, dx) = primals, tangents
    in_a, in_x = _slopes(a, x)
    return upper_gamma(a, x), -(in_a * da + in_x * dx)


def gammainc(a: Any, x: Any, /) -> Array:
    """The regularised lower incomplete gamma function: the probability that a gamma number of
    parameter a is below x. Both arguments have derivatives.

    >>> import tetrad as td
    >>> td.special.gammainc(2.0, td.asarray([0.0, 1.0, 5.0]))
    Array([0.        , 0.26424113, 0.9595723 ], float32)
    """
    return wide("gammainc", lower_gamma, a, x)


def gammaincc(a: Any, x: Any, /) -> Array:
    """The regularised upper incomplete gamma function, 1 - gammainc(a, x), also where
    that is small.

    >>> import tetrad as td
    >>> td.special.gammaincc(2.0, td.asarray([0.0, 1.0, 50.0]))
    Array([1.000000e+00, 7.357589e-01, 9.836624e-21], float32)
    """
    return wide("gammaincc", upper_gamma, a, x)
