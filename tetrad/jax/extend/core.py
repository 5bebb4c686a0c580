"""JAX's names: `jax.extend.core`."""

from __future__ import annotations

from typing import Any

from tetrad.jax import core
from tetrad.jax.core import get_opaque_trace_state as get_opaque_trace_state
from tetrad.jax.core import trace_state_clean


def unsafe_am_i_under_a_jit_DO_NOT_USE() -> bool:
    """Is a function being traced?"""
    return not trace_state_clean()


def __getattr__(name: str) -> Any:
    return getattr(core, name)
