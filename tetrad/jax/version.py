"""JAX's names: `jax.version`."""

from __future__ import annotations

__version__ = "0.10.2"
__version_info__ = (0, 10, 2)
