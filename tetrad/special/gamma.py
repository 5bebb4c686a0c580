"""Special functions, gamma: the gamma function, its logarithm and that one's derivatives, Hurwitz'
zeta function, and what is made of them.

`log_gamma`, `digammas`, ... are functions of f64 arrays, for other files as well; those with
SciPy's names take what users give.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from tetrad.arrays import functions as td
from tetrad.core.dtypes import f32
from tetrad.core.errors import DtypeError
from tetrad.special.coefficients import DIGAMMA, DIGAMMA_ROOT, LOG_GAMMA, RECIPROCAL_GAMMA
from tetrad.special.wide import INF, NAN, is_whole, powers, sin_pi, wide
from tetrad.tracing.array import Array, fail
from tetrad.transforms.custom import custom_jvp, stop_gradient
from tetrad.transforms.derivatives import jvp

STIRLING = 8.0  # from here on Stirling's series is used
LOG_ROOT = 0.5 * math.log(2 * math.pi)


@cache
def bernoulli_numbers(n: int) -> list[Fraction]:
    """B0 to Bn, with B1 = -1/2."""
    row: list[Fraction] = []
    found = []
    for m in range(n + 1):
        row.append(Fraction(1, m + 1))
        for j in range(m, 0, -1):
            row[j - 1] = j * (row[j - 1] - row[j])
        found.append(row[0] if m != 1 else -row[0])
    return found


EVEN = [float(b) for b in bernoulli_numbers(24)[2::2]]  # B2, B4, ...
REST = [b / (2 * n * (2 * n - 1)) for n, b in enumerate(EVEN[:11], 1)]
SLOPES = [b / (2 * n) for n, b in enumerate(EVEN[:11], 1)]


def bernoulli(n: int) -> Array:
    """The Bernoulli numbers B0 to Bn.

    >>> import tetrad as td
    >>> td.special.bernoulli(4)
    Array([ 1.        , -0.5       ,  0.16666667,  0.        , -0.03333334], float32)
    """
    if not isinstance(n, int) or n < 0:
        fail(DtypeError, f"bernoulli: expected a number of at least 0, got {n!r}")
    return td.asarray(np.array([_float(b) for b in bernoulli_numbers(n)], f32.np))


def _float(b: Fraction) -> float:
    try:
        return float(b)
    except OverflowError:
        return math.copysign(INF, b)


# -- the logarithm ---------------------------------------------------------------------------------


def stirling_rest(x: Array) -> Array:
    """What log Gamma(x) has beyond (x - 1/2) log x - x + log(2 pi) / 2, for x of at least 8."""
    inverse = 1.0 / x
    return inverse * powers(REST, inverse * inverse)  # type: ignore[no-any-return]


def _log_gamma_far(x: Array) -> Array:
    return (x - 0.5) * (td.log(x) - 1.0) + (stirling_rest(x) + (LOG_ROOT - 0.5))  # type: ignore[no-any-return]


def _log_gamma_near(x: Array) -> Array:
    """For x from -1 to 8: from [1, 3] by a polynomial that is 0 at 1 and 2, from elsewhere by steps
    of 1. The distances from 1 and 2 are exact, so zeros are too."""
    y, product = x, 1.0 + 0.0 * x
    for _ in range(5):
        y = td.where(y > 3.0, y - 1.0, y)
        product = td.where(y < x, product * y, product)
        x = y
    past_one = td.where(y < 0.0, y + 1.0, td.where(y < 1.0, y, y - 1.0))
    past_two = td.where(y < 0.0, y, td.where(y < 1.0, y - 1.0, y - 2.0))
    value = past_one * past_two * powers(LOG_GAMMA, past_two)
    steps = td.where(y < 1.0, -td.log(td.abs(y)), td.log(product))
    return value + steps - td.where(y < 0.0, td.log1p(td.minimum(y, 0.0)), 0.0)  # type: ignore[no-any-return]


def _log_gamma_positive(x: Array) -> Array:
    is_far = x >= STIRLING
    near = _log_gamma_near(td.where(is_far, 1.0, x))
    return td.where(is_far, _log_gamma_far(td.where(is_far, x, STIRLING)), near)  # type: ignore[no-any-return]


@custom_jvp
def log_gamma(x: Array) -> Array:
    """log |Gamma(x)|. Below -0.9 it is reflected: Gamma(x) Gamma(-x) x sin(pi x) = -pi."""
    is_left = x < -0.9
    a = td.where(is_left, -x, x)
    value = _log_gamma_positive(a)
    sine = td.abs(sin_pi(td.where(is_left, a, 0.5)))
    reflected = math.log(math.pi) - td.log(td.where(is_left, a, 1.0) * sine) - value
    return td.where(td.isinf(x), INF, td.where(is_left, reflected, value))  # type: ignore[no-any-return]


@log_gamma.defjvp
def _log_gamma_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (dx,) = primals, tangents
    return log_gamma(x), digammas(x) * dx


def gammaln(x: Any, /) -> Array:
    """The logarithm of the absolute value of the gamma function.

    >>> import tetrad as td
    >>> td.special.gammaln(td.asarray([0.5, 1.0, 10.0]))
    Array([ 0.5723649,  0.       , 12.801827 ], float32)
    """
    return wide("gammaln", log_gamma, x)


def loggamma(x: Any, /) -> Array:
    """The logarithm of the gamma function where that is positive; NaN for negative numbers."""
    return wide("loggamma", lambda z: td.where(z < 0.0, NAN, log_gamma(z)), x)


def log_gamma_step(x: Array, a: Array) -> Array:
    """log Gamma(x + a) - log Gamma(x), for a >= 0 and x of at least 8: without the difference of
    two large numbers."""
    u = a / x
    large = (x + a - 0.5) * td.log1p(u) + a * (td.log(x) - 1.0)
    return large + (stirling_rest(x + a) - stirling_rest(x))  # type: ignore[no-any-return]


def multigammaln(a: Any, d: int) -> Array:
    """The logarithm of the gamma function of d dimensions.

    >>> import tetrad as td
    >>> td.special.multigammaln(3.0, 2)
    Array(1.550195, float32)
    """
    if not isinstance(d, int) or d < 1:
        fail(DtypeError, f"multigammaln: the dimension d is a positive int, got {d!r}")
    constant = d * (d - 1) / 4 * math.log(math.pi)

    def total(x: Array) -> Array:
        logs = [log_gamma(x - j / 2) for j in range(d)]
        return td.where(x > (d - 1) / 2, sum(logs, constant), NAN)  # type: ignore[no-any-return]

    return wide("multigammaln", total, a)


# -- the function itself ---------------------------------------------------------------------------


def gamma_sign(x: Array) -> Array:
    is_odd = td.floor(x * 0.5) * 2.0 != td.floor(x)
    sign = td.where((x < 0.0) & is_odd, -1.0, 1.0)
    sign = td.where((x == 0.0) & (1.0 / x < 0.0), -1.0, sign)
    return td.where(((x < 0.0) & is_whole(x)) | td.isnan(x), NAN, sign)  # type: ignore[no-any-return]


def gammasgn(x: Any, /) -> Array:
    """The sign of the gamma function: 1 or -1; NaN at its poles below 0.

    >>> import tetrad as td
    >>> td.special.gammasgn(td.asarray([0.5, -0.5, -1.5]))
    Array([ 1., -1.,  1.], float32)
    """
    return wide("gammasgn", lambda z: stop_gradient(gamma_sign(z)), x)


def _gamma_near(x: Array) -> Array:
    """For x from 0 to 12: from [2, 3] by the reciprocal, from elsewhere by steps of 1."""
    y, over = x, 1.0 + 0.0 * x
    for _ in range(10):
        y = td.where(y > 3.0, y - 1.0, y)
        over = td.where(y < x, over * y, over)
        x = y
    under = 1.0 + 0.0 * x
    for _ in range(2):
        under = td.where(x < 2.0, under * x, under)
        x = td.where(x < 2.0, x + 1.0, x)
    return over / (under * powers(RECIPROCAL_GAMMA, 2.0 * (x - 2.0) - 1.0))  # type: ignore[no-any-return]


def _gamma_far(x: Array) -> tuple[Array, Array]:
    """Two factors of Gamma(x) by Stirling's formula, which may overflow where each does not."""
    power = td.pow(x, 0.5 * x - 0.25)
    return power * td.exp(-x) * math.sqrt(2 * math.pi) * td.exp(stirling_rest(x)), power


