"""JAX's names: `jax._src.dtypes`, what libraries import of it."""

from __future__ import annotations

from typing import Any

from tetrad.jax import dtypes


def __getattr__(name: str) -> Any:
    return getattr(dtypes, name)
