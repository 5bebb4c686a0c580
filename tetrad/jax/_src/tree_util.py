"""JAX's names: `jax._src.tree_util`, what libraries import of it."""

from __future__ import annotations

from typing import Any

from tetrad.jax import tree_util


def __getattr__(name: str) -> Any:
    return getattr(tree_util, name)
