"""Lowering, weights laid out for the low-bit kernels: sixteen rows of a block format become sixteen lanes.

One generator for every format; `quant` says as data where bits lie in the file and where they go (`quant.lanes`). A
workgroup takes sixteen rows, a lane is a row; rows past the last one come out as blocks of zero bytes.
"""

from __future__ import annotations

from tetrad.core.dtypes import DType, index, u8, u16, u32
from tetrad.core.sizes import Size, ceil_div, product
from tetrad.graph.nodes import Node
from tetrad.kernel.build import Val
from tetrad.kernel.nodes import Buffer
from tetrad.lower.frame import LANES, Frame
from tetrad.lower.launch import Launch
from tetrad.ops.interleave import LINE
from tetrad.passes.fuse import Group
from tetrad.quant.fields import Plane
from tetrad.quant.lanes import LANES as LAYOUTS
from tetrad.quant.lanes import WORDS, Lanes

LONG = 64  # units: above this, gathers take a second to compile (q6_k)
BYTES = 0x01010101  # a number in each byte of a word
SPREAD = 0x00204081  # times four bits: each stands in the lowest place of a byte of its own


def lower_interleave(frame: Frame, group: Group) -> Launch:
    node, k = group.root, frame.k
    _, raw, order, _ = node.inputs
    lanes, (rows, blocks, _) = LAYOUTS[node.param("format")], raw.type.shape
    source, result = Source(frame, node, lanes), Result(frame, node, lanes)
    with k.loop(frame.sizes.val(blocks)) as b:
        source.begin_block(b)
        result.begin_super(b)
        copy_factors(source, result)
        for i in range(lanes.blocks):
            result.begin_block(i)
            copy_codes(source, result, i)
            copy_scales(source, result, i)
    updates = frozenset({frame.memory.slots[node]})
    groups = ceil_div(order.type.shape[0], LANES)
    return frame.finish(groups, group, flops=work(rows, blocks, lanes), updates=updates)


def work(rows: Size, blocks: Size, lanes: Lanes) -> Size:
    """About an operation a byte: enough for the schedule to see when several threads pay."""
    return product((rows, blocks, lanes.format.nbytes))


