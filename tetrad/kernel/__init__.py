"""The kernel language: what one invocation of a kernel does, as an immutable `Program`.

`build` makes programs, `parse` reads their text, `verify` checks them, `evaluate` says what they mean; `registry` holds
programs with known answers. `tetrad.dispatch` runs them.
"""

from tetrad.kernel import registry
from tetrad.kernel.build import KernelBuilder, LocalVar, Val
from tetrad.kernel.evaluate import KernelTrap, evaluate
from tetrad.kernel.nodes import Buffer, Program
from tetrad.kernel.text import fingerprint, parse, to_text
from tetrad.kernel.verify import problems, verify

build = KernelBuilder

__all__ = [
    "Buffer", "KernelBuilder", "KernelTrap", "LocalVar", "Program", "Val",
    "build", "evaluate", "fingerprint", "parse", "problems", "registry", "to_text", "verify",
]  # fmt: skip
