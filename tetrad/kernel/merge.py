"""The kernel language, alike: kernels that differ only in sizes and numbers, as one kernel that is
told them.

Receives programs; returns one program, in which every literal they disagree about is an argument,
and for each of the programs what to pass. Layers of different widths then share one compilation.
None where more than literals differs, or where code would be slower: a literal that the place of a
lane is multiplied with decides how memory is read, and a division of integers by a literal is a
multiplication.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tetrad.core.dtypes import DType, i32, i64, index
from tetrad.core.record import record, replace
from tetrad.core.sizes import Size
from tetrad.kernel import nodes as n
from tetrad.kernel.uniformity import varying

Alike = tuple[n.Instr, ...]  # what takes the same place in each program
MOST = 16  # sizes that are arguments: with more it would be a kernel of another shape
BLOCKS = frozenset({"body", "then", "orelse"})
EFFECTS = (
    n.Store,
    n.Local,
    n.Get,
    n.Set,
    n.For,
    n.If,
    n.Vote,
    n.Barrier,
    n.Trap,
    n.Prefetch,
    n.Foreign,
    n.Region,
)


class Unlike(Exception):
    """The programs differ in more than sizes."""


Literals = tuple[DType, tuple[int, ...]]  # of each program: an index, or the bits of a number


@record
class Merged:
    program: n.Program
    # for each of the programs, what it passes beside its own arguments
    numbers: tuple[dict[str, int], ...]


def merged(programs: Sequence[n.Program]) -> Merged | None:
    try:
        return Merge(programs).result()
    except Unlike:
        return None


class Merge:
    """Two walks: the first finds what stands in the same place and compares it, the second writes
    the one program.

    Effects are compared in order. Values are compared when they are used: of two literals that are
    equal in one program, and so one instruction, each may have another partner. Where values stand,
    the first program decides.
    """

    def __init__(self, programs: Sequence[n.Program]) -> None:
        self.programs = programs
        self.effects: dict[n.Instr, Alike] = {}  # by the instruction of the first program
        # the same, with all partners that it has
        self.values: dict[n.Instr, dict[Alike, None]] = {}
        # an argument, and how it becomes the number
        self.arguments: dict[Literals, tuple[n.Value, ...]] = {}
        # values to compare: Python's stack does not bear a thousand levels of operands
        self.pending: list[Alike] = []
        self.made: dict[Alike, n.Instr] = {}

    def result(self) -> Merged:
        first = self.programs[0]
        self.buffers = self.merged_buffers()
        self.compare_blocks([p.body for p in self.programs])
        while self.pending:
            self.compare(self.pending.pop())
        names = tuple(map(argument_name, range(len(self.arguments))))
        body = (
            *(value for values in self.arguments.values() for value in values),
            *self.rebuilt(first.body),
        )
        program = n.Program(
            first.name, tuple(self.buffers.values()), first.args + names, first.workgroup, body
        )
        if has_unknown_stride(program, set(names)):
            raise Unlike
        columns = (
            zip(*(numbers for _, numbers in self.arguments), strict=True)
            if names
            else ((),) * len(self.programs)
        )
        return Merged(program, tuple(dict(zip(names, column, strict=True)) for column in columns))

    def merged_buffers(self) -> dict[n.Buffer, n.Buffer]:
        """Of each buffer of the first program, what the one program has."""
        agree((p.workgroup, p.args, len(p.buffers)) for p in self.programs)
        rows = list(zip(*(p.buffers for p in self.programs), strict=True))
        for row in rows:
            agree((b.name, b.dtype, b.access, b.zeroed) for b in row)
        return {row[0]: replace(row[0], count=merged_count(row)) for row in rows}

    # -- comparing ---------------------------------------------------------------------------------

    def compare_blocks(self, blocks: Sequence[n.Block]) -> None:
        rows = [[instr for instr in block if has_effect(instr)] for block in blocks]
        agree(len(row) for row in rows)
        for instrs in zip(*rows, strict=True):
            self.effects[instrs[0]] = instrs
            self.compare(instrs)

    def compare(self, instrs: Alike) -> None:
        """Of one type, with equal settings and operands that are alike."""
        agree(type(instr) for instr in instrs)
        names: tuple[str, ...] = instrs[0].__match_args__
        if is_quotient(instrs[0]):
            agree(literal_of(instr.rhs) for instr in instrs)  # type: ignore[attr-defined]
        for name in names:
            values = tuple(getattr(instr, name) for instr in instrs)
            if name in BLOCKS:
                self.compare_blocks(values)
            else:
                self.compare_field(values)

    def compare_field(self, values: tuple[Any, ...]) -> None:
        first = values[0]
        if isinstance(first, n.Value):
            self.compare_values(values)
        elif all([value is first for value in values]) and not isinstance(first, tuple):
            return
        elif isinstance(first, n.Buffer):
            agree(p.buffers.index(buffer) for p, buffer in zip(self.programs, values, strict=True))
        elif isinstance(first, tuple):
            agree(len(value) for value in values)
            for items in zip(*values, strict=True):
                self.compare_field(items)
        else:
            agree((type(value), repr(value)) for value in values)

    def compare_values(self, values: Alike) -> None:
        first = values[0]
        if isinstance(first, n.Counter):
            self.effects.setdefault(first, values)
        if first in self.effects:
            if values != self.effects[first]:
                raise Unlike
            return
        partners = self.values.setdefault(first, {})
        if values not in partners:
            partners[values] = None
            found = literals(values)
            self.pending.append(values) if found is None else self.tell(found)

    def tell(self, found: Literals) -> None:
        """Literals that differ are an argument. A Dim of that very name would be another."""
        dtype, numbers = found
        if len(set(numbers)) > 1 and found not in self.arguments:
            name = argument_name(len(self.arguments))
            sizes = sum(kind is index for kind, _ in self.arguments)
            if (
                dtype.storage_only
                or name in self.programs[0].args
                or (dtype is index and sizes == MOST)
            ):
                raise Unlike
            self.arguments[found] = told_as(dtype, n.Arg(index, name))

    # -- writing -----------------------------------------------------------------------------------

    def rebuilt(self, block: n.Block) -> n.Block:
        """A block of the first program, each value as often as it has different partners."""
        found: list[n.Instr] = []
        for instr in block:
            alike = [self.effects[instr]] if instr in self.effects else self.values.get(instr, ())
            found += [self.make(instrs) for instrs in alike]
        told = {values[-1] for values in self.arguments.values()}
        return tuple(instr for instr in found if instr not in told)

    def make(self, instrs: Alike) -> n.Instr:
        if instrs not in self.made:
            found = literals(instrs)
            self.made[instrs] = (
                self.arguments[found][-1] if found in self.arguments else self.copied(instrs)
            )
        return self.made[instrs]

    def copied(self, instrs: Alike) -> n.Instr:
        names: tuple[str, ...] = instrs[0].__match_args__
        fields = {name: tuple(getattr(i, name) for i in instrs) for name in names}
        made = [
            self.rebuilt(values[0]) if name in BLOCKS else self.field(values)
            for name, values in fields.items()
        ]
        return type(instrs[0])(*made)

    def field(self, values: tuple[Any, ...]) -> Any:
        first = values[0]
        if isinstance(first, n.Value):
            return self.make(values)
        if isinstance(first, n.Buffer):
            return self.buffers[first]
        return (
            tuple(self.field(items) for items in zip(*values, strict=True))
            if isinstance(first, tuple)
            else first
        )


def agree(answers: Iterable[object]) -> None:
    if len(set(answers)) > 1:
        raise Unlike


def has_effect(instr: n.Instr) -> bool:
    """Does its place among others matter? Memory that is only read is the same at any time."""
    return isinstance(instr, EFFECTS) or (
        isinstance(instr, n.Load) and instr.buffer.access != "read"
    )


def argument_name(place: int) -> str:
    return f"literal_{place}"


def told_as(dtype: DType, argument: n.Arg) -> tuple[n.Value, ...]:
    """The argument, and what makes of it a literal of another type than index."""
    if dtype is index:
        return (argument,)
    if not dtype.is_float:
        return (argument, n.Cast(dtype, argument))
    bits = n.Cast(i64 if dtype.bits == 64 else i32, argument)
    return (argument, bits, n.Bitcast(dtype, bits))


def is_quotient(instr: n.Instr) -> bool:
    """Of integers that are data: by a literal it is a multiplication."""
    return isinstance(instr, n.Binary) and instr.op in ("div", "mod") and instr.dtype.kind in "iu"


def literals(instrs: Alike) -> Literals | None:
    """The numbers, where all are literals of one type; bools are none."""
    dtypes = {instr.dtype if isinstance(instr, n.Const) else None for instr in instrs}
    dtype = dtypes.pop()
    if dtypes or dtype is None or dtype.kind == "b":
        return None
    return dtype, tuple(map(literal_of, instrs))  # type: ignore[arg-type]


def literal_of(value: n.Value) -> int | None:
    """An index or an integer as it is passed, and the bits of a float."""
    if not isinstance(value, n.Const):
        return None
    if not value.dtype.is_float:
        return (int(value.value) + (1 << 63)) % (1 << 64) - (1 << 63)
    return int(np.asarray(value.value, value.dtype.np).view(f"i{value.dtype.nbytes}"))


def merged_count(buffers: Sequence[n.Buffer]) -> Size | None:
    """Storage is as large as the launch says; scratch as large as the largest."""
    counts = {b.count for b in buffers}
    if len(counts) == 1:
        return buffers[0].count
    if not buffers[0].is_scratch:
        return None
    if not all(isinstance(count, int) for count in counts):
        raise Unlike
    return max(counts)  # type: ignore[type-var]


def has_unknown_stride(program: n.Program, names: set[str]) -> bool:
    """Is a lane's own number multiplied with, or divided by, one of these arguments?"""
    differing, stack = varying(program), list(program.body)
    while stack:
        instr = stack.pop()
        stack += [inner for name in BLOCKS for inner in getattr(instr, name, ())]
        if isinstance(instr, n.Binary) and instr.op in ("mul", "div", "mod"):
            sides = (instr.lhs, instr.rhs)
            told = [isinstance(side, n.Arg) and side.name in names for side in sides]
            if any(told) and any(side in differing for side in sides):
                return True
    return False
