"""JAX's names: `jax._src.test_util`, what libraries import of it."""

from __future__ import annotations

from typing import Any

from tetrad.jax import test_util


def __getattr__(name: str) -> Any:
    return getattr(test_util, name)
