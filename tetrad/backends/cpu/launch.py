"""CPU back end, launches: one kernel program that nobody vouches for and the content of its
buffers in, bytes out.

It is compiled so that loads out of range give 0 and stores out of range do nothing, and its scratch
starts as zeros. Whether the program is valid and the data fit is the caller's affair. A launch of
the same sizes finds its table again, and contexts keep their scratch: nothing is allocated twice.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from tetrad.backends.cpu.code_cache import loading_runtime
from tetrad.backends.cpu.compile import KERNELS
from tetrad.backends.cpu.encode import HEAVY_NS, scratch_layout
from tetrad.backends.cpu.isa import current_target
from tetrad.backends.cpu.memory import Storage
from tetrad.backends.cpu.pool import Trapped, run
from tetrad.backends.cpu.table import KernelEntry, Table, Word
from tetrad.core.backend import COMPILING, MEMORY, RUNNING, BufferContent
from tetrad.core.errors import BackendError, CompileError, TrapError
from tetrad.core.floats import own_floats
from tetrad.kernel.grids.ranges import Ranges, nanoseconds
from tetrad.kernel.nodes import TAG_SHIFT, Buffer, Program

SLICE = 1024  # workgroups between two looks at the stop word
NUMBER = -1  # base of a word that is a plain number
Grid = tuple[int, int, int]


def launch(
    program: Program,
    contents: Mapping[Buffer, BufferContent],
    args: Mapping[str, int],
    grid: Grid,
) -> list[bytes]:
    memory = {b: held_by(program, b, content) for b, content in contents.items()}
    counts = tuple([content.count for content in contents.values()])
    bound(program, counts, tuple(args.items()), grid)(list(memory.values()))
    return [
        ctypes.string_at(held.ptr, held.nbytes)
        for b, held in memory.items()
        if b.is_written and contents[b].memory is None
    ]


def held_by(program: Program, buffer: Buffer, content: BufferContent) -> Storage:
    """Memory with the given bytes, or zeros: resident as it is, the caller's own where the kernel
    only reads it and can."""
    if content.memory is None:
        return lent(buffer, content) or filled(program, buffer, content)
    held: Storage = content.memory
    if buffer.access == "write" and not content.is_covered:
        ctypes.memset(held.ptr, 0, held.nbytes)
    return held


def lent(buffer: Buffer, content: BufferContent) -> Storage | None:
    if content.data is None or buffer.is_written or not content.nbytes:
        return None
    given = Storage.from_numpy(np.frombuffer(content.data, np.uint8))
    return given if given.ptr % buffer.dtype.nbytes == 0 else None


def filled(program: Program, buffer: Buffer, content: BufferContent) -> Storage:
    try:
        held = Storage.allocate(content.nbytes)
    except MemoryError as error:
        raise BackendError(
            f"{program.name}: no memory for {buffer.name}, {content.nbytes} bytes", code=MEMORY
        ) from error
    if content.data is not None:
        held.fill(np.frombuffer(content.data, np.uint8) if content.nbytes else np.empty(0))
    elif not content.is_covered:
        ctypes.memset(held.ptr, 0, content.nbytes)
    return held


class BoundLaunch:
    """A kernel with its arguments, sizes and grid: runs over memory, buffer by buffer."""

    __slots__ = ("cleared", "name", "table")

    def __init__(
        self, name: str, table: Table | None, cleared: tuple[tuple[int, int], ...]
    ) -> None:
        self.name, self.table, self.cleared = name, table, cleared

    def __call__(self, memory: Sequence[Storage]) -> None:
        bases = [held.ptr for held in memory]
        for place, nbytes in self.cleared:
            ctypes.memset(bases[place], 0, nbytes)
        if self.table is None:
            return
        try:
            run(self.table, bases)
        except Trapped as trap:
            number = trap.code & (1 << TAG_SHIFT) - 1
            message = f"{self.name}: trap {number}, value {trap.value}"
            raise TrapError(message, number, trap.value, code=RUNNING) from None


@lru_cache(maxsize=256)
def bound(
    program: Program,
    counts: tuple[int, ...],
    named: tuple[tuple[str, int], ...],
    grid: Grid,
    cleared: tuple[bool, ...] = (),
) -> BoundLaunch:
    """On memory that is ready (`backends.llvm.module` says what the argument words are)."""
    storage = [b for b in program.buffers if not b.is_scratch]
    sizes = [count * b.dtype.nbytes for b, count in zip(storage, counts, strict=True)]
    zeros = tuple([(i, sizes[i]) for i, is_cleared in enumerate(cleared) if is_cleared])
    groups = grid[0] * grid[1] * grid[2]
    return BoundLaunch(
        program.name, table_of(program, counts, dict(named), grid) if groups else None, zeros
    )


def table_of(
    program: Program, counts: tuple[int, ...], args: Mapping[str, int], grid: Grid
) -> Table:
    scratch = scratch_layout(program, args)
    numbers = [*scratch[:-1], *(args[name] for name in program.args), grid[0], grid[1], *counts, 0]
    words = [Word(i, 0) for i in range(len(counts))] + [Word(NUMBER, number) for number in numbers]
    groups = grid[0] * grid[1] * grid[2]
    entry = KernelEntry(code_of(program), tuple(words), groups, slice=SLICE, name=program.name)
    # what may take long is run so that Ctrl-C reaches it
    storage = [b for b in program.buffers if not b.is_scratch]
    ranges = Ranges(program, args, grid, dict(zip(storage, counts, strict=True)))
    heavy = nanoseconds(ranges) > HEAVY_NS
    return Table([entry], scratch[-1], heavy=heavy)


@lru_cache(maxsize=256)
def code_of(program: Program) -> int:
    runtime = loading_runtime()
    try:
        with own_floats():
            address = KERNELS.load([program], current_target(), "mask")[program]
    except CompileError as error:
        raise BackendError(error.message, code=COMPILING, hint=error.hint) from error
    runtime.result()
    return address
