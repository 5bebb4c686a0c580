"""CPU back end, processors: what a family of processors must say of itself beside its
instructions. One file for each; `isa` has the table.

Receives nothing; a `Family` is data and a few small functions: which level runs here, how object
files are put into memory, how threads wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tetrad.backends.llvm.isa import Isa
from tetrad.backends.llvm.target import Target
from tetrad.core import lazy
from tetrad.core.record import record

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
class Family:
    """A family of processors: its levels, how to tell which one runs here, and how code is loaded
    and run."""

    isa: Isa
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
    loop: Mapping[str, str]  # text of the native loop: clock, pause, floating-point state
    system_calls: Mapping[str, int]

    @property
    def name(self) -> str:
        return self.isa.name


FAMILIES: lazy.Filled[Family] = lazy.Filled()  # `backends.cpu.isa` names the files that fill it
LEVELS: lazy.Filled[Target] = lazy.Filled()  # the targets of all families


def register(family: Family) -> Family:
    FAMILIES[family.name] = family
    LEVELS.update(family.levels)
    return family
