"""CPU back end, encode: a schedule and the values of its Dims in, a native table with every
offset filled in out.

Formulas become numbers here: buffer sizes, arena offsets, kernel arguments, grids. A new size of a
Dim makes a new table and compiles nothing. Bases of a table: its inputs, its outputs, its arena.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from tetrad.backends.cpu.encode_host import host_entry, room_layout
from tetrad.backends.cpu.encode_loops import NUMBER, control_entry, inner_tables, times
from tetrad.backends.cpu.memory import ALIGNMENT, Storage
from tetrad.backends.cpu.python_calls import Thunk
from tetrad.backends.cpu.table import (
    BranchEntry,
    CallEntry,
    Entry,
    HostEntry,
    KernelEntry,
    LoopEntry,
    Table,
    Word,
)
from tetrad.core import show
from tetrad.core.record import record
from tetrad.core.sizes import bind
from tetrad.kernel.nodes import TAG_SHIFT, Program
from tetrad.schedule.nodes import (
    Call,
    Callback,
    Control,
    HostCall,
    Launch,
    Leaf,
    Loop,
    Schedule,
    Slot,
    Step,
    TrapSite,
)
from tetrad.schedule.plan import Life, Plan, lifetimes, nbytes_at, plan

Dims = Mapping[str, int]
# of one thread, roughly: what decides whether a call is worth waking workers
BYTES_PER_NS, FLOPS_PER_NS = 8.0, 16.0
HEAVY_NS = 25_000
SLICE_NS = 5_000_000  # between two looks at the stop word
# up to here one worker is done before others have met; nor do bodies of loops need them for so
# little
SERIAL_NS = 100
SHARED_NS = 20_000  # from here on it pays to let quick workers take over from slow ones


@record(eq=False)
class EncodedTable:
    """A table, its arena, and what its trap codes mean."""

    table: Table
    arena_bytes: int
    plan: Plan
    lives: tuple[Life, ...]
    traps: Mapping[int, TrapSite]
    launches: Mapping[int, Launch]  # by tag
    nanoseconds: float  # estimate, one thread
    bytes_moved: int
    flops: int
    thunks: tuple[Thunk, ...]  # functions of Python's that the table calls


class Constants:
    """Weights and other constants, at fixed addresses for the life of a compiled program."""

    def __init__(self) -> None:
        self.storage: dict[Slot, Storage] = {}

    def address(self, slot: Slot) -> int:
        if slot not in self.storage:
            if slot.literal is None:
                raise TypeError(f"{slot.name} is not a constant")
            self.storage[slot] = held_in_place(slot.literal.held)
        return self.storage[slot].ptr


def held_in_place(array: np.ndarray) -> Storage:
    """The bytes of a constant where they lie, or a copy if that is not where kernels may expect
    them."""
    in_place = Storage.from_numpy(array)
    if in_place.ptr % ALIGNMENT == 0:
        return in_place
    held = Storage.allocate(array.nbytes)
    held.as_numpy(array.dtype, array.shape)[...] = array
    return held


class TableEncoder:
    """Makes tables for one compiled program; sub-programs are encoded once per size."""

    def __init__(self, addresses: Mapping[Program, int], constants: Constants) -> None:
        self.addresses, self.constants = addresses, constants
        self.tags: dict[Launch, int] = {}  # the same for all sizes, and in every process
        self.done: dict[tuple[tuple[str, int], ...], dict[Schedule, EncodedTable]] = {}  # by sizes

    def encode(self, schedule: Schedule, dims: Dims) -> EncodedTable:
        done = self.done.setdefault(tuple(sorted(dims.items())), {})
        if schedule not in done:
            done[schedule] = self.encode_once(schedule, dims)
        return done[schedule]

    def forget(self, dims: Dims) -> None:
        """Give up the schedules of these sizes."""
        self.done.pop(tuple(sorted(dims.items())), None)

    def encode_once(self, schedule: Schedule, dims: Dims) -> EncodedTable:
        inner = self.inner(schedule, dims)
        temps, lives = lifetimes(schedule, dims, arenas_of(inner))
        with show.spending("plan_memory"):
            placed = plan(lives)
        where = Places(schedule, dict(zip(temps, placed.offsets, strict=True)), self.constants)
        draft = TableDraft()
        for step in schedule.steps:
            if isinstance(step, Control):
                draft.entries.append(control_entry(step, inner[step], where, dims))
                for part in inner[step]:
                    draft.add_inner(part, times(step, dims))
            else:
                draft.cost.add(step, dims)
                self.add_work(draft, step, where, dims)
        cost = draft.cost
        table = Table(draft.entries, draft.scratch, heavy=cost.nanoseconds > HEAVY_NS)
        return EncodedTable(
            table, placed.total, placed, tuple(lives), draft.traps, draft.launches,
            cost.nanoseconds, cost.bytes, cost.flops, tuple(draft.thunks),
        )  # fmt: skip

    def add_work(self, draft: TableDraft, step: Leaf, where: Places, dims: Dims) -> None:
        """The entries of a step that holds no others, and what they need."""
        if isinstance(step, Callback):
            draft.thunks.append(Thunk(step, dims))
            draft.entries.append(draft.thunks[-1].entry(where))
        elif isinstance(step, HostCall):
            rooms = room_layout(step, dims)
            draft.scratch = max(draft.scratch, rooms[-1])
            draft.entries += self.host_entries(step, dims, where, rooms)
        else:
            needed = scratch_layout(step.program, {**dims, **step.arguments(dims)})
            draft.scratch = max(draft.scratch, needed[-1])
            tag = self.tags.setdefault(step, len(self.tags))
            draft.launches[tag] = step
            draft.traps.update({tagged(code, tag): site for code, site in step.traps.items()})
            entry = self.kernel_entry(step, dims, where, needed, tag)
            if entry is not None:
                draft.entries.append(entry)

    def inner(self, schedule: Schedule, dims: Dims) -> dict[Control, list[EncodedTable]]:
        """The encoded sub-graphs of each step that has some."""
        holders = [step for step in schedule.steps if isinstance(step, Control)]
        return {step: [self.encode(body, dims) for body in step.bodies] for step in holders}

    def places(self, schedule: Schedule, dims: Dims) -> Places:
        """Where the slots of a graph lie, relative to the bases of its table."""
        temps, lives = lifetimes(schedule, dims, arenas_of(self.inner(schedule, dims)))
        return Places(schedule, dict(zip(temps, plan(lives).offsets, strict=True)), self.constants)

    def host_entries(
        self, call: HostCall, dims: Dims, where: Where, rooms: list[int]
    ) -> list[Entry]:
        """The entry of a call; none where there is no system."""
        spent = nanoseconds(moved_bytes(call, dims), bind(call.flops, dims))
        made = host_entry(call, dims, where, rooms, is_shared=spent > SHARED_NS)
        return [made] if made.calls else []

    def kernel_entry(
        self, launch: Launch, dims: Dims, where: Where, scratch: list[int], tag: int
    ) -> Entry | None:
        groups = bind(launch.groups, dims)
        if groups == 0:
            return None
        counts = [nbytes_at(slot.type, dims) // b.dtype.np.itemsize for b, slot in launch.buffers()]
        given = launch.arguments(dims)
        args = [given[a] for a in launch.program.args]
        numbers = [*scratch[:-1], *args, *launch.grid(dims)[:2], *counts, tag]
        words = [where.word(slot) for slot in launch.slots] + [Word(NUMBER, n) for n in numbers]
        spent = nanoseconds(moved_bytes(launch, dims), bind(launch.flops, dims))
        pieces = int(spent // SLICE_NS) + 1
        piece = 0 if pieces == 1 else max(1, groups // pieces)
        address = self.addresses[launch.program]
        kind = {"serial": groups == 1 or spent < SERIAL_NS, "shared": spent > SHARED_NS}
        return KernelEntry(address, tuple(words), groups, slice=piece, name=launch.name, **kind)


def arenas_of(inner: Mapping[Control, list[EncodedTable]]) -> dict[Slot, int]:
    """The room each step with sub-schedules needs while it runs: that of the largest of them."""
    return {step.arena: max(part.arena_bytes for part in parts) for step, parts in inner.items()}


def tagged(code: int, tag: int) -> int:
    """The code a trap reports: kernels number their traps, the tag says which launch it was."""
    return tag << TAG_SHIFT | code


class Where(Protocol):
    """Says where memory lies."""

    def word(self, slot: Slot) -> Word: ...


class Places:
    """Slot -> word: inputs and outputs by their own base, temps in the arena, constants
    absolute."""

    def __init__(
        self, schedule: Schedule, offsets: Mapping[Slot, int], constants: Constants
    ) -> None:
        self.inputs, self.outputs = len(schedule.inputs), len(schedule.outputs)
        self.offsets, self.constants = offsets, constants

    @property
    def arena(self) -> int:
        return self.inputs + self.outputs

    def word(self, slot: Slot) -> Word:
        if slot.kind == "input":
            return Word(slot.position, 0)
        if slot.kind == "output":
            return Word(self.inputs + slot.position, 0)
        if slot.kind == "constant":
            return Word(NUMBER, self.constants.address(slot))
        return Word(self.arena, self.offsets[slot])


def scratch_layout(program: Program, dims: Dims) -> list[int]:
    """Byte offset of each scratch buffer, then the total."""
    offsets, total = [], 0
    for buffer in program.buffers:
        if buffer.is_scratch:
            offsets.append(total)
            nbytes = bind(buffer.count, dims) * buffer.dtype.nbytes  # type: ignore[arg-type]
            total += -(-nbytes // ALIGNMENT) * ALIGNMENT
    return [*offsets, total]


class Cost:
    """Running totals of what a table moves and computes."""

    def __init__(self) -> None:
        self.nanoseconds, self.bytes, self.flops = 0.0, 0, 0

    def add(self, step: Leaf, dims: Dims) -> None:
        moved, flops = moved_bytes(step, dims), bind(step.flops, dims)
        self.nanoseconds += nanoseconds(moved, flops)
        self.bytes += moved
        self.flops += flops

    def add_inner(self, inner: EncodedTable, times: int) -> None:
        self.nanoseconds += inner.nanoseconds * times
        self.bytes += inner.bytes_moved * times
        self.flops += inner.flops * times


class TableDraft:
    """A table while its steps are added one after the other."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.traps: dict[int, TrapSite] = {}
        self.launches: dict[int, Launch] = {}
        self.thunks: list[Thunk] = []
        self.scratch, self.cost = 0, Cost()

    def add_inner(self, inner: EncodedTable, times: int) -> None:
        """What the table of a sub-graph, which runs so often, brings with it."""
        self.traps.update(inner.traps)
        self.launches.update(inner.launches)
        self.cost.add_inner(inner, times)


