"""Code generation, targets: what a family of processors must say of its instructions.

Receives nothing; an `Isa` is a few small emitters and names. The rules that all LLVM machines share
ask the one of their target, never which one it is. The values are in the back ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tetrad.core.record import record

if TYPE_CHECKING:
    from tetrad.backends.llvm.emitter import Codegen
    from tetrad.backends.llvm.target import Target
    from tetrad.core.dtypes import DType
    from tetrad.kernel import nodes as n


@record(eq=False)
class Isa:
    """What the code of a family of processors looks like."""

    name: str  # the first word of LLVM's triple
    # of vectors acc, u, s; None: no instruction fits
    dot4: Callable[[Codegen, n.Dot4, str, str, str], str | None]
    # bytes of a table by a vector; None: no instruction
    lookup: Callable[[Codegen, tuple[int, ...], str], str | None]
    extremum: Callable[[Codegen, str, DType, str, str], str]  # "min" or "max" of vectors of floats
    # of vectors acc, a, b: products of bf16; None: no instruction
    dot2: Callable[[Codegen, str, str, str], str | None] = lambda cg, acc, a, b: None
    # words of sixteen lanes by places in them (i32); None: no instruction
    permute: Callable[[Codegen, str, str], str | None] = lambda cg, x, at: None
    attributes: Callable[[Target], str] = lambda target: ""  # of every function
    # intrinsic that orders stores around the cache; "" if there are no such stores
    stream_fence: str = ""
    # what inline assembly calls a register of 64 bits; "": counters of loops are not hidden
    register: str = "r"
    hears_stop: bool = True  # long loops look at the stop word
