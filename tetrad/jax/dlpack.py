"""JAX's names: `jax.dlpack`."""

from __future__ import annotations

from tetrad.jax._shell import tables

TABLE = {"from_dlpack": "from_dlpack"}
__getattr__, __dir__ = tables.offers(globals(), TABLE)
