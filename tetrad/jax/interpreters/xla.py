"""JAX's names: `jax.interpreters.xla`: nothing to extend here."""

from __future__ import annotations

from typing import Any

from tetrad.jax.interpreters.absent import stand_in


def __getattr__(name: str) -> Any:
    return stand_in(__name__, name)
