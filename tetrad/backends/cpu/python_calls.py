"""CPU back end, calls of Python: a callback of a schedule in, an entry of a native table out, whose
function is one of Python's.

It looks like a kernel of one workgroup, which worker 0 runs: the thread that called the program.
What the function raises ends the run and is raised again where the program was called; the program
can be called again.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Protocol

import numpy as np

from tetrad.backends.cpu.pool import Outcome, run
from tetrad.backends.cpu.table import KernelEntry, Table, Word
from tetrad.core.sizes import bind
from tetrad.core.types import ArrayType
from tetrad.kernel.nodes import STOP_WORD
from tetrad.schedule.lapack import one_thread
from tetrad.schedule.nodes import Callback, Slot

WORD = 8  # bytes
KERNEL = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p
)


class Raised(threading.local):
    """What a function raised in a run of this thread."""

    error: BaseException | None = None


RAISED = Raised()


class SlotPlaces(Protocol):
    """Says where memory lies."""

    def word(self, slot: Slot) -> Word: ...


class Thunk:
    """Native code that calls the function of a callback, for slots of given sizes."""

    def __init__(self, step: Callback, dims: Mapping[str, int]) -> None:
        self.step = step
        self.given = [(kind.dtype.np, shape_of(kind, dims)) for kind in step.given]
        self.gives = [shape_of(slot.type, dims) for slot in step.outputs]
        self.code = KERNEL(self.call)  # as long as this lives, so does the code

    def entry(self, where: SlotPlaces) -> KernelEntry:
        words = tuple(where.word(slot) for slot in (*self.step.inputs, *self.step.outputs))
        address = ctypes.cast(self.code, ctypes.c_void_p).value or 0
        return KernelEntry(address, words, 1, name=self.step.name, serial=True, calls_python=True)

    def call(self, words: int, begin: int, end: int, scratch: int, status: int) -> None:
        """As a kernel is called: `words` are the addresses of the slots."""
        try:
            self.run(words)
        except BaseException as error:
            RAISED.error = error
            ctypes.c_int64.from_address(status + WORD * STOP_WORD).value = 1

    def run(self, words: int) -> None:
        count = len(self.step.inputs)
        places = (ctypes.c_int64 * (count + len(self.step.outputs))).from_address(words)
        given = [
            copied(place, dtype, shape)
            for place, (dtype, shape) in zip(places[:count], self.given, strict=True)
        ]
        made = self.step.function(given, self.gives, self.step.source)
        for place, array in zip(places[count:], made, strict=True):
            source = np.ascontiguousarray(array)
            ctypes.memmove(place, source.__array_interface__["data"][0], source.nbytes)


def shape_of(kind: ArrayType, dims: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(bind(n, dims) for n in kind.storage_shape)


def copied(address: int, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """A copy: the function may keep or change what it is given, the memory is used again."""
    made = np.empty(shape, dtype)
    ctypes.memmove(made.__array_interface__["data"][0], address, made.nbytes)
    return made


def run_with_python(
    table: Table, bases: Sequence[int], threads: int | None, profile: bool
) -> Outcome | None:
    """As `run`; raises what a function of Python's raised."""
    RAISED.error = None
    try:
        with one_thread() if table.calls_out else nullcontext():
            return run(table, bases, threads, profile)
    except BaseException:
        error, RAISED.error = RAISED.error, None
        if error is None:
            raise
    raise error  # here, where no other is being handled: its own context stays
