"""CPU back end, launches: one kernel program that nobody vouches for and the content of its
buffers in, bytes out.

It is compiled so that loads out of range give 0 and stores out of range do nothing, and its scratch
starts as zeros. Whether the program is valid and the data fit is the caller's affair.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import lru_cache

from tetrad.backends.cpu.code_cache import loading_runtime
from tetrad.backends.cpu.compile import KERNELS
from tetrad.backends.cpu.encode import scratch_layout
from tetrad.backends.cpu.isa import current_target
from tetrad.backends.cpu.memory import Storage
from tetrad.backends.cpu.pool import Trapped, run
from tetrad.backends.cpu.table import KernelEntry, Table, Word
from tetrad.core.backend import COMPILING, MEMORY, RUNNING, BufferContent
from tetrad.core.errors import BackendError, CompileError, TrapError
from tetrad.core.floats import own_floats
from tetrad.kernel.nodes import TAG_SHIFT, Buffer, Program

SLICE = 1024  # workgroups between two looks at the stop word
NUMBER = -1  # base of a word that is a plain number


def launch(
    program: Program,
    contents: Mapping[Buffer, BufferContent],
    args: Mapping[str, int],
    grid: tuple[int, int, int],
) -> list[bytes]:
    memory = {b: filled(program, b, content) for b, content in contents.items()}
    counts = [content.count for content in contents.values()]
    if grid[0] * grid[1] * grid[2]:
        run_kernel(program, list(memory.values()), counts, args, grid)
    return [ctypes.string_at(held.ptr, held.nbytes) for b, held in memory.items() if b.is_written]


def filled(program: Program, buffer: Buffer, content: BufferContent) -> Storage:
    """Memory with the given bytes, or zeros."""
    try:
        held = Storage.allocate(content.nbytes)
    except MemoryError as error:
        raise BackendError(
            f"{program.name}: no memory for {buffer.name}, {content.nbytes} bytes", code=MEMORY
        ) from error
    if content.data is None:
        ctypes.memset(held.ptr, 0, content.nbytes)
    else:
        ctypes.memmove(held.ptr, content.data.tobytes(), content.nbytes)
    return held


def run_kernel(
    program: Program,
    memory: list[Storage],
    counts: list[int],
    args: Mapping[str, int],
    grid: tuple[int, int, int],
) -> None:
    """On memory that is ready (`backends.llvm.module` says what the argument words are)."""
    scratch = scratch_layout(program, args)
    numbers = [*scratch[:-1], *(args[name] for name in program.args), grid[0], grid[1], *counts, 0]
    words = [Word(i, 0) for i in range(len(memory))] + [Word(NUMBER, number) for number in numbers]
    groups = grid[0] * grid[1] * grid[2]
    entry = KernelEntry(code_of(program), tuple(words), groups, slice=SLICE, name=program.name)
    try:
        run(Table([entry], scratch[-1]), [held.ptr for held in memory])
    except Trapped as trap:
        number = trap.code & (1 << TAG_SHIFT) - 1
        message = f"{program.name}: trap {number}, value {trap.value}"
        raise TrapError(message, number, trap.value, code=RUNNING) from None


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
