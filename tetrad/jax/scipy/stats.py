"""JAX's names: `jax.scipy.stats`."""

from __future__ import annotations

from typing import Any

from tetrad.jax._shell import tables

TABLE = tables.within(
    "stats",
    """
    bernoulli beta betabinom binom cauchy chi2 dirichlet expon gamma gaussian_kde gennorm geom
    gumbel_l gumbel_r laplace logistic mode multinomial multivariate_normal nbinom norm pareto
    poisson rankdata sem t truncnorm uniform vonmises wrapcauchy
    """,
)


def __getattr__(name: str) -> Any:
    return tables.reexported(globals(), TABLE, name)


def __dir__() -> list[str]:
    return tables.listed(globals(), TABLE)
