"""JAX's names: `jax._src.custom_derivatives`, what libraries import of it."""

from __future__ import annotations

from typing import Any

from tetrad.jax import custom_derivatives


def __getattr__(name: str) -> Any:
    return getattr(custom_derivatives, name)
