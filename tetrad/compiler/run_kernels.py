"""Compiler, running kernels: what `td.kernel` offers beside the language itself."""

from tetrad.compiler.kernel_call import call
from tetrad.compiler.resident import resident

__all__ = ["call", "resident"]
