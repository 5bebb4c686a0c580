"""Lowering, thin products: a few rows times a matrix, where reading the matrix once is all the time there is.

A workgroup takes a stretch of columns and walks k in order, eight steps at a time over the whole stretch, so the
matrix is read in long runs straight from where it lies. Chains wait in scratch. The order is that of `lower.matmul`,
to the bit.
"""

from __future__ import annotations

from tetrad.core.sizes import Shape, ceil_div, plain, product
from tetrad.graph.nodes import Node
from tetrad.kernel.build import Val
from tetrad.kernel.nodes import Buffer
from tetrad.lower.frame import LANES, Frame, Memory
from tetrad.lower.index import Space
from tetrad.lower.launch import Launch
from tetrad.lower.product import accumulator, multiply_add, operand_at, output_buffers, runs_along_k, store_result
from tetrad.passes.fuse import Group

MOST_ROWS = 4
CHUNK = 1024  # of k: part of the meaning (docs/numerics.md)
STRETCH, LONG_STRETCH = 512, 2048  # columns of a workgroup; the long one where there are enough for several
TOGETHER = 8  # steps of k in one pass over the stretch


def is_thin(node: Node) -> bool:
    """Few rows, and a right side that lies in memory row by row."""
    rows, right = node.type.shape[-2], node.inputs[1]
    return isinstance(rows, int) and rows <= MOST_ROWS and right.op.name != "constant" and not runs_along_k(right)


def lower_thin(group: Group, inputs: list[Node], memory: Memory) -> Launch:
    return Thin(group, inputs, memory).launch()


class Thin:
    """The kernel of one thin product."""

    def __init__(self, group: Group, inputs: list[Node], memory: Memory) -> None:
        self.group, self.node = group, group.root
        self.a, self.b = self.node.inputs
        self.frame = Frame(group.name, memory)
        self.frame.reads(inputs)
        self.k, self.sizes = self.frame.k, self.frame.sizes
        self.outputs = output_buffers(self.frame, group)
        self.dtype = accumulator(self.a.type.dtype)
        *self.batch_shape, rows, self.columns = self.node.type.shape
        self.rows = plain(rows)  # is_thin saw a plain number
        self.depth = self.a.type.shape[-1]
        is_wide = isinstance(self.columns, int) and self.columns >= 2 * LONG_STRETCH
        self.stretch = LONG_STRETCH if is_wide else STRETCH

    def launch(self) -> Launch:
        k, blocks = self.k, ceil_div(self.columns, self.stretch)
        grid: Shape = (product(self.batch_shape), blocks)
        position = Space(k, self.sizes, grid, k.group_id())
        self.batch = Space(k, self.sizes, tuple(self.batch_shape), position.span(0, 1)).axes()
        self.base = position.span(1, 2) * self.stretch
        self.width = k.min(self.sizes.val(self.columns) - self.base, self.stretch)
        self.chains = [self.frame.scratch("chain", self.dtype, self.stretch) for _ in range(self.rows)]
        self.sums = [self.frame.scratch("sum", self.dtype, self.stretch) for _ in range(self.rows)]
        self.clear(self.sums)
        with k.loop(self.sizes.val(ceil_div(self.depth, CHUNK))) as chunk:
            self.run_chunk(chunk)
        self.finish()
        flops = product((*self.node.type.shape, self.depth)) * 2
        return self.frame.finish(product(grid), self.group, flops=flops)

    def lanes(self) -> Val:
        """A position inside the stretch, for the loop around it."""
        return self.lane0 + self.k.lane()

    def clear(self, buffers: list[Buffer]) -> None:
        with self.k.loop(self.width, 0, LANES, always=True) as self.lane0:
            for buffer in buffers:
                self.k.store(buffer, self.lanes(), self.k.const(0, self.dtype))

    def run_chunk(self, chunk: Val) -> None:
        k = self.k
        start = chunk * CHUNK
        stop = k.min(start + CHUNK, self.sizes.val(self.depth))
        whole = start + ((stop - start) // TOGETHER) * TOGETHER
        self.clear(self.chains)
        with k.loop(whole, start, TOGETHER) as step:
            self.sweep(step, TOGETHER)
        with k.loop(stop, whole) as step:
            self.sweep(step, 1)
        with k.loop(self.width, 0, LANES, always=True) as self.lane0:
            for total, chain in zip(self.sums, self.chains, strict=True):
                lane = self.lanes()
                before = k.load(total, lane)
                joined = k.select(chunk.eq(0), k.load(chain, lane), before + k.load(chain, lane))
                k.store(total, lane, joined)

    def sweep(self, step: Val, count: int) -> None:
        """`count` steps of k for every column of the stretch."""
        k = self.k
        with k.loop(self.width, 0, LANES, always=True) as self.lane0:
            lane = self.lanes()
            with self.frame.within(lane, self.width, self.columns):
                values = [k.load(chain, lane) for chain in self.chains]
                for u in range(count):
                    right = self.right(step + u, self.base + lane)
                    values = [multiply_add(k, self.left(m, step + u), right, v) for m, v in enumerate(values)]
                for chain, value in zip(self.chains, values, strict=True):
                    k.store(chain, lane, value)

    def left(self, row: int, step: Val) -> Val:
        at = operand_at(self.k, self.a, self.batch, self.k.index(row), step)
        return self.k.cast(self.frame.reading.wide(self.a, at), self.dtype)

    def right(self, step: Val, column: Val) -> Val:
        at = operand_at(self.k, self.b, self.batch, step, column)
        return self.k.cast(self.frame.reading.wide(self.b, at), self.dtype)

    def finish(self) -> None:
        k = self.k
        with k.loop(self.width, 0, LANES, always=True) as self.lane0:
            lane = self.lanes()
            with self.frame.within(lane, self.width, self.columns):
                for row, total in enumerate(self.sums):
                    at = (*self.batch, k.index(row), self.base + lane)
                    store_result(self.frame, self.node, self.outputs, at, k.load(total, lane))