class Source:
    """Rows as the file has them: reads at a byte of the current block, one row a lane.

    Blocks begin at multiples of 4 bytes or of 2, so they are read in such units. Short blocks are gathered where they
    lie. For long ones that would be much code: they are turned in scratch, where a unit of sixteen rows is one load.
    """

    def __init__(self, frame: Frame, node: Node, lanes: Lanes) -> None:
        self.frame, self.k, self.lanes = frame, frame.k, lanes
        _, raw, self.order, _ = node.inputs
        self.unit = u32 if lanes.format.nbytes % u32.nbytes == 0 else u16
        self.units = lanes.format.nbytes // self.unit.nbytes
        self.memory = frame.view(frame.memory.slots[raw], self.unit)
        self.area = frame.scratch("turned", self.unit, self.units * LANES) if self.units >= LONG else None
        self.rows, self.blocks = (frame.sizes.val(size) for size in raw.type.shape[:2])
        self.count = frame.sizes.val(self.order.type.shape[0])
        self.is_row = self.position(self.k.lane()) < self.count
        self.row = self.row_at(self.k.lane())
        frame.reading.trap(node, raw, (self.row < 0) | (self.row >= self.rows), self.row)

    def position(self, lane: Val) -> Val:
        return self.k.group_id() * LANES + lane

    def row_at(self, lane: Val) -> Val:
        """The row that a lane takes; past the last one, the last again."""
        at = self.k.min(self.position(lane), self.count - 1)
        return self.k.cast(self.frame.reading.wide(self.order, (at,)), index)

    def begin_block(self, block: Val) -> None:
        self.block, self.loaded = block, dict[int, Val]()
        if self.area is not None:
            self.turn(self.area)

    def turn(self, area: Buffer) -> None:
        """area[unit][row] = the block's units, row after row; the last vector overlaps the one before."""
        k = self.k
        k.barrier()
        with k.loop(LANES) as r:
            start = (self.row_at(r) * self.blocks + self.block) * self.units
            for first in (*range(0, self.units - LANES, LANES), self.units - LANES):
                k.store(area, (first + k.lane()) * LANES + r, k.load(self.memory, start + first + k.lane()))
        k.barrier()

    def load(self, unit: int) -> Val:
        """A unit of the block, as u32; 0 in lanes past the last row."""
        if unit not in self.loaded:
            k = self.k
            here = self.row * (self.blocks * self.units) + (self.block * self.units + unit)
            found = k.load(self.memory, here) if self.area is None else k.load(self.area, unit * LANES + k.lane())
            self.loaded[unit] = k.select(self.is_row, k.cast(found, u32), k.const(0, u32))
        return self.loaded[unit]

    def part(self, at: int, kind: DType) -> Val:
        """A byte or a half."""
        unit, inside = divmod(at, self.unit.nbytes)
        found = self.load(unit)
        return found if kind is self.unit else found >> 8 * inside & (1 << kind.bits) - 1

    def word(self, at: int) -> Val:
        """Four bytes."""
        if self.unit is u32:
            return self.load(at // 4)
        return self.load(at // 2) | self.load(at // 2 + 1) << 16

    def field(self, plane: Plane, first: int) -> tuple[Val, int]:
        """Four neighbouring codes' bits of a plane, one in each byte, and the place in the byte where they begin."""
        per_byte = 8 // plane.bits
        if plane.run == 1:  # neighbours share a byte
            start = first % 32
            bits = (self.word(plane.start + first // 32 * 4) >> start) & 15
            return bits * SPREAD & BYTES, 0
        run, inside = divmod(first, plane.run * per_byte)
        at = plane.start + run * plane.run + inside % plane.run
        return self.word(at), inside // plane.run * plane.bits


class Result:
    """The interleaved weight: writes one unit a lane, one after the other, to the current block."""

    def __init__(self, frame: Frame, node: Node, lanes: Lanes) -> None:
        self.k, self.lanes = frame.k, lanes
        k, (target, raw, order, start) = frame.k, node.inputs
        slot = frame.memory.slots[node]
        self.views = {kind: frame.view(slot, kind, "readwrite") for kind in (u8, u16, u32)}
        blocks, groups = frame.sizes.val(raw.type.shape[1]), frame.sizes.val(ceil_div(order.type.shape[0], LANES))
        first = k.cast(frame.reading.wide(start, ()), index)
        end = first * LINE + groups * blocks * lanes.super_bytes
        frame.reading.trap(node, target, (first < 0) | (end > frame.sizes.val(target.type.shape[0]) * LINE), first)
        self.start = first * LINE + k.group_id() * (blocks * lanes.super_bytes)

    def begin_super(self, block: Val) -> None:
        self.begin, self.at = self.start + block * self.lanes.super_bytes, 0

    def begin_block(self, i: int) -> None:
        self.at = self.lanes.head_bytes + i * self.lanes.block_bytes

    def store(self, kind: DType, value: Val) -> None:
        k, size = self.k, kind.nbytes
        where = self.begin // size + self.at // size + k.lane()
        k.store(self.views[kind], where, k.cast(value, kind))
        self.at += LANES * size


def copy_factors(source: Source, result: Result) -> None:
    """The f16 factors of a super-block; that of the mins is negated."""
    for i, at in enumerate(source.lanes.source.factors):
        half = source.part(at, u16)
        result.store(u16, half ^ 0x8000 if i else half)


def copy_codes(source: Source, result: Result, block: int) -> None:
    lanes = source.lanes
    for which, bits in enumerate(lanes.bits):
        plane = next(p for p in lanes.format.planes if (p.shift, p.bits) == (lanes.shift_of(which), bits))
        for j in range(bits):
            result.store(u32, plane_word(source, plane, block, j))


def plane_word(source: Source, plane: Plane, block: int, j: int) -> Val:
    """Word j of a plane: in each byte, from the lowest bits up, the codes of the words j, j + bits, j + 2 bits, ..."""
    k, bits = source.k, plane.bits
    total = k.const(0, u32)
    for place, w in enumerate(range(j, WORDS, bits)):
        word, begin = source.field(plane, (block * WORDS + w) * 4)
        shift = place * bits - begin
        moved = word << shift if shift > 0 else word >> -shift if shift < 0 else word
        total = total | moved & ((((1 << bits) - 1) << place * bits) * BYTES)
    flip = (source.lanes.format.flip >> plane.shift & (1 << bits) - 1) * BYTES
    return total ^ flip if flip else total


def copy_scales(source: Source, result: Result, block: int) -> None:
    """The scales of a block's sub-blocks, then their mins."""
    lanes, places = source.lanes, source.lanes.source
    kind, first = (u8 if lanes.supers else u16), block * lanes.sub_blocks
    for side, start in enumerate((places.scale, places.low)):
        for sub in range(first, first + lanes.sub_blocks):
            if places.has_pairs:
                result.store(kind, six_bits(source, side, sub))
            elif start is not None:
                result.store(kind, source.part(start + sub * kind.nbytes, kind))


def six_bits(source: Source, side: int, sub: int) -> Val:
    """Scale or min of a sub-block out of the twelve bytes that `quant.fields.read_six_bit_pairs` describes."""
    start = source.lanes.source.scale
    word = source.word(start + 4 * side)
    if sub < 4:
        return word >> 8 * sub & 63
    low = source.word(start + 8) >> (8 * (sub - 4) + 4 * side)
    return low & 15 | word >> (8 * (sub - 4) + 2) & 48
