"""JAX's names: `jax.interpreters`. Tetrad has graphs and rules of its own ops; what extends JAX's
interpreters has nothing to extend, and says so when it is used."""

from __future__ import annotations

from typing import Any

from tetrad.core import lazy
from tetrad.jax._shell import tables

FOLDERS = ("ad", "batching", "mlir", "partial_eval", "pxla", "xla")


def __getattr__(name: str) -> Any:
    if name not in FOLDERS:
        raise tables.absent(__name__, name)
    return lazy.module(f"tetrad.jax.interpreters.{name}")
