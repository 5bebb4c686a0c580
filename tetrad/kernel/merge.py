"""Kernel language, merge: kernels that differ only in literals become one kernel with arguments.

Receives programs; returns one program, in which every literal that differs is an argument, and the
values that each of the programs passes. Layers of different widths then share one compilation.
Returns None if more than literals differs, or if the merged code would be slower: a literal that
scales the lane index sets the access stride, and an integer division by a literal compiles to a
multiplication; both stay literals.
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

Alike = tuple[n.Instr, ...]  # corresponding instructions, one per program
MOST = 16  # arguments at most; with more the kernels are too different
EFFECTS = (
    n.Store,
    n.Atomic,
    n.Local,
    n.Get,
    n.Set,
    n.For,
    n.Repeat,
    n.If,
    n.Vote,
    n.Barrier,
    n.Return,
    n.Trap,
    n.Prefetch,
    n.Region,
)


class Unlike(Exception):
    """The programs differ in more than literals."""


Literals = tuple[DType, tuple[int, ...]]  # one per program: an index, or the bits of a float


@record
class Merged:
    program: n.Program
    # for each program, the values of the new arguments
    numbers: tuple[dict[str, int], ...]


def merged(programs: Sequence[n.Program]) -> Merged | None:
    try:
        return Merge(programs).result()
    except Unlike:
        return None


class Merge:
    """Two walks: the first pairs corresponding instructions and compares them, the second writes
    the merged program.

    Effects are compared in program order, values when they are used. Two equal literals of one
    program are one instruction, but may correspond to two different literals of another. The first
    program decides where values are placed.
    """

    def __init__(self, programs: Sequence[n.Program]) -> None:
        self.programs = programs
        self.effects: dict[n.Instr, Alike] = {}  # keyed by the instruction of the first program
        # the same for values, which may have several partners
        self.values: dict[n.Instr, dict[Alike, None]] = {}
        # the argument, and the instructions that turn it into the literal
        self.arguments: dict[Literals, tuple[n.Value, ...]] = {}
        # values still to compare; a list, because recursion would overflow Python's stack
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
        buffers, args = tuple(self.buffers.values()), first.args + names
        program = replace(first, buffers=buffers, args=args, body=body)
        if has_unknown_stride(program, set(names)):
            raise Unlike
        columns = (
            zip(*(numbers for _, numbers in self.arguments), strict=True)
            if names
            else ((),) * len(self.programs)
        )
        return Merged(program, tuple(dict(zip(names, column, strict=True)) for column in columns))

    def merged_buffers(self) -> dict[n.Buffer, n.Buffer]:
        """Each buffer of the first program -> the buffer of the merged program."""
        agree((p.workgroup, p.guarded, p.args, len(p.buffers)) for p in self.programs)
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
        """Check that the instructions have one class and type, equal attributes, and corresponding
        operands."""
        agree(type(instr) for instr in instrs)
        names: tuple[str, ...] = instrs[0].__match_args__
        if is_quotient(instrs[0]):
            agree(literal_of(instr.rhs) for instr in instrs)  # type: ignore[attr-defined]
        for name in names:
            values = tuple(getattr(instr, name) for instr in instrs)
            if name in n.BLOCKS:
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
        """The argument for literals that differ. A Dim with the same name as the argument would
        clash."""
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
        """A block of the first program, with one copy of a value per set of partners."""
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
            self.rebuilt(values[0]) if name in n.BLOCKS else self.field(values)
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
    """Does the order of this instruction among others matter? A load from read-only memory may be
    anywhere."""
    return isinstance(instr, EFFECTS) or (
        isinstance(instr, n.Load) and instr.buffer.access != "read"
    )


def argument_name(place: int) -> str:
    return f"literal_{place}"


def told_as(dtype: DType, argument: n.Arg) -> tuple[n.Value, ...]:
    """The argument, and the instructions that convert it from index to the literal's dtype."""
    if dtype is index:
        return (argument,)
    if not dtype.is_float:
        return (argument, n.Cast(dtype, argument))
    bits = n.Cast(i64 if dtype.bits == 64 else i32, argument)
    return (argument, bits, n.Bitcast(dtype, bits))


def is_quotient(instr: n.Instr) -> bool:
    """Is it a division of data integers? By a literal it compiles to a multiplication."""
    return isinstance(instr, n.Binary) and instr.op in ("div", "mod") and instr.dtype.kind in "iu"


def literals(instrs: Alike) -> Literals | None:
    """The literals, if all instructions are literals of one dtype other than bool; else None."""
    dtypes = {instr.dtype if isinstance(instr, n.Const) else None for instr in instrs}
    dtype = dtypes.pop()
    if dtypes or dtype is None or dtype.kind == "b":
        return None
    return dtype, tuple(map(literal_of, instrs))  # type: ignore[arg-type]


def literal_of(value: n.Value) -> int | None:
    """How a literal is passed: an index or an integer as it is, a float by its bits."""
    if not isinstance(value, n.Const):
        return None
    if not value.dtype.is_float:
        return (int(value.value) + (1 << 63)) % (1 << 64) - (1 << 63)
    return int(np.asarray(value.value, value.dtype.np).view(f"i{value.dtype.nbytes}"))


def merged_count(buffers: Sequence[n.Buffer]) -> Size | None:
    """The element count: of storage, the launch says it; of scratch, the largest."""
    counts = {b.count for b in buffers}
    if len(counts) == 1:
        return buffers[0].count
    if not buffers[0].is_scratch:
        return None
    if not all(isinstance(count, int) for count in counts):
        raise Unlike
    return max(counts)  # type: ignore[type-var]


def has_unknown_stride(program: n.Program, names: set[str]) -> bool:
    """Is a varying value multiplied or divided by one of these arguments?"""
    differing, stack = varying(program), list(program.body)
    while stack:
        instr = stack.pop()
        stack += [inner for block in n.inner_blocks(instr) for inner in block]
        if isinstance(instr, n.Binary) and instr.op in ("mul", "div", "mod"):
            sides = (instr.lhs, instr.rhs)
            told = [isinstance(side, n.Arg) and side.name in names for side in sides]
            if any(told) and any(side in differing for side in sides):
                return True
    return False
