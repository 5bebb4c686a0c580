"""JAX's names: `jax._src.xla_bridge`, what libraries import of it."""

from __future__ import annotations

from tetrad.jax.extend.backend import backends as backends
from tetrad.jax.extend.backend import get_backend as get_backend


def backends_are_initialized() -> bool:
    return True