def moved_bytes(step: Leaf, dims: Dims) -> int:
    """What a step reads and writes; of slots a launch touches in part, about as much as of the
    largest of the others."""
    sizes = [nbytes_at(slot.type, dims) for slot in step.slots]
    if not isinstance(step, Launch) or not (step.partly or step.updates):
        return sum(sizes)
    in_part = [slot in step.partly or slot in step.updates for slot in step.slots]
    most = max((n for n, part in zip(sizes, in_part, strict=True) if not part), default=0)
    return sum(min(n, most) if part else n for n, part in zip(sizes, in_part, strict=True))


def nanoseconds(moved: int, flops: int) -> float:
    """Roughly, of one thread that moves so many bytes."""
    return max(moved / BYTES_PER_NS, flops / FLOPS_PER_NS)


# -- showing ---------------------------------------------------------------------------------------


def describe(encoded: EncodedTable, schedule: Schedule, dims: Dims) -> str:
    """The text of a schedule, then as comments its tables: every entry with its buffers as
    base+offset and its numbers, sub-schedules once, first."""
    parts = [
        describe_table(table, part, dims)
        for part, table in tables_of(encoded.table, schedule, dims).items()
    ]
    room = f"  arena {encoded.arena_bytes} bytes for {len(encoded.lives)} intermediates"
    total = f"{room}; {encoded.bytes_moved} bytes moved, {encoded.flops} operations"
    lines = "\n".join([*parts, total]).split("\n")
    return f"{schedule}\n" + "\n".join(f"# {line}" for line in lines)


