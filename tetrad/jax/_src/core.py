"""JAX's names: `jax._src.core`, what libraries import of it."""

from __future__ import annotations

from typing import Any

from tetrad.jax import core


def __getattr__(name: str) -> Any:
    return getattr(core, name)
