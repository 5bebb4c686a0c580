"""JAX's names: `jax.tree`."""

from __future__ import annotations

from tetrad.jax._shell import tables

TABLE = tables.within(
    "tree",
    "all broadcast flatten flatten_with_path leaves leaves_with_path map map_with_path reduce "
    "reduce_associative static structure transpose unflatten",
)
__getattr__, __dir__ = tables.offers(globals(), TABLE)
