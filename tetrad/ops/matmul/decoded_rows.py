"""Products with decoded weights: float rows times an interleaved weight whose numbers exist only in
registers.

A lane is a row of the weight. A step decodes 32 columns of sixteen rows and multiplies them with as
many rows of x as registers hold.
"""

from __future__ import annotations

from tetrad.core.dtypes import f32
from tetrad.core.machine import LANES
from tetrad.core.sizes import ceil_div, plain, product
from tetrad.graph.group import Group
from tetrad.kernel.build import LocalVar, Val
from tetrad.loopnest.frame import Frame
from tetrad.ops.matmul.epilogue import output_buffers, store_result
from tetrad.ops.matmul.op import CHUNK
from tetrad.ops.matmul.plan import MatmulPlan
from tetrad.ops.quantized.weight import Weight
from tetrad.quant.lanes import BLOCK
from tetrad.schedule.nodes import Launch


class DecodedMatmul:
    """The kernel of one product: a workgroup takes sixteen rows of the weight and all rows of x, a
    tile at a time."""

    def __init__(self, frame: Frame, group: Group, plan: MatmulPlan) -> None:
        self.group, self.node, self.frame = group, group.root, frame
        self.x, w = self.node.inputs
        frame.reads(i for i in frame.inputs if i is not w)
        self.k, self.sizes = frame.k, frame.sizes
        self.weight = Weight(self.frame, w)
        self.outputs = output_buffers(self.frame, group)
        self.rows, self.columns = self.node.type.shape
        self.tile = plan.tile.rows
        self.depth = plain(w.type.shape[1])

    def launch(self) -> Launch:
        k = self.k
        self.column = k.group_id() * LANES + k.lane()
        total = self.sizes.val(self.rows)
        whole = total // self.tile * self.tile
        with k.loop(whole, 0, self.tile) as row:
            self.run_tile(row, self.tile)
        with k.loop(total, whole) as row:
            self.run_tile(row, 1)
        flops = product((self.rows, self.columns, self.depth)) * 2
        return self.frame.finish(ceil_div(self.columns, LANES), self.group, flops=flops)

    def run_tile(self, first: Val, count: int) -> None:
        k = self.k
        rows = [first + t for t in range(count)]
        sums = [k.local(0.0, f32) for _ in rows]
        with k.loop(-(-self.depth // CHUNK)) as chunk:
            start = chunk * CHUNK
            chains = [k.local(0.0, f32) for _ in rows]
            self.run_chunk(rows, chains, start, k.min(start + CHUNK, self.depth))
            for total, chain in zip(sums, chains, strict=True):
                total.set(k.select(chunk.eq(0), chain.get(), total.get() + chain.get()))
        with self.frame.within(self.column, self.sizes.val(self.columns), self.columns):
            for row, total in zip(rows, sums, strict=True):
                store_result(self.frame, self.node, self.outputs, (row, self.column), total.get())

    def run_chunk(self, rows: list[Val], chains: list[LocalVar], start: Val, stop: Val) -> None:
        k = self.k
        with k.loop(stop, start, BLOCK) as column:
            block = self.weight.block(self.weight.group(k.group_id()), column // BLOCK)
            for i, number in enumerate(block.numbers()):
                for row, chain in zip(rows, chains, strict=True):
                    chain.set(
                        k.fma(
                            self.frame.reading.read(self.x, (row, column + i)), number, chain.get()
                        )
                    )
