"""Code generation, targets: what a family of processors must say of itself. One file for each;
`targets` has the table.

Receives nothing; an `Isa` is data and a few small emitters. Those that everybody shares ask it,
never which one it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tetrad.backends.llvm.target import Target
from tetrad.core.errors import BackendError
from tetrad.core.record import record

if TYPE_CHECKING:
    from tetrad.backends.llvm.emitter import Codegen
    from tetrad.core.dtypes import DType
    from tetrad.kernel import nodes as n

Features = Mapping[str, bool]  # by LLVM's names: does the processor have it?


@record(eq=False)
class Relocations:
    """How object files of the family are put into memory: their number in ELF headers, and which
    fields are filled in.

    `fill(made, place, type, target, base)` writes at `place` of the bytes that will lie at `base`.
    A stub is a jump to an address that may be anywhere; all of an object lies in one mapping, so
    its own parts are never far.
    """

    machine: int
    known: frozenset[int]
    fill: Callable[[bytearray, int, int, int, int], None]
    stub: Callable[[int], bytes]


@record(eq=False)
class Isa:
    """A family of processors: its levels, how to tell which one runs here, and what its code looks
    like."""

    name: str  # the first word of LLVM's triple
    levels: Mapping[str, Target]
    # what can be known of the running processor beyond what LLVM says
    detected: Callable[[], Features]
    level_of: Callable[[Features], Target]  # the highest that has no more than these features
    needs: Callable[[Target], tuple[str, ...]]  # features that code for a level relies on
    # by the name of a processor: fields of the `Machine` of its level that it has otherwise
    preferred: Mapping[str, Mapping[str, object]]
    shown: tuple[str, ...]  # features that people want to see
    identity: tuple[str, ...]  # lines of /proc/cpuinfo that together say which processor it is
    relocations: Relocations
    # of vectors acc, u, s; None: no instruction fits
    dot4: Callable[[Codegen, n.Dot4, str, str, str], str | None]
    # bytes of a table by a vector; None: no instruction
    lookup: Callable[[Codegen, tuple[int, ...], str], str | None]
    extremum: Callable[[Codegen, str, DType, str, str], str]  # "min" or "max" of vectors of floats
    # intrinsic that orders stores around the cache; "" if there are no such stores
    stream_fence: str
    attributes: Callable[[Target], str]  # of every function
    loop: Mapping[str, str]  # text of the native loop: clock, pause, floating-point state
    system_calls: Mapping[str, int]


ISAS: dict[str, Isa] = {}  # by name; a back end enters its own


def isa_of(target: Target) -> Isa:
    return isa_named(target.triple.partition("-")[0])


def isa_named(name: str) -> Isa:
    if name not in ISAS:
        raise BackendError(
            f"no code for processors of type {name}", hint=f"known: {', '.join(ISAS)}"
        )
    return ISAS[name]
