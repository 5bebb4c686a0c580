"""Products with float weights in place: lanes along the columns, which lie next to each
other in both sides.

A workgroup takes some rows of the weight and all rows of x. Tiles of both wait in registers, so a
vector of the weight is loaded (and widened, if it is of half precision) once for several rows of x.
The order is that of `ops.matmul.op`.
"""

from __future__ import annotations

from tetrad.core.dtypes import f32
from tetrad.core.machine import LANES
from tetrad.core.sizes import ceil_div, product
from tetrad.graph.group import Group
from tetrad.kernel.build import Val
from tetrad.loopnest.frame import Frame
from tetrad.ops.matmul.plan import MatmulPlan
from tetrad.schedule.nodes import Launch


class RowMatmul:
    """The kernel of one product: a tile is some rows of x times some rows of the weight."""

    def __init__(self, frame: Frame, group: Group, plan: MatmulPlan) -> None:
        self.frame, self.k, self.group, self.plan = frame, frame.k, group, plan
        self.x, self.w = group.root.inputs
        self.out = frame.output(frame.memory.slots[group.root])
        self.rows, self.outputs = group.root.type.shape
        self.columns = self.x.type.shape[1]

    def launch(self) -> Launch:
        k, sizes, tall, each = self.k, self.frame.sizes, self.plan.tile.rows, self.plan.columns
        start = k.group_id() * each
        end = k.min(start + each, sizes.val(self.outputs))
        rows = sizes.val(self.rows)
        whole = rows // tall * tall
        with k.loop(whole, 0, tall) as row:
            self.walk_outputs(row, tall, start, end)
        with k.loop(rows, whole) as row:
            self.walk_outputs(row, 1, start, end)
        flops = product((self.rows, self.outputs, self.columns)) * 2
        return self.frame.finish(ceil_div(self.outputs, each), self.group, flops=flops)

    def walk_outputs(self, row: Val, tall: int, start: Val, end: Val) -> None:
        k, wide = self.k, self.plan.held // tall
        whole = start + (end - start) // wide * wide
        with k.loop(whole, start, wide) as output:
            self.run_tile(row, tall, output, wide)
        with k.loop(end, whole) as output:
            self.run_tile(row, tall, output, 1)

    def run_tile(self, row: Val, tall: int, output: Val, wide: int) -> None:
        k, frame = self.k, self.frame
        rows, outputs = [row + i for i in range(tall)], [output + j for j in range(wide)]
        accs = {(i, j): k.local(0.0, f32) for i in range(tall) for j in range(wide)}
        columns = frame.sizes.val(self.columns)
        with k.loop(columns, 0, LANES) as first:
            lane = first + k.lane()
            with frame.within(lane, columns, self.columns):
                right = [frame.reading.wide(self.w, (at, lane)) for at in outputs]
                for i, at in enumerate(rows):
                    left = frame.reading.wide(self.x, (at, lane))
                    for j in range(wide):
                        accs[i, j].set(k.fma(left, right[j], accs[i, j]))
        for (i, j), acc in accs.items():
            place = rows[i] * frame.sizes.val(self.outputs) + outputs[j]
            k.store(self.out, place, k.reduce_lanes("add", acc))
