"""JAX's names: `jax.extend.source_info_util`: files whose frames errors leave out."""

from __future__ import annotations


def register_exclusion(path: str) -> None:
    """Errors name the user's line; frames of libraries are not asked about."""