@custom_jvp
def gammas(x: Array) -> Array:
    a = td.abs(x)
    is_far = a >= 12.0
    near = _gamma_near(td.where(is_far | (a == 0.0), 1.0, a))
    first, second = _gamma_far(td.clip(a, 12.0, 200.0))
    first, second = td.where(is_far, first, near), td.where(is_far, second, 1.0)
    is_left = (x < 0.0) & ~is_whole(x)
    sine = sin_pi(td.where(is_left, a, 0.5))
    left = -math.pi / (td.where(is_left, a, 1.0) * sine) / first / second
    value = td.where(x < 0.0, left, first * second)
    value = td.where(a < 1e-17, 1.0 / x, value)  # to the last bit, where the sine underflows
    is_pole = ((x < 0.0) & is_whole(x)) | (x == -INF)
    return td.where(is_pole | td.isnan(x), NAN, td.where(x > 172.0, INF, value))  # type: ignore[no-any-return]


@gammas.defjvp
def _gammas_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (dx,) = primals, tangents
    value = gammas(x)
    return value, value * digammas(x) * dx


def gamma(x: Any, /) -> Array:
    """The gamma function; NaN at its poles below 0.

    >>> import tetrad as td
    >>> td.special.gamma(td.asarray([0.5, 5.0, -1.5]))
    Array([ 1.7724539, 24.       ,  2.3632717], float32)
    """
    return wide("gamma", gammas, x)


