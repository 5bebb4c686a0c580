"""The driver: a graph in, a program that runs out. Ties the stages together in order and owns what
they made.

graph --passes--> graph --lower--> launches --codegen--> machine code --schedule--> table
--runtime--> arrays
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

from tetrad.backends.cpu.code_cache import host, loading_runtime
from tetrad.backends.cpu.compile import KERNELS
from tetrad.backends.cpu.executable import Executable
from tetrad.backends.cpu.isa import select_target
from tetrad.compiler import suspicion
from tetrad.core import show
from tetrad.core.flags import flag
from tetrad.core.floats import own_floats
from tetrad.core.limits import available_threads
from tetrad.core.machine import Target
from tetrad.graph.infer import dim_names
from tetrad.graph.nodes import Graph
from tetrad.kernel.nodes import Program
from tetrad.lower.lower import Lowerer
from tetrad.passes.pipeline import optimise
from tetrad.schedule.nodes import programs_of


def compile_graph(graph: Graph, donated: tuple[int, ...] = ()) -> Executable:
    """Optimise, lower and generate code for a graph; `donated` inputs may be overwritten."""
    with own_floats(), uncollected(), show.recording(show.Clock()) as clock:
        with show.timed("start"):
            target, runtime = current_target(), loading_runtime()
        with show.timed("passes"):
            better = optimise(graph)
        if show.wants():
            show.save("graph", graph.name, str(graph))
            show.save("passes", better.name, str(better))
        with show.timed("lower"):
            schedule = Lowerer(target, beginning(target), available_threads()).lower_program(better)
        programs = list(dict.fromkeys(programs_of(schedule)))
        if show.wants("kernel"):
            for program in programs:
                show.show("kernel", program.name, str(program))
        suspicion.verify_programs(programs, target)
        suspicion.verify_schedule(schedule)
        with show.timed("codegen"):
            addresses = KERNELS.load(programs, target)
            runtime.result()
    return Executable(
        graph.name, schedule, addresses, dim_names(graph), donated,
        code=KERNELS.objects, graph=graph, clock=clock, watch=suspicion.watch_of_flags,
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


def beginning(target: Target) -> Callable[[Program], None]:
    """What is done with a kernel as soon as it is lowered: it is compiled, unless it is verified or
    shown first."""
    waits = suspicion.wants_verified() or show.wants("llvm", "asm")
    return (lambda program: None) if waits else (lambda program: KERNELS.begin(program, target))


@cache
def current_target() -> Target:
    name = flag("TETRAD_TARGET")
    return host() if name == "host" else select_target(name)
