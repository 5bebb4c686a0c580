"""The schedule language, nodes: what a graph becomes. Steps in order, over slots of memory; sizes
may still be formulas of Dims.

A `Slot` is memory for one array: an input, an output, a constant, or an intermediate the planner
will place. A `Launch` is one kernel program with the slots of its buffers, the formulas of its
arguments and the size of its grid; a `HostCall` calls a routine of LAPACK, a `Callback` a function
of Python's; the other steps run schedules of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tetrad.core.dtypes import u8
from tetrad.core.errors import BoundsError, TetradError, UnsupportedError
from tetrad.core.record import field, fields, record
from tetrad.core.sizes import Size, bind, ceil_div
from tetrad.core.source import Source
from tetrad.core.types import ArrayType
from tetrad.graph.nodes import Graph, Literal, Node
from tetrad.kernel.nodes import Buffer, Program

if TYPE_CHECKING:
    from tetrad.graph.group import Group  # programs recalled from disk have launches, but no passes


COMMENT = "   # "  # before the user's line of a step, in the text


@record(eq=False)
class Slot:
    """Memory for one array. `kind`: input, output, constant, temp."""

    name: str
    type: ArrayType
    kind: str
    position: int = -1  # among inputs or outputs
    literal: Literal | None = None

    def __init__(
        self,
        name: str,
        type: ArrayType,
        kind: str,
        position: int = -1,
        literal: Literal | None = None,
    ) -> None:
        # Written out, twice as quick as that of other records: a language model has hundreds of
        # slots, and every start makes them.
        set_name, set_type, set_kind, set_position, set_literal = _SLOT_FIELDS
        set_name(self, name)
        set_type(self, type)
        set_kind(self, kind)
        set_position(self, position)
        set_literal(self, literal)


_SLOT_FIELDS = tuple([getattr(Slot, name).__set__ for name in fields(Slot)])


@record
class TrapSite:
    """What a trap code of a launch means to the user."""

    op: str
    message: str  # with {value} for the reported index
    source: Source | None
    hint: str | None = None
    # the error for a reported value that is no index
    explain: Callable[[int], TetradError] | None = None

    def error(self, value: int) -> TetradError:
        if self.explain is None:
            return BoundsError(self.message.format(value=value), source=self.source, hint=self.hint)
        made = self.explain(value)
        return made if self.source is None else made.at(self.source)


@record(eq=False)
class Launch:
    program: Program
    slots: tuple[Slot, ...]  # one per storage buffer, in program order
    args: Mapping[str, Size]  # formula of each index argument
    groups: Size
    writes: frozenset[Slot]
    inplace: tuple[tuple[Slot, Slot], ...] = ()  # (output, input) pairs that may share memory
    updates: frozenset[Slot] = frozenset()  # written slots whose other contents stay
    partly: frozenset[Slot] = frozenset()  # slots of which little is read: a row of a table
    traps: Mapping[int, TrapSite] = field(default_factory=dict)
    flops: Size = 0
    source: Source | None = None
    group: Group | None = None  # the nodes it computes, alone or with neighbouring launches
    # workgroups along x and y, where the kernel looks at more than one axis; None: all along x
    extents: tuple[Size, Size] | None = None

    @property
    def name(self) -> str:
        return self.program.name

    def grid(self, dims: Mapping[str, int]) -> tuple[int, int, int]:
        """The workgroups along each axis."""
        groups = bind(self.groups, dims)
        x, y = (groups, 1) if self.extents is None else (bind(n, dims) for n in self.extents)
        return (x, y, groups // max(x * y, 1))

    def arguments(self, dims: Mapping[str, int]) -> dict[str, int]:
        return {name: bind(size, dims) for name, size in self.args.items()}

    @property
    def reads(self) -> frozenset[Slot]:
        return frozenset(self.slots) - (self.writes - self.updates)

    def buffers(self) -> list[tuple[Buffer, Slot]]:
        """Each storage buffer of the kernel with its slot."""
        return list(
            zip((b for b in self.program.buffers if not b.is_scratch), self.slots, strict=True)
        )


@record
class HostMemory:
    """Memory that a routine is given: where it starts in a slot, and how far this moves from one
    system to the next and from one block to the next; all in elements of the slot."""

    slot: Slot
    access: str  # read, write, readwrite
    offset: Size = 0
    per_system: Size = 0
    per_block: Size = 0


@record
class HostRoom:
    """Memory that a routine may use as it likes while it runs."""

    nbytes: Size


@record(eq=False)
class HostCall:
    """A routine of LAPACK, called once for each system of a batch and for each block of it.

    `form` is the signature of the routine (`schedule.lapack`): integers come from `numbers`, memory
    from `memory`, in order. `split` (k, n): numbers[k] is worked off in blocks of at most n.
    """

    routine: str
    form: str
    numbers: tuple[Size, ...]
    memory: tuple[HostMemory | HostRoom, ...]
    systems: Size
    split: tuple[int, int] | None = None
    flops: Size = 0
    source: Source | None = None
    group: Group | None = None  # the nodes it computes, with neighbouring steps

    @property
    def name(self) -> str:
        return self.routine

    @property
    def blocks(self) -> Size:
        return 1 if self.split is None else ceil_div(self.numbers[self.split[0]], self.split[1])

    @property
    def calls(self) -> Size:
        return self.systems * self.blocks

    @property
    def operands(self) -> tuple[HostMemory, ...]:
        """The memory that lies in slots."""
        return tuple(part for part in self.memory if isinstance(part, HostMemory))

    @property
    def slots(self) -> tuple[Slot, ...]:
        return tuple(dict.fromkeys(part.slot for part in self.operands))

    @property
    def writes(self) -> frozenset[Slot]:
        return frozenset(part.slot for part in self.operands if part.access != "read")

    @property
    def updates(self) -> frozenset[Slot]:
        return frozenset(part.slot for part in self.operands if part.access == "readwrite")

    @property
    def reads(self) -> frozenset[Slot]:
        return frozenset(part.slot for part in self.operands if part.access != "write")


# arrays, the shapes of the results and the user's line in, the results out
ArrayFunction = Callable[
    [Sequence[np.ndarray], Sequence[tuple[int, ...]], Source | None], Sequence[np.ndarray]
]


@record(eq=False)
class Callback:
    """A function of Python's, called on the thread of the caller: arrays of the input slots in,
    arrays for the output slots out."""

    name: str
    function: ArrayFunction
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    given: tuple[ArrayType, ...]  # what the inputs are: a slot may hold another shape of the array
    flops: Size = 0
    source: Source | None = None
    group: Group | None = None

    @property
    def slots(self) -> tuple[Slot, ...]:
        return tuple(dict.fromkeys((*self.inputs, *self.outputs)))

    @property
    def writes(self) -> frozenset[Slot]:
        return frozenset(self.outputs)

    @property
    def updates(self) -> frozenset[Slot]:
        return frozenset()

    @property
    def reads(self) -> frozenset[Slot]:
        return frozenset(self.inputs)


def unknown_function(name: str) -> ArrayFunction:
    """That of a callback which was read from a text."""

    def missing(
        arrays: Sequence[np.ndarray], shapes: Sequence[tuple[int, ...]], source: Source | None
    ) -> Sequence[np.ndarray]:
        raise UnsupportedError(f"{name}: a function of Python's cannot be read from a text")

    return missing


@record(eq=False)
class Call:
    """A `call`: the lowered sub-graph with the slots its inputs and outputs take."""

    body: Schedule
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    source: Source | None = None
    arena: Slot = field(default_factory=lambda: arena_slot())

    @property
    def bodies(self) -> tuple[Schedule, ...]:
        return (self.body,)

    @property
    def name(self) -> str:
        return f"call {self.body.graph.name}"

    @property
    def writes(self) -> frozenset[Slot]:
        return frozenset(self.outputs)

    @property
    def reads(self) -> frozenset[Slot]:
        return frozenset(self.inputs)

    @property
    def owned(self) -> frozenset[Slot]:
        return frozenset((self.arena,))


def arena_slot() -> Slot:
    """Room for the intermediates of a sub-graph while it runs; sized by the planner."""
    return Slot("arena", NO_BYTES, "temp")


NO_BYTES = ArrayType(u8, (0,))


@record(eq=False)
class Loop:
    """A `scan`: the lowered body with the slots of all its steps.

    `inputs` are constants, initial carries and xs; `outputs` final carries and ys, in the order of
    the body's. A carry that is neither changed in place (its output is its input) nor kept in rows
    of ys has a second home in `spares`.
    """

    body: Schedule
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    consts: int
    carries: int
    length: Size
    reverse: bool
    spares: tuple[Slot | None, ...]
    rows: tuple[int, ...]  # for each carry: the output whose rows hold it, or -1
    source: Source | None = None
    arena: Slot = field(default_factory=arena_slot)

    @property
    def bodies(self) -> tuple[Schedule, ...]:
        return (self.body,)

    @property
    def name(self) -> str:
        return f"scan {self.body.graph.name}"

    @property
    def writes(self) -> frozenset[Slot]:
        return frozenset(self.outputs)

    @property
    def reads(self) -> frozenset[Slot]:
        return frozenset(self.inputs)

    @property
    def owned(self) -> frozenset[Slot]:
        """Memory that only this step uses."""
        return frozenset((self.arena, *(s for s in self.spares if s is not None)))


@record(eq=False)
class While:
    """A `while_loop`: condition and body. `inputs` are constants of the condition, of the body, and
    initial carries."""

    condition: Schedule
    body: Schedule
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    condition_consts: int
    body_consts: int
    spares: tuple[Slot | None, ...]  # a second home for each carry that is not changed in place
    flag: Slot  # what the condition says
    source: Source | None = None
    arena: Slot = field(default_factory=arena_slot)

    @property
    def bodies(self) -> tuple[Schedule, ...]:
        return (self.condition, self.body)

    @property
    def name(self) -> str:
        return f"while {self.body.graph.name}"

    @property
    def writes(self) -> frozenset[Slot]:
        return frozenset(self.outputs)

    @property
    def reads(self) -> frozenset[Slot]:
        return frozenset(self.inputs)

    @property
    def owned(self) -> frozenset[Slot]:
        return frozenset((self.arena, self.flag, *(s for s in self.spares if s is not None)))


@record(eq=False)
class Switch:
    """A `switch`: the branches, of which the i32 in slot `index` chooses one."""

    index: Slot
    branches: tuple[Schedule, ...]
    inputs: tuple[Slot, ...]  # of every branch
    outputs: tuple[Slot, ...]
    source: Source | None = None
    arena: Slot = field(default_factory=arena_slot)

    @property
    def bodies(self) -> tuple[Schedule, ...]:
        return self.branches

    @property
    def name(self) -> str:
        return f"switch {' '.join(branch.graph.name for branch in self.branches)}"

    @property
    def writes(self) -> frozenset[Slot]:
        return frozenset(self.outputs)

    @property
    def reads(self) -> frozenset[Slot]:
        return frozenset((self.index, *self.inputs))

    @property
    def owned(self) -> frozenset[Slot]:
        return frozenset((self.arena,))


Control = Call | Loop | While | Switch  # steps that hold other steps
Leaf = Launch | HostCall | Callback  # steps that hold none
Step = Leaf | Control


@record(eq=False)
class Schedule:
    """A graph as steps in order; outputs[i] may be an input or a constant slot when nothing needs
    computing."""

    graph: Graph
    steps: tuple[Step, ...]
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    slots: Mapping[Node, Slot] = field(default_factory=dict)  # memory of every node that has some

    def __str__(self) -> str:
        from tetrad.schedule.text import to_text  # printing lives with parsing

        return to_text(self)


def innermost_first(schedule: Schedule) -> list[Schedule]:
    """The schedule and all that its steps run, each once, after those it runs itself."""
    found: dict[Schedule, None] = {}
    for step in schedule.steps:
        if isinstance(step, Control):
            for body in step.bodies:
                found |= dict.fromkeys(innermost_first(body))
    return [*found, schedule]


def programs_of(schedule: Schedule) -> list[Program]:
    """The kernel of every launch, in order; those of sub-schedules each time one is run."""
    found: list[Program] = []
    for step in schedule.steps:
        if isinstance(step, Control):
            found.extend(program for body in step.bodies for program in programs_of(body))
        elif isinstance(step, Launch):
            found.append(step.program)
    return found
