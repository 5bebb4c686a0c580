"""Kernels, Fourier transforms, the walk: a transform of smooth length as loops of butterflies.

A stage asks a `TransformKernel` for numbers at a position of a line. Either a vector holds the
numbers at one position of several lines (lanes), or several neighbours of one line (row). Blocks at
the end of a line start earlier and compute some numbers again, with the same bits, so nothing needs
a mask. Where operand and result lie is `ops.fft.io`, what belongs to one kernel
`ops.fft.distribution`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property

from tetrad.core.dtypes import DType
from tetrad.core.record import record
from tetrad.core.sizes import Size
from tetrad.graph.group import Group
from tetrad.kernel.build import Val
from tetrad.kernel.nodes import Buffer
from tetrad.loopnest.frame import Frame, Memory
from tetrad.ops.fft.butterfly import Pair, butterfly, times
from tetrad.ops.fft.io import End, turned
from tetrad.ops.fft.plan import ConstantTable, Tables, radices, split
from tetrad.schedule.nodes import Launch, Slot

# numbers between the rows of a split line: rows of a power of two would fall on the same lines of
# the cache
PAD = 16

Planes = tuple[Buffer, Buffer]  # real and imaginary parts
Slots = Mapping[str, tuple[Slot, Slot]]  # the same as memory of a program
Load = Callable[["TransformKernel", Val, int], Pair]  # the number at position i + off
Store = Callable[["TransformKernel", Val, int, Pair], None]


@record(eq=False)
class Transform:
    """A transform of smooth length n, from anywhere to anywhere."""

    n: int
    load: Load
    store: Store


@record(eq=False)
class Sweep:
    """Something done at `count` positions."""

    count: int
    body: Callable[[TransformKernel, Val], None]


Stage = Transform | Sweep


@record(eq=False)
class TransformJob:
    """A transform op with all that its kernels need."""

    group: Group
    memory: Memory
    dtype: DType  # of the parts
    stages: tuple[Stage, ...]
    planes: Mapping[str, int]  # arrays of complex numbers between stages, with their lengths
    tables: Tables
    table: Slot
    source: Slot
    target: Slot
    taken: int  # floats of a line of the operand, and of the result
    given: int
    outer: Size
    inner: Size

    @property
    def lanes(self) -> int:
        """What fills a register: butterflies of more would not fit into registers. No bit depends
        on it."""
        return min(max(self.memory.machine.vector_bits // self.dtype.bits, 4), 16)

    def width(self, slot: Slot) -> int:
        """Floats of a number."""
        return 2 if slot.type.dtype.is_complex else 1

    @property
    def lines(self) -> Size:
        return self.outer * self.inner

    @property
    def flops(self) -> Size:
        return self.lines * sum(map(flops_of, self.stages))


def flops_of(stage: Stage) -> int:
    """Of one line, roughly: five a number for each doubling of the length."""
    return 5 * stage.n * stage.n.bit_length() if isinstance(stage, Transform) else 2 * stage.count


class TransformKernel:
    """One kernel under construction. Buffers are declared when a stage first asks for them."""

    def __init__(
        self, job: TransformJob, suffix: str = "", *, is_row: bool, slots: Slots | None = None
    ) -> None:
        self.job, self.is_row, self.slots = job, is_row, slots
        self.frame = Frame(job.group.name + suffix, job.memory, job.lanes)
        self.k = self.frame.k
        self.lanes, self.lane = job.lanes, self.k.lane()
        self.zero = self.k.const(0, job.dtype)
        self.line = self.k.index(0)  # of temporary memory
        self.stride = 1 if is_row else self.lanes
        self.known: dict[str, Planes] = {}
        self.make_source: Callable[[], End]
        self.make_target: Callable[[], End]

    @cached_property
    def table(self) -> Buffer:
        return self.frame.input(self.job.table)

    @cached_property
    def source(self) -> End:
        return self.make_source()

    @cached_property
    def target(self) -> End:
        return self.make_target()

    # -- places ------------------------------------------------------------------------------------

    def planes(self, name: str, access: str = "read") -> Planes:
        """Numbers between stages: scratch, or memory when stages are launches of their own."""
        if name not in self.known:
            count, dtype = self.job.planes[name], self.job.dtype
            if self.slots is not None:
                real, imag = (self.frame.view(slot, dtype, access) for slot in self.slots[name])
            else:
                make = self.frame.scratch if self.is_row else self.frame.private
                real, imag = (make(name, dtype, count * self.stride) for _ in range(2))
            self.known[name] = real, imag
        return self.known[name]

    def work(self, which: int, n: int) -> Planes:
        """Numbers between passes, each a vector; two sets take turns."""
        name = f"work{which}_{n}"
        if name not in self.known:
            first, second = (
                self.frame.private("work", self.job.dtype, n * self.lanes) for _ in range(2)
            )
            self.known[name] = first, second
        return self.known[name]

    def spot(self, name: str, i: Val, off: int) -> Val:
        start = i * self.stride + self.lane
        if self.slots is not None:
            start = start + self.line * self.job.planes[name]
        return start + off * self.stride

    def load(self, name: str, i: Val, off: int = 0) -> Pair:
        real, imag = self.planes(name)
        at = self.spot(name, i, off)
        return self.k.load(real, at), self.k.load(imag, at)

    def store(self, name: str, i: Val, off: int, value: Pair) -> None:
        real, imag = self.planes(name, "write")
        at = self.spot(name, i, off)
        hint = "same" if self.is_row else ""
        self.k.store(real, at, value[0], hint)
        self.k.store(imag, at, value[1], hint)

    def close(self, name: str, i: Val, value: Pair, n: int) -> None:
        """The number at position 0 is at position n too."""
        with self.k.when(i.eq(0)):
            if not self.is_row:
                self.store(name, self.k.index(n), 0, value)
                return
            for plane, part in zip(self.planes(name, "write"), value, strict=True):
                at = self.spot(name, self.k.index(n), 0) - self.lane
                self.k.store(plane, at, self.k.broadcast(part), "same")

    def view_source(self) -> Buffer:
        """The operand as floats."""
        return self.frame.view(self.job.source, self.job.dtype)

    def view_target(self) -> Buffer:
        return self.frame.view(self.job.target, self.job.dtype, "write")

    # -- positions ---------------------------------------------------------------------------------

    def position(self, i: Val) -> Val:
        return i + self.lane if self.is_row else i

    def factor(self, table: ConstantTable, i: Val, off: int = 0) -> Pair:
        """Constants, one for each position."""
        return self.constant(table, self.position(i), off)

    def constant(self, table: ConstantTable, i: Val, off: int = 0) -> Pair:
        return self.k.load(self.table, i + (table.real + off)), self.k.load(
            self.table, i + (table.imag + off)
        )

    def without_first(self, i: Val, value: Val) -> Val:
        """0 at position 0, the value everywhere else."""
        return self.k.select(self.position(i).eq(0), self.zero, value)

    def backward(self, get: Callable[[Val], Pair], i: Val) -> Pair:
        """Numbers at positions i, i - 1, ... where others are at ascending ones."""
        if not self.is_row:
            return get(i)
        return self.reversed(get(i - (self.lanes - 1)))

    def put_backward(self, put: Callable[[Val, Pair], None], i: Val, value: Pair) -> None:
        if self.is_row:
            i, value = i - (self.lanes - 1), self.reversed(value)
        put(i, value)

    def reversed(self, value: Pair) -> Pair:
        order = tuple(reversed(range(self.lanes)))
        real, imag = (self.k.shuffle(part, part, order) for part in value)
        return real, imag

    # -- blocks ------------------------------------------------------------------------------------

    def blocks(self, count: int) -> int:
        return -(-count // self.lanes) if self.is_row else count

    def start(self, block: Val, count: int) -> Val:
        """Where a block of positions starts; the last one not so late that it would reach over the
        end."""
        if not self.is_row:
            return block
        return (
            block * self.lanes
            if count % self.lanes == 0
            else self.k.min(block * self.lanes, count - self.lanes)
        )

    @contextmanager
    def each(self, count: int) -> Iterator[Val]:
        """Every block of positions, one after the other."""
        with self.loop(self.blocks(count)) as block:
            yield self.start(block, count)

    @contextmanager
    def loop(self, count: int) -> Iterator[Val]:
        if count == 1:
            yield self.k.index(0)
            return
        with self.k.loop(count, always=True) as i:
            yield i

    def finish(self, groups: Size, **fields: object) -> Launch:
        return self.frame.finish(groups, self.job.group, **fields)


# -- a transform -----------------------------------------------------------------------------------


def passes(
    walk: TransformKernel,
    n: int,
    load: Callable[[Val, int], Pair],
    store: Callable[[Val, int, Pair], None],
) -> None:
    """A transform of length n in every lane, sorted as it goes (Stockham): one pass over the
    numbers for each radix.

    Numbers q + s (p + m k) become q + s (r p + j), where s is the product of the radices done and n
    = s r m.
    """
    k, rest, s = walk.k, n, 1
    order = radices(n) or (1,)
    for turn, r in enumerate(order):
        m = rest // r
        target, is_last = (turn + 1) % 2, turn == len(order) - 1
        table = walk.job.tables.known["pass", rest, r] if m > 1 else None
        with walk.loop(m) as p, walk.loop(s) as q:
            read = load if turn == 0 else held(walk, turn % 2, n)
            numbers = butterfly(k, [read(p * s + q, s * m * i) for i in range(r)])
            for j, number in enumerate(numbers):
                if j and table is not None:
                    number = times(k, number, walk.constant(table, p * (r - 1), j - 1))
                at, off = p * (s * r) + q, s * j
                if is_last:
                    store(at, off, number)
                else:
                    put(walk, target, n, at, off, number)
        rest, s = m, s * r


def held(walk: TransformKernel, which: int, n: int) -> Callable[[Val, int], Pair]:
    """Reads the numbers a pass left."""

    def read(i: Val, off: int) -> Pair:
        real, imag = walk.work(which, n)
        at = i * walk.lanes + walk.lane + off * walk.lanes
        return walk.k.load(real, at), walk.k.load(imag, at)

    return read


def put(walk: TransformKernel, which: int, n: int, i: Val, off: int, value: Pair) -> None:
    real, imag = walk.work(which, n)
    at = i * walk.lanes + walk.lane + off * walk.lanes
    walk.k.store(real, at, value[0])
    walk.k.store(imag, at, value[1])


def columns(walk: TransformKernel, stage: Transform, start: Val) -> None:
    """A line seen as a matrix: transforms of columns, turned by their place, to memory of that
    name."""
    a, b = split(stage.n) or (stage.n, 1)
    table = walk.job.tables.known["split", a, b]
    pitch = row_pitch(walk.is_row, b)

    def store(i: Val, off: int, value: Pair) -> None:
        value = times(walk.k, value, walk.factor(table, i * b + start, off * b))
        walk.store(f"split{stage.n}", i * pitch + start, off * pitch, value)

    passes(walk, a, lambda i, off: stage.load(walk, i * b + start, off * b), store)


def rows(walk: TransformKernel, stage: Transform, start: Val) -> None:
    """Then transforms of rows; the result goes down the columns."""
    a, b = split(stage.n) or (1, stage.n)
    name, pitch = f"split{stage.n}", row_pitch(walk.is_row, b)

    def load(i: Val, off: int) -> Pair:
        return walk.load(name, i + start * pitch, off)

    def store(i: Val, off: int, value: Pair) -> None:
        stage.store(walk, i * a + start, off * a, value)

    if walk.is_row:
        turn_rows(walk, name, start, b)
    passes(walk, b, held(walk, 0, b) if walk.is_row else load, store)


def row_pitch(is_row: bool, b: int) -> int:
    return b + PAD if is_row else b


def turn_rows(walk: TransformKernel, name: str, start: Val, b: int) -> None:
    """As many rows as there are lanes, one into each lane."""
    pitch = row_pitch(True, b)
    with walk.each(b) as column:
        tiles = [walk.load(name, start * pitch + column, i * pitch) for i in range(walk.lanes)]
        real, imag = (turned(walk.k, [tile[part] for tile in tiles]) for part in (0, 1))
        for i, value in enumerate(zip(real, imag, strict=True)):
            put(walk, 0, b, column, i, value)
