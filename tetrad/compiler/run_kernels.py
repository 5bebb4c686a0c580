"""Compiler, running kernels: what `td.kernel` offers beside the language itself."""

from tetrad.compiler.resident import resident

__all__ = ["resident"]
