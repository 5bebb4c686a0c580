"""CPU back end, executable: a schedule and the addresses of its kernels in, a program that runs
out, call after call.

Whether the code was compiled just now or found on disk makes no difference: one table is encoded
for every size of the Dims, and each call has an arena of its own. How graphs become schedules and
kernels code is left to `compiler.driver`, what is kept on disk to `compiler.program_cache`.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count

from tetrad.backends.cpu.code_cache import OBJECTS, Objects
from tetrad.backends.cpu.encode import Constants, EncodedTable, TableEncoder, describe
from tetrad.backends.cpu.memory import MOST_IDLE, Arenas, Storage, shelf
from tetrad.backends.cpu.pool import Outcome, Trapped, run
from tetrad.backends.cpu.python_calls import run_with_python
from tetrad.backends.cpu.table import Table
from tetrad.core import lazy, show
from tetrad.core.errors import CheckError
from tetrad.core.flags import flag
from tetrad.core.locks import object_lock
from tetrad.core.sizes import bind
from tetrad.core.types import ArrayType
from tetrad.graph.nodes import Graph
from tetrad.kernel.nodes import TAG_SHIFT, Program
from tetrad.schedule.lapack import one_thread
from tetrad.schedule.nodes import Launch, Schedule
from tetrad.schedule.outputs import Outputs
from tetrad.schedule.plan import describe_plan

# sizes of a program whose calls are ready; others are made ready anew, and nothing is compiled
MOST_PREPARED = 256
TURNS = count()  # numbers calls of a size after another, so that it is known which came last
DEFECT = "a defect of tetrad, please report it"

# how a call is run instead of directly: the call, its storages, threads
Start = Callable[[Table, Sequence[int], "int | None", bool], "Outcome | None"]
Watch = Callable[["BoundCall", Sequence[Storage], int | None], list[Storage]]


class Executable:
    """Machine code for a schedule. Safe to call from several threads.

    One that was compiled in this process knows its `graph`. One from disk does not: whoever wants
    to know more than results asks for the `full` one, which compiles again.
    """

    def __init__(
        self,
        name: str,
        schedule: Schedule,
        addresses: Mapping[Program, int],
        dims: tuple[str, ...],
        donated: tuple[int, ...],
        *,
        code: Objects = OBJECTS,
        graph: Graph | None = None,
        clock: show.Clock | None = None,
        watch: Callable[[], Watch | None] = lambda: None,
        recompile: Callable[[], Executable] | None = None,
    ) -> None:
        self.name, self.schedule, self.dims, self.graph = name, schedule, dims, graph
        self.code = code  # who holds it
        self.clock, self.watch, self.recompile = clock or show.Clock(), watch, recompile
        self.constants = Constants()
        self.encoder = TableEncoder(addresses, self.constants)
        self.memory = Outputs(schedule, donated)
        self.calls: dict[tuple[int, ...], BoundCall] = {}  # at most MOST_PREPARED
        self.latest: BoundCall | None = None
        self.arenas = Arenas()
        self.lock = object_lock()

    @property
    def inputs(self) -> tuple[ArrayType, ...]:
        return tuple(slot.type for slot in self.schedule.inputs)

    @property
    def outputs(self) -> tuple[ArrayType, ...]:
        made = self.schedule.outputs if self.graph is None else self.graph.outputs
        return tuple(result.type for result in made)

    @property
    def is_full(self) -> bool:
        return self.recompile is None

    def full(self) -> Executable:
        """The same, with its graph, the bodies of its kernels and the user's lines."""
        return self if self.recompile is None else self.recompile()

    def run(self, storages: Sequence[Storage], dims: tuple[int, ...] = ()) -> list[Storage]:
        """One call; `dims` are the sizes of the Dims, by sorted name."""
        call = self.latest
        if call is None or call.sizes != dims:
            call = self.latest = self.turned_to(dims)
        return call.run(storages)

    def turned_to(self, dims: tuple[int, ...]) -> BoundCall:
        """The call of other sizes than those of the call before."""
        call = self.calls.get(dims) or self.bound(dims)
        call.turn = next(TURNS)
        return call

    def bound(self, dims: tuple[int, ...] = ()) -> BoundCall:
        """The program at these sizes."""
        with self.lock:
            if dims not in self.calls:
                if len(self.calls) >= MOST_PREPARED:
                    self.give_up(least_used(self.calls))
                self.calls[dims] = self.bind(dims)
            return self.calls[dims]

    def bind(self, dims: tuple[int, ...]) -> BoundCall:
        if not self.is_full:
            return BoundCall(self, dims)
        with show.recording(self.clock), show.timed("schedule"):
            call = BoundCall(self, dims)
            told = partial(describe_plan, self.name, call.encoded.lives, call.encoded.plan)
            lazy.module("tetrad.passes.step").show_step("plan_memory", told)
            return call

    def give_up(self, dims: tuple[int, ...]) -> None:
        del self.calls[dims]
        self.encoder.forget(dict(zip(self.dims, dims, strict=True)))


def least_used(calls: Mapping[tuple[int, ...], BoundCall]) -> tuple[int, ...]:
    """The sizes to give up: those called longest ago."""
    return min(calls, key=lambda sizes: calls[sizes].turn)


