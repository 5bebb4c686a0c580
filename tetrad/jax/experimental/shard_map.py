"""JAX's names: `jax.experimental.shard_map`."""

from __future__ import annotations

from tetrad.jax._shell.devices import shard_map as shard_map
