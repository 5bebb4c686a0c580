"""JAX's names: `jax.extend`: what libraries ask of JAX's interpreters, as far as it has a meaning
here."""

from __future__ import annotations

from typing import Any

from tetrad.core import lazy
from tetrad.jax._shell import tables

FOLDERS = ("backend", "core", "linear_util", "source_info_util")


def __getattr__(name: str) -> Any:
    if name not in FOLDERS:
        raise tables.absent(__name__, name)
    return lazy.module(f"tetrad.jax.extend.{name}")