class BoundCall:
    """An executable at given sizes: its table, ready to run. Every call has its own arena, of those
    that the executable has for all sizes.

    Holds its executable weakly, which holds it: so the memory of both goes with the last user of
    the program.
    """

    def __init__(self, executable: Executable, sizes: tuple[int, ...]) -> None:
        self._executable, self.sizes = weakref.ref(executable), sizes
        self.name, self.recompile = executable.name, executable.recompile
        self.dims = dict(zip(executable.dims, sizes, strict=True))
        self.encoded: EncodedTable = executable.encoder.encode(executable.schedule, self.dims)
        self.table, self.arena_bytes = self.encoded.table, self.encoded.arena_bytes
        self.constants, self.results = executable.constants, executable.schedule.outputs
        self.plan = executable.memory.plans(self.dims)
        # changed in place, but the caller's: the program gets copies
        self.copied = executable.memory.copied
        self.watch = executable.watch()
        self.timing = flag("TETRAD_TIME") == "1"
        self.start = start_of(self.table)
        self.simple = all(kind == "fresh" for kind, _ in self.plan)
        self.shelves = [(shelf(size), size) for kind, size in self.plan if kind == "fresh"]
        given = len(executable.schedule.inputs)
        self.needs_arena = self.table.base_count > given + len(self.plan)
        self.arenas, self.idle = executable.arenas, executable.arenas.idle
        self.turn = next(TURNS)
        if show.wants("schedule"):
            text = describe(self.encoded, executable.schedule, self.dims)
            show.show("schedule", self.name, text)

    @property
    def executable(self) -> Executable:
        executable = self._executable()
        if executable is None:
            raise ReferenceError("the executable of this call is gone: keep a reference to it")
        return executable

    def run(
        self, storages: Sequence[Storage], threads: int | None = None, profile: bool = False
    ) -> list[Storage]:
        if self.watch is not None and not profile:
            return self.watch(self, storages, threads)
        if self.copied:
            storages = [
                copied(s.ptr, s.nbytes) if i in self.copied else s for i, s in enumerate(storages)
            ]
        outputs = (
            [home.take(n) for home, n in self.shelves]
            if self.simple
            else self.outputs_for(storages)
        )
        bases = [s.ptr for s in storages]
        for made in outputs:
            bases.append(made.ptr)
        if self.needs_arena:
            try:
                arena = self.idle.pop()
            except IndexError:
                arena = self.arenas.take(self.arena_bytes)
            else:
                if arena.nbytes < self.arena_bytes:
                    arena = self.arenas.take(self.arena_bytes)
            bases.append(arena.ptr)
        try:
            outcome = self.start(self.table, bases, threads, profile or self.timing)
        except Trapped as trap:
            raise self.explain(trap) from None
        if outcome is not None:
            self.last_outcome: Outcome = outcome
            if self.timing:
                show.show_times(self.name, self.table.names, outcome.entry_ns, outcome.threads)
        if self.needs_arena and len(self.idle) < MOST_IDLE:
            self.idle.append(arena)
        return outputs

    def outputs_for(self, storages: Sequence[Storage]) -> list[Storage]:
        """Memory of each output: fresh, taken over from a donated input, or a copy of what it
        equals."""
        made: list[Storage] = []
        for i, (kind, detail) in enumerate(self.plan):
            if kind == "fresh":
                made.append(Storage.allocate(detail))
            elif kind == "constant":
                made.append(copied(self.constants.address(self.results[i]), detail))
            elif kind == "input":
                made.append(copied(storages[detail].ptr, storages[detail].nbytes))
            else:
                made.append(storages[detail] if kind == "donated" else made[detail])
        return made

    def explain(self, trap: Trapped) -> Exception:
        """What a trap means. Schedules are deterministic: the code means the same in a new
        compilation, which knows the user's lines."""
        if self.recompile is not None:
            return self.recompile().bound(self.sizes).explain(trap)
        site = self.encoded.traps.get(trap.code)
        if site is not None:
            return site.error(trap.value)
        launch = self.encoded.launches[trap.code >> TAG_SHIFT]
        return outside_buffer(launch, trap.code, trap.value, self.dims)


def outside_buffer(launch: Launch, code: int, value: int, dims: Mapping[str, int]) -> CheckError:
    """What a bounds check found: the code says which buffer."""
    first: int = lazy.module("tetrad.backends.llvm.memory").BOUNDS_TRAP
    buffer = launch.program.buffers[(code & (1 << TAG_SHIFT) - 1) - first]
    sizes = {b: f"{bind(s.type.size, dims)} elements" for b, s in launch.buffers()}
    where = sizes.get(buffer, "scratch")
    message = f"{launch.name}: index {value} is outside buffer {buffer.name} ({where})"
    return CheckError(message, source=launch.source, hint=DEFECT)


def start_of(table: Table) -> Start:
    if table.calls_python:
        return run_with_python
    return run_beside_lapack if table.calls_out else run


def run_beside_lapack(
    table: Table, bases: Sequence[int], threads: int | None, profile: bool
) -> Outcome | None:
    """As `run`; LAPACK starts no threads of its own beside ours."""
    with one_thread():
        return run(table, bases, threads, profile)


def copied(address: int, nbytes: int) -> Storage:
    made = Storage.allocate(nbytes)
    ctypes.memmove(made.ptr, address, nbytes)
    return made
