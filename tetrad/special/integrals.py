"""Special functions, integrals: the exponential integrals and the dilogarithm."""

from __future__ import annotations

import math
from typing import Any

from tetrad.arrays import functions as td
from tetrad.special.coefficients import EI_FAR
from tetrad.special.gamma import bernoulli_numbers
from tetrad.special.incomplete import tail
from tetrad.special.wide import INF, NAN, powers, series, wide
from tetrad.tracing.array import Array
from tetrad.transforms.custom import custom_jvp

EULER = 0.5772156649015329
NEAR = [(-1.0) ** n / (n * math.factorial(n)) for n in range(1, 22)]
EI_NEAR = [1.0 / (n * math.factorial(n)) for n in range(1, 60)]
EI_EDGE = 12.0
ORDERS = 8  # below, expn of small numbers is found step by step from exp1
SPENCE = [float(b) / math.factorial(n + 1) for n, b in enumerate(bernoulli_numbers(26))]


def _exp1_near(x: Array) -> Array:
    return -EULER - td.log(x) - x * powers(NEAR, x)  # type: ignore[no-any-return]


@custom_jvp
def exponential_integral(x: Array) -> Array:
    """E1: the integral of exp(-t) / t from x on."""
    is_near = x < 1.0
    far = td.where(is_near | ~(x < INF), 1.0, x)
    value = td.exp(-far) * tail(0.0 * far, far)[0]
    value = td.where(is_near, _exp1_near(td.where(is_near & (x > 0.0), x, 0.5)), value)
    value = td.where(x == 0.0, INF, td.where(x == INF, 0.0, value))
    return td.where((x < 0.0) | td.isnan(x), NAN, value)  # type: ignore[no-any-return]


@exponential_integral.defjvp
def _exponential_integral_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (dx,) = primals, tangents
    return exponential_integral(x), -td.exp(-x) / x * dx


@custom_jvp
def principal_integral(x: Array) -> Array:
    """Ei: the integral of exp(t) / t up to x, past 0 by its principal value."""
    is_near, is_left = x <= EI_EDGE, x < 0.0
    small = td.where(is_near & ~is_left & (x != 0.0), x, 1.0)
    near = EULER + td.log(small) + small * powers(EI_NEAR, small)
    z = td.where(is_near, EI_EDGE, td.minimum(x, 1e3))
    # in two steps, for the exponential overflows before the quotient does
    half = td.exp(0.5 * z)
    far = half * (half / z * series(EI_FAR, 2.0 * EI_EDGE / z - 1.0))
    left = -exponential_integral(td.where(is_left, -x, 1.0))
    value = td.where(is_left, left, td.where(is_near, near, far))
    return td.where(x == 0.0, -INF, td.where(td.isnan(x), NAN, value))  # type: ignore[no-any-return]


@principal_integral.defjvp
def _principal_integral_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (dx,) = primals, tangents
    return principal_integral(x), td.exp(x) / x * dx


@custom_jvp
def exponential_integrals(n: Array, x: Array) -> Array:
    """E_n: the integral of exp(-x t) / t^n from 1 on."""
    is_near = (x < 1.0) & (n <= ORDERS)
    far = td.where(is_near | ~(x < INF), 1.0, x)
    order = td.where((n >= 1.0) & ~is_near, n, 1.0)
    value = td.exp(-far) * tail(1.0 - order, td.where(far > 0.0, far, 1e-300))[0]
    small = td.where(is_near & (x > 0.0), x, 0.5)
    step = near = _exp1_near(small)
    for k in range(1, ORDERS):
        step = (td.exp(-small) - small * step) / k
        near = td.where(n > k, step, near)
    value = td.where(is_near, near, value)
    value = td.where(n == 0.0, td.exp(-x) / td.where(x == INF, 1.0, x), value)
    at_zero = td.where(n > 1.0, 1.0 / td.where(n > 1.0, n - 1.0, 1.0), INF)
    value = td.where(x == 0.0, at_zero, td.where(x == INF, 0.0, value))
    is_bad = (x < 0.0) | (n < 0.0) | (td.floor(n) != n) | td.isnan(x) | td.isnan(n)
    return td.where(is_bad, NAN, value)  # type: ignore[no-any-return]


