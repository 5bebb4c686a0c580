"""Stats, continuous: distributions of real numbers whose functions are elementary or those of the
normal distribution, in standard form (loc 0, scale 1)."""

from __future__ import annotations

import math
from typing import Any

from tetrad.arrays import functions as td
from tetrad.special.bessel import scaled_i0
from tetrad.special.errors import log_normal_below, normal_below, normal_quantile
from tetrad.special.gamma import log_gamma
from tetrad.special.incomplete import lower_gamma, upper_gamma
from tetrad.special.logs import log_odds
from tetrad.special.wide import INF, sin_pi
from tetrad.stats.distribution import continuous
from tetrad.tracing.array import Array
from tetrad.tracing.operands import run

HALF_LOG_TAU = 0.5 * math.log(2.0 * math.pi)
LOG_2 = math.log(2.0)
LOG_TAU = math.log(2.0 * math.pi)


def positive(*_: Array) -> tuple[float, float]:
    return 0.0, INF


def is_positive(*shapes: Array) -> Any:
    found = shapes[0] > 0.0
    for shape in shapes[1:]:
        found = found & (shape > 0.0)
    return found


norm = continuous(
    "norm",
    logpdf=lambda z: -0.5 * z * z - HALF_LOG_TAU,
    cdf=normal_below,
    sf=lambda z: normal_below(-z),
    logcdf=log_normal_below,
    logsf=lambda z: log_normal_below(-z),
    ppf=normal_quantile,
    isf=lambda q: -normal_quantile(q),
)

uniform = continuous(
    "uniform",
    support=lambda: (0.0, 1.0),
    logpdf=lambda z: 0.0 * z,
    cdf=lambda z: z,
    sf=lambda z: 1.0 - z,
    logcdf=td.log,
    logsf=lambda z: td.log1p(-z),
    ppf=lambda q: q,
    isf=lambda q: 1.0 - q,
)

expon = continuous(
    "expon",
    support=positive,
    logpdf=lambda z: -z,
    cdf=lambda z: -td.expm1(-z),
    sf=lambda z: td.exp(-z),
    logcdf=lambda z: td.log(-td.expm1(-z)),
    logsf=lambda z: -z,
    ppf=lambda q: -td.log1p(-q),
    isf=lambda q: -td.log(q),
)


# -- with two tails --------------------------------------------------------------------------------


def below_laplace(z: Array) -> Array:
    tail = 0.5 * td.exp(-td.abs(z))
    return td.where(z < 0.0, tail, 1.0 - tail)  # type: ignore[no-any-return]


def log_below_laplace(z: Array) -> Array:
    tail = 0.5 * td.exp(-td.abs(z))
    return td.where(z < 0.0, -td.abs(z) - LOG_2, td.log1p(-tail))  # type: ignore[no-any-return]


def laplace_quantile(q: Array) -> Array:
    is_low = q < 0.5
    low, high = td.where(is_low, q, 0.5), td.where(is_low, 0.5, q)
    return td.where(is_low, td.log(2.0 * low), -LOG_2 - td.log1p(-high))  # type: ignore[no-any-return]


laplace = continuous(
    "laplace",
    logpdf=lambda z: -td.abs(z) - LOG_2,
    cdf=below_laplace,
    sf=lambda z: below_laplace(-z),
    logcdf=log_below_laplace,
    logsf=lambda z: log_below_laplace(-z),
    ppf=laplace_quantile,
    isf=lambda q: -laplace_quantile(q),
)


def log_expit(z: Array) -> Array:
    return td.minimum(z, 0.0) - td.log1p(td.exp(-td.abs(z)))  # type: ignore[no-any-return]


logistic = continuous(
    "logistic",
    logpdf=lambda z: -td.abs(z) - 2.0 * td.log1p(td.exp(-td.abs(z))),
    cdf=lambda z: run("sigmoid", z),
    sf=lambda z: run("sigmoid", -z),
    logcdf=log_expit,
    logsf=lambda z: log_expit(-z),
    ppf=log_odds,
    isf=lambda q: -log_odds(q),
)

cauchy = continuous(
    "cauchy",
    logpdf=lambda z: -math.log(math.pi) - td.log1p(z * z),
    cdf=lambda z: below_cauchy(z),
    sf=lambda z: below_cauchy(-z),
    logcdf=lambda z: td.log(below_cauchy(z)),
    logsf=lambda z: td.log(below_cauchy(-z)),
    ppf=lambda q: sin_pi(q - 0.5) / sin_pi(q),
    isf=lambda q: sin_pi(0.5 - q) / sin_pi(q),
)


def below_cauchy(z: Array) -> Array:
    """Without losing the left tail in a difference."""
    return td.atan2(td.ones_like(z), -z) / math.pi  # type: ignore[no-any-return]


def log_gap(z: Array) -> Array:
    """log(1 - exp(-z)) of positive numbers."""
    is_small = z < LOG_2
    small, large = td.where(is_small, z, 1.0), td.where(is_small, 1.0, z)
    return td.where(is_small, td.log(-td.expm1(-small)), td.log1p(-td.exp(-large)))  # type: ignore[no-any-return]


