"""Kernel language, ranges: between which numbers an index can lie in one launch.

Receives a program, its arguments and a grid; returns intervals of index values, the outputs that
the grid cannot reach, and roughly how long the launch takes. What data decides has no range, and
nothing is said about it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from tetrad.core.dtypes import index
from tetrad.core.record import record
from tetrad.kernel import nodes as n
from tetrad.kernel.returns import ends

Range = tuple[int, int]  # the least and the greatest
VECTOR = 16  # lanes that one instruction serves, roughly


@record
class Unreached:
    """An output of which the first or the last elements cannot be written in this launch."""

    buffer: n.Buffer
    count: int
    first: int  # the least index that a store can reach
    last: int  # the greatest
    grows: bool  # does a larger grid reach further?


class Ranges:
    """The range of every index value of a program in one launch; found in program order, so that
    deep expressions need no recursion."""

    def __init__(
        self,
        program: n.Program,
        args: Mapping[str, int],
        grid: tuple[int, int, int],
        counts: Mapping[n.Buffer, int],
        conditions: bool = True,
    ) -> None:
        self.program, self.args, self.grid, self.counts = program, args, grid, counts
        self.conditions = conditions  # do they narrow what stands behind them?
        self.known: dict[n.Instr, Range] = {}
        self.numbers: dict[n.Instr, int] = {}  # one for values that are computed alike
        self.formulas: dict[tuple[Any, ...], int] = {}
        self.limits: dict[int, Range] = {}  # what the conditions around this place say of numbers
        self.stores: list[tuple[n.Buffer, Range | None]] = []
        self.operations = 0.0  # of one invocation; infinite where data decides
        self.block(program.body, 1.0)

    def block(self, block: n.Block, times: float) -> None:
        around = self.limits
        for instr in block:
            self.operations += times
            if isinstance(instr, n.For):
                self.loop(instr, times)
            elif isinstance(instr, n.Repeat):
                self.block(instr.body, times * math.inf)
            elif isinstance(instr, n.If):
                self.branches(instr, times)
            elif isinstance(instr, n.Region):
                self.block(instr.body, times)
            elif isinstance(instr, n.Store):
                self.stores.append((instr.buffer, self.at_hand(instr.at)))
            elif isinstance(instr, n.Value):
                self.value(instr)
        self.limits = around

    def branches(self, branch: n.If, times: float) -> None:
        """Both arms, each under its condition; what follows an arm that returns, under the
        other."""
        around = self.limits
        holds, fails = (around | self.implied(branch.cond, holds) for holds in (True, False))
        for arm, self.limits in ((branch.then, holds), (branch.orelse, fails)):
            self.block(arm, times)
        if ends(branch.then) != ends(branch.orelse):
            self.limits = fails if ends(branch.then) else holds
        else:
            self.limits = around

    def implied(self, cond: n.Value, holds: bool) -> dict[int, Range]:
        """The limits of the two sides of a comparison that holds, or does not."""
        if not isinstance(cond, n.Compare) or not self.conditions:
            return {}
        a, b = self.at_hand(cond.lhs), self.at_hand(cond.rhs)
        op = cond.op if holds else OPPOSITE.get(cond.op, "")
        if a is None or b is None or op not in LIMITS:
            return {}
        narrowed = zip((cond.lhs, cond.rhs), LIMITS[op](a, b), strict=True)
        return {self.numbers[x]: limit for x, limit in narrowed if limit[0] <= limit[1]}

    def at_hand(self, value: n.Value) -> Range | None:
        """The range of a value at this place of the program."""
        found = self.known.get(value)
        if found is None:
            return None
        low, high = self.limits.get(self.numbers[value], found)
        low, high = max(low, found[0]), min(high, found[1])
        return (low, high) if low <= high else found

    def loop(self, loop: n.For, times: float) -> None:
        start, stop = self.at_hand(loop.start), self.at_hand(loop.stop)
        trips = math.inf
        if start is not None and stop is not None:
            trips = max(0, -(-(stop[1] - start[0]) // loop.step))
            self.known[loop.counter] = (start[0], max(stop[1] - 1, start[0]))
            self.numbers[loop.counter] = self.number((loop,))
        self.block(loop.body, times * trips if trips else 0.0)

    def value(self, value: n.Value) -> None:
        found = self.range_of(value) if value.dtype is index else None
        if found is not None:
            self.known[value] = found
            self.numbers[value] = self.number(self.formula(value))

    def formula(self, value: n.Value) -> tuple[Any, ...]:
        """How a value is computed; values with one formula are equal in one invocation."""
        match value:
            case n.Id():
                return (value.which, value.axis)
            case n.Const():
                return ("const", int(value.value))
            case n.Arg():
                return ("arg", value.name)
            case n.Binary():
                return (value.op, self.numbers[value.lhs], self.numbers[value.rhs])
        return (value,)

    def number(self, formula: tuple[Any, ...]) -> int:
        return self.formulas.setdefault(formula, len(self.formulas))

    def range_of(self, value: n.Value) -> Range | None:
        match value:
            case n.Const():
                return (int(value.value), int(value.value))
            case n.Arg() if value.name in self.args:
                return (self.args[value.name], self.args[value.name])
            case n.BufferLength() if value.buffer in self.counts:
                return (self.counts[value.buffer], self.counts[value.buffer])
            case n.Id(which="group"):
                return (0, max(self.grid[value.axis] - 1, 0))
            case n.Id():
                return (0, self.program.workgroup[value.axis] - 1)
            case n.Binary():
                return self.joined(value, value.lhs, value.rhs)
            case n.Select():
                a, b = self.at_hand(value.a), self.at_hand(value.b)
                return None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))
        return None

    def written(self, buffer: n.Buffer) -> Range | None:
        """The least and the greatest index that a store into the buffer can have, if they are known
        of all."""
        found = [at for into, at in self.stores if into is buffer]
        known = [at for at in found if at is not None]
        if not known or len(known) < len(found):
            return None
        return (min(at[0] for at in known), max(at[1] for at in known))

    def grown(self) -> Ranges:
        """Those of a grid with one workgroup more along every axis."""
        x, y, z = self.grid
        return Ranges(self.program, self.args, (x + 1, y + 1, z + 1), self.counts)

    def without_conditions(self) -> Ranges:
        """Those of the program if every condition held."""
        return Ranges(self.program, self.args, self.grid, self.counts, False)

    def keeps_off(self, buffer: n.Buffer) -> bool:
        """Is the first element left out by every index?"""
        reached = self.written(buffer)
        return reached is not None and reached[0] > 0

    def joined(self, value: n.Binary, *operands: n.Value) -> Range | None:
        a, b = (self.at_hand(part) for part in operands)
        rule = RULES.get(value.op)
        return None if a is None or b is None or rule is None else rule(a, b)


def corners(operation: Callable[[int, int], int]) -> Callable[[Range, Range], Range]:
    """The range of an operation that is monotonic in each operand."""

    def found(a: Range, b: Range) -> Range:
        values = [operation(x, y) for x in a for y in b]
        return (min(values), max(values))

    return found


def quotient(a: Range, b: Range) -> Range | None:
    return None if a[0] < 0 or b[0] < 1 else (a[0] // b[1], a[1] // b[0])


def remainder(a: Range, b: Range) -> Range | None:
    return None if a[0] < 0 or b[0] < 1 else (0, min(a[1], b[1] - 1))


RULES: dict[str, Callable[[Range, Range], Range | None]] = {
    "add": corners(lambda x, y: x + y),
    "sub": corners(lambda x, y: x - y),
    "mul": corners(lambda x, y: x * y),
    "min": corners(min),
    "max": corners(max),
    "div": quotient,
    "mod": remainder,
}


Limits = Callable[[Range, Range], tuple[Range, Range]]
OPPOSITE = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}
LIMITS: dict[str, Limits] = {  # of the two sides of a comparison that holds
    "lt": lambda a, b: ((a[0], min(a[1], b[1] - 1)), (max(b[0], a[0] + 1), b[1])),
    "le": lambda a, b: ((a[0], min(a[1], b[1])), (max(b[0], a[0]), b[1])),
    "gt": lambda a, b: ((max(a[0], b[0] + 1), a[1]), (b[0], min(b[1], a[1] - 1))),
    "ge": lambda a, b: ((max(a[0], b[0]), a[1]), (b[0], min(b[1], a[1]))),
    "eq": lambda a, b: ((max(a[0], b[0]), min(a[1], b[1])), (max(a[0], b[0]), min(a[1], b[1]))),
}


def unreached(ranges: Ranges) -> Unreached | None:
    """The first output whose first or last element no store of this launch can reach, though those
    of a larger grid reach further, or only a condition keeps all from the first. Buffers that are
    readwrite keep what they held: a launch may well write a part of one."""
    for buffer in ranges.program.buffers:
        reached = ranges.written(buffer) if buffer.access == "write" else None
        count = ranges.counts.get(buffer, 0)
        if reached is None or (reached[0] <= 0 and reached[1] >= count - 1):
            continue
        (first, last), (lower, higher) = reached, ranges.grown().written(buffer) or reached
        if (0 < first > lower) or (higher > last < count - 1):
            return Unreached(buffer, count, max(first, 0), last, True)
        if first > 0 < count and not ranges.without_conditions().keeps_off(buffer):
            return Unreached(buffer, count, first, last, False)
    return None


def nanoseconds(ranges: Ranges) -> float:
    """Roughly, of one thread: an instruction of a vector each."""
    x, y, z = ranges.grid
    return ranges.operations * x * y * z * -(-ranges.program.lanes // VECTOR)
