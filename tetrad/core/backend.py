"""Core: what a back end is, as a protocol.

A folder in `backends/` implements `Backend`; the table in `backends/__init__.py` finds it by name.
The compiler asks nothing of a back end beyond this file. Schedules, kernel programs and memory are
types of other folders; here they are `Any`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from tetrad.core.machine import Machine
from tetrad.core.record import record

# Codes of the errors of a back end
MEMORY, UNSUPPORTED, COMPILING, RUNNING = "1001", "1002", "1004", "1005"


@record
class Unavailable:
    """Why a back end cannot be used here, and what to do about it."""

    reason: str
    remedy: str


@record
class BufferContent:
    """What a buffer holds when a kernel starts: some bytes, or zeros."""

    nbytes: int
    count: int  # elements that the program may touch
    data: memoryview | None
    memory: Any = None  # of `Backend.resident`, to be used as it is
    is_covered: bool = False  # the kernel writes every element: what it held before is not seen


class BackendMemory(Protocol):
    """Elements in the memory of a back end."""

    def as_numpy(self, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        """What it holds now."""

    def fill(self, array: np.ndarray) -> None:
        """Replace all it holds by the elements of a contiguous array."""


class Backend(Protocol):
    """A machine that runs schedules."""

    @property
    def name(self) -> str: ...

    @property
    def machine(self) -> Machine:
        """What lowering may count on."""

    @property
    def targets(self) -> Sequence[str]:
        """What TETRAD_TARGET may name beside the host."""

    def available(self) -> Unavailable | None:
        """None if it can be used here."""

    def prepare(self) -> None:
        """A compilation is near: what it needs can be got ready beside it."""

    def begin(self, program: Any) -> None:
        """A kernel program is final, its schedule is not yet: it can be compiled beside it."""

    def compile(self, schedule: Any) -> Any:
        """The code of a schedule, of all its kernels."""

    def launch(
        self,
        program: Any,
        contents: Mapping[Any, BufferContent],
        args: Mapping[str, int],
        grid: tuple[int, int, int],
    ) -> list[bytes]:
        """Run one kernel that nobody vouches for, over buffers in order of declaration; the bytes
        of those it writes, but for those that are resident."""

    def bind(
        self,
        program: Any,
        counts: tuple[int, ...],
        args: Mapping[str, int],
        grid: tuple[int, int, int],
        cleared: tuple[bool, ...],
    ) -> Callable[[Sequence[Any]], None]:
        """The same kernel, ready to run over resident memory of these element counts; buffers that
        are `cleared` start as zeros."""

    def resident(self, array: np.ndarray) -> Any:
        """A copy of a contiguous array as `BackendMemory`."""

    def storage(self, array: np.ndarray) -> Any:
        """A contiguous array in this back end's own memory."""
