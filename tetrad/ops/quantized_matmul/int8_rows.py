"""Lowering, low-bit products: rows in 8 bits times an interleaved weight, for any number of rows
and any format.

One generator for every format: what a format is comes from `quant.lanes` as data. A lane is a row
of the weight. For each block of 32 columns the codes of sixteen weight rows are put together from
their planes once and multiplied with as many rows of x as the target's registers hold; the order of
the sum is that of `ops.quantized_matmul.op`, whatever the tile.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from itertools import islice
from operator import add
from typing import Protocol

from tetrad.core.dtypes import f16, f32, i8, i32, index, u8, u32
from tetrad.core.machine import LANES
from tetrad.core.record import record
from tetrad.core.sizes import plain, product
from tetrad.graph.group import Group
from tetrad.graph.nodes import Node
from tetrad.kernel.build import KernelBuilder, LocalVar, Val
from tetrad.loopnest.frame import Frame
from tetrad.ops.quantized_matmul.op import SCALE_OF_TOP, SMALLEST
from tetrad.quant.lanes import BLOCK, FIELDS, WORDS, lanes_of
from tetrad.schedule.nodes import Launch

Place = tuple[Val, int]  # a row of x, and the block its term begins with
ROUNDER, ROUNDER_BITS = 1.5 * 2**23, 0x4B400000
SCALE, SUM, WHOLE, HALF = range(FIELDS)  # of a block of x, beside its codes
HELD_IN = {"f16": f16, "f32": f32, "e8m0": u8}  # the kinds of factors


class Weight:
    """An interleaved weight inside a kernel: the codes and factors of sixteen rows, one a lane."""

    def __init__(self, frame: Frame, node: Node) -> None:
        self.k, self.lanes = frame.k, lanes_of(node.type.dtype)
        slot, levels = frame.memory.slots[node], self.lanes.format.levels
        self.words, self.factors = frame.view(slot, u32), frame.view(slot, HELD_IN[self.lanes.kind])
        self.levels = None if levels is None else frame.view(slot, i8 if levels.has_signs else u8)
        self.supers = plain(node.type.shape[1]) // self.lanes.format.block

    def group(self, index: Val) -> Val:
        """The byte at which a group of sixteen rows begins."""
        return index * (self.supers * self.lanes.super_bytes)

    def block(self, group: Val, block: Val) -> Block:
        lanes = self.lanes
        if lanes.blocks == 1:
            return Block(self, group, group + block * lanes.super_bytes)
        head = group + (block // lanes.blocks) * lanes.super_bytes
        return Block(
            self, head, head + lanes.head_bytes + (block % lanes.blocks) * lanes.block_bytes
        )


@record
class Block:
    """32 columns of sixteen rows: where its super-block and itself begin, in bytes."""

    weight: Weight
    head: Val
    start: Val

    def codes(self, w: int) -> Val:
        """What four codes stand for, plus an offset so that it is not negative: word w of the
        block."""
        lanes = self.weight.lanes
        if lanes.table:
            return self.weight.k.lookup(self.stored(w), lanes.table)
        flip = lanes.format.flip * 0x01010101
        return self.stored(w) ^ flip if flip else self.stored(w)

    def signed(self, w: int) -> Val:
        """The same without the offset, signed bytes: entries of the code book, or codes of 8 bits
        as they are."""
        table = self.weight.lanes.signed_table
        return self.weight.k.lookup(self.stored(w), table) if table else self.stored(w)

    def stored(self, w: int) -> Val:
        """Four codes as the file has them, put together from the planes."""
        k, lanes = self.weight.k, self.weight.lanes
        found: Val | None = None
        at = 0
        for which, bits in enumerate(lanes.bits):
            part = self.word(at + w % bits)
            at += bits
            if bits < 8:
                shift = lanes.shift_of(which) - w // bits * bits
                mask = k.const(((1 << bits) - 1 << lanes.shift_of(which)) * 0x01010101, u32)
                part = (part << shift if shift > 0 else part >> -shift) & mask
            found = part if found is None else found | part
        if found is None:
            raise TypeError(f"{lanes.name} has no codes")
        return found

    def word(self, index: int) -> Val:
        k = self.weight.k
        return k.load(self.weight.words, (self.start // 4) + index * LANES + k.lane())

    def factor(self, side: int, sub: int) -> Val:
        """The scale (side 0) or what is added (side 1) of a sub-block, f32."""
        k, weight, lanes = self.weight.k, self.weight, self.weight.lanes
        at = (
            self.start
            + lanes.code_bytes
            + LANES * lanes.scale_bytes * (side * lanes.sub_blocks + sub)
        )
        if not lanes.factors:
            return self.number(at // lanes.factor_bytes)
        whole = self.number(self.head // lanes.factor_bytes + side * LANES)
        if weight.levels is None:
            return whole
        return whole * k.cast(k.cast(k.load(weight.levels, at + k.lane()), i32), f32)

    def number(self, at: Val) -> Val:
        """The factors of sixteen rows, f32."""
        k, weight = self.weight.k, self.weight
        found = k.load(weight.factors, at + k.lane())
        return power_of_two(k, found) if weight.lanes.kind == "e8m0" else k.cast(found, f32)

    def numbers(self) -> list[Val]:
        """What the codes of the 32 columns stand for, f32."""
        k, lanes = self.weight.k, self.weight.lanes
        found = []
        for w in range(WORDS):
            word, sub = self.codes(w), w * 4 // lanes.format.sub_block
            for byte in range(4):
                code = k.bitcast((word >> 8 * byte) & 255, i32) - lanes.offset
                value = k.cast(code, f32) * self.factor(0, sub)
                found.append(value + self.factor(1, sub) if lanes.has_mins else value)
        return found


def power_of_two(k: KernelBuilder, e: Val) -> Val:
    """2**(e - 128) of a byte, as `quant.fields.power_of_two` has it."""
    wide = k.cast(e, u32)
    return k.bitcast(
        k.select(wide < 2, k.const(0x00200000, u32) << (wide & 1), (wide - 1) << 23), f32
    )


class Codes(Protocol):
    """What a product needs of 32 columns of sixteen rows, wherever they are."""

    def codes(self, w: int) -> Val: ...

    def signed(self, w: int) -> Val: ...

    def factor(self, side: int, sub: int) -> Val: ...


class Rows:
    """Rows in 8 bits inside a kernel."""

    def __init__(self, frame: Frame, node: Node) -> None:
        slot = frame.memory.slots[node]
        self.k, self.columns = frame.k, plain(node.type.shape[1])
        self.words, self.floats = frame.view(slot, u32), frame.view(slot, f32)
        self.blocks = self.columns // BLOCK
        self.pitch = self.blocks * (WORDS + FIELDS)  # words of a row

    def word(self, row: Val, block: Val, index: int) -> Val:
        return self.k.load(self.words, row * self.pitch + block * WORDS + index)

    def field(self, row: Val, block: Val, which: int) -> Val:
        return self.k.load(
            self.floats, row * self.pitch + self.blocks * WORDS + block * FIELDS + which
        )


class Sums:
    """Rows of x times sixteen rows of a weight, in the order that is the meaning of every low-bit
    product."""

    def __init__(self, frame: Frame, x: Node, w: Node) -> None:
        self.k, machine = frame.k, frame.memory.machine
        self.x, self.weight = Rows(frame, x), Weight(frame, w)
        self.is_signed = self.weight.lanes.top > 128 and not machine.dots_mixed_bytes

    def run(self, group: Val, rows: list[Val], terms: int = 1) -> list[Val]:
        """The products of some rows of x with a group of sixteen rows of the weight, one a lane."""
        k, blocks = self.k, self.x.blocks // terms
        places = [(row, t * blocks) for row in rows for t in range(terms)]
        accs = [k.local(0.0, f32) for _ in places]
        start = self.weight.group(group)
        with k.loop(blocks) as b:
            self.run_block(self.weight.block(start, b), b, places, accs)
        sums = iter([acc.get() for acc in accs])
        return [reduce(add, islice(sums, terms)) for _ in rows]

    def run_block(self, block: Codes, b: Val, places: list[Place], accs: list[LocalVar]) -> None:
        k, lanes = self.k, self.weight.lanes
        for sub in range(lanes.sub_blocks):
            dots = self.dots(block, b, places, sub)
            scale = block.factor(0, sub)
            low = block.factor(1, sub) if lanes.has_mins else None
            for (row, first), acc, dot in zip(places, accs, dots, strict=True):
                total = k.fma(scale * self.x.field(row, b + first, SCALE), dot, acc)
                acc.set(
                    total
                    if low is None
                    else k.fma(low, self.scaled_sum(row, b + first, sub), total)
                )

    def dots(self, block: Codes, b: Val, places: list[Place], sub: int) -> list[Val]:
        """The exact dot of (code - offset) with each row of x over a sub-block. Word by word: few
        are held at once."""
        k, lanes, per = self.k, self.weight.lanes, WORDS // self.weight.lanes.sub_blocks
        most = 128 if self.is_signed else lanes.top
        dots = [k.const(0, i32) for _ in places]
        for w in lanes.word_order(range(sub * per, (sub + 1) * per)):
            code = block.signed(w) if self.is_signed else block.codes(w)
            words = [self.x.word(row, b + first, w) for row, first in places]
            dots = [
                k.dot4(dot, code, x, most, signed=self.is_signed)
                for dot, x in zip(dots, words, strict=True)
            ]
        found = [dot.cast(f32) for dot in dots]
        if self.is_signed or lanes.offset == 0:
            return found
        sums, offset = (
            [self.sum_of(row, b + first, sub) for row, first in places],
            -float(lanes.offset),
        )
        # exact: all below 2**24
        return [k.fma(offset, total, dot) for dot, total in zip(found, sums, strict=True)]

    def sum_of(self, row: Val, b: Val, sub: int) -> Val:
        """The sum of the codes of x in a sub-block of its block b."""
        if self.weight.lanes.sub_blocks == 1:
            return self.x.field(row, b, WHOLE)
        half = self.x.field(row, b, HALF)
        return half if sub == 0 else self.x.field(row, b, WHOLE) - half

    def scaled_sum(self, row: Val, b: Val, sub: int) -> Val:
        """What the codes of x in a sub-block of its block b stand for, added up."""
        if self.weight.lanes.sub_blocks == 1:
            return self.x.field(row, b, SUM)
        return self.x.field(row, b, SCALE) * self.sum_of(row, b, sub)


# -- rows of x -------------------------------------------------------------------------------------


def lower_quantize_rows(frame: Frame, group: Group) -> Launch:
    """One row a workgroup, 32 columns at a time in two vectors."""
    node, k = group.root, frame.k
    x, terms = node.inputs[0], int(dict(node.params).get("terms", 1))
    blocks = plain(x.type.shape[1]) // BLOCK
    slot = frame.memory.slots[node]
    codes, floats = (frame.view(slot, kind, "write") for kind in (i8, f32))
    row = k.group_id()
    base = row * (terms * blocks * (WORDS + FIELDS))
    with k.loop(blocks) as first:
        halves = [
            frame.reading.read(x, (row, first * BLOCK + LANES * h + k.lane())) for h in range(2)
        ]
        for b in (first + t * blocks for t in range(terms)):
            quantized, scale, whole, half = quantize_block(k, halves)
            for h, code in enumerate(quantized):
                k.store(codes, base * 4 + b * BLOCK + h * LANES + k.lane(), k.cast(code, i8))
            at = base + terms * blocks * WORDS + b * FIELDS
            for which, value in enumerate((scale, scale * whole, whole, half)):
                k.store(floats, at + which, value)
            halves = [
                h - k.cast(code, f32) * scale for h, code in zip(halves, quantized, strict=True)
            ]
    return frame.finish(x.type.shape[0], group, flops=product(x.type.shape) * 4 * terms)


def quantize_block(k: KernelBuilder, halves: list[Val]) -> tuple[list[Val], Val, Val, Val]:
    """Codes (i32), scale, and the sums of all codes and of those of the first half (f32).

    Magnitudes are compared as integers, which orders floats alike and puts NaN on top. Adding 1.5 *
    2**23 leaves the number rounded to even in the low bits; whatever does not fit is cut off
    afterwards.
    """
    sizes = [k.bitcast(k.abs(h), i32) for h in halves]
    top = k.bitcast(k.broadcast(butterfly(k, k.max(sizes[0], sizes[1]), k.max, (8, 4, 2, 1))), f32)
    inverse = k.select(top < SMALLEST, k.const(0.0, f32), k.const(127.0, f32) / top)
    scale = k.select(top < float("inf"), top * SCALE_OF_TOP, k.const(float("nan"), f32))
    codes = [k.bitcast(h * inverse + ROUNDER, i32) - ROUNDER_BITS for h in halves]
    codes = [k.max(k.min(c, 127), -127) for c in codes]
    both = k.select(
        k.lane() < LANES // 2, *(butterfly(k, c, lambda a, b: a + b, (8,)) for c in codes)
    )
    sums = butterfly(k, both, lambda a, b: a + b, (4, 2, 1))
    half = k.broadcast(sums, 0)
    return codes, scale, k.cast(half + k.broadcast(sums, LANES // 2), f32), k.cast(half, f32)


def butterfly(
    k: KernelBuilder, x: Val, join: Callable[[Val, Val], Val], steps: tuple[int, ...]
) -> Val:
    """Each lane joined with the one whose number differs in one bit, bit by bit."""
    for step in steps:
        x = join(x, k.shuffle(x, x, tuple(i ^ step for i in range(LANES))))
    return x


# -- rows of a weight ------------------------------------------------------------------------------


def lower_lowbit_rows(frame: Frame, group: Group) -> Launch:
    """Row t of the result is row indices[t] of the weight: a workgroup takes a block of 32 columns
    of one row.

    The sixteen rows a block holds are all decoded into scratch, and the wanted one is stored from
    there.
    """
    node, k = group.root, frame.k
    w, indices = node.inputs
    weight = Weight(frame, w)
    out = frame.output(frame.memory.slots[node])
    rows, columns = node.type.shape
    blocks = plain(columns) // BLOCK
    t, b = k.group_id() // blocks, k.group_id() % blocks
    row = k.cast(frame.reading.wide(indices, (t,)), index)
    size = frame.sizes.val(w.type.shape[0])
    frame.reading.trap(node, w, (row < 0) | (row >= size), row)
    block = weight.block(weight.group(row // LANES), b)
    area = frame.scratch("block", f32, BLOCK * LANES)
    for i, number in enumerate(block.numbers()):
        k.store(area, i * LANES + k.lane(), number)
    k.barrier()
    for h in range(BLOCK // LANES):
        lane = h * LANES + k.lane()
        k.store(
            out,
            t * frame.sizes.val(columns) + b * BLOCK + lane,
            k.load(area, lane * LANES + row % LANES),
        )
    return frame.finish(product((rows, blocks)), group, flops=product((rows, columns)) * 2)
