"""JAX's names: `jax.experimental`, the parts that have something behind them."""

from __future__ import annotations

from typing import Any

from tetrad.core import lazy
from tetrad.core.errors import UnsupportedError
from tetrad.jax._shell import tables
from tetrad.jax._shell.configuration import disable_x64 as disable_x64
from tetrad.jax._shell.configuration import enable_x64 as enable_x64

FOLDERS = ("mesh_utils", "multihost_utils", "ode", "shard_map")
MISSING = (
    "checkify",
    "layout",
    "sparse",
    "pallas",
    "jax2tf",
    "host_callback",
    "maps",
    "hijax",
    "colocated_python",
)
TABLE = tables.same("io_callback")


def __getattr__(name: str) -> Any:
    if name in FOLDERS:
        return lazy.module(f"tetrad.jax.experimental.{name}")
    if name in MISSING:
        raise UnsupportedError(f"jax.experimental.{name} has no counterpart in Tetrad")
    return tables.reexported(globals(), TABLE, name)


def __dir__() -> list[str]:
    return tables.listed(globals(), TABLE, FOLDERS)
