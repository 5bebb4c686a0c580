"""JAX's names: the few of `jax._src`, JAX's private folder, that libraries import all the same."""

from __future__ import annotations
