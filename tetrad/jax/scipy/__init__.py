"""JAX's names: `jax.scipy`."""

from __future__ import annotations

from tetrad.jax._shell import tables

FOLDERS = ("fft", "integrate", "linalg", "optimize", "sparse", "special", "stats")
__getattr__, __dir__ = tables.offers(globals(), {}, FOLDERS)
