"""JAX's names: `jax.tree`."""

from __future__ import annotations

from typing import Any

from tetrad.jax._shell import tables

TABLE = tables.within(
    "tree",
    "all broadcast flatten flatten_with_path leaves leaves_with_path map map_with_path reduce "
    "reduce_associative static structure transpose unflatten",
)


def __getattr__(name: str) -> Any:
    return tables.reexported(globals(), TABLE, name)


def __dir__() -> list[str]:
    return tables.listed(globals(), TABLE)
