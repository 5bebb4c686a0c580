"""JAX's names: `jax._src.mesh`, what libraries import of it."""

from __future__ import annotations

from typing import Any

from tetrad.jax._shell import devices


def __getattr__(name: str) -> Any:
    return getattr(devices, name)
