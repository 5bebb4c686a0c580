"""JAX's names: `jax._src.typing`, what libraries import of it."""

from __future__ import annotations

from typing import Any

from tetrad.jax import typing


def __getattr__(name: str) -> Any:
    return getattr(typing, name)
