"""JAX's names: `jax.debug`."""

from __future__ import annotations

from typing import Any

from tetrad.core.errors import UnsupportedError
from tetrad.jax._shell import tables
from tetrad.jax._shell.tables import td

TABLE = tables.within("debug", "breakpoint callback log print")


def visualize_array_sharding(arr: Any, **_: Any) -> None:
    """Print which device holds which part: one holds all."""
    shape = td.asarray(arr).shape
    print(f"{shape}: CPU 0 holds the whole array")


visualize_sharding = visualize_array_sharding


def inspect_array_sharding(value: Any, *, callback: Any) -> None:
    raise UnsupportedError("jax.debug.inspect_array_sharding: arrays have one device")


__getattr__, __dir__ = tables.offers(globals(), TABLE)
