"""Kernels of scattered sums and of rows changed in place: updates in order; a workgroup owns
columns of the trailing axes, so no two write one element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tetrad.core.dtypes import DType, f32, i32, i64, index
from tetrad.core.machine import LANES
from tetrad.core.op import REGISTRY, Op
from tetrad.core.sizes import Size, ceil_div, product
from tetrad.graph.group import Group
from tetrad.graph.nodes import Node
from tetrad.kernel.build import KernelBuilder, Val
from tetrad.kernel.nodes import Buffer
from tetrad.loopnest.frame import Frame
from tetrad.loopnest.index import Space
from tetrad.ops.gather import checked_index, narrow_index
from tetrad.ops.rules import HALVES
from tetrad.ops.scatter.op import scatter_add
from tetrad.ops.scatter.update import (
    add_at,
    divide_at,
    maximum_at,
    met_at,
    minimum_at,
    multiply_at,
    set_at,
)
from tetrad.schedule.nodes import Launch, Slot

NARROW = 4  # rows of so few elements are changed element by element, all by one workgroup
# Vectors of a row that a workgroup owns, half of the row at most: chains of updates to one row that
# run side by side, for each of two threads at least.
MOST_VECTORS = 8
UNROLLED = 8  # updates of narrow rows that a turn of the walk makes
PREPARED = 1024  # updates of narrow rows that are prepared before the walk over them goes on
LOOKED_AT = 4096  # indices that a workgroup makes sure of

Join = Callable[[KernelBuilder, Val, Val], Val]
Change = Callable[[Val, Val, Val], None]  # of update i, in a row and a column

JOINS: dict[Op, Join] = {
    add_at: lambda k, old, new: old + new,
    multiply_at: lambda k, old, new: old * new,
    divide_at: lambda k, old, new: old / new,
    maximum_at: lambda k, old, new: k.max(old, new),
    minimum_at: lambda k, old, new: k.min(old, new),
}


class Updates:
    """The walk over the updates of a node, by a workgroup that owns some columns of all rows.

    Which row an update names is made sure of beforehand, sixteen indices at a time: of wide rows by
    all workers, of narrow ones for a thousand updates at once, which stay in the nearest cache. The
    walk itself looks at no index twice, and takes a third of the time.
    """

    def __init__(self, frame: Frame, node: Node, rows: Node, size: Size) -> None:
        self.frame, self.node, self.size = frame, node, size
        self.updates, self.shape = rows, rows.type.shape[1:]
        self.columns = product(self.shape)
        self.is_narrow = isinstance(self.columns, int) and self.columns <= NARROW
        vectors = ceil_div(self.columns, LANES)
        self.vectors = min(MOST_VECTORS, max(1, vectors // 2)) if isinstance(vectors, int) else 1
        self.groups = 1 if self.is_narrow else ceil_div(vectors, self.vectors)
        self.drop: bool = dict(node.params).get("drop", False)
        self.before: list[Launch] = []
        self.indices, self.start = node.inputs[-1], frame.k.index(0)
        self.places, self.is_piecewise = self.made_sure()
        self.width, self.n = frame.sizes.val(self.columns), frame.sizes.val(size)

    def made_sure(self) -> tuple[Buffer, bool]:
        """The rows of all updates, or of those of one piece: each in range or, where it is dropped,
        the number of rows."""
        indices, is_small = self.indices, is_below_2_31(self.size)
        held = self.frame.reading.buffers.get(indices)
        if held and is_sure(indices, self.size) and not self.drop:
            return held, False
        kind = i32 if is_small else i64
        if self.is_narrow:
            self.frame.reads([indices])
            return self.frame.scratch("rows", kind, PREPARED), True
        first = Frame(f"{self.node.op.name}_rows", self.frame.memory, inputs=[indices])
        first.reads([indices])
        slot = self.frame.memory.temp("rows", kind, indices.type.size)
        self.before.append(look_at_indices(first, self.node, indices, slot, self.size, self.drop))
        return self.frame.input(slot), False

    def owned(self, change: Callable[[Val], None]) -> None:
        """`change` for every column that this workgroup owns: one by one, or a vector."""
        k = self.frame.k
        if self.is_narrow:
            for number in range(int(self.columns)):  # type: ignore[arg-type]
                change(k.index(number))
            return
        first = k.group_id() * (LANES * self.vectors) + k.lane()
        for column in (first + v * LANES for v in range(self.vectors)):
            with self.frame.within(column, self.width, self.columns, LANES * self.vectors):
                change(column)

    def each(self, change: Change) -> None:
        """`change(i, row, column)` for update after update."""
        if self.is_piecewise:
            with self.pieces() as (start, stop):
                self.between(start, stop, change)
        else:
            self.between(self.frame.k.index(0), self.count, change)

    @property
    def count(self) -> Val:
        return self.frame.sizes.val(self.updates.type.shape[0])

    @contextmanager
    def pieces(self) -> Iterator[tuple[Val, Val]]:
        """A loop over the updates in pieces, whose rows are made sure of as a piece begins."""
        k, frame = self.frame.k, self.frame
        with k.loop(self.count, 0, PREPARED) as start:
            stop = k.min(start + PREPARED, self.count)
            self.start = start
            if self.is_piecewise:
                with k.loop(stop, start, LANES) as first:
                    i = first + k.lane()
                    with frame.within(i, stop, self.updates.type.shape[0]):
                        row = sure_row(frame, self.node, self.indices, i, self.size, self.drop)
                        k.store(self.places, i - start, k.cast(row, self.places.dtype))
            k.barrier()
            yield start, stop
            k.barrier()

    def between(self, start: Val, stop: Val, change: Change) -> None:
        k, step = self.frame.k, max(1, UNROLLED // self.vectors)
        whole = start + (stop - start) // step * step
        with k.loop(whole, start, step) as first:
            for j in range(step):
                self.one(first + j, change)
        with k.loop(stop, whole) as i:
            self.one(i, change)

    def elements(self, start: Val, stop: Val, act: Callable[[Val, Val], None]) -> None:
        """`act(at, new)` for the elements of updates of narrow rows in vectors: where it is counted
        from the first one, and what it is."""
        k, begin = self.frame.k, start * self.width
        total = (stop - start) * self.width
        with k.loop(total, 0, LANES) as first:
            at = first + k.lane()
            with k.when(at < total, guard=True):
                found = element(self.frame, self.updates, begin + at)
                act(at, k.cast(found, self.updates.type.dtype.computing))

    def any_of(self, start: Val, stop: Val, is_such: Callable[[Val], Val]) -> Val:
        """Is there an element of these updates that is such?"""
        k = self.frame.k
        found = k.local(k.const(0, i32))

        def look(at: Val, new: Val) -> None:
            found.set(k.select(is_such(new), 1, found.get()))

        self.elements(start, stop, look)
        return k.any(found.get().ne(0))

    def one(self, i: Val, change: Change) -> None:
        k = self.frame.k
        row = k.cast(k.load(self.places, i - self.start if self.is_piecewise else i), index)
        if self.drop:
            with k.when(row < self.n):
                self.owned(lambda column: change(i, row, column))
        else:
            self.owned(lambda column: change(i, row, column))

    def everywhere(self, act: Callable[[Val], None], count: Size | None = None) -> None:
        """`act` at the flat place of every element of the rows (`count` of them, or all) that this
        workgroup owns; afterwards all its invocations see what was written."""
        k, rows = self.frame.k, self.n if count is None else self.frame.sizes.val(count)
        if self.is_narrow:
            total = rows * self.width
            with k.loop(total, 0, LANES) as first:
                at = first + k.lane()
                with k.when(at < total, guard=True):
                    act(at)
        else:
            with k.loop(rows) as row:
                self.owned(lambda column: act(row * self.width + column))
        k.barrier()

    def update(self, i: Val, column: Val) -> Val:
        """An element of update i, as wide as it is computed with."""
        k, sizes = self.frame.k, self.frame.sizes
        at = (i, *Space(k, sizes, self.shape, column).axes())
        return self.frame.reading.wide(self.updates, at)

    def join(self, buffer: Buffer, where: Val, new: Val, join: Join) -> Val:
        """buffer[where] joined with `new` and rounded; what lay there before."""
        k = self.frame.k
        old = k.load(buffer, where)
        self.store(buffer, where, join(k, k.cast(old, new.dtype), new))
        return old

    def store(self, buffer: Buffer, where: Val, value: Val) -> None:
        if self.is_narrow:
            self.frame.k.barrier()  # all invocations write it: each has done what it did before
        self.frame.k.store(buffer, where, self.frame.k.cast(value, buffer.dtype))

    def finish(self, group: Group, **fields: object) -> list[Launch]:
        flops = product(self.updates.type.shape)
        return [*self.before, self.frame.finish(self.groups, group, flops=flops, **fields)]


def is_below_2_31(size: Size) -> bool:
    return isinstance(size, int) and size < 1 << 31


def is_sure(indices: Node, size: Size) -> bool:
    """Are they in range by what they are?"""
    return indices.op is checked_index and indices.param("size") == size


def look_at_indices(
    frame: Frame, node: Node, indices: Node, slot: Slot, size: Size, drop: bool
) -> Launch:
    """Indices counted from the start. One out of range stops the program, or becomes the number of
    rows."""
    k, count = frame.k, indices.type.size
    out, total = frame.output(slot), frame.sizes.val(count)
    first = k.group_id() * LOOKED_AT
    with k.loop(k.min(first + LOOKED_AT, total), first, LANES) as start:
        i = start + k.lane()
        with frame.within(i, total, count):
            row = sure_row(frame, node, indices, i, size, drop)
            k.store(out, i, k.cast(row, out.dtype))
    return frame.finish(ceil_div(count, LOOKED_AT))


def sure_row(frame: Frame, node: Node, indices: Node, i: Val, size: Size, drop: bool) -> Val:
    """The row of update i, counted from the start."""
    given = frame.reading.wide(indices, (i,))
    if is_sure(indices, size) and not drop:
        return given
    return found_row(frame, node, given, size, drop)


def found_row(frame: Frame, node: Node, given: Val, size: Size, drop: bool) -> Val:
    """The row that an index names, in 32 bits where they hold the number of rows."""
    k = frame.k
    row, bad = narrow_index(k, given, size, frame.sizes.val)
    if drop:
        return k.select(bad, k.cast(frame.sizes.val(size), row.dtype), row)
    frame.reading.trap(node, node, bad, k.cast(given, index))
    return row


@set_at.kernel
@add_at.kernel
@multiply_at.kernel
@divide_at.kernel
@maximum_at.kernel
@minimum_at.kernel
def lower_update(frame: Frame, group: Group) -> list[Launch]:
    """Updates in order, where the array lies."""
    node = group.root
    rows = node.inputs[1]
    if 0 in rows.type.shape:
        return []
    walk = Updates(frame, node, rows, node.type.shape[0])
    slot = frame.memory.slots[node]
    out = frame.output(slot, "readwrite")
    join = JOINS.get(node.op)
    if node.op in (maximum_at, minimum_at) and walk.is_narrow and out.dtype.is_float:
        walk_extremes(walk, out, node.op is maximum_at)
        return walk.finish(group, updates=frozenset({slot}))

    def change(i: Val, row: Val, column: Val) -> None:
        where, new = row * walk.width + column, walk.update(i, column)
        if join is None:
            walk.store(out, where, new)
        else:
            walk.join(out, where, new, join)

    walk.each(change)
    return walk.finish(group, updates=frozenset({slot}))


def walk_extremes(walk: Updates, out: Buffer, is_maximum: bool) -> None:
    """Extremes of floats: `k.max` has six steps, one after the other. One comparison and one choice
    are enough for pieces of updates without NaN and without the zero that wins against the other
    one. In the others an update is compared by a stand-in."""
    k, wins = walk.frame.k, "gt" if is_maximum else "lt"
    word, winner = zero_bits(out.dtype.computing, not is_maximum)

    def is_special(new: Val) -> Val:
        return k.binary("or", new.ne(new), k.bitcast(new, word).eq(k.const(winner, word)))

    def change(i: Val, row: Val, column: Val) -> None:
        where, new = row * walk.width + column, walk.update(i, column)
        old = k.cast(k.load(out, where), new.dtype)
        walk.store(out, where, k.select(k.compare(wins, new, old), new, old))

    with walk.pieces() as (start, stop):
        with k.when(walk.any_of(start, stop, is_special)):
            walk_special_extremes(walk, out, is_maximum, start, stop)
        with k.otherwise():
            walk.between(start, stop, change)


def walk_special_extremes(
    walk: Updates, out: Buffer, is_maximum: bool, start: Val, stop: Val
) -> None:
    """With NaN as the number that wins, and the zero that loses against the other one as the number
    next to it."""
    k, sign = walk.frame.k, 1.0 if is_maximum else -1.0
    dtype = out.dtype.computing
    next_to_zero = 1e-45 if dtype is f32 else 5e-324
    word, loser = zero_bits(dtype, is_maximum)
    ready = walk.frame.scratch("ready", dtype, PREPARED * walk.columns)

    def stand_in(at: Val, new: Val) -> None:
        is_loser = k.bitcast(new, word).eq(k.const(loser, word))
        near = k.select(is_loser, -sign * next_to_zero, new)
        k.store(ready, at, k.select(new.ne(new), sign * float("inf"), near))

    def change(i: Val, row: Val, column: Val) -> None:
        where, new = row * walk.width + column, walk.update(i, column)
        old = k.cast(k.load(out, where), dtype)
        compared = k.load(ready, (i - start) * walk.width + column)
        wins = k.compare("ge" if is_maximum else "le", compared, old)
        walk.store(out, where, k.select(wins, new, old))

    walk.elements(start, stop, stand_in)
    k.barrier()
    walk.between(start, stop, change)


def zero_bits(dtype: DType, is_negative: bool) -> tuple[DType, int]:
    """A zero as an integer: of which dtype, and its value."""
    word = i32 if dtype is f32 else i64
    return word, -(1 << (word.bits - 1)) if is_negative else 0


@scatter_add.kernel
def lower_scatter_add(frame: Frame, group: Group) -> list[Launch]:
    """Zero, then updates in order. Sums of halves wait as f32: each is rounded once, at the end."""
    node, k = group.root, frame.k
    rows, kind = node.inputs[0], node.type
    if 0 in kind.shape:
        return []
    walk = Updates(frame, node, rows, kind.shape[0])
    is_half = kind.dtype in HALVES
    out = frame.output(frame.memory.slots[node], "write" if is_half else "readwrite")
    wide = frame.memory.temp("sums", kind.dtype.computing, *kind.shape) if is_half else None
    sums = out if wide is None else frame.output(wide, "readwrite")
    walk.everywhere(lambda at: k.store(sums, at, k.const(0, sums.dtype)))

    def change(i: Val, row: Val, column: Val) -> None:
        where = row * walk.width + column
        walk.join(sums, where, walk.update(i, column), JOINS[add_at])

    walk.each(change)
    if is_half:
        k.barrier()
        walk.everywhere(lambda at: k.store(out, at, k.cast(k.load(sums, at), out.dtype)))
    return walk.finish(group)


@met_at.kernel
def lower_met_at(frame: Frame, group: Group) -> list[Launch]:
    """A copy of the array is changed, and what each update met is kept."""
    node, k = group.root, frame.k
    x, rows, _ = node.inputs
    if 0 in rows.type.shape:
        return []
    walk = Updates(frame, node, rows, x.type.shape[0])
    out = frame.output(frame.memory.slots[node])
    now = frame.output(frame.memory.temp("now", x.type.dtype, *x.type.shape), "readwrite")
    join = JOINS[REGISTRY[node.param("how")]]
    walk.everywhere(lambda at: k.store(now, at, element(frame, x, at)))
    if walk.drop:  # what is dropped meets zeros
        nothing = k.const(0, out.dtype)
        walk.everywhere(lambda at: k.store(out, at, nothing), rows.type.shape[0])

    def change(i: Val, row: Val, column: Val) -> None:
        met = walk.join(now, row * walk.width + column, walk.update(i, column), join)
        walk.store(out, i * walk.width + column, met)

    walk.each(change)
    return walk.finish(group)


def element(frame: Frame, x: Node, at: Val) -> Val:
    """The element of an operand at a flat place."""
    return frame.reading.read(x, Space(frame.k, frame.sizes, x.type.shape, at).axes())
