"""JAX's names: `jax._src.api`, what libraries import of it."""

from __future__ import annotations

from typing import Any

from tetrad.jax._shell import transforms


def __getattr__(name: str) -> Any:
    return getattr(transforms, name)
