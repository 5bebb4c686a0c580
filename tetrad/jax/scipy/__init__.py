"""JAX's names: `jax.scipy`."""

from __future__ import annotations

from typing import Any

from tetrad.core import lazy
from tetrad.jax._shell import tables

FOLDERS = ("fft", "integrate", "linalg", "optimize", "sparse", "special", "stats")


def __getattr__(name: str) -> Any:
    if name not in FOLDERS:
        raise tables.absent(__name__, name)
    return lazy.module(f"tetrad.jax.scipy.{name}")


def __dir__() -> list[str]:
    return list(FOLDERS)
