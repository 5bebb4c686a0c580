"""JAX's names: `jax._src.random`, what libraries import of it."""

from __future__ import annotations

from typing import Any

from tetrad.jax import random


def __getattr__(name: str) -> Any:
    return getattr(random, name)
