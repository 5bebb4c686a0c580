"""Kernel language, invalid output: the program that stands for one that cannot be built.

Receives what went wrong, returns a program that fails with those words when it runs, so that a
catalogue of programs can be built while sizes are wrong. `has_trap` tells whether any program can
fail that way.
"""

from __future__ import annotations

from tetrad.core.dtypes import DType, bool_
from tetrad.kernel import nodes as n
from tetrad.kernel.build import KernelBuilder

INVALID = 1  # the code of its trap


def invalid_output(region: str, message: str, dtype: DType, out: str = "out") -> n.Program:
    """One output of one element, one invocation, one region, whose body traps. Errors of a launch
    begin with the name of the program, so the message is its name."""
    k = KernelBuilder(message, 1)
    k.buffer(out, dtype, "write", 1)
    with k.region(region):
        k.trap(k.const(True, bool_), INVALID, 0)
    return k.finish()


def has_trap(program: n.Program) -> bool:
    """May a launch of this program fail by a `trap`?"""
    return block_has_trap(program.body)


def block_has_trap(block: n.Block) -> bool:
    for instr in block:
        if isinstance(instr, n.Trap):
            return True
        if any(block_has_trap(getattr(instr, name, ())) for name in ("body", "then", "orelse")):
            return True
    return False
