"""JAX's names, `jax.numpy`: the few functions whose conventions differ from those of `td`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

DIFFERING: dict[str, Callable[..., Any]] = {}
