"""CUDA back end, launches: one kernel program and the content of its buffers in, bytes out.

Sizes are checked before anything reaches the device; every buffer lies in memory of its own for
this launch. Whether the program is valid is the caller's affair.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from tetrad.backends.cuda.driver import Device
from tetrad.backends.cuda.layout import Layout
from tetrad.backends.cuda.ptx import emission
from tetrad.backends.cuda.targets import MAX_GRID, Architecture
from tetrad.core.backend import COMPILING, RUNNING, UNSUPPORTED, BufferContent
from tetrad.core.errors import BackendError, BadInputs, CompileError, TrapError
from tetrad.kernel.nodes import TAG_SHIFT, Buffer, Program

STATUS_BYTES = 16  # two words: what failed, and the value it reports
SHORT = "D002"

Contents = Mapping[Buffer, BufferContent]
Grid = tuple[int, int, int]


def launch(
    device: Device,
    architecture: Architecture,
    program: Program,
    contents: Contents,
    args: Mapping[str, int],
    grid: Grid,
) -> list[bytes]:
    """The bytes of every buffer that is written, in order of declaration."""
    for buffer, held in contents.items():
        refuse_short(program, buffer, held)
    if not grid[0] * grid[1] * grid[2]:
        return [unchanged(held) for b, held in contents.items() if b.is_written]
    made = compiled(program, architecture)
    shared = made.layout.dynamic_bytes(args)
    refuse_grid(program, grid)
    refuse_shared(program, shared, device)
    device.enter()
    function = device.function(made.text, architecture.name, made.layout.entry)
    with Resident(device, contents, made.layout) as memory:
        words = memory.parameters(args)
        device.launch(function, grid, program.workgroup, shared, words)
        memory.raise_trap(program)
        return memory.written()


def compiled(program: Program, architecture: Architecture) -> Any:
    try:
        return emission(program, architecture, "mask")
    except CompileError as error:
        raise BackendError(error.message, code=COMPILING, hint=error.hint) from error


def unchanged(held: BufferContent) -> bytes:
    return bytes(held.nbytes) if held.data is None else held.data.tobytes()


class Resident:
    """The buffers of a launch in the memory of a device, until the block ends."""

    def __init__(self, device: Device, contents: Contents, layout: Layout) -> None:
        self.device, self.contents, self.layout = device, contents, layout
        self.addresses: dict[str, int] = {}
        self.status = 0

    def __enter__(self) -> Resident:
        try:
            for buffer, held in self.contents.items():
                self.addresses[buffer.name] = address = self.device.allocate(held.nbytes)
                if held.data is None:
                    self.device.clear(address, held.nbytes)
                else:
                    self.device.write(address, held.data.tobytes())
            if any(p.role == "status" for p in self.layout.parameters):
                self.status = self.device.allocate(STATUS_BYTES)
                self.device.clear(self.status, STATUS_BYTES)
        except BaseException as error:
            self.__exit__(type(error))
            raise
        return self

    def __exit__(self, *error: object) -> None:
        """Where something else went wrong, that is the error: afterwards freeing often fails."""
        hidden: tuple[type[BaseException], ...] = (BackendError,) if error[0] else ()
        for address in (*self.addresses.values(), *([self.status] if self.status else [])):
            with suppress(*hidden):
                self.device.free(address)

    def parameters(self, args: Mapping[str, int]) -> list[int]:
        """The words of the entry, in its order."""
        counts = {b.name: held.count for b, held in self.contents.items()}
        by_role = {"pointer": self.addresses, "argument": args, "length": counts}
        return [
            self.status if p.role == "status" else by_role[p.role][p.of]
            for p in self.layout.parameters
        ]

    def raise_trap(self, program: Program) -> None:
        if not self.status:
            return
        told = self.device.read(self.status, STATUS_BYTES)
        failed = int.from_bytes(told[:8], "little")
        value = int.from_bytes(told[8:], "little", signed=True)
        if failed:
            number = failed & (1 << TAG_SHIFT) - 1
            message = f"{program.name}: trap {number}, value {value}"
            raise TrapError(message, number, value, code=RUNNING)

    def written(self) -> list[bytes]:
        return [
            self.device.read(self.addresses[b.name], held.nbytes)
            for b, held in self.contents.items()
            if b.is_written
        ]


# -- refusals --------------------------------------------------------------------------------------


def refuse_short(program: Program, buffer: Buffer, held: BufferContent) -> None:
    needed = held.count * buffer.dtype.nbytes
    if held.nbytes < needed or (held.data is not None and held.data.nbytes < held.nbytes):
        given = held.nbytes if held.data is None else held.data.nbytes
        raise BadInputs(
            f"{program.name}: buffer {buffer.name} needs {max(needed, held.nbytes)} bytes, got "
            f"{given}",
            code=SHORT,
        )


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
