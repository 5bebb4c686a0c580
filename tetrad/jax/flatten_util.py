"""JAX's names: `jax.flatten_util`."""

from __future__ import annotations

from tetrad.jax._shell import tables

TABLE = {"ravel_pytree": "ravel_pytree"}
__getattr__, __dir__ = tables.offers(globals(), TABLE)