gumbel_r = continuous(
    "gumbel_r",
    logpdf=lambda z: -z - td.exp(-z),
    cdf=lambda z: td.exp(-td.exp(-z)),
    sf=lambda z: -td.expm1(-td.exp(-z)),
    logcdf=lambda z: -td.exp(-z),
    logsf=lambda z: td.where(z > 700.0, -z, log_gap(td.exp(-td.minimum(z, 700.0)))),
    ppf=lambda q: -td.log(-td.log(q)),
    isf=lambda q: -td.log(-td.log1p(-q)),
)

gumbel_l = continuous(
    "gumbel_l",
    logpdf=lambda z: z - td.exp(z),
    cdf=lambda z: -td.expm1(-td.exp(z)),
    sf=lambda z: td.exp(-td.exp(z)),
    logcdf=lambda z: td.where(z < -700.0, z, log_gap(td.exp(td.maximum(z, -700.0)))),
    logsf=lambda z: -td.exp(z),
    ppf=lambda q: td.log(-td.log1p(-q)),
    isf=lambda q: td.log(-td.log(q)),
)


# -- with shapes -----------------------------------------------------------------------------------

pareto = continuous(
    "pareto",
    ("b",),
    support=lambda b: (1.0, INF),
    valid=is_positive,
    logpdf=lambda z, b: td.log(b) - (b + 1.0) * td.log(z),
    cdf=lambda z, b: -td.expm1(-b * td.log(z)),
    sf=lambda z, b: td.exp(-b * td.log(z)),
    logcdf=lambda z, b: log_gap(b * td.log(z)),
    logsf=lambda z, b: -b * td.log(z),
    ppf=lambda q, b: td.exp(-td.log1p(-q) / b),
    isf=lambda q, b: td.exp(-td.log(q) / b),
)


def power(z: Array, beta: Array) -> Array:
    """|z|^beta; at 0 it is 0, and so is its derivative in beta."""
    size = td.abs(z)
    return td.where(size == 0.0, 0.0, td.pow(td.where(size == 0.0, 1.0, size), beta))  # type: ignore[no-any-return]


def below_gennorm(z: Array, beta: Array) -> Array:
    reach, a = power(z, beta), 1.0 / beta
    return td.where(z < 0.0, 0.5 * upper_gamma(a, reach), 0.5 + 0.5 * lower_gamma(a, reach))  # type: ignore[no-any-return]


gennorm = continuous(
    "gennorm",
    ("beta",),
    valid=is_positive,
    logpdf=lambda z, beta: td.log(0.5 * beta) - log_gamma(1.0 / beta) - power(z, beta),
    cdf=below_gennorm,
    sf=lambda z, beta: below_gennorm(-z, beta),
    logcdf=lambda z, beta: td.log(below_gennorm(z, beta)),
    logsf=lambda z, beta: td.log(below_gennorm(-z, beta)),
)


def log_between(a: Array, b: Array) -> Array:
    """log of the probability that a normal number is between a and b: in the tail they share, or as
    what is left of 1."""
    is_right, is_left = a > 0.0, b < 0.0
    near, far = td.where(is_right, -a, b), td.where(is_right, -b, a)
    is_tail = is_right | is_left
    near, far = td.where(is_tail, near, 0.0), td.where(is_tail, far, -1.0)
    log_near, log_far = log_normal_below(near), log_normal_below(far)
    is_open = log_far > -INF
    gap = td.where(is_open, log_near - td.where(is_open, log_far, -1.0), 1.0)
    tail = td.where(is_open, log_near + log_gap(td.where(gap > 0.0, gap, 1e-300)), log_near)
    centre = td.log1p(-(normal_below(a) + normal_below(-b)))
    return td.where(is_tail, tail, centre)  # type: ignore[no-any-return]


def log_below_truncnorm(z: Array, a: Array, b: Array) -> Array:
    return log_between(a, z) - log_between(a, b)  # type: ignore[no-any-return]


def log_above_truncnorm(z: Array, a: Array, b: Array) -> Array:
    return log_between(z, b) - log_between(a, b)  # type: ignore[no-any-return]


truncnorm = continuous(
    "truncnorm",
    ("a", "b"),
    support=lambda a, b: (a, b),
    valid=lambda a, b: a < b,
    logpdf=lambda z, a, b: -0.5 * z * z - HALF_LOG_TAU - log_between(a, b),
    cdf=lambda z, a, b: td.exp(log_below_truncnorm(z, a, b)),
    sf=lambda z, a, b: td.exp(log_above_truncnorm(z, a, b)),
    logcdf=log_below_truncnorm,
    logsf=log_above_truncnorm,
)

vonmises = continuous(
    "vonmises",
    ("kappa",),
    valid=lambda kappa: kappa >= 0.0,
    logpdf=lambda z, kappa: kappa * (td.cos(z) - 1.0) - LOG_TAU - td.log(scaled_i0(kappa)),
)

wrapcauchy = continuous(
    "wrapcauchy",
    ("c",),
    support=lambda c: (0.0, 2.0 * math.pi),
    valid=lambda c: (c > 0.0) & (c < 1.0),
    logpdf=lambda z, c: td.log1p(-c * c) - LOG_TAU - td.log1p(c * c - 2.0 * c * td.cos(z)),
)
