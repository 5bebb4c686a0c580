"""JAX's names: `jax.scipy.sparse`: its linear solvers."""

from __future__ import annotations

from typing import Any

from tetrad.core import lazy
from tetrad.jax._shell import tables


def __getattr__(name: str) -> Any:
    if name != "linalg":
        raise tables.absent(__name__, name)
    return lazy.module("tetrad.jax.scipy.sparse.linalg")
