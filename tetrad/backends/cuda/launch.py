"""CUDA back end, launches: one kernel program and the content of its buffers in, bytes out.

Sizes are checked before anything reaches the device. A buffer lies in memory of its own for one
launch, or in memory that stays between launches. Whether the program is valid is the caller's
affair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from tetrad.backends.cuda.driver import Device
from tetrad.backends.cuda.layout import Layout
from tetrad.backends.cuda.ptx import emission
from tetrad.backends.cuda.targets import MAX_GRID, GpuArchitecture
from tetrad.core.backend import COMPILING, RUNNING, UNSUPPORTED, BufferContent
from tetrad.core.errors import BackendError, BadInputs, CompileError, TrapError
from tetrad.core.record import record
from tetrad.kernel.nodes import Buffer, Program

STATUS_BYTES = 16  # two words: the code of the trap, and the value it reports
SHORT = "D002"

Contents = Mapping[Buffer, BufferContent]
Args = Mapping[str, int]
Grid = tuple[int, int, int]


class DeviceMemory:
    """Elements that stay in the memory of a device until nobody holds them."""

    def __init__(self, device: Device, nbytes: int) -> None:
        self.device, self.nbytes = device, nbytes
        self.address = device.allocate(nbytes)

    def as_numpy(self, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        """A copy of what it holds now."""
        self.device.enter()
        return np.frombuffer(self.device.read(self.address, self.nbytes), dtype).reshape(shape)

    def fill(self, array: np.ndarray) -> None:
        self.device.enter()
        self.device.write(self.address, array.tobytes())

    def clear(self) -> None:
        self.device.clear(self.address, self.nbytes)

    def __del__(self) -> None:
        """At the end of the process the driver may be gone before."""
        with suppress(BackendError, AttributeError, TypeError):
            self.device.enter()
            self.device.free(self.address)


def resident(device: Device, array: np.ndarray) -> DeviceMemory:
    device.enter()
    held = DeviceMemory(device, array.nbytes)
    held.fill(array)
    return held


@record(eq=False)
class ReadyKernel:
    """A kernel in a device, with its arguments, element counts and grid."""

    device: Device
    program: Program
    layout: Layout
    function: Any
    counts: Mapping[str, int]
    args: Args
    grid: Grid

    def run(self, addresses: Mapping[str, int]) -> None:
        """Over buffers at these addresses."""
        shared = self.layout.dynamic_bytes(self.args)
        with self.status() as status:
            words = self.words(addresses, status)
            self.device.launch(self.function, self.grid, self.program.workgroup, shared, words)
            if status:
                self.raise_trap(status)

    @contextmanager
    def status(self) -> Iterator[int]:
        """The status words of a kernel that can trap; else 0."""
        if not any(p.role == "status" for p in self.layout.parameters):
            yield 0
            return
        with allocated(self.device, STATUS_BYTES) as address:
            self.device.clear(address, STATUS_BYTES)
            yield address

    def words(self, addresses: Mapping[str, int], status: int) -> list[int]:
        """The parameters of the entry, in its order."""
        by_role = {"pointer": addresses, "argument": self.args, "length": self.counts}
        return [
            status if p.role == "status" else by_role[p.role][p.of] for p in self.layout.parameters
        ]

    def raise_trap(self, status: int) -> None:
        told = self.device.read(status, STATUS_BYTES)
        number = int.from_bytes(told[:8], "little")
        value = int.from_bytes(told[8:], "little", signed=True)
        if number:
            message = f"{self.program.name}: trap {number}, value {value}"
            raise TrapError(message, number, value, code=RUNNING)


def ready(
    device: Device,
    architecture: GpuArchitecture,
    program: Program,
    counts: Sequence[int],
    args: Args,
    grid: Grid,
) -> ReadyKernel | None:
    """The kernel in the device; None for an empty grid."""
    refuse_grid(program, grid)
    if not grid[0] * grid[1] * grid[2]:
        return None
    try:
        made = emission(program, architecture, "mask")
    except CompileError as error:
        raise BackendError(error.message, code=COMPILING, hint=error.hint) from error
    refuse_shared(program, made.layout.dynamic_bytes(args), device)
    device.enter()
    function = device.function(made.text, architecture.name, made.layout.entry)
    names = [b.name for b in program.buffers if not b.is_scratch]
    sizes = dict(zip(names, counts, strict=True))
    return ReadyKernel(device, program, made.layout, function, sizes, args, grid)


def launch(
    device: Device,
    architecture: GpuArchitecture,
    program: Program,
    contents: Contents,
    args: Args,
    grid: Grid,
) -> list[bytes]:
    """The bytes of every buffer that is written and not resident, in order of declaration."""
    for buffer, held in contents.items():
        refuse_short(program, buffer, held)
    counts = [held.count for held in contents.values()]
    kernel = ready(device, architecture, program, counts, args, grid)
    wanted = {b: held for b, held in contents.items() if b.is_written and held.memory is None}
    if kernel is None and all(held.memory is None for held in contents.values()):
        return [unchanged(held) for held in wanted.values()]
    if kernel is None:
        device.enter()
    with placed(device, contents) as addresses:
        if kernel is not None:
            kernel.run(addresses)
        return [device.read(addresses[b.name], held.nbytes) for b, held in wanted.items()]


def bound(
    device: Device,
    architecture: GpuArchitecture,
    program: Program,
    counts: tuple[int, ...],
    args: Args,
    grid: Grid,
    cleared: tuple[bool, ...],
) -> Callable[[Sequence[DeviceMemory]], None]:
    """The kernel as a function of resident memory, buffer by buffer."""
    kernel = ready(device, architecture, program, counts, args, grid)
    names = [b.name for b in program.buffers if not b.is_scratch]

    def run(memory: Sequence[DeviceMemory]) -> None:
        device.enter()
        for held, is_cleared in zip(memory, cleared, strict=True):
            if is_cleared:
                held.clear()
        if kernel is not None:
            kernel.run({name: held.address for name, held in zip(names, memory, strict=True)})

    return run


# -- memory of one launch --------------------------------------------------------------------------


def unchanged(held: BufferContent) -> bytes:
    return bytes(held.nbytes) if held.data is None else held.data.tobytes()


@contextmanager
def placed(device: Device, contents: Contents) -> Iterator[dict[str, int]]:
    """The address of every buffer: of its own memory, or for this block. Where something went
    wrong, that is the error: afterwards freeing often fails too."""
    addresses: dict[str, int] = {}
    own: list[int] = []
    try:
        for buffer, held in contents.items():
            if held.memory is None:
                own.append(device.allocate(held.nbytes))
            addresses[buffer.name] = own[-1] if held.memory is None else held.memory.address
            fill(device, addresses[buffer.name], buffer, held)
        yield addresses
    except BaseException:
        with suppress(BackendError):
            free(device, own)
        raise
    free(device, own)


def fill(device: Device, address: int, buffer: Buffer, held: BufferContent) -> None:
    if held.memory is not None:
        if buffer.access == "write" and not held.is_covered:
            held.memory.clear()
    elif held.data is not None:
        device.write(address, held.data.tobytes())
    elif not held.is_covered:
        device.clear(address, held.nbytes)


@contextmanager
def allocated(device: Device, nbytes: int) -> Iterator[int]:
    address = device.allocate(nbytes)
    try:
        yield address
    except BaseException:
        with suppress(BackendError):
            free(device, [address])
        raise
    free(device, [address])


def free(device: Device, addresses: list[int]) -> None:
    for address in addresses:
        device.free(address)


# -- refusals --------------------------------------------------------------------------------------


def refuse_short(program: Program, buffer: Buffer, held: BufferContent) -> None:
    needed = max(held.count * buffer.dtype.nbytes, held.nbytes)
    given = held.nbytes if held.data is None else held.data.nbytes
    given = held.memory.nbytes if held.memory is not None else given
    if held.count * buffer.dtype.nbytes > held.nbytes or given < held.nbytes:
        message = f"{program.name}: buffer {buffer.name} needs {needed} bytes, got {given}"
        raise BadInputs(message, code=SHORT)


def refuse_grid(program: Program, grid: Grid) -> None:
    if any(size > most for size, most in zip(grid, MAX_GRID, strict=True)):
        limits = " x ".join(map(str, MAX_GRID))
        raise BackendError(
            f"{program.name}: a grid of {grid[0]} x {grid[1]} x {grid[2]} workgroups; a launch has "
            f"at most {limits}",
            code=UNSUPPORTED,
            hint="put the longest axis first",
        )


def refuse_shared(program: Program, nbytes: int, device: Device) -> None:
    if nbytes and nbytes > device.shared_bytes:
        raise BackendError(
            f"{program.name}: a workgroup asks for {nbytes} bytes of memory, this device has "
            f"{device.shared_bytes}",
            code=UNSUPPORTED,
            hint="use less scratch",
        )
