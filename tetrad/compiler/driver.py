"""The driver: a graph in, a program that runs out. Ties the stages together in order and owns what
they made.

graph --passes--> graph --lower--> launches --codegen--> machine code --schedule--> table
--runtime--> arrays
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tetrad.backends import backend_named
from tetrad.backends.cpu import compile as kernels
from tetrad.backends.cpu.executable import Executable
from tetrad.compiler import suspicion
from tetrad.compiler.pipeline import lower_graph
from tetrad.core import show
from tetrad.core.backend import Backend
from tetrad.core.floats import own_floats
from tetrad.graph.infer import dim_names
from tetrad.graph.nodes import Graph
from tetrad.kernel.nodes import Program
from tetrad.lower.lower import Lowerer
from tetrad.schedule.nodes import programs_of


def compile_graph(graph: Graph, donated: tuple[int, ...] = ()) -> Executable:
    """Optimise, lower and generate code for a graph; `donated` inputs may be overwritten."""
    with own_floats(), uncollected(), show.recording(show.Clock()) as clock:
        with show.timed("start"):
            backend = backend_named("cpu", graph.name)
            backend.prepare()
            machine = backend.machine
        kept = [i for i in range(len(graph.inputs)) if i not in donated]
        schedule = lower_graph(graph, Lowerer(machine, beginning(backend)), kept)
        show.tell_steps(clock)
        programs = list(dict.fromkeys(programs_of(schedule)))
        if show.wants("kernel"):
            for program in programs:
                show.show("kernel", program.name, str(program))
        suspicion.verify_programs(programs, machine)
        with show.timed("codegen"):
            addresses = backend.compile(schedule)
    return Executable(
        graph.name, schedule, addresses, dim_names(graph), donated,
        code=kernels.KERNELS.objects, graph=graph, clock=clock, watch=suspicion.watch_of_flags,
    )  # fmt: skip


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
