"""JAX's names: `jax.scipy.sparse`: its linear solvers."""

from __future__ import annotations

from tetrad.jax._shell import tables

__getattr__, __dir__ = tables.offers(globals(), {}, ["linalg"])
