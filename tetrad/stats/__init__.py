"""The public namespace `td.stats`: densities and probabilities of the usual distributions, with the
names and arguments of scipy.stats as far as JAX has them.

`td.stats.norm.logpdf(x, loc, scale)`: a distribution is an object with functions of arrays
(`distribution.py`). All are compositions that are computed in f64 and have derivatives in their
parameters. Here are functions of samples too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tetrad.arrays import namespaces
from tetrad.stats.continuous import (
    cauchy,
    expon,
    gennorm,
    gumbel_l,
    gumbel_r,
    laplace,
    logistic,
    norm,
    pareto,
    truncnorm,
    uniform,
    vonmises,
    wrapcauchy,
)
from tetrad.stats.density import gaussian_kde
from tetrad.stats.discrete import bernoulli, betabinom, binom, geom, nbinom, poisson
from tetrad.stats.gammas import beta, chi2, gamma, t
from tetrad.stats.samples import mode, rankdata, sem
from tetrad.stats.vectors import dirichlet, multinomial, multivariate_normal

__all__ = [
    "bernoulli", "beta", "betabinom", "binom", "cauchy", "chi2", "dirichlet", "expon", "gamma",
    "gaussian_kde", "gennorm", "geom", "gumbel_l", "gumbel_r", "laplace", "logistic", "mode",
    "multinomial", "multivariate_normal", "nbinom", "norm", "pareto", "poisson", "rankdata", "sem",
    "t", "truncnorm", "uniform", "vonmises", "wrapcauchy",
]  # fmt: skip

if not TYPE_CHECKING:  # which would take any name for one of ours
    __getattr__, __dir__ = namespaces.offers(globals(), {})
