"""Kernel language, ranges: between which numbers an index can lie in one launch.

Receives a program, its arguments and a grid; returns intervals of index values, the outputs that
the grid cannot reach, and roughly how long the launch takes. What data decides has no range, and
nothing is said about it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from tetrad.core.dtypes import index
from tetrad.core.record import record
from tetrad.kernel import nodes as n

Range = tuple[int, int]  # the least and the greatest
VECTOR = 16  # lanes that one instruction serves, roughly


@record
class Unreached:
    """An output of which the last elements cannot be written by a grid as small as this."""

    buffer: n.Buffer
    count: int
    last: int  # the greatest index that a store can reach


class Ranges:
    """The range of every index value of a program in one launch; found in program order, so that
    deep expressions need no recursion."""

    def __init__(
        self,
        program: n.Program,
        args: Mapping[str, int],
        grid: tuple[int, int, int],
        counts: Mapping[n.Buffer, int],
    ) -> None:
        self.program, self.args, self.grid, self.counts = program, args, grid, counts
        self.known: dict[n.Instr, Range] = {}
        self.stores: list[n.Store] = []
        self.operations = 0.0  # of one invocation; infinite where data decides
        self.block(program.body, 1.0)

    def block(self, block: n.Block, times: float) -> None:
        for instr in block:
            self.operations += times
            if isinstance(instr, n.For):
                self.loop(instr, times)
                continue
            if isinstance(instr, n.Store):
                self.stores.append(instr)
            for name in ("body", "then", "orelse"):
                self.block(getattr(instr, name, ()), times)
            if isinstance(instr, n.Value):
                self.value(instr)

    def loop(self, loop: n.For, times: float) -> None:
        start, stop = self.known.get(loop.start), self.known.get(loop.stop)
        trips = math.inf
        if start is not None and stop is not None:
            trips = max(0, -(-(stop[1] - start[0]) // loop.step))
            self.known[loop.counter] = (start[0], max(stop[1] - 1, start[0]))
        self.block(loop.body, times * trips if trips else 0.0)

    def value(self, value: n.Value) -> None:
        found = self.range_of(value) if value.dtype is index else None
        if found is not None:
            self.known[value] = found

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
                a, b = self.known.get(value.a), self.known.get(value.b)
                return None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))
        return None

    def last(self, buffer: n.Buffer) -> int | None:
        """The greatest index that a store into the buffer can have, if that is known of all."""
        found = [self.known.get(store.at) for store in self.stores if store.buffer is buffer]
        highs = [known[1] for known in found if known is not None]
        return max(highs) if highs and len(highs) == len(found) else None

    def grown(self) -> Ranges:
        """Those of a grid with one workgroup more along every axis."""
        x, y, z = self.grid
        return Ranges(self.program, self.args, (x + 1, y + 1, z + 1), self.counts)

    def joined(self, value: n.Binary, *operands: n.Value) -> Range | None:
        a, b = (self.known.get(part) for part in operands)
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


def unreached(ranges: Ranges) -> Unreached | None:
    """The first output whose last element no store of this launch can reach, though those of a
    larger grid reach further. Buffers that are readwrite keep what they held: a launch may well
    write a part of one."""
    for buffer in ranges.program.buffers:
        last = ranges.last(buffer) if buffer.access == "write" else None
        if last is not None and last < ranges.counts[buffer] - 1:
            further = ranges.grown().last(buffer)
            if further is not None and further > last:
                return Unreached(buffer, ranges.counts[buffer], last)
    return None


def nanoseconds(ranges: Ranges) -> float:
    """Roughly, of one thread: an instruction of a vector each."""
    x, y, z = ranges.grid
    return ranges.operations * x * y * z * -(-ranges.program.lanes // VECTOR)
