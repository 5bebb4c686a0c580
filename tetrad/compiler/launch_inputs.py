"""Compiler, inputs of a launch: a program and what the caller passed in, checked sizes and contents
out.

Every error of `td.dispatch` that is the caller's is raised here, before memory is reserved. Checks
that depend on sizes alone are remembered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tetrad.backends import backend_named
from tetrad.compiler.resident import ResidentBuffer
from tetrad.core.backend import BufferContent
from tetrad.core.dtypes import DType, as_dtype, u8
from tetrad.core.errors import BadInputs, Rejected, TetradError, an
from tetrad.core.record import record
from tetrad.core.sizes import bind, dims_of
from tetrad.kernel.grids.infer import infer_grid, writes_all
from tetrad.kernel.grids.ranges import Ranges, unreached
from tetrad.kernel.nodes import Buffer, Program, Store, walk
from tetrad.kernel.verify import problems
from tetrad.tracing.array import Array, TracedArray

Args = Mapping[str, int]
Bytes = bytes | bytearray | memoryview
Given = Bytes | np.ndarray | Array | ResidentBuffer
Grid = tuple[int, int, int]
MAX_INVOCATIONS = 1 << 53
MAX_BYTES = 1 << 40  # of one buffer
MAX_SCRATCH = 64 << 20  # bytes of one workgroup

# Codes of errors; those of a Rejected are the verifier's, those of a back end in `core.backend`.
COUNT, SHORT, RAGGED, SIZE, ARGUMENT, GRID = "D001", "D002", "D003", "D004", "D005", "D006"
KIND, SHARED = "D007", "D008"


@record(eq=False)
class LaunchSizes:
    """What a launch with given sizes looks like."""

    counts: Mapping[Buffer, int]  # elements that the program may touch
    nbytes: Mapping[Buffer, int]
    grid: Grid
    covered: frozenset[Buffer]  # outputs of which every element is written


@lru_cache(maxsize=256)
def refuse_invalid(program: Program, backend: str) -> None:
    found = problems(program, backend_named(backend, "dispatch").machine.workgroup_bytes)
    if found:
        listed = "\n".join(error.message for error in found)
        raise Rejected(
            listed,
            code=found[0].code,
            hint="tetrad.kernel.verify says the same without running anything",
        )


def storage_of(program: Program) -> list[Buffer]:
    return [b for b in program.buffers if not b.is_scratch]


def checked_args(program: Program, args: Args) -> dict[str, int]:
    """The index arguments; values of Dims that only sizes of buffers mention may be among them."""
    missing = [name for name in program.args if name not in args]
    if missing:
        hint = "args={" + ", ".join(f"{name!r}: ..." for name in program.args) + "}"
        raise BadInputs(
            f"{program.name}: no value for argument {missing[0]!r}", code=ARGUMENT, hint=hint
        )
    named = dims_named(program)
    for name, value in args.items():
        if name not in program.args and name not in named:
            known = ", ".join(dict.fromkeys((*program.args, *sorted(named)))) or "none"
            raise BadInputs(
                f"{program.name}: there is no argument {name!r}; it has {known}", code=ARGUMENT
            )
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            came = an(type(value).__name__)
            raise BadInputs(f"{program.name}: argument {name} is {came}, not an int", code=ARGUMENT)
        if not -(1 << 63) <= value < 1 << 63:
            raise BadInputs(
                f"{program.name}: argument {name} = {value} leaves 64 bits", code=ARGUMENT
            )
        refuse_negative(program, name, int(value))
    return {name: int(value) for name, value in args.items()}


def dims_named(program: Program) -> set[str]:
    """The Dims that counts of buffers mention."""
    return {d.name for b in program.buffers if b.count is not None for d in dims_of(b.count)}


def refuse_negative(program: Program, name: str, value: int) -> None:
    """A size of buffers is 0 or more; other arguments may be anything."""
    if value < 0 and name in dims_named(program):
        sized = next(b for b in program.buffers if name in {d.name for d in dims_of(b.count or 0)})
        raise BadInputs(
            f"{program.name}: argument {name} = {value} is negative, and buffer {sized.name} has "
            f"{sized.count} elements",
            code=SIZE,
            hint="sizes are 0 or more",
        )


# -- buffers ---------------------------------------------------------------------------------------


def match_inputs(
    program: Program, inputs: Sequence[Given], backend: str
) -> dict[Buffer, memoryview | ResidentBuffer]:
    """The content of each buffer that is read, and the resident ones among those that are only
    written. A value for every storage buffer is accepted: others are placeholders then."""
    storage = storage_of(program)
    read = [b for b in storage if b.access != "write"]
    if len(inputs) not in (len(read), len(storage)):
        names = ", ".join(b.name for b in read) or "none"
        raise BadInputs(
            f"{program.name}: takes {len(read)} inputs ({names}), got {len(inputs)}",
            code=COUNT,
            hint="one value for each buffer that is read, in order of declaration",
        )
    buffers = read if len(inputs) == len(read) else storage
    return {
        b: content
        for b, given in zip(buffers, inputs, strict=True)
        if (content := accepted(program, b, given, backend)) is not None
    }


def accepted(
    program: Program, buffer: Buffer, given: Given, backend: str
) -> memoryview | ResidentBuffer | None:
    """What a buffer holds; None for a placeholder."""
    if isinstance(given, ResidentBuffer):
        if given.backend != backend:
            raise BadInputs(
                f"{program.name}: buffer {buffer.name} got memory of back end {given.backend!r}, "
                f"the launch is on {backend!r}",
                code=KIND,
                hint=f"td.kernel.resident(..., backend={backend!r})",
            )
        refuse_kind(program, buffer, given.dtype)
        return given
    return None if buffer.access == "write" else bytes_of(program, buffer, given)


def bytes_of(program: Program, buffer: Buffer, given: Given) -> memoryview:
    """The bytes in place where they lie in a row, else a copy."""
    if isinstance(given, TracedArray):
        raise BadInputs(
            f"{program.name}: buffer {buffer.name} got {given!r}, which has no values yet",
            code=KIND,
            hint="td.kernel.call(program, ...) is part of the program that is traced",
        )
    array = given.memory if isinstance(given, Array) else given
    if isinstance(array, np.ndarray):
        if not (isinstance(given, Array) and given.dtype.is_quantized):
            refuse_kind(program, buffer, dtype_of(program, buffer, array))
        return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    try:
        return memoryview(given).cast("B")  # type: ignore[arg-type]
    except TypeError:
        raise BadInputs(
            f"{program.name}: buffer {buffer.name} got {an(type(given).__name__)}",
            code=KIND,
            hint="bytes, an array, or a buffer of td.kernel.resident",
        ) from None


def dtype_of(program: Program, buffer: Buffer, array: np.ndarray) -> DType:
    try:
        return as_dtype(array.dtype)
    except TetradError:
        raise BadInputs(
            f"{program.name}: buffer {buffer.name} is {buffer.dtype}, got an array of "
            f"{array.dtype}",
            code=KIND,
        ) from None


def refuse_kind(program: Program, buffer: Buffer, came: DType) -> None:
    """Elements have the type of the buffer, or are plain bytes; integers may differ in sign."""
    wanted = buffer.dtype
    whole = came.is_integer and wanted.is_integer and came.nbytes == wanted.nbytes
    if came is not wanted and came is not u8 and not whole:
        raise BadInputs(
            f"{program.name}: buffer {buffer.name} is {wanted}, got elements of {came}",
            code=KIND,
            hint="convert with astype, or pass the bytes",
        )


def refuse_aliases(program: Program, data: Mapping[Buffer, Any]) -> None:
    """A resident buffer that is written is that of one buffer alone."""
    homes: dict[int, Buffer] = {}
    for buffer, given in data.items():
        if isinstance(given, ResidentBuffer):
            other = homes.setdefault(id(given.memory), buffer)
            if other is not buffer and (other.is_written or buffer.is_written):
                raise BadInputs(
                    f"{program.name}: {other.name} and {buffer.name} are the same resident "
                    "buffer, and one of them is written",
                    code=SHARED,
                    hint="td.kernel.resident(x) makes a copy",
                )


def layout_of(program: Program, data: Mapping[Buffer, Any]) -> tuple[int | None, ...]:
    """The bytes that were given for each storage buffer."""
    given = (data.get(b) for b in storage_of(program))
    return tuple(None if held is None else held.nbytes for held in given)


def content_of(
    buffer: Buffer, given: memoryview | ResidentBuffer | None, sizes: LaunchSizes
) -> BufferContent:
    nbytes, count, covered = sizes.nbytes[buffer], sizes.counts[buffer], buffer in sizes.covered
    if isinstance(given, ResidentBuffer):
        return BufferContent(nbytes, count, None, given.memory, covered)
    return BufferContent(nbytes, count, given, None, covered)


# -- sizes -----------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def sizes_of(
    program: Program,
    layout: tuple[int | None, ...],
    named: tuple[tuple[str, int], ...],
    grid: Grid | None,
) -> LaunchSizes:
    """The sizes of a launch, if they fit together."""
    args = dict(named)
    refuse_scratch(program, args)
    pairs = list(zip(storage_of(program), layout, strict=True))
    nbytes = {b: buffer_bytes(program, b, given, args) for b, given in pairs}
    declared = {b: declared_count(b, args) for b in nbytes}
    counts = {
        b: nbytes[b] // b.dtype.nbytes if count is None else count for b, count in declared.items()
    }
    whole = {b: n // b.dtype.nbytes for b, n in nbytes.items()}
    extents = checked_grid(program, grid, whole)
    refuse_small_grid(program, args, extents, counts)
    covered = frozenset(
        b
        for b in counts
        if b.is_written and writes_all(program, b, whole[b], args, extents)
        if counts[b] == whole[b]
    )
    return LaunchSizes(counts, nbytes, extents, covered)


def buffer_bytes(program: Program, buffer: Buffer, given: int | None, args: Args) -> int:
    """How many bytes the buffer has in this launch."""
    declared = declared_count(buffer, args)
    if given is None:
        return output_bytes(program, buffer, declared)
    needed = (declared or 0) * buffer.dtype.nbytes
    if given < needed:
        message = f"{program.name}: buffer {buffer.name} needs {needed} bytes, got {given}"
        raise BadInputs(message, code=SHORT, hint=f"{declared} elements of {buffer.dtype}")
    if given % buffer.dtype.nbytes:
        message = (
            f"{program.name}: buffer {buffer.name} got {given} bytes, no whole number of "
            f"{buffer.dtype}"
        )
        raise BadInputs(message, code=RAGGED)
    return given


def output_bytes(program: Program, buffer: Buffer, declared: int | None) -> int:
    """Of a buffer that nobody gave."""
    if declared is None:
        message = (
            f"{program.name}: {buffer.name} is only written, so its size must be known, not "
            f"{buffer.count}"
        )
        names = [] if buffer.count is None else sorted(d.name for d in dims_of(buffer.count))
        hint = "args={" + ", ".join(f"{name!r}: ..." for name in names) + "}"
        raise BadInputs(
            message,
            code=SIZE,
            hint=hint if names else "declare the buffer with count=, or make it readwrite",
        )
    needed = declared * buffer.dtype.nbytes
    if not 0 <= needed <= MAX_BYTES:
        raise BadInputs(
            f"{program.name}: buffer {buffer.name} would take {needed} bytes", code=SIZE
        )
    return needed


def refuse_scratch(program: Program, args: Args) -> None:
    counts = {
        b: bind(b.count, args) for b in program.buffers if b.is_scratch and b.count is not None
    }
    needed = sum(count * b.dtype.nbytes for b, count in counts.items())
    if needed > MAX_SCRATCH or any(count < 1 for count in counts.values()):
        listed = ", ".join(f"{b.name} {count} x {b.dtype}" for b, count in counts.items())
        message = (
            f"{program.name}: scratch of a workgroup is at least 1 element and at most "
            f"{MAX_SCRATCH} bytes in all"
        )
        raise BadInputs(f"{message}, not {listed}", code=SIZE)


def declared_count(buffer: Buffer, args: Args) -> int | None:
    """The count the program states, as far as the arguments tell it."""
    if buffer.count is None or not {d.name for d in dims_of(buffer.count)} <= args.keys():
        return None
    return bind(buffer.count, args)


# -- grid ------------------------------------------------------------------------------------------


def extents_of(program: Program, grid: Any) -> Grid | None:
    """The grid as three numbers, if it is."""
    if grid is None:
        return None
    sizes = tuple(grid) if isinstance(grid, tuple | list) else ()
    whole = [isinstance(n, int | np.integer) and not isinstance(n, bool) for n in sizes]
    if len(sizes) != 3 or not all(whole) or min(sizes) < 0:
        raise BadInputs(
            f"{program.name}: grid {grid} is not three numbers of workgroups", code=GRID
        )
    return (int(sizes[0]), int(sizes[1]), int(sizes[2]))


def checked_grid(program: Program, grid: Grid | None, counts: Mapping[Buffer, int]) -> Grid:
    if grid is None:
        found = infer_grid(program, counts)
        if found is None:
            message = f"{program.name}: the grid cannot be told from the program"
            raise BadInputs(
                message,
                code=GRID,
                hint="pass grid=(x, y, z), the number of workgroups along each axis",
            )
        return found  # type: ignore[return-value]  # counts are numbers, so it is
    total = grid[0] * grid[1] * grid[2] * program.lanes
    if total > MAX_INVOCATIONS:
        raise BadInputs(
            f"{program.name}: grid {grid} makes {total} invocations, more than 2**53", code=GRID
        )
    return grid


def refuse_small_grid(
    program: Program, args: Args, grid: Grid, counts: Mapping[Buffer, int]
) -> None:
    """Every output that is only written can be reached, its first and its last element. What needs
    no invocation is an output without elements."""
    stored = {i.buffer for i in walk(program.body) if isinstance(i, Store)}
    waiting = [b for b in program.buffers if b.access == "write" and b in stored and counts[b] > 0]
    if 0 in grid:
        if waiting:
            told = f"{waiting[0].name} unwritten, it has {counts[waiting[0]]} elements"
            refuse_grid(program, f"a grid of {grid} workgroups leaves {told}", counts)
        return
    found = unreached(Ranges(program, args, grid, counts))
    if found is None:
        return
    what, name = f"a grid of {grid} workgroups of {program.lanes} invocations", found.buffer.name
    if not found.grows:
        raise BadInputs(
            f"{program.name}: {what} writes {name} from element {found.first} on, a condition "
            "keeps all invocations from those before",
            code=GRID,
            hint="write every element, or make the buffer readwrite: it may be written in part",
        )
    start = f"from element {found.first} " if found.first else ""
    reached = f"writes {name} {start}up to element {found.last}, it has {found.count}"
    refuse_grid(program, f"{what} {reached}", counts)


def refuse_grid(program: Program, message: str, counts: Mapping[Buffer, int]) -> None:
    enough = infer_grid(program, counts)
    hint = f"grid={enough}" if enough is not None else "more workgroups along the axes it uses"
    raise BadInputs(
        f"{program.name}: {message}",
        code=GRID,
        hint=f"{hint}; a readwrite buffer may be written in part",
    )
