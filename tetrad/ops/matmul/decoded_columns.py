"""Products with decoded weights, not transposed: float rows times an interleaved weight [k, n]
whose numbers exist only in registers and in scratch.

A lane is a column of the weight. A workgroup decodes 32 columns of a chunk of k, transposes them in
registers into a panel, and multiplies all its rows of x with the panel, a tile at a time.
"""

from __future__ import annotations

from collections.abc import Callable

from tetrad.core.dtypes import f32
from tetrad.core.machine import LANES
from tetrad.core.sizes import ceil_div, plain, product
from tetrad.graph.group import Group
from tetrad.kernel.build import Val
from tetrad.loopnest.frame import Frame
from tetrad.loopnest.transpose import turned
from tetrad.ops.matmul.epilogue import output_buffers, store_result
from tetrad.ops.matmul.op import CHUNK
from tetrad.ops.matmul.plan import MatmulPlan
from tetrad.ops.quantized.weight import Weight
from tetrad.quant.lanes import BLOCK
from tetrad.schedule.nodes import Launch

HALVES = BLOCK // LANES


class ColumnMatmul:
    """The kernel of one product: a workgroup takes 32 columns of the weight and a part of the rows
    of x."""

    def __init__(self, frame: Frame, group: Group, plan: MatmulPlan) -> None:
        self.group, self.node, self.frame = group, group.root, frame
        self.x, w = self.node.inputs
        frame.reads(i for i in frame.inputs if i is not w)
        self.k, self.sizes = frame.k, frame.sizes
        self.weight = Weight(self.frame, w)
        self.outputs = output_buffers(self.frame, group)
        self.rows, self.columns = self.node.type.shape
        self.tile, self.part, self.depth = plan.tile.rows, plan.rows, plain(w.type.shape[0])
        self.chunks = -(-self.depth // CHUNK)
        self.panel = frame.private("panel", f32, min(CHUNK, self.depth + LANES) * BLOCK)
        self.sums = frame.private("sums", f32, self.part * BLOCK if self.chunks > 1 else 1)

    def launch(self) -> Launch:
        k, blocks = self.k, plain(self.columns) // BLOCK
        self.block = k.group_id() % blocks
        self.first = k.group_id() // blocks * self.part
        self.stop = k.min(self.first + self.part, self.sizes.val(self.rows))
        with k.loop(self.chunks) as chunk:
            start = chunk * CHUNK
            stop = k.min(start + CHUNK, self.depth)
            with k.loop(stop, start, LANES) as row:
                self.decode(row, start)
            self.each_tile(lambda row, count: self.run_tile(row, count, chunk, start, stop - start))
        if self.chunks > 1:
            self.each_tile(self.finish_tile)
        flops = product((self.rows, self.columns, self.depth)) * 2
        parts = ceil_div(self.rows, self.part)
        return self.frame.finish(product((parts, blocks)), self.group, flops=flops)

    def decode(self, row: Val, start: Val) -> None:
        """Sixteen rows of the weight into the panel."""
        k = self.k
        numbers = self.weight.block(self.weight.group(row // LANES), self.block).numbers()
        for h in range(HALVES):
            for i, vector in enumerate(turned(k, numbers[h * LANES : (h + 1) * LANES])):
                k.store(self.panel, (row - start + i) * BLOCK + h * LANES + k.lane(), vector)

    def each_tile(self, run: Callable[[Val, int], None]) -> None:
        whole = self.first + (self.stop - self.first) // self.tile * self.tile
        with self.k.loop(whole, self.first, self.tile) as row:
            run(row, self.tile)
        with self.k.loop(self.stop, whole) as row:
            run(row, 1)

    def run_tile(self, first: Val, count: int, chunk: Val, start: Val, depth: Val) -> None:
        k = self.k
        rows = [first + t for t in range(count)]
        chains = [[k.local(0.0, f32) for _ in range(HALVES)] for _ in rows]
        with k.loop(depth) as j:
            numbers = [k.load(self.panel, j * BLOCK + h * LANES + k.lane()) for h in range(HALVES)]
            for row, halves in zip(rows, chains, strict=True):
                left = self.frame.reading.read(self.x, (row, start + j))
                for number, chain in zip(numbers, halves, strict=True):
                    chain.set(k.fma(left, number, chain.get()))
        for row, halves in zip(rows, chains, strict=True):
            for h, chain in enumerate(halves):
                self.add(row, h, chunk, chain.get())

    def add(self, row: Val, half: int, chunk: Val, chain: Val) -> None:
        """The sum of a chunk to those before it."""
        k = self.k
        if self.chunks == 1:
            self.store(row, half, chain)
            return
        at = (row - self.first) * BLOCK + half * LANES + k.lane()
        k.store(self.sums, at, k.select(chunk.eq(0), chain, k.load(self.sums, at) + chain))

    def finish_tile(self, first: Val, count: int) -> None:
        k = self.k
        for t in range(count):
            for h in range(HALVES):
                at = (first + t - self.first) * BLOCK + h * LANES + k.lane()
                self.store(first + t, h, k.load(self.sums, at))

    def store(self, row: Val, half: int, total: Val) -> None:
        column = self.block * BLOCK + half * LANES + self.k.lane()
        store_result(self.frame, self.node, self.outputs, (row, column), total)
