"""Compiler, dispatch: one kernel program and bytes in, bytes out. The door for kernels people
write themselves.

Nothing about the program is trusted: it is verified, compiled so that loads out of range give 0 and
stores out of range do nothing, and its scratch starts as zeros. Inputs and outputs follow the order
of the program's buffers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from tetrad.backends import backend_named
from tetrad.compiler.grid import Grid, infer_grid
from tetrad.core.backend import BufferContent
from tetrad.core.errors import BadInputs, Rejected, an
from tetrad.core.floats import own_floats
from tetrad.core.sizes import bind, dims_of
from tetrad.kernel.nodes import Buffer, Program
from tetrad.kernel.verify import problems

Args = Mapping[str, int]
Bytes = bytes | bytearray | memoryview
MAX_INVOCATIONS = 1 << 53
MAX_BYTES = 1 << 40  # of one buffer
MAX_SCRATCH = 64 << 20  # bytes of one workgroup

# Codes of errors; those of a Rejected are the verifier's, those of a back end in `core.backend`.
COUNT, SHORT, RAGGED, SIZE, ARGUMENT, GRID = "D001", "D002", "D003", "D004", "D005", "D006"


def dispatch(
    program: Program,
    inputs: Sequence[Bytes],
    grid: Grid | None = None,
    backend: str = "cpu",
    *,
    args: Args | None = None,
) -> list[bytes]:
    """Run a kernel over `grid` workgroups (x, y, z); the bytes of every buffer it writes, in order
    of declaration.

    inputs   one byte string for each buffer with access read or readwrite, in order of declaration
    grid     None: one invocation per element of the output, where the program shows that it means
             that
    args     the value of each index argument

    Loads out of range give 0, stores out of range do nothing, buffers that are only written and
    scratch start as zeros.

    >>> import tetrad as td
    >>> k = td.kernel.build("increment")
    >>> x, y = k.buffer("x", td.uint8), k.buffer("y", td.uint8, "write", count=4)
    >>> k.store(y, k.global_id(), k.load(x, k.global_id()) + 1)
    >>> dispatch(k.finish(), [bytes([1, 2, 3, 255])])
    [b'\\x02\\x03\\x04\\x00']
    """
    if not isinstance(program, Program):
        hint = "td.kernel.build makes one, td.kernel.parse reads one"
        raise Rejected(f"dispatch: expected a program, got {an(type(program).__name__)}", hint=hint)
    runner = backend_named(backend, "dispatch")
    with own_floats():
        refuse_invalid(program, backend)
    given = checked_args(program, args or {})
    data = match_inputs(program, inputs)
    refuse_scratch(program, given)
    contents = {b: content_of(program, b, data.get(b), given) for b in storage_of(program)}
    extents = checked_grid(
        program, grid, {b: held.nbytes // b.dtype.nbytes for b, held in contents.items()}
    )
    return runner.launch(program, contents, given, extents)


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


# -- inputs ----------------------------------------------------------------------------------------


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
    named = {d.name for b in program.buffers if b.count is not None for d in dims_of(b.count)}
    for name, value in args.items():
        if name not in program.args and name not in named:
            known = ", ".join(program.args) or "none"
            raise BadInputs(
                f"{program.name}: there is no argument {name!r}; it has {known}", code=ARGUMENT
            )
        if not -(1 << 63) <= value < 1 << 63:
            raise BadInputs(
                f"{program.name}: argument {name} = {value} leaves 64 bits", code=ARGUMENT
            )
    return dict(args)


def match_inputs(program: Program, inputs: Sequence[Bytes]) -> dict[Buffer, memoryview]:
    """The bytes of each buffer that is read. A value for every storage buffer is accepted too:
    those of buffers that are only written are placeholders."""
    storage = storage_of(program)
    read = [b for b in storage if b.access != "write"]
    views = [memoryview(given).cast("B") for given in inputs]
    if len(views) == len(read):
        return dict(zip(read, views, strict=True))
    if len(views) == len(storage):
        return {b: view for b, view in zip(storage, views, strict=True) if b.access != "write"}
    names = ", ".join(b.name for b in read) or "none"
    message = f"{program.name}: takes {len(read)} inputs ({names}), got {len(views)}"
    raise BadInputs(
        message,
        code=COUNT,
        hint="one byte string for each buffer that is read, in order of declaration",
    )


def buffer_bytes(program: Program, buffer: Buffer, view: memoryview | None, args: Args) -> int:
    """How many bytes the buffer has in this launch."""
    declared = declared_count(buffer, args)
    if view is None:
        if declared is None:
            message = (
                f"{program.name}: {buffer.name} is only written, so its size must be known, "
                "not "
                f"{buffer.count}"
            )
            raise BadInputs(
                message, code=SIZE, hint="declare the buffer with count=, or make it readwrite"
            )
        needed = declared * buffer.dtype.nbytes
        if not 0 <= needed <= MAX_BYTES:
            raise BadInputs(
                f"{program.name}: buffer {buffer.name} would take {needed} bytes", code=SIZE
            )
        return needed
    needed = (declared or 0) * buffer.dtype.nbytes
    if view.nbytes < needed:
        message = f"{program.name}: buffer {buffer.name} needs {needed} bytes, got {view.nbytes}"
        raise BadInputs(message, code=SHORT, hint=f"{declared} elements of {buffer.dtype}")
    if view.nbytes % buffer.dtype.nbytes:
        message = (
            f"{program.name}: buffer {buffer.name} got {view.nbytes} bytes, no whole "
            "number of "
            f"{buffer.dtype}"
        )
        raise BadInputs(message, code=RAGGED)
    return view.nbytes


def content_of(
    program: Program, buffer: Buffer, view: memoryview | None, args: Args
) -> BufferContent:
    nbytes, declared = buffer_bytes(program, buffer, view, args), declared_count(buffer, args)
    count = nbytes // buffer.dtype.nbytes if declared is None else declared
    return BufferContent(nbytes, count, view)


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
        return found
    if len(grid) != 3 or any(type(n) is not int or n < 0 for n in grid):
        raise BadInputs(
            f"{program.name}: grid {grid} is not three numbers of workgroups", code=GRID
        )
    total = grid[0] * grid[1] * grid[2] * program.lanes
    if total > MAX_INVOCATIONS:
        raise BadInputs(
            f"{program.name}: grid {grid} makes {total} invocations, more than 2**53", code=GRID
        )
    return grid
