"""Stats, gammas: distributions made of gamma and beta functions, in standard form."""

from __future__ import annotations

import math

from tetrad.arrays import functions as td
from tetrad.special import incomplete, incomplete_beta
from tetrad.special.errors import normal_below
from tetrad.special.gamma import log_beta
from tetrad.special.incomplete import lower_gamma, upper_gamma
from tetrad.special.incomplete_beta import incomplete_beta as below_beta
from tetrad.special.incomplete_beta import upper_beta
from tetrad.special.wide import INF
from tetrad.stats.continuous import HALF_LOG_TAU, is_positive, positive
from tetrad.stats.distribution import continuous
from tetrad.tracing.array import Array


def log_gamma_density(z: Array, a: Array) -> Array:
    """At 0 it is that of an exponential number, or none, or without bounds."""
    is_zero = z == 0.0
    x = td.where(is_zero, 1.0, z)
    log = td.log(x)
    edge = td.where(a < 1.0, INF, td.where(a == 1.0, 0.0, -INF))
    return td.where(is_zero, edge, incomplete.log_density(a, x, log) - log)  # type: ignore[no-any-return]


gamma = continuous(
    "gamma",
    ("a",),
    support=positive,
    valid=is_positive,
    logpdf=log_gamma_density,
    cdf=lambda z, a: lower_gamma(a, z),
    sf=lambda z, a: upper_gamma(a, z),
    logcdf=lambda z, a: td.log(lower_gamma(a, z)),
    logsf=lambda z, a: td.log(upper_gamma(a, z)),
)

chi2 = continuous(
    "chi2",
    ("df",),
    support=positive,
    valid=is_positive,
    logpdf=lambda z, df: log_gamma_density(0.5 * z, 0.5 * df) - math.log(2.0),
    cdf=lambda z, df: lower_gamma(0.5 * df, 0.5 * z),
    sf=lambda z, df: upper_gamma(0.5 * df, 0.5 * z),
    logcdf=lambda z, df: td.log(lower_gamma(0.5 * df, 0.5 * z)),
    logsf=lambda z, df: td.log(upper_gamma(0.5 * df, 0.5 * z)),
)


def log_beta_density(z: Array, a: Array, b: Array) -> Array:
    is_edge = (z == 0.0) | (z == 1.0)
    x = td.where(is_edge, 0.5, z)
    odds = x, 1.0 - x, td.log(x), td.log1p(-x)
    one, other = td.where(z == 0.0, a, b), td.where(z == 0.0, b, a)
    edge = td.where(one < 1.0, INF, td.where(one == 1.0, td.log(other), -INF))
    inside = incomplete_beta.log_density(a, b, odds) - odds[2] - odds[3]
    return td.where(is_edge, edge, inside)  # type: ignore[no-any-return]


beta = continuous(
    "beta",
    ("a", "b"),
    support=lambda a, b: (0.0, 1.0),
    valid=is_positive,
    logpdf=log_beta_density,
    cdf=lambda z, a, b: below_beta(a, b, z),
    sf=lambda z, a, b: upper_beta(a, b, z),
    logcdf=lambda z, a, b: td.log(below_beta(a, b, z)),
    logsf=lambda z, a, b: td.log(upper_beta(a, b, z)),
)


def log_t_density(z: Array, df: Array) -> Array:
    """Of no end of degrees of freedom it is the normal one."""
    is_normal = df == INF
    freedom = td.where(is_normal, 1.0, df)
    tail = 0.5 * (freedom + 1.0) * td.log1p(z * z / freedom)
    value = -tail - 0.5 * td.log(freedom) - log_beta(0.0 * freedom + 0.5, 0.5 * freedom)
    return td.where(is_normal, -0.5 * z * z - HALF_LOG_TAU, value)  # type: ignore[no-any-return]


def below_t(z: Array, df: Array) -> Array:
    """Half the probability of exceeding |z|, or what it leaves. By the smaller of df / (df + z^2)
    and what that leaves of 1."""
    is_normal = df == INF
    freedom, square = td.where(is_normal, 1.0, df), z * z
    is_far = square > freedom
    near = td.where(is_far, 0.0, square) / (freedom + square)
    far = td.where(is_far, freedom, 0.0) / (freedom + square)
    half = 0.0 * freedom + 0.5
    tail = td.where(
        is_far, below_beta(0.5 * freedom, half, far), upper_beta(half, 0.5 * freedom, near)
    )
    value = td.where(z < 0.0, 0.5 * tail, 1.0 - 0.5 * tail)
    return td.where(is_normal, normal_below(z), value)  # type: ignore[no-any-return]


t = continuous(
    "t",
    ("df",),
    valid=is_positive,
    logpdf=log_t_density,
    cdf=below_t,
    sf=lambda z, df: below_t(-z, df),
    logcdf=lambda z, df: td.log(below_t(z, df)),
    logsf=lambda z, df: td.log(below_t(-z, df)),
)
