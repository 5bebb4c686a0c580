"""JAX's names: `jax.dlpack`."""

from __future__ import annotations

from typing import Any

from tetrad.jax._shell import tables

TABLE = {"from_dlpack": "from_dlpack"}


def __getattr__(name: str) -> Any:
    return tables.reexported(globals(), TABLE, name)


def __dir__() -> list[str]:
    return tables.listed(globals(), TABLE)