def factorial(n: Any, exact: bool = False) -> Array:
    """n!, which is gamma(n + 1); 0 for negative numbers.

    >>> import tetrad as td
    >>> td.special.factorial(td.asarray([0, 3, 5]))
    Array([  1.,   6., 120.], float32)
    """
    if exact:
        fail(DtypeError, "factorial: results are floats", "math.factorial gives exact integers")
    return wide("factorial", lambda x: td.where(x < 0.0, 0.0, gammas(td.abs(x) + 1.0)), n)


def poch(z: Any, m: Any, /) -> Array:
    """The rising factorial Gamma(z + m) / Gamma(z).

    >>> import tetrad as td
    >>> td.special.poch(td.asarray([1.0, 2.0]), 3.0)
    Array([ 6., 24.], float32)
    """
    return wide("poch", rising, z, m)


@custom_jvp
def rising(z: Array, m: Array) -> Array:
    """As a quotient where both are within reach, else by logarithms; whole steps from a pole on,
    and to one, by those of the reflected numbers: Gamma(z + m) / Gamma(z) is, to a sign, Gamma(1 -
    z) / Gamma(1 - z - m)."""
    end = z + m
    is_flipped = (z <= 0.0) & is_whole(z) & is_whole(m) & (end <= 0.0)
    sign = td.where(is_flipped & (td.floor(m * 0.5) * 2.0 != m), -1.0, 1.0)
    start, stop = td.where(is_flipped, 1.0 - end, z), td.where(is_flipped, 1.0 - z, end)
    from_pole = (start <= 0.0) & is_whole(start)
    low, high = td.minimum(start, stop), td.maximum(start, stop)
    far = td.where(low >= STIRLING, low, STIRLING)
    step = td.where(low >= STIRLING, high - low, 0.0)
    stepped = td.where(stop < start, -1.0, 1.0) * log_gamma_step(far, step)
    logs = td.where(low >= STIRLING, stepped, log_gamma(stop) - log_gamma(start))
    by_logs = gamma_sign(start) * gamma_sign(stop) * td.exp(logs)
    is_small = (td.abs(start) < 100.0) & (td.abs(stop) < 100.0)
    value = td.where(is_small, gammas(stop) / gammas(start), by_logs)
    value = td.where(from_pole, td.where(is_whole(stop) & (stop <= 0.0), NAN, 0.0), value)
    return td.where(m == 0.0, 1.0, sign * value)  # type: ignore[no-any-return]


