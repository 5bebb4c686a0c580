"""Kernels of weights laid out for the low-bit kernels: sixteen rows of a block format become
sixteen lanes.

One generator for every format; `quant` says as data where bits lie in the file and where they go
(`quant.lanes`). A workgroup takes sixteen rows, a lane is a row.
"""

from __future__ import annotations

from functools import reduce
from operator import or_

from tetrad.core.dtypes import DType, index, u8, u16, u32
from tetrad.core.machine import LANES
from tetrad.graph.group import Group
from tetrad.graph.nodes import Node
from tetrad.kernel.build import Val
from tetrad.kernel.nodes import Buffer
from tetrad.loopnest.frame import Frame
from tetrad.loopnest.transpose import turned
from tetrad.ops.weight_layout.op import interleave
from tetrad.quant.fields import Levels, Plane, SixBitPairs
from tetrad.quant.lanes import LANES as LAYOUTS
from tetrad.quant.lanes import LINE, REST, WORDS, Lanes
from tetrad.schedule.nodes import Launch

# operations of a group, about: enough for the schedule to see when several threads pay
WORK = 1 << 15
BYTES = 0x01010101  # a number in each byte of a word
SPREAD = 0x00204081  # times four bits: each stands in the lowest place of a byte of its own


@interleave.kernel
def lower_interleave(frame: Frame, group: Group) -> Launch:
    node, k = group.root, frame.k
    lanes = LAYOUTS[node.param("format")]
    blocks = k.cast(frame.reading.wide(node.inputs[4], ()), index)
    source, result = BlockRows(frame, node, lanes, blocks), Result(frame, node, lanes, blocks)
    with k.loop(blocks) as b:
        source.begin_block(b)
        result.begin_super(b)
        copy_factors(source, result)
        for i in range(lanes.blocks):
            result.begin_block(i)
            copy_codes(source, result, i)
            copy_scales(source, result, i)
        copy_rest(source, result)
    groups = node.inputs[3].type.shape[0]
    updates = frozenset({frame.memory.slots[node]})
    return frame.finish(groups, group, flops=groups * WORK, updates=updates)


