"""JAX's names: `jax.stages`, the types of what `jit(f).lower(...)` gives."""

from __future__ import annotations

from typing import Any

from tetrad.compiler.jit import Jitted as Wrapped
from tetrad.compiler.stages import CompiledCall as Compiled
from tetrad.compiler.stages import LoweredCall as Lowered
from tetrad.compiler.stages import TracedCall as Traced

CompilerOptions = dict[str, Any]

__all__ = ["Compiled", "CompilerOptions", "Lowered", "Traced", "Wrapped"]
