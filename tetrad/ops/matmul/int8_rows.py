"""Products of rows in 8 bits as kernels: which rows of x and which rows of the weight a workgroup
takes.

Sixteen rows of the weight, and of x all rows, a tile at a time. Where many rows share decoded
panels (`ops.matmul.panels`), a workgroup takes some of them.
"""

from __future__ import annotations

from tetrad.core.machine import LANES
from tetrad.core.sizes import Size, ceil_div, product
from tetrad.graph.group import Group
from tetrad.kernel.build import Val
from tetrad.loopnest.frame import Frame
from tetrad.ops.matmul.epilogue import output_buffers, store_result
from tetrad.ops.matmul.int8_dots import Sums
from tetrad.ops.matmul.panels import PanelSums
from tetrad.ops.matmul.plan import MANY, MatmulPlan
from tetrad.schedule.nodes import Launch


class Int8Matmul:
    """The kernel of one product of rows in 8 bits."""

    def __init__(self, frame: Frame, group: Group, plan: MatmulPlan) -> None:
        self.group, self.node, self.frame, self.plan = group, group.root, frame, plan
        x, w = self.node.inputs
        frame.reads(i for i in frame.inputs if i not in (x, w))
        self.k, self.sizes = frame.k, frame.sizes
        self.sums = Sums(self.frame, x, w)
        self.outputs = output_buffers(self.frame, group)
        self.rows, self.columns = self.node.type.shape
        self.terms = int(dict(self.node.params).get("terms", 1))
        self.tile = plan.tile.rows

    def launch(self) -> Launch:
        self.walk_all(self.k.group_id())
        return self.finish(ceil_div(self.columns, LANES))

    def launch_panels(self) -> Launch:
        """Workgroups that take the same rows of x follow each other, so that these stay in the
        cache."""
        k, groups, total = self.k, ceil_div(self.columns, LANES), self.sizes.val(self.rows)
        panels = PanelSums(self.frame, self.sums, self.plan)
        part, sixteen = (
            k.group_id() // self.sizes.val(groups),
            k.group_id() % self.sizes.val(groups),
        )
        with k.when(total >= MANY):
            panels.run(sixteen, part, total, lambda row, sums: self.store(sixteen, row, sums))
        if not isinstance(self.rows, int):
            with k.otherwise():
                self.walk_all(sixteen)
        return self.finish(product((ceil_div(self.rows, self.plan.rows), groups)))

    def finish(self, groups: Size) -> Launch:
        flops = product((self.rows, self.columns, self.sums.x.columns)) * 2
        return self.frame.finish(groups, self.group, flops=flops)

    def walk_all(self, sixteen: Val) -> None:
        """All rows: tiles from the first; what is left over goes one row at a time."""
        k, tile = self.k, self.tile
        if isinstance(self.rows, int) and self.rows < tile:
            self.run_tile(sixteen, k.index(0), self.rows)
            return
        total = self.sizes.val(self.rows)
        whole = total // tile * tile
        with k.loop(whole, 0, tile) as row:
            self.run_tile(sixteen, row, tile)
        with k.loop(total, whole) as row:
            self.run_tile(sixteen, row, 1)

    def run_tile(self, sixteen: Val, first: Val, count: int) -> None:
        rows = [first + t for t in range(count)]
        for row, sums in zip(rows, self.sums.run(sixteen, rows, self.terms), strict=True):
            self.store(sixteen, row, sums)

    def store(self, sixteen: Val, row: Val, sums: Val) -> None:
        column = sixteen * LANES + self.k.lane()
        with self.frame.within(column, self.sizes.val(self.columns), self.columns):
            store_result(self.frame, self.node, self.outputs, (row, column), sums)
