"""JAX's names: `jax.scipy.sparse.linalg`."""

from __future__ import annotations

from tetrad.jax._shell import tables

TABLE = tables.within("linalg", "bicgstab cg gmres")
__getattr__, __dir__ = tables.offers(globals(), TABLE)
