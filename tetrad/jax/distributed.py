"""JAX's names: `jax.distributed`, for one process."""

from __future__ import annotations

from typing import Any

from tetrad.core.errors import UnsupportedError


def initialize(
    coordinator_address: str | None = None, num_processes: int | None = None, *_: Any, **__: Any
) -> None:
    """One process needs no coordinator; several are not offered."""
    if num_processes not in (None, 1):
        raise UnsupportedError(
            f"jax.distributed: {num_processes} processes, there is one", hint="num_processes=1"
        )


def shutdown() -> None:
    """End what was not begun."""


def is_initialized() -> bool:
    return False
