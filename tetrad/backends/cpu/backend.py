"""The CPU back end: what `core.backend` asks, answered by the files beside this one.

A start that finds its programs on disk compiles nothing: the files that compile are loaded when
they are first asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tetrad.backends.cpu.memory import Storage
from tetrad.core import lazy
from tetrad.core.backend import BufferContent, Unavailable
from tetrad.core.errors import BackendError
from tetrad.core.limits import available_threads
from tetrad.core.machine import Machine
from tetrad.core.record import replace

if TYPE_CHECKING:
    from tetrad.backends.cpu import isa
    from tetrad.kernel.nodes import Buffer, Program
    from tetrad.schedule import nodes
else:
    isa = lazy.later("tetrad.backends.cpu.isa")
    nodes = lazy.later("tetrad.schedule.nodes")


class CpuBackend:
    """The processors of `isa`, with a thread for each workgroup that runs at once."""

    name = "cpu"
    storage: Callable[[np.ndarray], Storage] = staticmethod(Storage.from_numpy)

    @property
    def machine(self) -> Machine:
        return replace(isa.current_target().machine, parallel_groups=available_threads())

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(isa.LEVELS)

    def available(self) -> Unavailable | None:
        try:
            isa.host_family()
        except BackendError as error:
            return Unavailable(error.message, error.hint or "")
        return None

    def prepare(self) -> None:
        lazy.module("tetrad.backends.cpu.code_cache").loading_runtime()

    def begin(self, program: Program) -> None:
        lazy.module("tetrad.backends.cpu.compile").KERNELS.begin(program, isa.current_target())

    def compile(self, schedule: nodes.Schedule) -> dict[Program, int]:
        """The address of every kernel; with them there is the loop that runs schedules."""
        runtime = lazy.module("tetrad.backends.cpu.code_cache").loading_runtime()
        found: dict[Program, int] = lazy.module("tetrad.backends.cpu.compile").KERNELS.load(
            nodes.programs_of(schedule), isa.current_target()
        )
        runtime.result()
        return found

    def launch(
        self,
        program: Program,
        contents: Mapping[Buffer, BufferContent],
        args: Mapping[str, int],
        grid: tuple[int, int, int],
    ) -> list[bytes]:
        written: list[bytes] = lazy.module("tetrad.backends.cpu.launch").launch(
            program, contents, args, grid
        )
        return written

    def bind(
        self,
        program: Program,
        counts: tuple[int, ...],
        args: Mapping[str, int],
        grid: tuple[int, int, int],
        cleared: tuple[bool, ...],
    ) -> Callable[[Sequence[Storage]], None]:
        ready: Callable[[Sequence[Storage]], None] = lazy.module(
            "tetrad.backends.cpu.launch"
        ).bound(program, counts, tuple(args.items()), grid, cleared)
        return ready

    def resident(self, array: np.ndarray) -> Storage:
        held = Storage.allocate(array.nbytes)
        held.fill(array)
        return held


CPU = CpuBackend()
