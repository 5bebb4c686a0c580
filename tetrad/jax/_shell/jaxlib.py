"""JAX's names: what libraries ask of `jaxlib`, its version."""

from __future__ import annotations

__version__ = "0.10.2"
__version_info__ = (0, 10, 2)


class XlaRuntimeError(RuntimeError):
    """JAX's error of a failed run; ours are `td.errors`."""
