"""Kernels on low-bit weights: an interleaved weight inside a kernel, a row in each lane.

One reader for every format: what a format is comes from `quant.lanes` as data. For each block of 32
columns the codes of sixteen weight rows are put together from their planes, beside their factors.
"""

from __future__ import annotations

from tetrad.core.dtypes import f16, f32, i8, i32, u8, u32
from tetrad.core.machine import LANES
from tetrad.core.record import record
from tetrad.core.sizes import plain
from tetrad.graph.nodes import Node
from tetrad.kernel.build import KernelBuilder, Val
from tetrad.loopnest.frame import Frame
from tetrad.quant.lanes import WORDS, lanes_of

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
