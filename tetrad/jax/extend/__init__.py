"""JAX's names: `jax.extend`: what libraries ask of JAX's interpreters, as far as it has a meaning
here."""

from __future__ import annotations

from tetrad.jax._shell import tables

FOLDERS = ("backend", "core", "linear_util", "source_info_util")
__getattr__, __dir__ = tables.offers(globals(), {}, FOLDERS)
