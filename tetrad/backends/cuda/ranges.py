"""CUDA back end, ranges: which accesses of a program stay inside their buffers, whatever is in
them.

A program in, the loads and stores that need no guard out. An index has a range: of ids from the
workgroup and the limits of a grid, of counters from their loops, of sums and products from their
operands; a branch narrows what its condition compares. Only counts that are written down as numbers
are proved; all else keeps its guard.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tetrad.backends.cuda.targets import MAX_GRID
from tetrad.core.dtypes import index
from tetrad.core.record import record
from tetrad.kernel import nodes as n

MIN, MAX = -(1 << 63), (1 << 63) - 1
DEEP = 40  # operators of an address that are looked through


@record
class IndexRange:
    """Every number that an index may be: low and high included."""

    low: int
    high: int

    def narrowed(self, low: int, high: int) -> IndexRange:
        """An empty range is kept as one number: the code is never reached."""
        low, high = max(self.low, low), min(self.high, high)
        return IndexRange(low, max(low, high))


ANY = IndexRange(MIN, MAX)
Known = Mapping[n.Value, IndexRange]


def proved_accesses(program: n.Program) -> frozenset[n.Instr]:
    walk = _Walk(program)
    walk.block(program.body, {})
    return frozenset(walk.proved)


class _Walk:
    def __init__(self, program: n.Program) -> None:
        self.program, self.proved = program, set[n.Instr]()

    def block(self, block: n.Block, known: Known) -> None:
        for instr in block:
            match instr:
                case n.Load() | n.Store() | n.Atomic():
                    self.access(instr, known)
                case n.For():
                    self.block(instr.body, {**known, instr.counter: self.counted(instr, known)})
                case n.If():
                    self.block(instr.then, {**known, **self.facts(instr.cond, True, known)})
                    self.block(instr.orelse, {**known, **self.facts(instr.cond, False, known)})
                case n.Repeat() | n.Region():
                    self.block(instr.body, known)

    def access(self, instr: n.Load | n.Store | n.Atomic, known: Known) -> None:
        count, at = instr.buffer.count, self.range_of(instr.at, known)
        if isinstance(count, int) and at.low >= 0 and at.high < count:
            self.proved.add(instr)

    def counted(self, loop: n.For, known: Known) -> IndexRange:
        """The body runs only for counters below the stop."""
        start, stop = self.range_of(loop.start, known), self.range_of(loop.stop, known)
        return IndexRange(start.low, max(start.low, stop.high - 1))

    # -- conditions --------------------------------------------------------------------------------

    def facts(self, cond: n.Value, holds: bool, known: Known) -> dict[n.Value, IndexRange]:
        """What is known of the operands where the condition holds, or does not."""
        if isinstance(cond, n.Binary) and cond.op == ("and" if holds else "or"):
            first = self.facts(cond.lhs, holds, known)
            return {**first, **self.facts(cond.rhs, holds, {**known, **first})}
        if isinstance(cond, n.Unary) and cond.op == "not":
            return self.facts(cond.x, not holds, known)
        if not isinstance(cond, n.Compare) or cond.lhs.dtype is not index:
            return {}
        op = cond.op if holds else OPPOSITE[cond.op]
        a, b = self.range_of(cond.lhs, known), self.range_of(cond.rhs, known)
        return {cond.lhs: below(op, a, b), cond.rhs: below(MIRRORED[op], b, a)}

    # -- values ------------------------------------------------------------------------------------

    def range_of(self, value: n.Value, known: Known, deep: int = 0) -> IndexRange:
        found = known.get(value, ANY)
        if deep > DEEP:
            return found
        own = self.computed(value, known, deep + 1)
        return own.narrowed(found.low, found.high)

    def computed(self, value: n.Value, known: Known, deep: int) -> IndexRange:
        match value:
            case n.Const():
                return IndexRange(int(value.value), int(value.value))
            case n.Id():
                most = MAX_GRID if value.which == "group" else self.program.workgroup
                return IndexRange(0, most[value.axis] - (value.which == "local"))
            case n.BufferLength() if isinstance(value.buffer.count, int):
                return IndexRange(value.buffer.count, value.buffer.count)
            case n.Binary() if value.dtype is index:
                a, b = (self.range_of(x, known, deep) for x in (value.lhs, value.rhs))
                return bounded(COMBINED[value.op](a, b))
            case n.Select():
                a, b = (self.range_of(x, known, deep) for x in (value.a, value.b))
                return IndexRange(min(a.low, b.low), max(a.high, b.high))
            case n.Cast() if value.x.dtype.kind == "u" and value.x.dtype.bits < 64:
                return IndexRange(0, (1 << value.x.dtype.bits) - 1)
            case _:
                return ANY


OPPOSITE = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}
MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}


def below(op: str, a: IndexRange, b: IndexRange) -> IndexRange:
    """The range of a where a op b."""
    low, high = {
        "lt": (MIN, b.high - 1), "le": (MIN, b.high), "gt": (b.low + 1, MAX), "ge": (b.low, MAX),
        "eq": (b.low, b.high), "ne": (MIN, MAX),
    }[op]  # fmt: skip
    return a.narrowed(low, high)


def bounded(found: IndexRange) -> IndexRange:
    """What may leave 64 bits may be anything."""
    return found if found.low >= MIN and found.high <= MAX else ANY


def product(a: IndexRange, b: IndexRange) -> IndexRange:
    ends = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    return IndexRange(min(ends), max(ends))


def quotient(a: IndexRange, b: IndexRange) -> IndexRange:
    """Dividends below zero have no meaning; divisors below one count as one."""
    return ANY if a.low < 0 else IndexRange(0, a.high // max(b.low, 1))


def rest(a: IndexRange, b: IndexRange) -> IndexRange:
    if a.low < 0 or b.low < 1:
        return ANY
    return IndexRange(0, min(a.high, b.high - 1))


COMBINED: dict[str, Callable[[IndexRange, IndexRange], IndexRange]] = {
    "add": lambda a, b: IndexRange(a.low + b.low, a.high + b.high),
    "sub": lambda a, b: IndexRange(a.low - b.high, a.high - b.low),
    "mul": product,
    "div": quotient,
    "mod": rest,
    "min": lambda a, b: IndexRange(min(a.low, b.low), min(a.high, b.high)),
    "max": lambda a, b: IndexRange(max(a.low, b.low), max(a.high, b.high)),
}
