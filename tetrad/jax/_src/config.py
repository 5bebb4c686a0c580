"""JAX's names: `jax._src.config`, what libraries import of it."""

from __future__ import annotations

from typing import Any

from tetrad.jax._shell import configuration


def __getattr__(name: str) -> Any:
    return getattr(configuration, name)
