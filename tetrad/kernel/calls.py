"""Kernel language, calls: a registered program by its id, or any program, inlined into its caller.

Receives a builder, an id or a program, the caller's buffers, sizes for the registered builder and
values of index arguments; appends the program's body to the builder, in a region that keeps its
generator and names the caller as its source. There are no functions at run time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from inspect import signature
from typing import TYPE_CHECKING, Any

from tetrad.core import lazy
from tetrad.core.errors import UnknownKernelError, VerifyError
from tetrad.core.record import record, replace
from tetrad.kernel import nodes as n
from tetrad.kernel.returns import without_returns

if TYPE_CHECKING:
    from tetrad.kernel.build import KernelBuilder

MAX_CALLS = 32  # programs that call one another
CALL_CODES = {
    "K015": "a program that relies on zeroed scratch is not called in a loop",
    "V016": "a called program is registered",
    "V017": f"at most {MAX_CALLS} calls inside one another",
    "V020": "a call gives every buffer, size and argument that the program has, and no more",
    "V021": "what a call gives is a buffer, a Python value for the builder, or an index",
    "V022": "what a call gives fits: type, access, size, workgroup",
}
# Ids of the programs that are being built, the outermost first.
BUILDING: ContextVar[tuple[str, ...]] = ContextVar("programs being built", default=())
# What a storage buffer may stand for, by the access of the called program.
SERVES = {
    "read": ("read", "readwrite", "workgroup"),
    "write": ("write", "readwrite", "workgroup"),
    "readwrite": ("readwrite", "workgroup"),
}
OF_A_WORKGROUP = n.Id | n.Barrier | n.Shuffle | n.Permute | n.Broadcast | n.Vote | n.Atomic


@contextmanager
def building(id: str) -> Iterator[None]:
    """Calls made inside name this program as their source."""
    token = BUILDING.set((*BUILDING.get(), id))
    try:
        yield
    finally:
        BUILDING.reset(token)


def call(k: KernelBuilder, program: str | n.Program, *given: object, **args: object) -> None:
    """Do what a program does, for the same invocations. `program`: the id of a registered one, or
    a `Program`. `given`: the caller's buffers, in the order of its parameters, and sizes for its
    builder. `args`: the values of its index arguments."""
    parent = k.region_name or (BUILDING.get() or (k.name,))[-1]
    what = program if isinstance(program, str) else program.name
    buffers = [x for x in given if isinstance(x, n.Buffer)]
    if isinstance(program, str):
        made, names = built(k, program, given)
    else:
        made, names = program, ()
        refuse(len(buffers) < len(given), "V021", k, f"{what} takes buffers, got {given!r}")
    Inlining(k, what, parent, straightened(made)).append(buffers, names, args)


def built(k: KernelBuilder, id: str, given: Sequence[object]) -> tuple[n.Program, tuple[str, ...]]:
    """A registered program of these sizes; and, if its builder takes the names of buffers, the
    names that stand for the caller's buffers in it."""
    chain = BUILDING.get()
    shown = " -> ".join((*chain[:2], "...", *chain[-1:], id))
    refuse(len(chain) >= MAX_CALLS, "V017", k, f"more than {MAX_CALLS} calls: {shown}")
    builder = registered(k, id)
    parameters = list(signature(builder).parameters.values())
    by_name = bool(parameters) and isinstance(parameters[0].default, str)
    names = tuple(f"given{i}" for i, x in enumerate(given) if by_name and isinstance(x, n.Buffer))
    for parameter, x in zip(parameters, given, strict=False):
        named = isinstance(x, n.Buffer | str) == isinstance(parameter.default, str)
        kind = "a buffer" if isinstance(parameter.default, str) else "no buffer"
        told = f"{id}: {parameter.name} is {kind}, got {x!r}"
        refuse(by_name and not named, "V020", k, f"{told}; it is {signature(builder)}")
    places = iter(names)
    taken = [next(places, None) if isinstance(x, n.Buffer) else sized(k, id, x) for x in given]
    taken = [x for x in taken if x is not None]
    try:
        signature(builder).bind(*taken)
    except TypeError as error:
        raise VerifyError("V020", f"{k.name}: {id}: {error}; it is {signature(builder)}") from None
    with building(id):
        return registry().in_region(id, builder(*taken)), names