@rising.defjvp
def _rising_jvp(primals: Any, tangents: Any) -> Any:
    (z, m), (dz, dm) = primals, tangents
    value = rising(z, m)
    return value, value * ((digammas(z + m) - digammas(z)) * dz + digammas(z + m) * dm)


# -- its derivatives -------------------------------------------------------------------------------


def _digamma_positive(x: Array) -> Array:
    is_far = x >= STIRLING
    y, steps = td.where(is_far, 1.0, x), 0.0 * x
    for _ in range(6):
        steps = td.where(y > 2.0, steps + 1.0 / (y - 1.0), steps)
        y = td.where(y > 2.0, y - 1.0, y)
    is_small = y < 1.0
    steps = td.where(is_small, -1.0 / td.where(is_small, y, 1.0), steps)
    y = td.where(is_small, y + 1.0, y)
    near = (y - DIGAMMA_ROOT[0] - DIGAMMA_ROOT[1]) * powers(DIGAMMA, 2.0 * y - 3.0) + steps
    z = td.where(is_far, x, STIRLING)
    square = 1.0 / (z * z)
    far = td.log(z) - 0.5 / z - square * powers(SLOPES, square)
    return td.where(is_far, far, near)  # type: ignore[no-any-return]


@custom_jvp
def digammas(x: Array) -> Array:
    """Reflected below 0: digamma(x) = digamma(-x) - 1 / x - pi / tan(pi x)."""
    is_left = x < 0.0
    a = td.where(is_left, -x, x)
    r = td.where(is_left, a - td.round(a), 0.25)
    left = _digamma_positive(a) + 1.0 / td.where(is_left, a, 1.0) + math.pi / td.tan(math.pi * r)
    value = td.where(is_left, left, _digamma_positive(a))
    value = td.where(td.abs(x) < 1e-300, -1.0 / x, value)
    return td.where((is_left & (r == 0.0)) | (x == -INF), NAN, value)  # type: ignore[no-any-return]


@digammas.defjvp
def _digammas_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (dx,) = primals, tangents
    return digammas(x), polygammas(1.0 + 0.0 * x, x) * dx


def digamma(x: Any, /) -> Array:
    """The derivative of the logarithm of the gamma function.

    >>> import tetrad as td
    >>> td.special.digamma(td.asarray([1.0, 10.0]))
    Array([-0.5772157,  2.2517526], float32)
    """
    return wide("digamma", digammas, x)


psi = digamma


@custom_jvp
def polygammas(n: Array, x: Array) -> Array:
    sign = td.where(td.floor(n * 0.5) * 2.0 == n, -1.0, 1.0)
    value = sign * gammas(n + 1.0) * hurwitz(td.maximum(n, 1.0) + 1.0, x)
    value = td.where(n == 0.0, digammas(x), value)
    return td.where((n < 0.0) | ~is_whole(n), NAN, value)  # type: ignore[no-any-return]


@polygammas.defjvp
def _polygammas_jvp(primals: Any, tangents: Any) -> Any:
    (n, x), (_, dx) = primals, tangents
    return polygammas(n, x), polygammas(n + 1.0, x) * dx


def polygamma(n: Any, x: Any, /) -> Array:
    """The derivative of order n of digamma; n has no derivative.

    >>> import tetrad as td
    >>> td.special.polygamma(1, td.asarray([1.0, 2.0]))
    Array([1.644934  , 0.64493406], float32)
    """
    return wide("polygamma", polygammas, td.asarray(n) if n is True else n, x)


# -- zeta ------------------------------------------------------------------------------------------


