"""JAX's names: `jax.custom_derivatives`."""

from __future__ import annotations

from tetrad.jax._shell import tables

TABLE = tables.same("custom_jvp custom_vjp")
__getattr__, __dir__ = tables.offers(globals(), TABLE)
