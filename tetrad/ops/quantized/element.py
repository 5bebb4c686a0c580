"""Kernels on low-bit weights: one number of an interleaved weight, anywhere.

For products of other types than f32, which read the weight element by element; `ops.quantized.
weight` reads sixteen rows at once. The numbers are the same, to the bit.
"""

from __future__ import annotations

from tetrad.core.dtypes import f16, f32, i8, i32, index, u8, u16, u32
from tetrad.core.record import record
from tetrad.core.sizes import plain
from tetrad.kernel.build import KernelBuilder, Val
from tetrad.kernel.elements import table_entry
from tetrad.kernel.nodes import Buffer
from tetrad.loopnest.reader import At, Operand
from tetrad.ops.quantized.weight import power_of_two
from tetrad.quant.lanes import BLOCK, ROWS, WORD, Lanes, lanes_of


def element(k: KernelBuilder, at: At, w: Operand) -> Val:
    """The number at [row, column], f32."""
    place = place_of(k, at, w)
    value = place.code() * place.factor(0)
    return value + place.factor(1) if place.lanes.has_mins else value


def place_of(k: KernelBuilder, at: At, w: Operand) -> ElementPlace:
    lanes, (row, column) = lanes_of(w.dtype), at
    supers = plain(w.shape[1]) // lanes.format.block
    head = (row // ROWS * supers + column // lanes.format.block) * lanes.super_bytes
    block = column % lanes.format.block // BLOCK
    start = head + lanes.head_bytes + block * lanes.block_bytes
    return ElementPlace(k, lanes, w.reading.buffers[w.node], head, start, row % ROWS, column)


@record(eq=False)
class ElementPlace:
    """Where an element lies: its super-block and its block begin at these bytes."""

    k: KernelBuilder
    lanes: Lanes
    bytes: Buffer
    head: Val
    start: Val
    row: Val  # of sixteen
    column: Val

    def code(self) -> Val:
        """What the code stands for before it is scaled, f32."""
        k, lanes = self.k, self.lanes
        stored = self.stored()
        if lanes.table:
            return table_entry(k, stored, [k.const(float(v), f32) for v in lanes.signed_table])
        flip = lanes.format.flip
        return k.cast(k.bitcast(stored ^ flip if flip else stored, i32) - lanes.offset, f32)

    def stored(self) -> Val:
        """The code as the file has it, put together from the planes."""
        word, byte = self.column % BLOCK // WORD, self.column % WORD
        found, first = self.k.const(0, u32), 0
        for which, bits in enumerate(self.lanes.bits):
            line = (word % bits + first) * (ROWS * WORD)
            part = self.load(self.start + line + self.row * WORD + byte)
            shift = self.k.cast(word // bits * bits, u32)
            found = found | ((part >> shift) & ((1 << bits) - 1)) << self.lanes.shift_of(which)
            first += bits
        return found

    def factor(self, side: int) -> Val:
        """The scale (side 0) or what is added (side 1), f32."""
        k, lanes = self.k, self.lanes
        sub = self.column % BLOCK // lanes.format.sub_block + side * lanes.sub_blocks
        at = self.start + lanes.code_bytes + sub * (ROWS * lanes.scale_bytes)
        if not lanes.factors:
            return self.number(at + self.row * lanes.factor_bytes)
        whole = self.number(self.head + (self.row + side * ROWS) * lanes.factor_bytes)
        if lanes.format.levels is None:
            return whole
        level = k.cast(self.load(at + self.row), u8)
        signed = k.cast(k.bitcast(level, i8) if lanes.format.levels.has_signs else level, i32)
        return whole * k.cast(signed, f32)

    def number(self, at: Val) -> Val:
        """A factor at a byte, f32."""
        k = self.k
        if self.lanes.kind == "e8m0":
            return power_of_two(k, k.cast(self.load(at), u8))
        bits = self.load(at)
        for i in range(1, self.lanes.factor_bytes):
            bits = bits | self.load(at + i) << 8 * i
        if self.lanes.kind == "f32":
            return k.bitcast(bits, f32)
        return k.cast(k.bitcast(k.cast(bits, u16), f16), f32)

    def load(self, at: Val) -> Val:
        """A byte, u32."""
        return self.k.cast(self.k.load(self.bytes, self.k.cast(at, index)), u32)