def _euler_maclaurin(s: Array, q: Array) -> Array:
    """The sum of (q + k)^-s over k >= 0, for q > 0: ten terms, and the rest as an integral."""
    total = td.pow(q, -s)
    for k in range(1, 10):
        total = total + td.pow(q + float(k), -s)
    w = q + 10.0
    last = td.pow(w, -s)
    total = total + last * (0.5 + w / (s - 1.0))
    factor, order = last / w * td.minimum(s, 1e100), td.minimum(s, 1e100)
    for j, b in enumerate(EVEN, 1):
        total = total + factor * (b / math.factorial(2 * j))
        factor = factor * ((order + (2 * j - 1)) / w * ((order + 2 * j) / w))
    return total  # type: ignore[no-any-return]


def _hurwitz(s: Array, q: Array) -> Array:
    """Below 0, where s is whole, what is summed up to 0 is a difference of two such sums of
    reflected numbers."""
    is_left = (q < 0.0) & ~is_whole(q)
    up = td.where(is_left, q - td.floor(q), td.where(q > 0.0, q, 1.0))
    value = _euler_maclaurin(s, up)
    below = td.where(is_left, 1.0 - up, 1.0)
    beyond = td.where(is_left, 1.0 - q, 1.0)
    sign = td.where(td.floor(s * 0.5) * 2.0 == s, 1.0, -1.0)
    left = value + sign * (_euler_maclaurin(s, below) - _euler_maclaurin(s, beyond))
    value = td.where(is_left, td.where(is_whole(s), left, NAN), value)
    value = td.where((q <= 0.0) & is_whole(q), INF, value)
    value = td.where(s == 1.0, INF, value)
    return td.where((s < 1.0) | td.isnan(s) | td.isnan(q), NAN, value)  # type: ignore[no-any-return]


@custom_jvp
def hurwitz(s: Array, q: Array) -> Array:
    return _hurwitz(s, q)


@hurwitz.defjvp
def _hurwitz_jvp(primals: Any, tangents: Any) -> Any:
    (s, q), (ds, dq) = primals, tangents
    _, slope = jvp(lambda s: _hurwitz(s, q), (s,), (td.ones_like(s),))
    return hurwitz(s, q), slope * ds - s * hurwitz(s + 1.0, q) * dq


@custom_jvp
def riemann(s: Array) -> Array:
    """Reflected below 0: 2 (2 pi)^(s - 1) sin(pi s / 2) Gamma(1 - s) zeta(1 - s)."""
    return _riemann(s)


@riemann.defjvp
def _riemann_jvp(primals: Any, tangents: Any) -> Any:
    (s,), (ds,) = primals, tangents
    _, slope = jvp(_riemann, (s,), (td.ones_like(s),))
    return riemann(s), slope * ds


def _riemann(s: Array) -> Array:
    is_left = s < 0.0
    t = td.where(is_left, 1.0 - s, s)
    value = _euler_maclaurin(td.where(t == 1.0, 2.0, t), td.ones_like(t))
    log = td.where(is_left, (s - 1.0) * math.log(2 * math.pi) + log_gamma(t), 0.0)
    sine = sin_pi(td.where(is_left, 0.5 * s, 0.5))
    value = td.where(is_left, 2.0 * td.exp(log) * sine * value, value)
    return td.where(s == 1.0, INF, value)  # type: ignore[no-any-return]


def zeta(x: Any, q: Any = None) -> Array:
    """Hurwitz' zeta function, the sum of (q + k)^-x over k = 0, 1, ...; Riemann's without a q.

    >>> import tetrad as td
    >>> td.special.zeta(2.0, td.asarray([1.0, 3.0]))
    Array([1.644934  , 0.39493406], float32)
    """
    return wide("zeta", riemann, x) if q is None else wide("zeta", hurwitz, x, q)


# -- beta ------------------------------------------------------------------------------------------


@custom_jvp
def log_beta(a: Array, b: Array) -> Array:
    """log |B(a, b)|. Where the larger is at least 8, the difference of its logarithms is taken as
    one; where both are, all of it comes from Stirling's series."""
    low, high = td.minimum(a, b), td.maximum(a, b)
    near = log_gamma(low) + (log_gamma(high) - log_gamma(low + high))
    is_far = (high >= STIRLING) & (low >= 0.0)
    y = td.where(is_far, high, STIRLING)
    x = td.where(is_far, low, 1.0)
    mixed = log_gamma(x) - log_gamma_step(y, x)
    is_both = is_far & (low >= STIRLING)
    x = td.where(is_both, low, STIRLING)
    value = td.where(is_both, _log_beta_far(x, y), td.where(is_far, mixed, near))
    return td.where((high == INF) & (low > 0.0), -INF, value)  # type: ignore[no-any-return]


