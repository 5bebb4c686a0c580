"""CUDA back end, layout: what a kernel program becomes before any text is written.

A program in; out come the parameters of its entry in order, where each scratch buffer lies, and
refusals of what no block can have. Text is made in `module`, launches in `launch`: both ask here,
so that they agree.

Parameters: the address of each storage buffer, each index argument, the length of each storage
buffer that the program does not state, and the address of the status words if the program traps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tetrad.backends.cuda.targets import (
    MAX_BLOCK,
    MAX_LOCAL,
    MAX_PARAMETERS,
    MAX_THREADS,
    STATIC_SHARED,
    WARP,
    GpuArchitecture,
)
from tetrad.core.backend import UNSUPPORTED
from tetrad.core.dtypes import DType
from tetrad.core.errors import BackendError
from tetrad.core.record import record
from tetrad.core.sizes import Size, bind, dims_of
from tetrad.kernel import nodes as n

ALIGNMENT = 16  # bytes, of every scratch buffer
WIDEST = 8  # bytes of the widest element that threads exchange
RESERVED = ("WARP_SZ", "_")  # words that ptxas takes for no name


@record
class Parameter:
    """A parameter of the entry: `role` is pointer, argument, length or status; `of` is the name of
    its buffer or argument in the program."""

    name: str
    role: str
    of: str
    dtype: DType | None = None


@record(eq=False)
class Layout:
    """Parameters and memory of one kernel. `symbols` are names in the module: of the entry, of
    shared arrays."""

    program: n.Program
    entry: str
    parameters: tuple[Parameter, ...]
    symbols: Mapping[n.Buffer, str]
    static: tuple[n.Buffer, ...]  # workgroup memory that the module declares
    dynamic: tuple[n.Buffer, ...]  # ... or that the launch brings
    local: tuple[n.Buffer, ...]  # private memory of threads
    exchange: int  # bytes through which threads of several warps exchange values

    def dynamic_bytes(self, args: Mapping[str, int]) -> int:
        """Workgroup memory that a launch with these arguments brings."""
        return sum(rounded_up(bind(size_of(b), args) * b.dtype.nbytes) for b in self.dynamic)


def layout_of(program: n.Program, architecture: GpuArchitecture) -> Layout:
    refuse_wide(program)
    names = Names()
    entry = names.plain(program.name)
    parameters = tuple(parameters_of(program, names))
    shared = [b for b in program.buffers if is_shared(b)]
    exchange = exchange_bytes(program)
    refuse_large(program, shared, exchange, architecture)
    is_static = all(isinstance(b.count, int) for b in shared)
    is_static = is_static and exchange + static_bytes(shared) <= STATIC_SHARED
    return Layout(
        program,
        entry,
        parameters,
        {b: names.plain(b.name) for b in shared},
        tuple(shared) if is_static else (),
        () if is_static else tuple(shared),
        tuple(b for b in program.buffers if b.is_scratch and not is_shared(b)),
        exchange,
    )


def is_shared(buffer: n.Buffer) -> bool:
    """Workgroup memory; private memory of a size known at launch only is part of it."""
    return buffer.is_scratch and (buffer.space == "workgroup" or type(buffer.count) is not int)


def size_of(buffer: n.Buffer) -> Size:
    """The count of scratch, which always has one."""
    if buffer.count is None:
        raise BackendError(f"scratch {buffer.name} has no size", code=UNSUPPORTED)
    return buffer.count


def rounded_up(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def static_bytes(buffers: list[n.Buffer]) -> int:
    counts = ((b.count, b.dtype.nbytes) for b in buffers)
    return sum(rounded_up(count * nbytes) for count, nbytes in counts if isinstance(count, int))


def own_count(program: n.Program, buffer: n.Buffer) -> int:
    """Elements of a private buffer that one thread owns."""
    return -(-bind(size_of(buffer), {}) // program.lanes)


# -- parameters ------------------------------------------------------------------------------------


class Names:
    """Names that the text of a module may hold, each given once."""

    def __init__(self) -> None:
        self.taken: set[str] = set(RESERVED)

    def plain(self, name: str) -> str:
        """The name itself if it is ASCII letters, digits and _; else with _ for all others. Names
        of our own have a $."""
        word = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)
        word = word if word and not word[0].isdigit() else f"_{word}"
        while word in self.taken:
            word += "_"
        self.taken.add(word)
        return word


def parameters_of(program: n.Program, names: Names) -> Iterator[Parameter]:
    storage = [b for b in program.buffers if not b.is_scratch]
    for buffer in storage:
        yield Parameter(names.plain(buffer.name), "pointer", buffer.name, buffer.dtype)
    for arg in program.args:
        yield Parameter(names.plain(arg), "argument", arg)
    for buffer in storage:
        if not is_stated(program, buffer):
            yield Parameter(names.plain(f"{buffer.name}_length"), "length", buffer.name)
    if any(isinstance(instr, n.Trap) for instr in n.walk(program.body)):
        yield Parameter(names.plain("status"), "status", "")


def is_stated(program: n.Program, buffer: n.Buffer) -> bool:
    """Can the number of elements be told from the program and its arguments?"""
    return buffer.count is not None and {d.name for d in dims_of(buffer.count)} <= set(program.args)


def exchange_bytes(program: n.Program) -> int:
    """One warp exchanges values by itself; several do so through memory."""
    crosses = any(isinstance(i, n.Shuffle | n.Broadcast) for i in n.walk(program.body))
    return 2 * WIDEST * program.lanes if crosses and program.lanes > WARP else 0


# -- refusals --------------------------------------------------------------------------------------


def refuse_wide(program: n.Program) -> None:
    x, y, z = program.workgroup
    too_long = any(size > most for size, most in zip((x, y, z), MAX_BLOCK, strict=True))
    if program.lanes > MAX_THREADS or too_long:
        limits = " x ".join(map(str, MAX_BLOCK))
        raise BackendError(
            f"{program.name}: a workgroup of {x} x {y} x {z} = {program.lanes} invocations; a "
            f"block has at most {MAX_THREADS} threads, at most {limits} along the axes",
            code=UNSUPPORTED,
            hint="use a smaller workgroup and more of them",
        )


def refuse_large(
    program: n.Program, shared: list[n.Buffer], exchange: int, architecture: GpuArchitecture
) -> None:
    total = static_bytes(shared) + exchange
    if total > architecture.shared:
        listed = [f"{b.name} {b.count} x {b.dtype}" for b in shared]
        listed += [f"exchange between warps {exchange} bytes"] if exchange else []
        raise BackendError(
            f"{program.name}: a workgroup asks for {total} bytes of memory, a block has "
            f"{architecture.shared} on {architecture.name}: {', '.join(listed)}",
            code=UNSUPPORTED,
            hint="use a smaller workgroup or less scratch",
        )
    for b in program.buffers:
        own = (
            own_count(program, b) * b.dtype.nbytes
            if b.space == "private" and not is_shared(b)
            else 0
        )
        if own > MAX_LOCAL:
            raise BackendError(
                f"{program.name}: private {b.name} takes {own} bytes of each thread, which has "
                f"{MAX_LOCAL}",
                code=UNSUPPORTED,
            )
    words = 8 * (len(program.buffers) * 2 + len(program.args) + 1)
    if words > MAX_PARAMETERS and 8 * len(tuple(parameters_of(program, Names()))) > MAX_PARAMETERS:
        raise BackendError(
            f"{program.name}: its buffers and arguments take more than {MAX_PARAMETERS} bytes of "
            "parameters",
            code=UNSUPPORTED,
        )
