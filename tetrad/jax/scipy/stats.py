"""JAX's names: `jax.scipy.stats`."""

from __future__ import annotations

from tetrad.jax._shell import tables

TABLE = tables.within(
    "stats",
    """
    bernoulli beta betabinom binom cauchy chi2 dirichlet expon gamma gaussian_kde gennorm geom
    gumbel_l gumbel_r laplace logistic mode multinomial multivariate_normal nbinom norm pareto
    poisson rankdata sem t truncnorm uniform vonmises wrapcauchy
    """,
)
__getattr__, __dir__ = tables.offers(globals(), TABLE)
