"""JAX's names: `jax._src.flatten_util`, what libraries import of it."""

from __future__ import annotations

from typing import Any

from tetrad.jax import flatten_util


def __getattr__(name: str) -> Any:
    return getattr(flatten_util, name)
