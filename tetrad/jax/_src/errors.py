"""JAX's names: `jax._src.errors`, what libraries import of it."""

from __future__ import annotations

from typing import Any

from tetrad.jax import errors


def __getattr__(name: str) -> Any:
    return getattr(errors, name)
