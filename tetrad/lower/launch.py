"""Lowering, results: what a graph becomes. A list of launches over slots; sizes may still be symbolic.

A `Slot` is memory for one array: an input, an output, a constant, or an intermediate the planner will place. A `Launch`
is one kernel program with the slots of its buffers, the formulas of its arguments and the size of its grid.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tetrad.core.dtypes import u8
from tetrad.core.record import field, record
from tetrad.core.sizes import Size
from tetrad.core.source import Source
from tetrad.core.types import ArrayType
from tetrad.graph.nodes import Graph, Literal, Node
from tetrad.kernel.nodes import Buffer, Program

if TYPE_CHECKING:
    from tetrad.passes.fuse import Group  # programs recalled from disk have launches, but no passes


@record(eq=False)
class Slot:
    """Memory for one array. `kind`: input, output, constant, temp."""

    name: str
    type: ArrayType
    kind: str
    position: int = -1  # among inputs or outputs
    literal: Literal | None = None


@record
class TrapSite:
    """What a trap code of a launch means to the user."""

    op: str
    message: str  # with {value} for the reported index
    source: Source | None


@record(eq=False)
class Launch:
    program: Program
    slots: tuple[Slot, ...]  # one per storage buffer, in program order
    args: Mapping[str, Size]  # formula of each index argument
    groups: Size
    writes: frozenset[Slot]
    inplace: tuple[tuple[Slot, Slot], ...] = ()  # (output, input) pairs that may share memory
    updates: frozenset[Slot] = frozenset()  # written slots whose other contents stay
    traps: Mapping[int, TrapSite] = field(default_factory=dict)
    flops: Size = 0
    source: Source | None = None
    group: Group | None = None  # the nodes it computes, alone or with neighbouring launches

    @property
    def name(self) -> str:
        return self.program.name

    @property
    def reads(self) -> frozenset[Slot]:
        return frozenset(self.slots) - (self.writes - self.updates)

    def buffers(self) -> list[tuple[Buffer, Slot]]:
        """Each storage buffer of the kernel with its slot."""
        return list(zip((b for b in self.program.buffers if not b.is_scratch), self.slots, strict=True))


@record(eq=False)
class Invoke:
    """A `call`: the lowered sub-graph with the slots its inputs and outputs take."""

    body: Lowered
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    source: Source | None = None
    arena: Slot = field(default_factory=lambda: Slot("arena", ArrayType(u8, (0,)), "temp"))  # sized by the planner

    @property
    def writes(self) -> frozenset[Slot]:
        return frozenset(self.outputs)

    @property
    def reads(self) -> frozenset[Slot]:
        return frozenset(self.inputs)


Step = Launch | Invoke


@record(eq=False)
class Lowered:
    """A graph as steps in order; outputs[i] may be an input or a constant slot when nothing needs computing."""

    graph: Graph
    steps: tuple[Step, ...]
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    slots: Mapping[Node, Slot] = field(default_factory=dict)  # memory of every node that has some
