"""JAX's names: `jax.scipy.integrate`."""

from __future__ import annotations

from tetrad.jax._shell import tables

TABLE = {"trapezoid": "trapezoid"}
__getattr__, __dir__ = tables.offers(globals(), TABLE)
