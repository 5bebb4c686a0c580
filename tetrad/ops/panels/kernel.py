"""Kernels of products with panels: the tiles of `ops.matmul.tiles`, whose right side is packed
already.

The plan may look at outputs, inputs and the machine, never at the number of rows.
"""

from __future__ import annotations

from collections.abc import Iterator

from tetrad.core.dtypes import DType, f32, f64, i32, u8, u32
from tetrad.core.machine import LANES, Machine, RegisterTile
from tetrad.core.record import replace
from tetrad.core.sizes import plain, product
from tetrad.graph.group import Group
from tetrad.graph.nodes import Node
from tetrad.kernel.build import KernelBuilder, Val
from tetrad.kernel.nodes import Buffer
from tetrad.loopnest.frame import Frame
from tetrad.ops.matmul.plan import (
    POINTERS,
    MatmulPlan,
    MatmulSize,
    choose_depth,
    size_of,
    steps_written_out,
)
from tetrad.ops.matmul.tiles import Matmul
from tetrad.ops.panels.op import KINDS, byte_rows, panel_matmul
from tetrad.ops.quantized.kernel import ROUNDER, ROUNDER_BITS
from tetrad.ops.quantized.op import SCALE_OF_TOP, SMALLEST
from tetrad.quant.panels import BYTES, TOP, ZERO
from tetrad.schedule.nodes import Launch, Slot

ROWS = 128  # of a workgroup: they lie in the second cache while panels pass
FEWEST, MOST = 4, 32  # panels of a workgroup
# Steps of k: weights that come from memory are asked for so far ahead. Processors by themselves
# stop at the end of each page; a text of sixteen tokens takes a third less time.
AHEAD = 384
BYTE_VECTORS = 2  # of a tile of bytes: an unsigned one is no operand from memory
SHARE = 2  # workgroups for each thread that the panels of one block of rows make, about


@byte_rows.kernel
def lower_byte_rows(frame: Frame, group: Group) -> Launch:
    """One row a workgroup, twice over it. Magnitudes are compared as integers, which orders floats
    alike and puts NaN on top."""
    k, x = frame.k, group.root.inputs[0]
    codes, scales = (frame.output(slot) for slot in frame.memory.results(group.root))
    row, columns = k.group_id(), x.type.shape[1]
    width, top = frame.sizes.val(columns), k.local(0, i32)
    with frame.every_lane(width, columns) as lane:
        top.set(k.max(top, k.bitcast(k.abs(frame.reading.wide(x, (row, lane))), i32)))
    most = k.bitcast(k.reduce_lanes("max", top.get()), f32)
    inverse = k.select(most < SMALLEST, k.const(0.0, f32), k.const(float(TOP), f32) / most)
    with frame.every_lane(width, columns) as lane:
        rounded = frame.reading.wide(x, (row, lane)) * inverse + ROUNDER
        code = k.max(k.min(k.bitcast(rounded, i32) - ROUNDER_BITS, TOP), -TOP) + ZERO
        k.store(codes, row * width + lane, k.cast(code, u8))
    scale = k.select(most < float("inf"), most * SCALE_OF_TOP, k.const(float("nan"), f32))
    k.store(scales, row, scale)
    return frame.finish(x.type.shape[0], group, flops=product(x.type.shape) * 6)


@panel_matmul.kernel
def lower_panel_matmul(frame: Frame, group: Group) -> Launch:
    node, machine = group.root, frame.memory.machine
    together = KINDS[node.inputs[0].type.dtype].together
    tile = machine.f64_tile if node.type.dtype is f64 else machine.f32_tile
    if together > 1:
        tile = RegisterTile(min(tile.rows, POINTERS), BYTE_VECTORS if together == BYTES else 1)
    write = WordMatmul if together > 1 else PanelMatmul
    return write(frame, group, plan_panels(size_of(node), tile, machine)).launch()


def plan_panels(size: MatmulSize, tile: RegisterTile, machine: Machine) -> MatmulPlan:
    panels = plain(size.n) // LANES
    if panels % tile.vectors:
        tile = RegisterTile(tile.rows, 1)
    each = min(max(-(-panels // (SHARE * machine.parallel_groups)), FEWEST), MOST)
    columns = -(-each // tile.vectors) * tile.vectors * LANES
    plan = MatmulPlan(
        "tiles", tile, -(-ROWS // tile.rows) * tile.rows, columns, unroll=steps_written_out(tile),
        is_staged=tile.rows > POINTERS,
    )  # fmt: skip
    return replace(plan, depth=choose_depth(plan, size.k, f32, machine, is_small=False))


class PanelMatmul(Matmul):
    """The kernel of one product with panels."""

    def packed_slot(self) -> Slot | None:
        return self.frame.memory.slots[self.b]

    def right(self, column: Val, v: int, start: Val, step: Val) -> Val:
        at = self.fetched(column, v, start, step)
        return self.k.cast(self.k.load(self.panels, at), self.dtype)

    def fetched(self, column: Val, v: int, start: Val, step: Val) -> Val:
        """Where a vector of a panel lies; memory is asked for a later one."""
        k, depth = self.k, self.sizes.val(self.size.k)
        at = (self.n0 + column + v * LANES) * depth + (start + step) * LANES
        further = steps_ahead(k, start + step, depth, self.tile.vectors)
        k.prefetch(self.panels, at + further * LANES)
        return at + k.lane()


def steps_ahead(k: KernelBuilder, step: Val, depth: Val, vectors: int) -> Val:
    """How far behind a step of a panel the one lies that memory is asked for. Past the end of the
    panel that is in the one which this vector of the next tile reads, not in its neighbour, which
    the same tile reads now."""
    return AHEAD + k.select(step < depth - AHEAD, 0, (vectors - 1) * depth)


class WordMatmul(PanelMatmul):
    """Rows of bytes or of bf16: a step of k is as many of them as a word has."""

    def __init__(self, frame: Frame, group: Group, plan: MatmulPlan) -> None:
        super().__init__(frame, group, plan)
        self.words = frame.view(frame.memory.slots[self.a], u32)

    def measure(self) -> tuple[MatmulSize, DType]:
        size, kind = size_of(self.node), KINDS[self.a.type.dtype]
        return replace(size, k=plain(size.k) // kind.together), kind.result

    def elements(self) -> Iterator[Node]:
        return (node for node in super().elements() if node is not self.a)

    def packed_buffer(self, slot: Slot) -> Buffer:
        return self.frame.view(slot, u32)

    def left_at(self, m: Val, depth: Val) -> Val:
        return self.k.load(self.words, m * self.sizes.val(self.size.k) + depth)

    def right(self, column: Val, v: int, start: Val, step: Val) -> Val:
        return self.k.load(self.panels, self.fetched(column, v, start, step))

    def multiply_add(self, left: Val, right: Val, acc: Val) -> Val:
        if self.dtype is i32:
            return self.k.dot4(acc, left, right)
        return self.k.dot2(acc, right, left)  # the second may be an operand from memory
