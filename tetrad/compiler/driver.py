"""The driver: a graph in, a program that runs out. Ties the stages together in order and owns what
they made.

graph --passes--> graph --lower--> launches --codegen--> machine code --schedule--> table
--runtime--> arrays
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from tetrad.backends import backend_named
from tetrad.backends.cpu import compile as kernels
from tetrad.backends.cpu.encode import Constants, EncodedTable, TableEncoder, address_of, describe
from tetrad.backends.cpu.executable import MOST_PREPARED, TURNS, Ready, least_used
from tetrad.backends.cpu.memory import Arenas, Storage
from tetrad.backends.cpu.pool import Trapped
from tetrad.compiler import suspicion
from tetrad.compiler.pipeline import lower_graph
from tetrad.core import show
from tetrad.core.backend import Backend
from tetrad.core.floats import own_floats
from tetrad.core.locks import object_lock
from tetrad.core.types import ArrayType
from tetrad.graph.infer import dim_names
from tetrad.graph.nodes import Graph
from tetrad.kernel.nodes import TAG_SHIFT, Program
from tetrad.lower.lower import Lowerer
from tetrad.passes.step import show_step
from tetrad.schedule.nodes import Schedule, TrapSite, programs_of
from tetrad.schedule.outputs import Outputs


def compile_graph(graph: Graph, donated: tuple[int, ...] = ()) -> Compiled:
    """Optimise, lower and generate code for a graph; `donated` inputs may be overwritten."""
    with own_floats(), uncollected(), show.recording(show.Clock()) as clock:
        with show.timed("start"):
            backend = backend_named("cpu", graph.name)
            backend.prepare()
            machine = backend.machine
        schedule = lower_graph(graph, Lowerer(machine, beginning(backend)))
        show.tell_steps(clock)
        programs = list(dict.fromkeys(programs_of(schedule)))
        if show.wants("kernel"):
            for program in programs:
                show.show("kernel", program.name, str(program))
        suspicion.verify_programs(programs, machine)
        with show.timed("codegen"):
            addresses = backend.compile(schedule)
    return Compiled(graph, schedule, addresses, donated, clock)


@contextmanager
def uncollected() -> Iterator[None]:
    """No search for cyclic garbage: a compilation makes many objects and hardly a cycle, to look
    through them again and again would take a thirtieth of its time."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def beginning(backend: Backend) -> Callable[[Program], None]:
    """What is done with a kernel as soon as it is lowered: it is compiled, unless it is verified or
    shown first."""
    waits = suspicion.wants_verified() or show.wants("llvm", "asm")
    return (lambda program: None) if waits else backend.begin


class Compiled:
    """Machine code for one graph. Safe to call from several threads: every call has its own
    arena."""

    def __init__(
        self,
        graph: Graph,
        schedule: Schedule,
        addresses: Mapping[Program, int],
        donated: tuple[int, ...],
        clock: show.Clock,
    ) -> None:
        self.graph, self.schedule, self.clock = graph, schedule, clock
        self.inputs: tuple[ArrayType, ...] = tuple(i.type for i in graph.inputs)
        self.outputs: tuple[ArrayType, ...] = tuple(o.type for o in graph.outputs)
        self.dims = dim_names(graph)
        self.constants, self.code = Constants(), kernels.KERNELS.objects
        self.encoder = TableEncoder(addresses, self.constants)
        self.memory = Outputs(schedule, donated)
        self.runners: dict[tuple[int, ...], Runner] = {}  # at most MOST_PREPARED
        self.latest: Runner | None = None
        self.arenas = Arenas()
        self.lock = object_lock()

    def run(self, storages: Sequence[Storage], dims: tuple[int, ...] = ()) -> list[Storage]:
        """One call; `dims` are the sizes of the Dims, by sorted name."""
        runner = self.latest
        if runner is None or runner.sizes != dims:
            runner = self.latest = self.turned_to(dims)
        return runner.run(storages)

    def turned_to(self, dims: tuple[int, ...]) -> Runner:
        """The runner of other sizes than those of the call before."""
        runner = self.runners.get(dims) or self.runner(dims)
        runner.turn = next(TURNS)
        return runner

    def runner(self, dims: tuple[int, ...] = ()) -> Runner:
        with self.lock:
            if dims not in self.runners:
                if len(self.runners) >= MOST_PREPARED:
                    self.give_up(least_used(self.runners))
                with show.recording(self.clock), show.timed("schedule"):
                    self.runners[dims] = Runner(self, dict(zip(self.dims, dims, strict=True)))
            return self.runners[dims]

    def give_up(self, dims: tuple[int, ...]) -> None:
        del self.runners[dims]
        self.encoder.forget(dict(zip(self.dims, dims, strict=True)))


class Runner:
    """A compiled program at given sizes: its schedule, and the table ready to run.

    Holds its program weakly, which holds it: so the memory of both goes with the last user of the
    program.
    """

    def __init__(self, compiled: Compiled, dims: Mapping[str, int]) -> None:
        self._compiled, self.dims, self.turn = weakref.ref(compiled), dims, next(TURNS)
        self.sizes = tuple(dims[name] for name in compiled.dims)
        self.watch = suspicion.watch_of_flags()
        self.encoded: EncodedTable = compiled.encoder.encode(compiled.schedule, dims)
        self.table = self.encoded.table
        show_step("plan_memory", partial(describe_plan, compiled.graph.name, self.encoded))
        if show.wants("schedule"):
            show.show(
                "schedule", compiled.graph.name, describe(self.encoded, compiled.schedule, dims)
            )
        self.plan = compiled.memory.plans(dims)
        self.ready = Ready(
            compiled.graph.name,
            self.table,
            self.encoded.arena_bytes,
            compiled.arenas,
            len(compiled.inputs),
            self.plan,
            compiled.memory.copied,
            partial(address_of, compiled.constants, compiled.schedule.outputs),
            partial(explained, self.encoded, dims),
        )
        self.run = self.ready.run if self.watch is None else self.watched

    def watched(
        self, storages: Sequence[Storage], threads: int | None = None, profile: bool = False
    ) -> list[Storage]:
        if self.watch is not None and not profile:
            return self.watch(self, storages, threads)
        return self.ready.run(storages, threads, profile)

    @property
    def compiled(self) -> Compiled:
        compiled = self._compiled()
        if compiled is None:
            raise ReferenceError(
                "the compiled program of this runner is gone: keep a reference to it"
            )
        return compiled

    def explained(self, trap: Trapped) -> Exception:
        return explained(self.encoded, self.dims, trap)


def explained(encoded: EncodedTable, dims: Mapping[str, int], trap: Trapped) -> Exception:
    """What a trap means."""
    site: TrapSite | None = encoded.traps.get(trap.code)
    if site is None:
        return suspicion.left_buffer(
            encoded.launches[trap.code >> TAG_SHIFT], trap.code, trap.value, dims
        )
    return site.error(trap.value)


def describe_plan(name: str, encoded: EncodedTable) -> str:
    """Where in the arena every intermediate lies, and during which steps."""
    head = f"pass plan_memory: graph {name}: "
    if not encoded.lives:
        return head + "nothing to do"
    lines = [
        f"  {offset:8} {life.name}: {life.nbytes} bytes, steps {life.first} to {life.last}"
        for life, offset in zip(encoded.lives, encoded.plan.offsets, strict=True)
    ]
    total = f"{len(lines)} intermediates -> {encoded.plan.total} bytes"
    return "\n".join([head + total, *lines])
