"""JAX's names: `jax.scipy.optimize`."""

from __future__ import annotations

from tetrad.jax._shell import tables

TABLE = {"OptimizeResults": "OptimizeResults", "minimize": "minimize"}
__getattr__, __dir__ = tables.offers(globals(), TABLE)
