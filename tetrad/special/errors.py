"""Special functions, errors: the error function, the normal distribution, their logarithms and
inverses."""

from __future__ import annotations

import math
from typing import Any

from tetrad.arrays import functions as td
from tetrad.special.coefficients import ERFCX, NORMAL_QUANTILE
from tetrad.special.wide import INF, NAN, exp_square, halves, powers, series, wide
from tetrad.tracing.array import Array
from tetrad.transforms.custom import custom_jvp

ROOT_HALF = (0.7071067811865476, -4.833646656726457e-17)  # sqrt(1/2), the sum of both
ROOT_PI = math.sqrt(math.pi)
ROOT_TWO_PI = math.sqrt(2 * math.pi)


def erf(x: Any, /) -> Array:
    """The error function, 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x.

    >>> import tetrad as td
    >>> td.special.erf(td.asarray([0.0, 0.5]))
    Array([0.       , 0.5204999], float32)
    """
    return wide("erf", td.erf, x)


def erfc(x: Any, /) -> Array:
    """1 - erf(x), without the loss where erf is nearly 1.

    >>> import tetrad as td
    >>> td.special.erfc(td.asarray([0.0, 5.0]))
    Array([1.0000000e+00, 1.5374598e-12], float32)
    """
    return wide("erfc", td.erfc, x)


@custom_jvp
def scaled_erfc(x: Array) -> Array:
    """exp(x^2) erfc(x): fitted for x >= 0, and 2 exp(x^2) less that of -x below."""
    a = td.abs(x)
    is_far = a > 1e15
    near = td.where(is_far, 1.0, a)
    right = series(ERFCX, (near - 3.75) / (near + 3.75)) / (1.0 + 2.0 * near)
    right = td.where(is_far, (1.0 / ROOT_PI) / td.where(is_far, a, 1.0), right)
    left = td.where(x < 0.0, 2.0 * exp_square(td.minimum(x, 0.0), 1.0) - right, right)
    return td.where(x < -27.0, INF, left)  # type: ignore[no-any-return]


@scaled_erfc.defjvp
def _scaled_erfc_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (dx,) = primals, tangents
    value = scaled_erfc(x)
    return value, (2.0 * x * value - 2.0 / ROOT_PI) * dx


def erfcx(x: Any, /) -> Array:
    """exp(x^2) erfc(x), which stays within reach where erfc does not.

    >>> import tetrad as td
    >>> td.special.erfcx(td.asarray([0.0, 100.0]))
    Array([1.        , 0.00564161], float32)
    """
    return wide("erfcx", scaled_erfc, x)


# -- the normal distribution -----------------------------------------------------------------------


def over_root_two(x: Array) -> tuple[Array, Array]:
    """x / sqrt(2) as a sum of two: where erfc falls steeply, one alone would lose digits."""
    first, rest = halves(x)
    high, low = 0.70710676908493042, ROOT_HALF[0] - 0.70710676908493042  # 24 bits, and what is left
    product = x * ROOT_HALF[0]
    error = ((first * high - product) + first * low + rest * high) + rest * low + x * ROOT_HALF[1]
    return product, error


@custom_jvp
def normal_below(x: Array) -> Array:
    """The probability of less than x."""
    z, rest = over_root_two(-td.clip(x, -40.0, 40.0))
    tail = td.erfc(z)
    return 0.5 * (tail - tail * (2.0 * td.maximum(z, 0.0) * rest))  # type: ignore[no-any-return]


@normal_below.defjvp
def _normal_below_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (dx,) = primals, tangents
    return normal_below(x), normal_density(x) * dx


@custom_jvp
def normal_density(x: Array) -> Array:
    first, rest = halves(td.clip(x, -40.0, 40.0))
    near = td.clip(x, -40.0, 40.0)
    steep = td.exp(-0.5 * first * first) * td.exp(-0.5 * rest * (near + first))
    return steep / ROOT_TWO_PI  # type: ignore[no-any-return]


@normal_density.defjvp
def _normal_density_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (dx,) = primals, tangents
    value = normal_density(x)
    return value, -td.clip(x, -40.0, 40.0) * value * dx


def ndtr(x: Any, /) -> Array:
    """The normal distribution function: the probability of less than x.

    >>> import tetrad as td
    >>> td.special.ndtr(td.asarray([-2.0, 0.0]))
    Array([0.02275013, 0.5       ], float32)
    """
    return wide("ndtr", normal_below, x)


@custom_jvp
def log_normal_below(x: Array) -> Array:
    """Its logarithm: -x^2 / 2 + log(erfcx(-x / sqrt 2) / 2) on the left, log1p of the other tail on
    the right."""
    left = td.minimum(x, -1.0)
    scaled = scaled_erfc(-left * ROOT_HALF[0])
    deep = td.log(0.5 * scaled) - 0.5 * left * left
    deep = td.where(x < -1e154, -INF, deep)
    return td.where(x < -1.0, deep, td.log1p(-normal_below(-x)))  # type: ignore[no-any-return]


@log_normal_below.defjvp
def _log_normal_below_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (dx,) = primals, tangents
    return log_normal_below(x), mills(x) * dx