def registry() -> Any:
    return lazy.module("tetrad.kernel.registry")


def registered(k: KernelBuilder, id: str) -> Any:
    """The builder of a registered program."""
    try:
        return registry().entry(id)._builder
    except UnknownKernelError as error:
        raise VerifyError("V016", f"{k.name}: {error.message}", hint=error.hint) from None


def sized(k: KernelBuilder, id: str, x: object) -> object:
    """A size, or another setting of the builder; values of the kernel are not known yet."""
    known = isinstance(x, int | float | str | tuple) or x is None
    message = f"{id}: {x!r} is neither a buffer nor a Python value; arguments have names"
    refuse(not known, "V021", k, message)
    return x


def straightened(program: n.Program) -> n.Program:
    """The program without early returns, which would end its caller too; a region around all of it
    stays around all of it."""
    top = program.body[0] if len(program.body) == 1 else None
    if not isinstance(top, n.Region):
        return without_returns(program)
    inner = without_returns(replace(program, body=top.body))
    return replace(program, body=(replace(top, body=inner.body),))


def refuse(condition: bool, code: str, k: KernelBuilder, message: str) -> None:
    if condition:
        raise VerifyError(code, f"{k.name}: {message}")


@record
class Inlining:
    """One call: the builder that makes it, what is called, on whose behalf."""

    k: KernelBuilder
    what: str
    parent: str
    program: n.Program

    def append(
        self, buffers: Sequence[n.Buffer], names: tuple[str, ...], args: Mapping[str, object]
    ) -> None:
        self.check_workgroup()
        storage = self.storage(buffers, names) | self.scratch()
        named = ", ".join(self.program.args) or "none"
        said = f"takes the arguments {named}, got {', '.join(args) or 'none'}"
        self.refuse(set(args) != set(self.program.args), "V020", said)
        values: dict[n.Instr, n.Instr] = {}
        for name, value in args.items():
            values |= dict.fromkeys(arguments(self.program.body, name), self.index(value))
        body = registry().in_region(f"inline::{self.parent}", self.program).body
        for instr in Copy(storage, values).block(body):
            regional = isinstance(instr, n.Region)
            self.k._append(replace(instr, source=self.parent) if regional else instr)

    def index(self, x: object) -> n.Value:
        is_index = isinstance(x, int) or getattr(x, "node", None) is not None
        self.refuse(not is_index, "V021", f"an argument is an index, not {x!r}")
        return self.k.index(x).node

    def refuse(self, condition: bool, code: str, message: str) -> None:
        refuse(condition, code, self.k, f"{self.what} {message}")

    def check_workgroup(self) -> None:
        """A program that does not look at its workgroup may run in any."""
        mine, other = self.program.workgroup, self.k.workgroup
        looks = any(isinstance(instr, OF_A_WORKGROUP) for instr in n.walk(self.program.body))
        looks = looks or any(b.is_scratch for b in self.program.buffers)
        self.refuse(mine != other and looks, "V022", f"has workgroups of {mine}, not {other}")

    def storage(
        self, buffers: Sequence[n.Buffer], names: tuple[str, ...]
    ) -> dict[n.Buffer, n.Buffer]:
        """The caller's buffer for each storage buffer of the program."""
        wanted = [b for b in self.program.buffers if not b.is_scratch]
        listed = ", ".join(f"{b.name}: {b.dtype} {b.access}" for b in wanted)
        said = f"takes {len(wanted)} buffers ({listed}), got {len(buffers)}"
        self.refuse(len(wanted) != len(buffers), "V020", said)
        by_name = dict(zip(names, buffers, strict=True)) if names else {}
        said = f"names its buffers itself ({listed})"
        self.refuse(bool(names) and {b.name for b in wanted} != by_name.keys(), "V020", said)
        ordered = [by_name[b.name] for b in wanted] if names else buffers
        pairs = dict(zip(wanted, ordered, strict=True))
        for place, (mine, theirs) in enumerate(pairs.items()):
            self.check_buffer(place, mine, theirs)
        self.check_shared(pairs)
        return pairs

    def check_buffer(self, place: int, mine: n.Buffer, theirs: n.Buffer) -> None:
        shown = f"buffer {place} is {mine.dtype} {mine.access}"
        self.refuse(theirs not in self.k._buffers, "V022", f"{theirs.name} is not the caller's")
        differs = mine.dtype is not theirs.dtype
        self.refuse(differs, "V022", f"{shown}, {theirs.name} is {theirs.dtype}")
        serves = theirs.access in SERVES[mine.access]
        self.refuse(not serves, "V022", f"{shown}, {theirs.name} is {theirs.access}")
        counts = (mine.count, theirs.count)
        short = isinstance(mine.count, int) and isinstance(theirs.count, int)
        said = f"{shown} of {counts[0]} elements, {theirs.name} has {counts[1]}"
        self.refuse(short and mine.count > theirs.count, "V022", said)  # type: ignore[operator]

    def check_shared(self, pairs: Mapping[n.Buffer, n.Buffer]) -> None:
        """A program may take its buffers for different ones where it writes to one of them."""
        given = list(pairs.values())
        for mine, theirs in pairs.items():
            twice = given.count(theirs) > 1
            said = f"writes to one of two buffers, and both are {theirs.name}"
            self.refuse(twice and mine.is_written, "V022", said)

    def scratch(self) -> dict[n.Buffer, n.Buffer]:
        """Scratch of its own for each copy of the program."""
        made = {}
        for b in self.program.buffers:
            if not b.is_scratch:
                continue
            symbolic = not isinstance(b.count, int)
            self.refuse(symbolic, "V022", f"has scratch {b.name} of {b.count}; use a number")
            again = b.zeroed and self.k.is_in_loop
            self.refuse(again, "K015", f"relies on zeros in {b.name}; call it outside of the loop")
            taken = {other.name for other in self.k._buffers}
            number = next(i for i in range(len(taken) + 1) if f"{b.name}.{i}" not in taken)
            made[b] = self.k.buffer(f"{b.name}.{number}", b.dtype, b.access, b.count, b.zeroed)
        return made


def arguments(block: n.Block, name: str) -> list[n.Instr]:
    return [i for i in n.walk(block) if isinstance(i, n.Arg) and i.name == name]


class Copy:
    """Instructions again, on other buffers, with values in the place of index arguments."""

    def __init__(
        self, buffers: Mapping[n.Buffer, n.Buffer], values: Mapping[n.Instr, n.Instr]
    ) -> None:
        self.buffers, self.values = buffers, dict(values)

    def block(self, block: n.Block) -> n.Block:
        return tuple(self.instr(i) for i in block if not isinstance(i, n.Arg))

    def instr(self, instr: n.Instr) -> n.Instr:
        names: tuple[str, ...] = instr.__match_args__
        made = type(instr)(*(self.field(getattr(instr, name)) for name in names))
        self.values[instr] = made
        return made

    def field(self, held: Any) -> Any:
        if isinstance(held, n.Counter) and held not in self.values:
            self.values[held] = n.Counter(held.dtype)
        if isinstance(held, n.Instr):
            return self.values[held]
        if isinstance(held, n.Buffer):
            return self.buffers[held]
        is_block = isinstance(held, tuple) and held and isinstance(held[0], n.Instr)
        return self.block(held) if is_block else held