def tables_of(table: Table, schedule: Schedule, dims: Dims) -> dict[Schedule, Table]:
    """The tables of a program and of all it calls, each once, after those it calls."""
    found: dict[Schedule, Table] = {}
    for step, entry in zip(running(schedule, dims), table.entries, strict=True):
        if isinstance(step, Control):
            for body, inner in inner_tables(step, entry):
                found.update(tables_of(inner, body, dims))
    return {**found, schedule: table}


def running(schedule: Schedule, dims: Dims) -> list[Step]:
    """The steps that have an entry: a launch without workgroups has none."""
    return [step for step in schedule.steps if times_of(step, dims) != 0]


def times_of(step: Step, dims: Dims) -> int:
    """The workgroups of a launch, or the calls of a routine."""
    if isinstance(step, Control | Callback):
        return 1
    return bind(step.calls if isinstance(step, HostCall) else step.groups, dims)


def describe_table(table: Table, schedule: Schedule, dims: Dims) -> str:
    head = (
        f"table {schedule.graph.name}: {len(table.entries)} entries, scratch "
        f"{table.scratch_bytes} bytes, "
    )
    lines = [head + ("all threads" if table.heavy else "the calling thread")]
    for i, (step, entry) in enumerate(zip(running(schedule, dims), table.entries, strict=True)):
        lines.append(f"  {i:3} {describe_entry(step, entry, schedule)}")
    return "\n".join(lines)