@custom_jvp
def mills(x: Array) -> Array:
    """The density over the probability of less."""
    left = 2.0 / ROOT_TWO_PI / scaled_erfc(-td.minimum(x, 0.0) * ROOT_HALF[0])
    right = normal_density(td.maximum(x, 0.0)) / normal_below(td.maximum(x, 0.0))
    return td.where(x < 0.0, left, right)  # type: ignore[no-any-return]


@mills.defjvp
def _mills_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (dx,) = primals, tangents
    value = mills(x)
    return value, -value * (x + value) * dx


def log_ndtr(x: Any, /) -> Array:
    """The logarithm of the normal distribution function, far out in the tail as well.

    >>> import tetrad as td
    >>> td.special.log_ndtr(td.asarray([-100.0, 0.0]))
    Array([-5.0055244e+03, -6.9314718e-01], float32)
    """
    return wide("log_ndtr", log_normal_below, x)


# -- inverses --------------------------------------------------------------------------------------


def _quantile(half: Array, tail: Array) -> Array:
    """Wichura's AS 241: the number with probability 1/2 + half below it; `tail`: the smaller of
    both probabilities."""
    middle, deep, deepest = NORMAL_QUANTILE
    is_near = td.abs(half) <= 0.425
    q = td.where(is_near, half, 0.0)
    near = q * _quotient(middle, 0.180625 - q * q)
    root = td.sqrt(-td.log(td.where(is_near, 0.05, tail)))
    far = td.where(root <= 5.0, _quotient(deep, root - 1.6), _quotient(deepest, root - 5.0))
    return td.where(is_near, near, td.where(half < 0.0, -far, far))  # type: ignore[no-any-return]


def _quotient(pair: Any, t: Array) -> Any:
    return powers(pair[0], t) / powers(pair[1], t)


@custom_jvp
def normal_quantile(p: Array) -> Array:
    is_inside = (p > 0.0) & (p < 1.0)
    inside = td.where(is_inside, p, 0.5)
    value = _quantile(inside - 0.5, td.minimum(inside, 1.0 - inside))
    edge = td.where(p == 0.0, -INF, td.where(p == 1.0, INF, NAN))
    return td.where(is_inside, value, edge)  # type: ignore[no-any-return]


@normal_quantile.defjvp
def _normal_quantile_jvp(primals: Any, tangents: Any) -> Any:
    (p,), (dp,) = primals, tangents
    z = normal_quantile(p)
    return z, dp / normal_density(z)


def ndtri(p: Any, /) -> Array:
    """The inverse of `ndtr`: the number that has probability p below it.

    >>> import tetrad as td
    >>> td.special.ndtri(td.asarray([0.5, 0.975]))
    Array([0.       , 1.9599644], float32)
    """
    return wide("ndtri", normal_quantile, p)


@custom_jvp
def inverse_erf(y: Array) -> Array:
    a = td.abs(y)
    half = td.where(a < 1.0, 0.5 * y, 0.0)
    value = ROOT_HALF[0] * _quantile(half, 0.5 * (1.0 - td.where(a < 1.0, a, 0.0)))
    edge = td.where(a == 1.0, y * INF, NAN)
    value = td.where(a < 1e-300, y * (0.5 * ROOT_PI), value)
    return td.where(a < 1.0, value, edge)  # type: ignore[no-any-return]


@inverse_erf.defjvp
def _inverse_erf_jvp(primals: Any, tangents: Any) -> Any:
    (y,), (dy,) = primals, tangents
    x = inverse_erf(y)
    return x, (0.5 * ROOT_PI) * td.exp(x * x) * dy


def erfinv(y: Any, /) -> Array:
    """The inverse of `erf`.

    >>> import tetrad as td
    >>> td.special.erfinv(td.asarray([0.0, 0.5, 1.0]))
    Array([0.        , 0.47693628,        inf], float32)
    """
    return wide("erfinv", inverse_erf, y)


@custom_jvp
def inverse_erfc(y: Array) -> Array:
    is_inside = (y > 0.0) & (y < 2.0)
    inside = td.where(is_inside, y, 1.0)
    tail = td.where(inside < 1.0, 0.5 * inside, 1.0 - 0.5 * inside)
    value = ROOT_HALF[0] * _quantile(0.5 * (1.0 - inside), tail)
    edge = td.where(y == 0.0, INF, td.where(y == 2.0, -INF, NAN))
    return td.where(is_inside, value, edge)  # type: ignore[no-any-return]


@inverse_erfc.defjvp
def _inverse_erfc_jvp(primals: Any, tangents: Any) -> Any:
    (y,), (dy,) = primals, tangents
    x = inverse_erfc(y)
    return x, (-0.5 * ROOT_PI) * td.exp(x * x) * dy


def erfcinv(y: Any, /) -> Array:
    """The inverse of `erfc`, precise for small y.

    >>> import tetrad as td
    >>> td.special.erfcinv(td.asarray([1.0, 1e-30]))
    Array([0.      , 8.148616], float32)
    """
    return wide("erfcinv", inverse_erfc, y)