@exponential_integrals.defjvp
def _exponential_integrals_jvp(primals: Any, tangents: Any) -> Any:
    (n, x), (_, dx) = primals, tangents
    before = exponential_integrals(td.maximum(n - 1.0, 0.0), x)
    of_none = -td.exp(-x) * (1.0 / x + 1.0 / (x * x))
    return exponential_integrals(n, x), td.where(n == 0.0, of_none, -before) * dx


@custom_jvp
def dilogarithm(z: Array) -> Array:
    """Spence's function: the integral of log(t) / (1 - t) from 1 to z. From [1/2, 2] by a series in
    log z, from elsewhere by reflection."""
    is_low, is_high = z < 0.5, z > 2.0
    over = 1.0 / td.where(is_high, z, 2.0)
    inner = td.where(is_low, 1.0 - z, td.where(is_high, 1.0 - over, z))
    w = 0.0 - td.log(td.where((inner >= 0.5) & (inner <= 2.0), inner, 1.0))
    value = w * powers(SPENCE, w)
    safe = td.where((z > 0.0) & (z < INF), z, 1.0)
    log, whole = td.log(safe), math.pi**2 / 6.0
    low = whole - log * td.log1p(-td.where(is_low, safe, 0.0)) - value
    high = value - whole - log * td.log1p(-over) - 0.5 * log * log
    value = td.where(is_low, low, td.where(is_high, high, value))
    value = td.where(z == 0.0, whole, td.where(z == INF, -INF, value))
    return td.where((z < 0.0) | td.isnan(z), NAN, value)  # type: ignore[no-any-return]


@dilogarithm.defjvp
def _dilogarithm_jvp(primals: Any, tangents: Any) -> Any:
    (z,), (dz,) = primals, tangents
    away = z - 1.0
    is_near = td.abs(away) < 1e-3
    u = td.where(is_near, away, 0.0)
    near = -powers([1.0, -1 / 2, 1 / 3, -1 / 4, 1 / 5, -1 / 6], u)
    far = -td.log(td.where(is_near, 2.0, z)) / td.where(is_near, 1.0, away)
    return dilogarithm(z), td.where(is_near, near, far) * dz


def exp1(x: Any, /) -> Array:
    """The exponential integral E1: of exp(-t) / t from x on.

    >>> import tetrad as td
    >>> td.special.exp1(td.asarray([0.5, 1.0, 10.0]))
    Array([5.5977362e-01, 2.1938394e-01, 4.1569688e-06], float32)
    """
    return wide("exp1", exponential_integral, x)


def expi(x: Any, /) -> Array:
    """The exponential integral Ei: of exp(t) / t up to x, past 0 by its principal value.

    >>> import tetrad as td
    >>> td.special.expi(td.asarray([-1.0, 1.0]))
    Array([-0.21938394,  1.8951178 ], float32)
    """
    return wide("expi", principal_integral, x)


def expn(n: Any, x: Any, /) -> Array:
    """The exponential integral E_n: of exp(-x t) / t^n from 1 on, for whole n, which has no
    derivative.

    >>> import tetrad as td
    >>> td.special.expn(2, td.asarray([0.0, 1.0]))
    Array([1.        , 0.14849551], float32)
    """
    return wide("expn", exponential_integrals, n, x)


def spence(x: Any, /) -> Array:
    """Spence's function: the integral of log(t) / (1 - t) from 1 to x, the dilogarithm of 1 - x.

    >>> import tetrad as td
    >>> td.special.spence(td.asarray([0.0, 1.0, 2.0]))
    Array([ 1.644934,  0.      , -0.822467], float32)
    """
    return wide("spence", dilogarithm, x)