class BlockRows:
    """Rows as the file has them: reads at a byte of the current block, one row a lane.

    Blocks begin at multiples of 4 bytes, of 2 or of 1, so they are read in such units. Blocks of
    fewer than sixteen are gathered where they lie; others are turned in scratch, sixteen units of
    sixteen rows at a time, so that a unit of all rows is one load: quicker to run, and far less
    code.
    """

    def __init__(self, frame: Frame, node: Node, lanes: Lanes, blocks: Val) -> None:
        self.frame, self.k, self.lanes = frame, frame.k, lanes
        _, raw, self.starts, _, _ = node.inputs
        self.unit = UNITS[lanes.unit_bytes]
        self.units = lanes.format.nbytes // self.unit.nbytes
        self.memory = frame.view(frame.memory.slots[raw], self.unit)
        self.area = (
            frame.scratch("turned", self.unit, self.units * LANES) if self.units >= LANES else None
        )
        start = self.start_of(self.k.lane())
        first = self.k.max(start, 0)
        is_beyond = first + blocks * lanes.format.nbytes > frame.sizes.val(raw.type.shape[0])
        frame.reading.trap(
            node, raw, (start < -1) | is_beyond | (first % self.unit.nbytes).ne(0), start
        )
        self.is_row, self.first = start >= 0, self.first_unit(start)
        self.firsts = [self.first_unit(self.start_of(self.k.index(r))) for r in range(LANES)]

    def start_of(self, lane: Val) -> Val:
        """The byte where the row of a lane begins, -1 where there is none."""
        return self.k.cast(self.frame.reading.wide(self.starts, (self.k.group_id(), lane)), index)

    def first_unit(self, start: Val) -> Val:
        return self.k.max(start, 0) // self.unit.nbytes

    def begin_block(self, block: Val) -> None:
        self.block, self.loaded = block, dict[int, Val]()
        if self.area is not None:
            self.turn(self.area)

    def turn(self, area: Buffer) -> None:
        """area[unit][row] = the units of the block, in tiles of 16 x 16; the last tile overlaps the
        one before."""
        k = self.k
        k.barrier()
        with k.loop(-(-self.units // LANES)) as tile:
            unit = k.min(tile * LANES, self.units - LANES)
            here = self.block * self.units + unit + k.lane()
            for i, vector in enumerate(
                turned(k, [k.load(self.memory, first + here) for first in self.firsts])
            ):
                k.store(area, (unit + i) * LANES + k.lane(), vector)
        k.barrier()

    def load(self, unit: int) -> Val:
        """A unit of the block, as u32; 0 in lanes without a row."""
        if unit not in self.loaded:
            k = self.k
            here = self.first + (self.block * self.units + unit)
            found = (
                k.load(self.memory, here)
                if self.area is None
                else k.load(self.area, unit * LANES + k.lane())
            )
            self.loaded[unit] = k.select(self.is_row, k.cast(found, u32), k.const(0, u32))
        return self.loaded[unit]

    def part(self, at: int, kind: DType) -> Val:
        """Bytes as u32: one, two or four, in one unit or in several."""
        unit, inside = divmod(at, self.unit.nbytes)
        if kind.nbytes > self.unit.nbytes:
            loaded = [self.load(unit + i) for i in range(kind.nbytes // self.unit.nbytes)]
            return reduce(
                or_, (found << self.unit.bits * i if i else found for i, found in enumerate(loaded))
            )
        found = self.load(unit)
        return found if kind is self.unit else found >> 8 * inside & (1 << kind.bits) - 1

    def word(self, at: int) -> Val:
        return self.part(at, u32)

    def field(self, plane: Plane, first: int) -> tuple[Val, int]:
        """Four neighbouring codes' bits of a plane, one in each byte, and the place in the byte
        where they begin."""
        per_byte = 8 // plane.bits
        if plane.run == 1 and plane.bits < 8:  # neighbours share a byte
            at, start = divmod(first * plane.bits, 32)
            return self.spread(self.word(plane.start + at * 4) >> start, plane.bits), 0
        run, inside = divmod(first, plane.run * per_byte)
        at = plane.start + run * plane.run + inside % plane.run
        return self.word(at), inside // plane.run * plane.bits

    def spread(self, fields: Val, bits: int) -> Val:
        """The lowest four fields of so many bits, each in a byte of its own."""
        if bits == 1:
            return (fields & 15) * SPREAD & BYTES
        mask = (1 << bits) - 1
        return reduce(
            or_, ((fields << (8 - bits) * i if i else fields) & mask << 8 * i for i in range(4))
        )


UNITS = {u32.nbytes: u32, u16.nbytes: u16, u8.nbytes: u8}


class Result:
    """The interleaved weight: writes one unit a lane, one after the other, to the current block."""

    def __init__(self, frame: Frame, node: Node, lanes: Lanes, blocks: Val) -> None:
        self.k, self.lanes = frame.k, lanes
        k, target, places = frame.k, node.inputs[0], node.inputs[3]
        slot = frame.memory.slots[node]
        self.views = {kind: frame.view(slot, kind, "readwrite") for kind in (u8, u16, u32)}
        self.start = k.cast(frame.reading.wide(places, (k.group_id(),)), index)
        end = self.start + blocks * lanes.super_bytes
        is_wrong = (self.start < 0) | (end > frame.sizes.val(target.type.shape[0]) * LINE)
        frame.reading.trap(
            node, target, is_wrong | (k.max(self.start, 0) % u32.nbytes).ne(0), self.start
        )

    def begin_super(self, block: Val) -> None:
        self.begin, self.at = self.start + block * self.lanes.super_bytes, 0

    def begin_block(self, i: int) -> None:
        self.at = self.lanes.head_bytes + i * self.lanes.block_bytes

    def store(self, kind: DType, value: Val) -> None:
        k, size = self.k, kind.nbytes
        where = self.begin // size + self.at // size + k.lane()
        k.store(self.views[kind], where, k.cast(value, kind))
        self.at += LANES * size


def copy_factors(source: BlockRows, result: Result) -> None:
    """The factors in front of a super-block; that of the mins is negated."""
    kind = UNITS[source.lanes.factor_bytes]
    for i, factor in enumerate(source.lanes.factors):
        found = source.part(factor.start, kind)
        result.store(kind, found ^ (1 << kind.bits - 1) if i else found)


def copy_rest(source: BlockRows, result: Result) -> None:
    """What nobody reads, as it is."""
    start, size = source.lanes.format.rest
    for at in range(start, start + size, REST):
        result.store(UNITS[REST], source.part(at, UNITS[REST]))


def copy_codes(source: BlockRows, result: Result, block: int) -> None:
    lanes = source.lanes
    for which, bits in enumerate(lanes.bits):
        plane = next(
            p for p in lanes.format.planes if (p.shift, p.bits) == (lanes.shift_of(which), bits)
        )
        for j in range(bits):
            result.store(u32, plane_word(source, plane, block, j))


def plane_word(source: BlockRows, plane: Plane, block: int, j: int) -> Val:
    """Word j of a plane: in each byte, from the lowest bits up, the codes of the words j, j + bits,
    j + 2 bits, ..."""
    k, bits = source.k, plane.bits
    total = k.const(0, u32)
    for place, w in enumerate(range(j, WORDS, bits)):
        word, begin = source.field(plane, (block * WORDS + w) * 4)
        shift = place * bits - begin
        moved = word << shift if shift > 0 else word >> -shift if shift < 0 else word
        total = total | moved & ((((1 << bits) - 1) << place * bits) * BYTES)
    return total


def copy_scales(source: BlockRows, result: Result, block: int) -> None:
    """The scales of a block's sub-blocks, then their mins."""
    lanes = source.lanes
    if lanes.format.levels is not None:
        for side in range(lanes.sides):
            for sub in range(block * lanes.sub_blocks, (block + 1) * lanes.sub_blocks):
                result.store(
                    u8, level(source, lanes.format.levels, side * lanes.format.sub_blocks + sub)
                )
    elif not lanes.factors:
        for factor in lanes.format.factors:
            kind = UNITS[lanes.factor_bytes]
            result.store(kind, source.part(factor.start, kind))


def level(source: BlockRows, levels: Levels | SixBitPairs, which: int) -> Val:
    """One of the small integers, its low byte."""
    if isinstance(levels, SixBitPairs):
        return six_bits(source, levels.start, *divmod(which, source.lanes.format.sub_blocks))
    found = reduce(or_, (plane_part(source, plane, which) for plane in levels.planes))
    return found - levels.offset if levels.offset else found


def plane_part(source: BlockRows, plane: Plane, element: int) -> Val:
    """The bits of one element of a plane, where they stand in it."""
    run, inside = divmod(element, plane.run * (8 // plane.bits))
    found = source.part(plane.start + run * plane.run + inside % plane.run, u8)
    if plane.bits < 8:
        shift = inside // plane.run * plane.bits
        found = (found >> shift if shift else found) & (1 << plane.bits) - 1
    return found << plane.shift if plane.shift else found


def six_bits(source: BlockRows, start: int, side: int, sub: int) -> Val:
    """Scale or min of a sub-block out of the twelve bytes that `quant.fields.SixBitPairs`
    describes."""
    word = source.word(start + 4 * side)
    if sub < 4:
        return word >> 8 * sub & 63
    low = source.word(start + 8) >> (8 * (sub - 4) + 4 * side)
    return low & 15 | word >> (8 * (sub - 4) + 2) & 48
