"""Lowering, sorting: rows put in order by integer keys that count as their elements do.

    up to 32 elements   a row a lane, in a sorting network; the position makes every key different, so it is stable
    longer rows         a row a workgroup, by its bytes, the lowest first (radix sort: time in proportion to the length)
    few of a long row   a sweep over the row for each, to find what comes next

Keys are u32 for types of up to 32 bits; i64, in the order of signed numbers, for f64 and i64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tetrad.core.dtypes import DType, bf16, bool_, f16, f32, f64, i8, i32, i64, index, u8, u32
from tetrad.core.sizes import Size, ceil_div, product
from tetrad.kernel.build import KernelBuilder, Val
from tetrad.kernel.nodes import Buffer
from tetrad.lower.frame import LANES, Frame
from tetrad.lower.index import Space
from tetrad.lower.launch import Launch
from tetrad.lower.reader import At
from tetrad.passes.fuse import Group

SHORT = 32  # elements of a row that a network sorts
PLACE_BITS = 5  # of positions in such a row
REGISTERS = (16, 8)  # elements that are sorted in registers: with keys of 32 bits, of 64
FEW = 16  # elements that are looked for one by one
BUCKETS = 256  # values of a byte
BIAS = 128  # makes the numbers of i8 positive
MIN32, MIN64 = -(1 << 31), -(1 << 63)
# the lowest bit of each byte that can differ in the keys of a type; halves are sorted as f32, whose low bits are equal
BYTES = {
    f32: range(0, 32, 8), f16: range(8, 32, 8), bf16: range(16, 32, 8), i32: range(0, 32, 8), u32: range(0, 32, 8),
    i8: range(1), u8: range(1), bool_: range(1), f64: range(0, 64, 8), i64: range(0, 64, 8),
}  # fmt: skip


# -- keys -------------------------------------------------------------------------------------------------------------


def key_of(k: KernelBuilder, x: Val, dtype: DType, descending: bool) -> Val:
    """The key of an element that is x in its computing type. NaN has the greatest; -0.0 comes before 0.0."""
    key = float_key(k, x) if dtype.is_float else int_key(k, x, dtype)
    return ~key if descending else key


def float_key(k: KernelBuilder, x: Val) -> Val:
    """Positive floats count as their bits do, negative ones backwards: all bits but the sign are turned."""
    whole = {f32: i32, f64: i64}[x.dtype]
    bits = k.bitcast(x, whole)
    ordered = bits ^ ((bits >> whole.bits - 1) & ~least(whole))
    ordered = k.select(x.ne(x), k.const(~least(whole), whole), ordered)
    return ordered if whole is i64 else k.bitcast(ordered ^ MIN32, u32)


def int_key(k: KernelBuilder, x: Val, dtype: DType) -> Val:
    if dtype is i64:
        return x
    if dtype is i32:
        return k.bitcast(x ^ MIN32, u32)
    return k.cast(x + BIAS if dtype is i8 else x, u32)


def value_of(k: KernelBuilder, key: Val, dtype: DType, descending: bool) -> Val:
    """The element, in its computing type, from its key."""
    key = ~key if descending else key
    if dtype in (i64, u32):
        return key
    if dtype in (u8, bool_):
        return k.cast(key, dtype)
    if dtype is i8:
        return k.cast(key, i32) - BIAS
    signed = key if key.dtype is i64 else k.bitcast(key, i32) ^ MIN32
    if not dtype.is_float:
        return signed
    turned = signed ^ ((signed >> signed.dtype.bits - 1) & ~least(signed.dtype))
    return k.bitcast(turned, f64 if dtype is f64 else f32)


def least(dtype: DType) -> int:
    return MIN64 if dtype is i64 else MIN32


# -- rows -------------------------------------------------------------------------------------------------------------


class Rows:
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

    def key(self, row: Val, place: Val, *, join_zeros: bool = True) -> Val:
        """The key of an element; with `join_zeros` -0.0 has that of 0.0."""
        x = self.frame.reading.wide(self.operand, self.at(row, place))
        return key_of(self.k, x + 0.0 if join_zeros and x.dtype.is_float else x, self.dtype, self.descending)


def lower_sort(frame: Frame, group: Group) -> Launch:
    rows, out = Rows(frame, group, group.root.param("descending")), frame.output(frame.memory.slots[group.root])
    k = frame.k

    def put(row: Val, where: Val, place: Val) -> None:
        k.store(out, row * rows.length + where, rows.read(row, place))

    if is_short(rows.size):
        return sort_short(rows, group, int(rows.size), put)  # type: ignore[arg-type]
    return RadixSort(rows, group).values(out)


def lower_argsort(frame: Frame, group: Group) -> Launch:
    rows, out = Rows(frame, group, group.root.param("descending")), frame.output(frame.memory.slots[group.root])
    k = frame.k

    def put(row: Val, where: Val, place: Val) -> None:
        k.store(out, row * rows.length + where, k.cast(place, i64))

    if is_short(rows.size):
        return sort_short(rows, group, int(rows.size), put)  # type: ignore[arg-type]
    return RadixSort(rows, group).places(put)


def lower_topk(frame: Frame, group: Group) -> Launch:
    node, k = group.root, frame.k
    rows, count = Rows(frame, group, node.param("largest")), int(node.param("k"))
    values, places = (frame.output(slot) for slot in frame.memory.results(node))

    def put(row: Val, where: Val, place: Val) -> None:
        k.store(values, row * count + where, rows.read(row, place))
        k.store(places, row * count + where, k.cast(place, i64))

    def put_some(row: Val, where: Val, place: Val) -> None:
        with k.when(where < count):
            put(row, where, place)

    if is_short(rows.size):
        return sort_short(rows, group, count, put)
    if count <= FEW:
        return find_few(rows, group, count, put)
    return RadixSort(rows, group).places(put_some)


Put = Callable[[Val, Val, Val], None]  # row, position in the result, position in the operand


def is_short(size: Size) -> bool:
    return isinstance(size, int) and size <= SHORT


# -- short rows -------------------------------------------------------------------------------------------------------


Item = tuple[Val, ...]  # a key and its position: in one i64 where they fit, else two values


def sort_short(rows: Rows, group: Group, count: int, put: Put) -> Launch:
    """A row a lane: keys with their positions go through a network. Elements are read and written in loops, and the
    exchanges of all but the shortest rows are in loops too: unrolled they would take seconds to compile."""
    k, size, total = rows.k, int(rows.size), rows.rows  # type: ignore[arg-type]
    row, in_registers = k.group_id() * LANES + k.lane(), size <= REGISTERS[is_wide(rows.dtype)]
    padded = size if in_registers else 1 << (size - 1).bit_length()
    items = Items(rows, padded)
    with rows.frame.within(row, rows.frame.sizes.val(total), total):
        with k.loop(size) as i:
            items.put(i, item_of(k, rows.key(row, i), i))
        with k.loop(padded, size) as i:
            items.put(i, item_of(k, greatest(k, rows.dtype), i))
        if in_registers:
            items.merge_exchange()
        else:
            items.bitonic()
        with k.loop(count) as i:
            put(row, i, k.cast(items.get(i)[-1] & (SHORT - 1), index))
    return rows.frame.finish(ceil_div(total, LANES), group, flops=total * padded * 8)


class Items:
    """The items of sixteen rows in scratch, one row a lane."""

    def __init__(self, rows: Rows, count: int) -> None:
        self.k, self.count = rows.k, count
        kinds = (i64, i32) if is_wide(rows.dtype) else (i64,)
        self.parts = [rows.frame.scratch("items", kind, count * LANES) for kind in kinds]

    def put(self, at: Val, item: Item) -> None:
        for buffer, part in zip(self.parts, item, strict=True):
            self.k.store(buffer, at * LANES + self.k.lane(), part)

    def get(self, at: Val) -> Item:
        return tuple(self.k.load(buffer, at * LANES + self.k.lane()) for buffer in self.parts)

    def merge_exchange(self) -> None:
        """All items in registers, any number of them."""
        items = [self.get(self.k.index(i)) for i in range(self.count)]
        for low, high in exchanges(self.count):
            items[low], items[high] = exchanged(self.k, items[low], items[high])
        for i, item in enumerate(items):
            self.put(self.k.index(i), item)

    def bitonic(self) -> None:
        """Batcher's other network, for powers of two: runs of `half` are merged by exchanging the first of one with
        the last of the next, and so on inwards; then items ever less apart."""
        for half in powers(self.count // 2):
            self.exchange(half, is_mirrored=True)
            for apart in reversed(powers(half // 2)):
                self.exchange(apart)

    def exchange(self, half: int, is_mirrored: bool = False) -> None:
        """In each block of 2 * half items, those of its halves put in order, pair by pair."""
        k = self.k
        with k.loop(self.count, 0, 2 * half) as block, k.loop(half) as i:
            low, high = block + i, block + (2 * half - 1) - i if is_mirrored else block + half + i
            for at, item in zip((low, high), exchanged(k, self.get(low), self.get(high)), strict=True):
                self.put(at, item)


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
    return dtype in (i64, f64)


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
    return tuple(k.select(swap, y, x) for x, y in both), tuple(k.select(swap, x, y) for x, y in both)


# -- few of a long row ------------------------------------------------------------------------------------------------


def find_few(rows: Rows, group: Group, count: int, put: Put) -> Launch:
    """One sweep for each: the least key, at its first position, of those that come after the one before."""
    k, row = rows.k, rows.k.group_id()
    keys = key_scratch(rows)
    fill_keys(rows, row, keys)
    none = greatest(k, rows.dtype)
    last, before = k.local(0, keys.dtype), k.local(-1, i32)
    with k.loop(count) as i:
        best, where = k.local(none), k.local(~MIN32, i32)
        with k.loop(rows.length, 0, LANES) as start, rows.frame.within(start + k.lane(), rows.length, rows.size):
            key, place = k.load(keys, start + k.lane()), k.cast(start + k.lane(), i32)
            comes = (key > last.get()) | (key.eq(last.get()) & (place > before.get())) | (before.get() < 0)
            wins = comes & ((key < best.get()) | where.get().eq(~MIN32))
            where.set(k.select(wins, place, where))
            best.set(k.select(wins, key, best))
        top = k.reduce_lanes("min", best)
        mine = k.select(best.get().eq(top), where, k.const(~MIN32, i32))
        last.set(top)
        before.set(k.reduce_lanes("min", mine))
        put(row, i, k.cast(before.get(), index))
    return rows.frame.finish(rows.rows, group, flops=rows.rows * rows.size * 6 * count)


def key_scratch(rows: Rows, stem: str = "keys") -> Buffer:
    return rows.frame.scratch(stem, i64 if is_wide(rows.dtype) else u32, rows.size)


def fill_keys(rows: Rows, row: Val, keys: Buffer, *, join_zeros: bool = True) -> None:
    k = rows.k
    with k.loop(rows.length, 0, LANES) as start, rows.frame.within(start + k.lane(), rows.length, rows.size):
        k.store(keys, start + k.lane(), rows.key(row, start + k.lane(), join_zeros=join_zeros))
    k.barrier()


# -- long rows --------------------------------------------------------------------------------------------------------


class RadixSort:
    """Byte by byte, the lowest first: elements with the same byte stay in order, so in the end all are in order.

    Everything but the making of keys is scalar. Where each byte's elements go is known from one count of all bytes.
    """

    def __init__(self, rows: Rows, group: Group) -> None:
        self.rows, self.k, self.group, self.row = rows, rows.k, group, rows.k.group_id()
        self.shifts = BYTES[rows.dtype]
        self.keys = [key_scratch(rows), key_scratch(rows)]
        self.next = rows.frame.scratch("next", i32, BUCKETS * len(self.shifts))

    def places(self, put: Put) -> Launch:
        """Keys are moved with the positions of their elements; the last byte gives the result."""
        k = self.k
        places = [self.rows.frame.scratch("places", i32, self.rows.size) for _ in range(2)]
        fill_keys(self.rows, self.row, self.keys[0])
        self.count()
        for number in range(len(self.shifts)):
            source, goal = number % 2, (number + 1) % 2
            with k.loop(self.rows.length) as i:
                key = k.load(self.keys[source], i)
                place = k.load(places[source], i) if number else k.cast(i, i32)
                where = self.take(number, key)
                if number == len(self.shifts) - 1:
                    put(self.row, where, k.cast(place, index))
                else:
                    k.store(self.keys[goal], where, key)
                    k.store(places[goal], where, place)
        return self.finish()

    def values(self, out: Buffer) -> Launch:
        """Keys alone; elements are made from them again."""
        k, first = self.k, self.row * self.rows.length
        fill_keys(self.rows, self.row, self.keys[0], join_zeros=False)
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
        if self.rows.dtype.is_float:
            self.mend_zeros(out, first)
        return self.finish()

    def finish(self) -> Launch:
        flops = self.rows.rows * self.rows.size * 8 * len(self.shifts)
        return self.rows.frame.finish(self.rows.rows, self.group, flops=flops)

    def count(self) -> None:
        """next[byte number, value] = where the first element with this value goes."""
        k = self.k
        with k.loop(BUCKETS * len(self.shifts), 0, LANES, always=True) as start:
            k.store(self.next, start + k.lane(), k.const(0, i32))
        k.barrier()
        with k.loop(self.rows.length) as i:
            key = k.load(self.keys[0], i)
            for number in range(len(self.shifts)):
                at = self.bucket(number, key)
                k.store(self.next, at, k.load(self.next, at) + 1)
        sums = [k.local(0, i32) for _ in self.shifts]
        with k.loop(BUCKETS, always=True) as value:
            for number, total in enumerate(sums):
                here = k.load(self.next, value + number * BUCKETS)
                k.store(self.next, value + number * BUCKETS, total.get())
                total.set(total.get() + here)

    def bucket(self, number: int, key: Val) -> Val:
        k, shift = self.k, self.shifts[number]
        byte = (key >> shift) & (BUCKETS - 1)
        if key.dtype is i64 and shift == 56:
            byte = byte ^ (BUCKETS // 2)  # these keys have a sign
        return k.cast(byte, index) + number * BUCKETS

    def take(self, number: int, key: Val) -> Val:
        """Where this key goes; the next of its kind goes behind it."""
        k, at = self.k, self.bucket(number, key)
        where = k.load(self.next, at)
        k.store(self.next, at, where + 1)
        return k.cast(where, index)

    def mend_zeros(self, out: Buffer, first: Val) -> None:
        """Zeros of both signs are equal, but their keys are not: written again in the order they came in."""
        k, rows = self.k, self.rows
        signs = [k.local(False, bool_) for _ in range(2)]
        with k.loop(rows.length, 0, LANES) as start, rows.frame.within(start + k.lane(), rows.length, rows.size):
            x = self.element(start + k.lane())
            is_negative = k.copysign(k.const(1.0, x.dtype), x) < 0.0
            signs[0].set(signs[0].get() | (x.eq(0.0) & is_negative))
            signs[1].set(signs[1].get() | (x.eq(0.0) & ~is_negative))
        with k.when(k.any(signs[0].get()) & k.any(signs[1].get())):
            where = k.local(first)
            with k.loop(rows.length) as i:
                x = self.element(i)
                before = (x > 0.0) | x.ne(x) if rows.descending else x < 0.0
                where.set(where.get() + k.select(before, k.index(1), k.index(0)))
            with k.loop(rows.length) as i, k.when(self.element(i).eq(0.0)):
                k.store(out, where.get(), rows.read(self.row, i))
                where.set(where.get() + 1)

    def element(self, place: Val) -> Val:
        return self.rows.frame.reading.wide(self.rows.operand, self.rows.at(self.row, place))
