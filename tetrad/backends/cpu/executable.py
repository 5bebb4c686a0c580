"""The driver, ready programs: a table and how its outputs get their memory in, arrays in memory
out, call after call.

Knows nothing of how the table was made: the driver schedules one, `compiler.program_cache` reads
one from disk.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Protocol

from tetrad.backends.cpu.memory import MOST_IDLE, Arenas, Storage, shelf
from tetrad.backends.cpu.pool import Outcome, Trapped, run
from tetrad.backends.cpu.table import Table
from tetrad.core import show
from tetrad.core.flags import flag
from tetrad.core.lapack import one_thread
from tetrad.schedule.outputs import OutputPlan

# sizes of a program whose calls are ready; others are made ready anew, and nothing is compiled
MOST_PREPARED = 256
TURNS = count()  # numbers calls of a size after another, so that it is known which came last


class Ready:
    """A program at given sizes. Safe to call from several threads: every call has its own arena, of
    those that the program has for all sizes."""

    def __init__(
        self,
        name: str,
        table: Table,
        arena_bytes: int,
        arenas: Arenas,
        inputs: int,
        plan: Sequence[OutputPlan],
        copied_inputs: frozenset[int],
        constant: Callable[[int], int],
        explained: Callable[[Trapped], Exception],
    ) -> None:
        self.name, self.table, self.arena_bytes, self.plan = name, table, arena_bytes, plan
        self.copied = copied_inputs  # changed in place, but the caller's: the program gets copies
        # the address of an output that is one; what a trap means
        self.constant, self.explained = constant, explained
        self.timing = flag("TETRAD_TIME") == "1"
        self.start = run_beside_lapack if table.calls_out else run
        self.simple = all(kind == "fresh" for kind, _ in plan)
        self.shelves = [(shelf(size), size) for kind, size in plan if kind == "fresh"]
        self.needs_arena = table.base_count > inputs + len(plan)
        self.arenas, self.idle = arenas, arenas.idle
        self.turn = next(TURNS)
        self.sizes: tuple[int, ...] = ()  # of the Dims, for whom it was made

    def run(
        self, storages: Sequence[Storage], threads: int | None = None, profile: bool = False
    ) -> list[Storage]:
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
            raise self.explained(trap) from None
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
                made.append(copied(self.constant(i), detail))
            elif kind == "input":
                made.append(copied(storages[detail].ptr, storages[detail].nbytes))
            else:
                made.append(storages[detail] if kind == "donated" else made[detail])
        return made


class Prepared(Protocol):
    """What is ready for one size; `turn`: when it was last called after another."""

    turn: int


def least_used(prepared: Mapping[tuple[int, ...], Prepared]) -> tuple[int, ...]:
    """The sizes to give up: those called longest ago."""
    return min(prepared, key=lambda sizes: prepared[sizes].turn)


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