def describe_entry(step: Step, entry: Entry, schedule: Schedule) -> str:
    if isinstance(step, Call) and isinstance(entry, CallEntry):
        return f"call {entry.name}({', '.join(word_text(w, schedule) for w in entry.bases)})"
    if isinstance(step, Loop) and isinstance(entry, LoopEntry):
        bases = [
            word_text(b.word, schedule) + (f"{b.stride:+}" if b.stride else "") for b in entry.bases
        ]
        return f"{step.name} [{entry.trips.value} times{' alone' * entry.alone}] {' '.join(bases)}"
    if isinstance(step, Control):
        given = entry.bases if isinstance(entry, CallEntry) else called_bases(entry)
        return f"{step.name}({', '.join(word_text(w, schedule) for w in given)})"
    if isinstance(step, HostCall) and isinstance(entry, HostEntry):
        return describe_host(step, entry, schedule)
    if isinstance(step, Callback) and isinstance(entry, KernelEntry):
        return f"python {step.name} {' '.join(word_text(w, schedule) for w in entry.words)}"
    if not isinstance(entry, KernelEntry) or not isinstance(step, Launch):
        raise TypeError(f"{entry.name}: a launch is a kernel entry, an invocation a call entry")
    storage = [b.name for b in step.program.buffers if not b.is_scratch]
    scratch = [b.name for b in step.program.buffers if b.is_scratch]
    counts = [f"count.{name}" for name in storage]
    labels = [*storage, *scratch, *step.program.args, "grid.x", "grid.y", *counts, "tag"]
    held = {
        w: slot.name
        for w, slot in zip(entry.words, step.slots, strict=False)
        if slot.kind == "constant"
    }
    words = [
        f"{label}={held.get(w) or word_text(w, schedule)}"
        for label, w in zip(labels, entry.words, strict=True)
    ]
    slices, how = f" slice {entry.slice}" if entry.slice else "", " serial" if entry.serial else ""
    how = " shared" if entry.shared and not entry.serial else how
    return f"{entry.name} [groups {entry.groups}{slices}{how}] {' '.join(words)}"


def describe_host(call: HostCall, entry: HostEntry, schedule: Schedule) -> str:
    words = [word_text(argument.word, schedule) for argument in entry.arguments]
    how = " serial" if entry.serial else " shared" if entry.shared else ""
    return f"{call.name} [calls {entry.calls}{how}] {call.form} {' '.join(words)}"


def called_bases(entry: Entry) -> tuple[Word, ...]:
    """What the branches of a switch are given."""
    first = entry.tables[0].entries[0] if isinstance(entry, BranchEntry) else None
    return first.bases if isinstance(first, CallEntry) else ()


def word_text(word: Word, schedule: Schedule) -> str:
    inputs, outputs = len(schedule.inputs), len(schedule.outputs)
    if word.base == NUMBER:
        return str(word.value)
    if word.base < inputs:
        return f"in{word.base}"
    return f"out{word.base - inputs}" if word.base < inputs + outputs else f"arena+{word.value}"
