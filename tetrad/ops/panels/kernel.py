"""Kernels of products with panels: the tiles of `ops.matmul.tiles`, whose right side is packed
already.

The plan may look at outputs, inputs and the machine, never at the number of rows.
"""

from __future__ import annotations

from tetrad.core.dtypes import f32, f64
from tetrad.core.machine import LANES, Machine, RegisterTile
from tetrad.core.record import replace
from tetrad.core.sizes import plain
from tetrad.graph.group import Group
from tetrad.kernel.build import Val
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
from tetrad.ops.panels.op import panel_matmul
from tetrad.schedule.nodes import Launch, Slot

ROWS = 128  # of a workgroup: they lie in the second cache while panels pass
FEWEST, MOST = 4, 32  # panels of a workgroup
# Steps of k: weights that come from memory are asked for so far ahead. Processors by themselves
# stop at the end of each page; a text of sixteen tokens takes a third less time.
AHEAD = 384
SHARE = 2  # workgroups for each thread that the panels of one block of rows make, about


@panel_matmul.kernel
def lower_panel_matmul(frame: Frame, group: Group) -> Launch:
    node, machine = group.root, frame.memory.machine
    tile = machine.f64_tile if node.type.dtype is f64 else machine.f32_tile
    return PanelMatmul(frame, group, plan_panels(size_of(node), tile, machine)).launch()


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
        depth = self.sizes.val(self.size.k)
        at = (self.n0 + column + v * LANES) * depth + (start + step) * LANES
        self.k.prefetch(self.panels, at + AHEAD * LANES)
        return self.k.cast(self.k.load(self.panels, at + self.k.lane()), self.dtype)
