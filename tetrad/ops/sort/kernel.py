"""Kernels, sorting: rows put in order by integer keys that count as their elements do.

    short rows    a row a lane, in a sorting network; the position makes every key different, so it
                  is stable
    longer rows   a row a workgroup, digit by digit, the lowest first: time in proportion to the
                  length
    few of a row  a sweep over the row for each, to find what comes next; more of them by digits,
                  after a first digit has told which can be among them

Keys are u32 for types of up to 32 bits; i64, in the order of signed numbers, for f64 and i64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tetrad.core.dtypes import (
    DType,
    bf16,
    bool_,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    index,
    u8,
    u16,
    u32,
    u64,
)
from tetrad.core.machine import LANES
from tetrad.core.sizes import Size, ceil_div, plain, product
from tetrad.graph.group import Group
from tetrad.kernel.build import KernelBuilder, Val
from tetrad.kernel.nodes import Buffer
from tetrad.loopnest.frame import Frame
from tetrad.loopnest.index import Space
from tetrad.loopnest.reader import At
from tetrad.ops.sort.op import argsort, sort, topk
from tetrad.schedule.nodes import Launch

# elements of a row that a network sorts: one of many rows, of any number of rows
SHORT, SHORTEST = 128, 32
# one of many rows when positions do not matter: with keys of 32 bits, of 64
SHORT_VALUES = (4096, 256)
MANY = 8  # rows that are worth sixteen lanes
PLACE_BITS = 7  # of positions in a short row
FEW, FEWEST = 16, 4  # elements that are looked for one by one: in rows of any length, in long rows
LONG = 1 << 14  # elements of a row that is long
# Bits that one pass sorts by. More in a long row, where counting is little beside moving; unless
# positions are moved as well: then more streams are written than caches follow.
DIGIT, WIDE_DIGIT = 8, 11
BIAS = {i8: 1 << 7, i16: 1 << 15}  # makes numbers positive
MIN32, MIN64 = -(1 << 31), -(1 << 63)
# the bits that can differ in the keys of a type, from .. to; halves are sorted as f32, whose low
# bits are equal
BITS = {
    f32: (0, 32), f16: (8, 32), bf16: (16, 32), i32: (0, 32), u32: (0, 32),
    i8: (0, 8), u8: (0, 8), bool_: (0, 8), i16: (0, 16), u16: (0, 16), f64: (0, 64), i64: (0, 64),
    u64: (0, 64),
}  # fmt: skip


# -- keys ------------------------------------------------------------------------------------------


def key_of(k: KernelBuilder, x: Val, dtype: DType, descending: bool) -> Val:
    """The key of an element that is x in its computing type. NaN has the greatest; -0.0 comes
    before 0.0."""
    key = float_key(k, x) if dtype.is_float else int_key(k, x, dtype)
    return ~key if descending else key


def float_key(k: KernelBuilder, x: Val) -> Val:
    """Positive floats count as their bits do, negative ones backwards: all bits but the sign are
    turned."""
    whole = {f32: i32, f64: i64}[x.dtype]
    bits = k.bitcast(x, whole)
    ordered = bits ^ ((bits >> whole.bits - 1) & ~least(whole))
    ordered = k.select(x.ne(x), k.const(~least(whole), whole), ordered)
    return ordered if whole is i64 else k.bitcast(ordered ^ MIN32, u32)


def int_key(k: KernelBuilder, x: Val, dtype: DType) -> Val:
    if dtype is i64:
        return x
    if dtype is u64:
        return k.bitcast(x, i64) ^ MIN64
    if dtype is i32:
        return k.bitcast(x ^ MIN32, u32)
    return k.cast(x + BIAS[dtype] if dtype in BIAS else x, u32)


def value_of(k: KernelBuilder, key: Val, dtype: DType, descending: bool) -> Val:
    """The element, in its computing type, from its key."""
    key = ~key if descending else key
    if dtype in (i64, u32, u16):
        return key
    if dtype is u64:
        return k.bitcast(key ^ MIN64, u64)
    if dtype in (u8, bool_):
        return k.cast(key, dtype)
    if dtype in BIAS:
        return k.cast(key, i32) - BIAS[dtype]
    signed = key if key.dtype is i64 else k.bitcast(key, i32) ^ MIN32
    if not dtype.is_float:
        return signed
    turned = signed ^ ((signed >> signed.dtype.bits - 1) & ~least(signed.dtype))
    return k.bitcast(turned, f64 if dtype is f64 else f32)


def least(dtype: DType) -> int:
    return MIN64 if dtype is i64 else MIN32


# -- rows ------------------------------------------------------------------------------------------


class SortedRows:
    """What all ways of sorting share: the operand, its rows, keys of its elements."""

    def __init__(self, frame: Frame, group: Group, descending: bool) -> None:
        self.frame, self.k, self.node, self.descending = frame, frame.k, group.root, descending
        self.operand = self.node.inputs[0]
        self.dtype = self.operand.type.dtype
        self.outer, self.size = self.operand.type.shape[:-1], self.operand.type.shape[-1]
        self.rows: Size = product(self.outer)
        self.length = frame.sizes.val(self.size)

    def at(self, row: Val, place: Val) -> At:
        return (*Space(self.k, self.frame.sizes, self.outer, row).axes(), place)

    def read(self, row: Val, place: Val) -> Val:
        return self.frame.reading.read(self.operand, self.at(row, place))

    def wide(self, row: Val, place: Val) -> Val:
        return self.frame.reading.wide(self.operand, self.at(row, place))

    def key(self, row: Val, place: Val, *, join_zeros: bool = True) -> Val:
        """The key of an element; with `join_zeros` -0.0 has that of 0.0."""
        x = self.wide(row, place)
        return key_of(
            self.k, x + 0.0 if join_zeros and x.dtype.is_float else x, self.dtype, self.descending
        )


@sort.kernel
def lower_sort(frame: Frame, group: Group) -> Launch:
    rows, out = (
        SortedRows(frame, group, group.root.param("descending")),
        frame.output(frame.memory.slots[group.root]),
    )
    if is_short(rows, SHORT_VALUES[is_wide(rows.dtype)]):
        return sort_short_values(rows, group, out)
    is_long = isinstance(rows.size, int) and rows.size >= LONG
    return RadixSort(rows, group, WIDE_DIGIT if is_long else DIGIT).values(out)


@argsort.kernel
def lower_argsort(frame: Frame, group: Group) -> Launch:
    rows, out = (
        SortedRows(frame, group, group.root.param("descending")),
        frame.output(frame.memory.slots[group.root]),
    )
    k = frame.k

    def put(row: Val, where: Val, place: Val) -> None:
        k.store(out, row * rows.length + where, k.cast(place, i64))

    if is_short(rows):
        return sort_short(rows, group, plain(rows.size), put)
    return RadixSort(rows, group).places(put)


@topk.kernel
def lower_topk(frame: Frame, group: Group) -> Launch:
    node, k = group.root, frame.k
    rows, count = SortedRows(frame, group, node.param("largest")), int(node.param("k"))
    values, places = (frame.output(slot) for slot in frame.memory.results(node))

    def put(row: Val, where: Val, place: Val) -> None:
        k.store(values, row * count + where, rows.read(row, place))
        k.store(places, row * count + where, k.cast(place, i64))

    def put_some(row: Val, where: Val, place: Val) -> None:
        with k.when(where < count):
            put(row, where, place)

    size = rows.size if isinstance(rows.size, int) else SHORT
    if size > SHORTEST and count <= (FEW if size < LONG else FEWEST):
        return find_few(rows, group, count, put)
    if is_short(rows):
        return sort_short(rows, group, count, put)
    return RadixSort(rows, group).places(put_some, count)


Put = Callable[[Val, Val, Val], None]  # row, position in the result, position in the operand


def is_short(rows: SortedRows, most: int = SHORT) -> bool:
    """Is a network quicker than digits? Few rows leave most lanes of one without work."""
    if not isinstance(rows.size, int):
        return False
    are_many = not isinstance(rows.rows, int) or rows.rows >= MANY
    return rows.size <= (most if are_many else SHORTEST)


# -- short rows ------------------------------------------------------------------------------------


# a key; or a key and its position, in one i64 where they fit, else two values
Item = tuple[Val, ...]


def sort_short(rows: SortedRows, group: Group, count: int, put: Put) -> Launch:
    """A row a lane: keys with their positions go through a network."""
    k, total = rows.k, rows.rows
    row, items = (
        k.group_id() * LANES + k.lane(),
        Items(rows, (i64, i32) if is_wide(rows.dtype) else (i64,)),
    )
    with rows.frame.within(row, rows.frame.sizes.val(total), total), k.loop(items.size) as i:
        items.put(i, item_of(k, rows.key(row, i), i))
    items.sort(lambda i: item_of(k, greatest(k, rows.dtype), i))
    with rows.frame.within(row, rows.frame.sizes.val(total), total), k.loop(count) as i:
        put(row, i, k.cast(items.get(i)[-1] & (SHORT - 1), index))
    return rows.frame.finish(ceil_div(total, LANES), group, flops=total * items.padded * 8)


def sort_short_values(rows: SortedRows, group: Group, out: Buffer) -> Launch:
    """The same with keys alone; elements are made from them again."""
    k, total = rows.k, rows.rows
    row, items = (
        k.group_id() * LANES + k.lane(),
        Items(rows, (i64,) if is_wide(rows.dtype) else (u32,)),
    )
    zeros, first = Zeros(rows), row * rows.length
    with rows.frame.within(row, rows.frame.sizes.val(total), total), k.loop(items.size) as i:
        items.put(i, (rows.key(row, i, join_zeros=False),))
        zeros.see(row, i)
    items.sort(lambda i: (greatest(k, rows.dtype),))
    with rows.frame.within(row, rows.frame.sizes.val(total), total):
        with k.loop(items.size) as i:
            value = value_of(k, items.get(i)[0], rows.dtype, rows.descending)
            k.store(out, first + i, k.cast(value, rows.dtype))
        zeros.mend(row, out, first)
    return rows.frame.finish(ceil_div(total, LANES), group, flops=total * items.padded * 4)


class Zeros:
    """Zeros of both signs are equal, but their keys are not: where a row has both, they are written
    once more, in the order they came in."""

    def __init__(self, rows: SortedRows) -> None:
        self.rows, self.k, self.are_floats = rows, rows.k, rows.dtype.is_float
        self.signs = [rows.k.local(False, bool_) for _ in range(2)]

    def see(self, row: Val, place: Val) -> None:
        if self.are_floats:
            x = self.rows.wide(row, place)
            is_negative = self.k.copysign(self.k.const(1.0, x.dtype), x) < 0.0
            for sign, holds in zip(self.signs, (is_negative, ~is_negative), strict=True):
                sign.set(sign.get() | (x.eq(0.0) & holds))

    def mend(self, row: Val, out: Buffer, first: Val) -> None:
        k, rows = self.k, self.rows
        if not self.are_floats:
            return
        with k.when(k.any(self.signs[0].get()) & k.any(self.signs[1].get())):
            where = k.local(first)
            with k.loop(rows.length) as i:
                x = rows.wide(row, i)
                before = (x > 0.0) | x.ne(x) if rows.descending else x < 0.0
                where.set(where.get() + k.select(before, k.index(1), k.index(0)))
            with k.loop(rows.length) as i, k.when(rows.wide(row, i).eq(0.0)):
                k.store(out, where.get(), rows.read(row, i))
                where.set(where.get() + 1)


class Items:
    """The items of sixteen rows in scratch, one row a lane. What is done to them is in loops, where
    it is not for the shortest rows only or for blocks: all of it unrolled would take seconds to
    compile."""

    def __init__(self, rows: SortedRows, kinds: tuple[DType, ...]) -> None:
        self.k, self.size = rows.k, plain(rows.size)
        self.block, most = (8, 16) if len(kinds) == 1 else (4, 8)
        self.is_small = self.size <= most
        self.padded = self.size if self.is_small else 1 << (self.size - 1).bit_length()
        self.parts = [rows.frame.private("items", kind, self.padded * LANES) for kind in kinds]

    def sort(self, last: Callable[[Val], Item]) -> None:
        """Items in order; `last` gives those that fill up to a power of two. Not to be guarded:
        lanes without a row exchange what there is, and masks would cost."""
        if self.is_small:
            return self.in_registers(max(self.size, 1), list(exchanges(self.size)))
        with self.k.loop(self.padded, self.size) as i:
            self.put(i, last(i))
        self.bitonic()

    def put(self, at: Val, item: Item) -> None:
        for buffer, part in zip(self.parts, item, strict=True):
            self.k.store(buffer, at * LANES + self.k.lane(), part)

    def get(self, at: Val) -> Item:
        return tuple(self.k.load(buffer, at * LANES + self.k.lane()) for buffer in self.parts)

    def in_registers(self, count: int, pairs: Sequence[tuple[int, int]]) -> None:
        """Exchanges inside of each block of `count` items, which are in registers meanwhile."""
        k = self.k
        with k.loop(self.padded, 0, count) as block:
            items = [self.get(block + i) for i in range(count)]
            for low, high in pairs:
                items[low], items[high] = exchanged(k, items[low], items[high])
            for i, item in enumerate(items):
                self.put(block + i, item)

    def bitonic(self) -> None:
        """Batcher's other network, for powers of two: runs of `half` are merged by exchanging the
        first of one with the last of the next, and so on inwards; then items ever less apart.
        Blocks are done in registers."""
        self.in_registers(self.block, list(exchanges(self.block)))
        for half in powers(self.padded // 2):
            if half >= self.block:
                self.exchange(half, is_mirrored=True)
                for apart in reversed(powers(half // 2)):
                    if apart >= self.block:
                        self.exchange(apart)
                self.in_registers(self.block, halvings(self.block))

    def exchange(self, half: int, is_mirrored: bool = False) -> None:
        """In each block of 2 * half items, those of its halves put in order, pair by pair."""
        k = self.k
        with k.loop(self.padded, 0, 2 * half) as block, k.loop(half) as i:
            low, high = block + i, block + (2 * half - 1) - i if is_mirrored else block + half + i
            for at, item in zip(
                (low, high), exchanged(k, self.get(low), self.get(high)), strict=True
            ):
                self.put(at, item)


def halvings(count: int) -> list[tuple[int, int]]:
    """The exchanges that bring a bitonic run in order: items count / 2 apart, then half as far,
    ..."""
    return [
        (i, i + apart)
        for apart in reversed(powers(count // 2))
        for i in range(count)
        if not i & apart
    ]


def powers(most: int) -> list[int]:
    """1, 2, 4, ... up to `most`."""
    return [1 << e for e in range(most.bit_length())]


def exchanges(size: int) -> Iterator[tuple[int, int]]:
    """Batcher's merge exchange (Knuth, The Art of Computer Programming 3, 5.2.2, algorithm M).

    >>> list(exchanges(3))
    [(0, 1), (0, 2), (1, 2)]
    """
    run = 1
    while run < size:
        apart = run
        while apart:
            for first in range(apart % run, size - apart, 2 * apart):
                for low in range(first, first + min(apart, size - first - apart)):
                    if low // (2 * run) == (low + apart) // (2 * run):
                        yield low, low + apart
            apart //= 2
        run *= 2


def is_wide(dtype: DType) -> bool:
    return dtype in (i64, u64, f64)


def greatest(k: KernelBuilder, dtype: DType) -> Val:
    """The greatest key."""
    return k.const(~MIN64, i64) if is_wide(dtype) else k.const(0xFFFFFFFF, u32)


def item_of(k: KernelBuilder, key: Val, position: Val) -> Item:
    if key.dtype is i64:
        return key, k.cast(position, i32)
    return ((k.cast(key, i64) << PLACE_BITS) | k.cast(position, i64),)


def exchanged(k: KernelBuilder, a: Item, b: Item) -> tuple[Item, Item]:
    """The two in order."""
    if len(a) == 1:
        return (k.min(a[0], b[0]),), (k.max(a[0], b[0]),)
    swap = (b[0] < a[0]) | (b[0].eq(a[0]) & (b[1] < a[1]))
    both = list(zip(a, b, strict=True))
    return tuple(k.select(swap, y, x) for x, y in both), tuple(
        k.select(swap, x, y) for x, y in both
    )


# -- few of a long row -----------------------------------------------------------------------------


def find_few(rows: SortedRows, group: Group, count: int, put: Put) -> Launch:
    """One sweep for each: the least key, at its first position, of those that come after the one
    before."""
    k, row = rows.k, rows.k.group_id()
    keys = key_scratch(rows)
    fill_keys(rows, row, keys)
    none = greatest(k, rows.dtype)
    last, before = k.local(0, keys.dtype), k.local(-1, i32)
    with k.loop(count) as i:
        best, where = k.local(none), k.local(~MIN32, i32)
        with (
            k.loop(rows.length, 0, LANES) as start,
            rows.frame.within(start + k.lane(), rows.length, rows.size),
        ):
            key, place = k.load(keys, start + k.lane()), k.cast(start + k.lane(), i32)
            comes = (
                (key > last.get())
                | (key.eq(last.get()) & (place > before.get()))
                | (before.get() < 0)
            )
            wins = comes & ((key < best.get()) | where.get().eq(~MIN32))
            where.set(k.select(wins, place, where))
            best.set(k.select(wins, key, best))
        top = k.reduce_lanes("min", best)
        mine = k.select(best.get().eq(top), where, k.const(~MIN32, i32))
        last.set(top)
        before.set(k.reduce_lanes("min", mine))
        put(row, i, k.cast(before.get(), index))
    return rows.frame.finish(rows.rows, group, flops=rows.rows * rows.size * 6 * count)


def key_scratch(rows: SortedRows, stem: str = "keys") -> Buffer:
    return rows.frame.scratch(stem, i64 if is_wide(rows.dtype) else u32, rows.size)


def fill_keys(rows: SortedRows, row: Val, keys: Buffer, zeros: Zeros | None = None) -> None:
    """The keys of a row; those of zeros are all equal, unless somebody sees to them."""
    k = rows.k
    with (
        k.loop(rows.length, 0, LANES) as start,
        rows.frame.within(start + k.lane(), rows.length, rows.size),
    ):
        place = start + k.lane()
        k.store(keys, place, rows.key(row, place, join_zeros=zeros is None))
        if zeros is not None:
            zeros.see(row, place)
    k.barrier()


def count_one(k: KernelBuilder, counts: Buffer, at: Val) -> Val:
    """counts[at], which is one more from then on. All invocations count together: all have read
    before any writes."""
    before = k.load(counts, at)
    k.barrier()
    k.store(counts, at, before + 1)
    return before


def clear(k: KernelBuilder, counts: Buffer, size: int) -> None:
    with k.loop(size, 0, LANES, always=True) as start:
        k.store(counts, start + k.lane(), k.const(0, i32))
    k.barrier()


# -- long rows -------------------------------------------------------------------------------------


class RadixSort:
    """Digit by digit, the lowest first: elements with the same digit stay in order, so in the end
    all are in order.

    Everything but the making of keys is scalar. Where the elements of each digit go is known from
    one count of all.
    """

    def __init__(self, rows: SortedRows, group: Group, width: int = DIGIT) -> None:
        self.rows, self.k, self.group, self.row, self.width = (
            rows,
            rows.k,
            group,
            rows.k.group_id(),
            width,
        )
        low, self.high = BITS[rows.dtype]
        self.shifts = range(low, self.high, width)
        self.length = rows.length
        self.keys = [key_scratch(rows), key_scratch(rows)]
        self.next = rows.frame.scratch("next", i32, len(self.shifts) << self.width)

    def places(self, put: Put, wanted: int | None = None) -> Launch:
        """Keys are moved with the positions of their elements; the last digit gives the result.
        Where only the first few are `wanted`, the others go first."""
        k = self.k
        places = [self.rows.frame.scratch("places", i32, self.rows.size) for _ in range(2)]
        fill_keys(self.rows, self.row, self.keys[0])
        is_narrow = wanted is not None and len(self.shifts) > 1
        if is_narrow:
            self.narrow(wanted, places[0])  # type: ignore[arg-type]
        self.count()
        for number in range(len(self.shifts)):
            source, goal = number % 2, (number + 1) % 2
            with k.loop(self.length) as i:
                key = k.load(self.keys[source], i)
                place = k.load(places[source], i) if number or is_narrow else k.cast(i, i32)
                where = self.take(number, key)
                if number == len(self.shifts) - 1:
                    put(self.row, where, k.cast(place, index))
                else:
                    k.store(self.keys[goal], where, key)
                    k.store(places[goal], where, place)
        return self.finish()

    def narrow(self, wanted: int, places: Buffer) -> None:
        """Leave those whose first digit is not beyond that of the last one wanted; `places` are
        where they stand.

        One by one and without a branch, in place: the next overwrites what was not wanted.
        """
        k, shift = self.k, self.high - WIDE_DIGIT
        counts = self.rows.frame.scratch("counts", i32, 1 << WIDE_DIGIT)
        clear(k, counts, 1 << WIDE_DIGIT)
        with k.loop(self.length) as i:
            count_one(
                k, counts, k.cast(self.digit(k.load(self.keys[0], i), shift, WIDE_DIGIT), index)
            )
        before, cut, found = k.local(0, i32), k.local(0, index), k.local(0, index)
        with k.loop(1 << WIDE_DIGIT) as value:
            cut.set(k.select(before.get() < wanted, value, cut.get()))
            before.set(before.get() + k.load(counts, value))
        last = cut.get()
        with k.loop(self.length) as i:
            key = k.load(self.keys[0], i)
            stays = k.cast(self.digit(key, shift, WIDE_DIGIT), index) <= last
            k.barrier()
            k.store(self.keys[0], found.get(), key)
            k.store(places, found.get(), k.cast(i, i32))
            found.set(found.get() + k.select(stays, k.index(1), k.index(0)))
        self.length = found.get()

    def values(self, out: Buffer) -> Launch:
        """Keys alone; elements are made from them again."""
        k, first = self.k, self.row * self.rows.length
        zeros = Zeros(self.rows)
        fill_keys(self.rows, self.row, self.keys[0], zeros)
        self.count()
        for number in range(len(self.shifts)):
            source, goal = number % 2, (number + 1) % 2
            with k.loop(self.rows.length) as i:
                key = k.load(self.keys[source], i)
                where = self.take(number, key)
                if number == len(self.shifts) - 1:
                    value = value_of(k, key, self.rows.dtype, self.rows.descending)
                    k.store(out, first + where, k.cast(value, self.rows.dtype))
                else:
                    k.store(self.keys[goal], where, key)
        k.barrier()
        zeros.mend(self.row, out, first)
        return self.finish()

    def finish(self) -> Launch:
        flops = self.rows.rows * self.rows.size * 8 * len(self.shifts)
        return self.rows.frame.finish(self.rows.rows, self.group, flops=flops)

    def count(self) -> None:
        """next[digit, value] = where the first element with this value goes."""
        k = self.k
        clear(k, self.next, len(self.shifts) << self.width)
        with k.loop(self.length) as i:
            key = k.load(self.keys[0], i)
            for number in range(len(self.shifts)):
                count_one(k, self.next, self.bucket(number, key))
        sums = [k.local(0, i32) for _ in self.shifts]
        with k.loop(1 << self.width, always=True) as value:
            for number, total in enumerate(sums):
                at = value + (number << self.width)
                here = k.load(self.next, at)
                k.barrier()
                k.store(self.next, at, total.get())
                total.set(total.get() + here)

    def bucket(self, number: int, key: Val) -> Val:
        shift = self.shifts[number]
        digit = self.digit(key, shift, min(self.width, self.high - shift))
        return self.k.cast(digit, index) + (number << self.width)

    def digit(self, key: Val, shift: int, count: int) -> Val:
        digit = (key >> shift) & ((1 << count) - 1)
        if shift + count == i64.bits:
            digit = digit ^ (1 << count - 1)  # these keys have a sign
        return digit

    def take(self, number: int, key: Val) -> Val:
        """Where this key goes; the next of its kind goes behind it."""
        return self.k.cast(count_one(self.k, self.next, self.bucket(number, key)), index)