def stirling_rests(a: Array, b: Array) -> Array:
    return stirling_rest(a) + stirling_rest(b) - stirling_rest(a + b)  # type: ignore[no-any-return]


def _log_beta_far(a: Array, b: Array) -> Array:
    """For 8 <= a <= b."""
    h = a / b
    shares = (a - 0.5) * td.log(h / (1.0 + h)) - b * td.log1p(h)
    return LOG_ROOT - 0.5 * td.log(b) + stirling_rests(a, b) + shares  # type: ignore[no-any-return]


@log_beta.defjvp
def _log_beta_jvp(primals: Any, tangents: Any) -> Any:
    (a, b), (da, db) = primals, tangents
    both = digammas(a + b)
    return log_beta(a, b), (digammas(a) - both) * da + (digammas(b) - both) * db


def betaln(a: Any, b: Any, /) -> Array:
    """The logarithm of the absolute value of the beta function.

    >>> import tetrad as td
    >>> td.special.betaln(2.0, 3.0)
    Array(-2.4849067, float32)
    """
    return wide("betaln", log_beta, a, b)


@custom_jvp
def betas(a: Array, b: Array) -> Array:
    low, high = td.minimum(a, b), td.maximum(a, b)
    is_small = (td.abs(low) < 80.0) & (td.abs(high) < 80.0)
    near = gammas(td.where(is_small, low, 1.0)) / gammas(td.where(is_small, low + high, 1.0))
    near = near * gammas(td.where(is_small, high, 1.0))
    sign = gamma_sign(a) * gamma_sign(b) * gamma_sign(a + b)
    far = sign * td.exp(log_beta(a, b))
    is_zero = is_whole(a + b) & (a + b <= 0.0) & ~is_whole(a)
    return td.where(is_zero, 0.0, td.where(is_small, near, far))  # type: ignore[no-any-return]


@betas.defjvp
def _betas_jvp(primals: Any, tangents: Any) -> Any:
    (a, b), (da, db) = primals, tangents
    value, both = betas(a, b), digammas(a + b)
    return value, value * ((digammas(a) - both) * da + (digammas(b) - both) * db)


def beta(a: Any, b: Any, /) -> Array:
    """The beta function Gamma(a) Gamma(b) / Gamma(a + b).

    >>> import tetrad as td
    >>> td.special.beta(2.0, 3.0)
    Array(0.08333334, float32)
    """
    return wide("beta", betas, a, b)


def comb(N: Any, k: Any, *, exact: bool = False, repetition: bool = False) -> Array:
    """In how many ways k of N things are chosen; 0 where k is negative or more than N.

    repetition  whether a thing may be chosen again

    >>> import tetrad as td
    >>> td.special.comb(5, td.asarray([0, 2, 6]))
    Array([ 1., 10.,  0.], float32)
    """
    if exact:
        fail(DtypeError, "comb: results are floats", "math.comb gives exact integers")
    return wide("comb", _comb_again if repetition else _comb, N, k)


def _comb(n: Array, k: Array) -> Array:
    is_some = (k >= 0.0) & (k <= n) & (n >= 0.0)
    m, j = td.where(is_some, n, 1.0), td.where(is_some, k, 1.0)
    count = 1.0 / ((m + 1.0) * betas(m - j + 1.0, j + 1.0))
    is_exact = is_whole(n) & is_whole(k) & (count < 2.0**50)
    count = count + stop_gradient(td.where(is_exact, td.round(count) - count, 0.0))
    return td.where(is_some, count, td.where(td.isnan(n + k), NAN, 0.0))  # type: ignore[no-any-return]


def _comb_again(n: Array, k: Array) -> Array:
    return td.where((n == 0.0) & (k == 0.0), 1.0, _comb(n + k - 1.0, k))  # type: ignore[no-any-return]
