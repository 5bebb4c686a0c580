"""JAX's names: `jax._src.api_util`, what libraries import of it."""

from __future__ import annotations

from typing import Any

from tetrad.jax import api_util


def __getattr__(name: str) -> Any:
    return getattr(api_util, name)
