"""Stats, discrete: distributions of whole numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tetrad.arrays import functions as td
from tetrad.special.gamma import log_beta, log_gamma
from tetrad.special.incomplete import upper_gamma
from tetrad.special.logs import times_log, times_log1p
from tetrad.special.wide import INF, NAN, is_whole
from tetrad.stats.distribution import Distribution, called, discrete
from tetrad.tracing.array import Array


def counts(*_: Array) -> tuple[float, float]:
    return 0.0, INF


def is_chance(p: Array) -> Any:
    return (p >= 0.0) & (p <= 1.0)


def is_count(n: Array) -> Any:
    return (n >= 0.0) & is_whole(n)


bernoulli = discrete(
    "bernoulli",
    ("p",),
    support=lambda p: (0.0, 1.0),
    valid=is_chance,
    logpmf=lambda k, p: times_log(k, p) + times_log1p(1.0 - k, -p),
    cdf=lambda k, p: 1.0 - p,
    ppf=lambda q, p: td.where(q == 0.0, -1.0, td.where(q <= 1.0 - p, 0.0, 1.0)),
)


def log_ways(n: Array, k: Array) -> Array:
    """log of how many ways there are to choose k of n."""
    return -td.log1p(n) - log_beta(n - k + 1.0, k + 1.0)  # type: ignore[no-any-return]


binom = discrete(
    "binom",
    ("n", "p"),
    support=lambda n, p: (0.0, n),
    valid=lambda n, p: is_count(n) & is_chance(p),
    logpmf=lambda k, n, p: log_ways(n, k) + times_log(k, p) + times_log1p(n - k, -p),
)

nbinom = discrete(
    "nbinom",
    ("n", "p"),
    support=counts,
    valid=lambda n, p: (n > 0.0) & (p > 0.0) & (p <= 1.0),
    logpmf=lambda k, n, p: (
        times_log1p(k, -p) + n * td.log(p) - log_beta(k + 1.0, n) - td.log(n + k)
    ),
)

betabinom = discrete(
    "betabinom",
    ("n", "a", "b"),
    support=lambda n, a, b: (0.0, n),
    valid=lambda n, a, b: is_count(n) & (a > 0.0) & (b > 0.0),
    logpmf=lambda k, n, a, b: log_ways(n, k) + log_beta(k + a, n - k + b) - log_beta(a, b),
)

geom = discrete(
    "geom",
    ("p",),
    support=lambda p: (1.0, INF),
    valid=lambda p: (p > 0.0) & (p <= 1.0),
    logpmf=lambda k, p: times_log1p(k - 1.0, -p) + td.log(p),
)

_poisson = discrete(
    "poisson",
    ("mu",),
    support=counts,
    valid=lambda mu: mu >= 0.0,
    logpmf=lambda k, mu: times_log(k, mu) - log_gamma(k + 1.0) - mu,
    cdf=lambda k, mu: upper_gamma(k + 1.0, mu),
)

FEW, MOST = 40.0, 160  # below so large a rate, sums of so many terms are all there is
SERIES = (1 / 12, 1 / 24, 19 / 360, 9 / 80, 863 / 2520)


def poisson_entropy(mu: Array, loc: Array) -> Array:
    """A sum of probabilities, or a series in 1 / mu."""
    is_few = mu < FEW
    rate = td.where(is_few, mu, 1.0)[..., None]
    k = td.asarray(np.arange(float(MOST)))
    logs = times_log(k, rate) - log_gamma(k + 1.0) - rate
    few = td.sum(-td.exp(logs) * td.where(logs > -INF, logs, 0.0), axis=-1)
    large = td.where(is_few, FEW, mu)
    rest = 0.0 * large
    for c in reversed(SERIES):
        rest = (rest + c) / large
    many = 0.5 * td.log(2.0 * math.pi * math.e * large) - rest
    value = td.where(is_few, few, many)
    return td.where((mu >= 0.0) & ~td.isnan(loc), value, NAN)  # type: ignore[no-any-return]


poisson = Distribution(
    "poisson",
    "mu, loc=0",
    {
        **_poisson._functions,
        "entropy": called("poisson", "entropy", "mu", ("loc",), poisson_entropy),
    },
)
