"""Products of a few rows: times a matrix, where reading the matrix once is all the time
there is.

A workgroup takes a chunk of k and a stretch of columns, whole rows of the matrix where they are not
too long, and walks its chunk some steps at a time over the stretch: so memory is read in long runs
straight from where the matrix lies. Chains wait in scratch. One kernel makes the sums of chunks, a
second adds them up; a single chunk needs no second. The order is that of `ops.matmul.tiles`, to the
bit.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from tetrad.core.machine import LANES
from tetrad.core.sizes import Shape, ceil_div, product
from tetrad.core.types import row_strides
from tetrad.graph.group import Group, inputs_of
from tetrad.graph.nodes import Node
from tetrad.kernel.build import Val
from tetrad.loopnest.frame import Frame, Memory
from tetrad.loopnest.index import Space, offset
from tetrad.ops.matmul.epilogue import (
    accumulator,
    multiply_add,
    operand_at,
    output_buffers,
    store_result,
)
from tetrad.ops.matmul.op import CHUNK
from tetrad.ops.matmul.plan import SHORT_RUN, MatmulPlan
from tetrad.schedule.nodes import Launch, Slot

TOGETHER = 8  # steps of k in one pass over the stretch
# columns: so far before its use memory is asked for, where processors ask too late by themselves
AHEAD = 128


def lower_few_rows(frame: Frame, group: Group, plan: MatmulPlan) -> list[Launch]:
    """The product itself, and for a long k what adds up its chunks; the epilogue is in the last of
    them."""
    root, after, inputs, memory = group.root, group.members[1:], frame.inputs, frame.memory
    chunks = ceil_div(root.inputs[0].type.shape[-1], CHUNK)
    if isinstance(chunks, int) and chunks <= 1:
        return [FewRows(frame, group, plan, inputs).launch()]
    parts = memory.temp(
        "parts", accumulator(root.inputs[0].type.dtype), chunks, product(root.type.shape)
    )
    known = {*inputs, root}
    operands = inputs_of(Group(group.kind, root, (root,), (root,)), known)
    beside = inputs_of(Group(group.kind, root, after, group.outputs), known)
    few = FewRows(Frame(group.name + "_chunks", memory), group, plan, operands, parts)
    return [few.launch(), join_kernel(group, [i for i in beside if i is not root], memory, parts)]


class FewRows:
    """The kernel of one product of few rows. The sums of chunks go to `parts`, the only one through
    the epilogue."""

    def __init__(
        self,
        frame: Frame,
        group: Group,
        plan: MatmulPlan,
        inputs: list[Node],
        parts: Slot | None = None,
    ) -> None:
        self.group, self.node, self.frame = group, group.root, frame
        self.a, self.b = self.node.inputs
        frame.reads(inputs)
        self.k, self.sizes = frame.k, frame.sizes
        self.parts = self.frame.output(parts) if parts else None
        self.outputs = {} if parts else output_buffers(self.frame, group)
        self.dtype = accumulator(self.a.type.dtype)
        *self.batch_shape, _, self.columns = self.node.type.shape
        self.rows = plan.rows
        self.depth = self.a.type.shape[-1]
        self.chunks = ceil_div(self.depth, CHUNK) if parts else 1
        self.stretch = plan.columns

    def launch(self) -> Launch:
        k, blocks = self.k, ceil_div(self.columns, self.stretch)
        grid: Shape = (product(self.batch_shape), self.chunks, blocks)
        position = Space(k, self.sizes, grid, k.group_id())
        self.batch = Space(k, self.sizes, tuple(self.batch_shape), position.span(0, 1)).axes()
        self.base = position.span(2, 3) * self.stretch
        self.width = k.min(self.sizes.val(self.columns) - self.base, self.stretch)
        self.chains = [
            self.frame.private("chain", self.dtype, self.stretch) for _ in range(self.rows)
        ]
        self.run_chunk(position.span(1, 2) * CHUNK)
        self.finish(position.span(1, 2), position.span(0, 1))
        flops = product((*self.node.type.shape, self.depth)) * 2
        return self.frame.finish(product(grid), self.group, flops=flops)

    def every_column(self) -> AbstractContextManager[Val]:
        return self.frame.every_lane(self.width, self.columns)

    def run_chunk(self, start: Val) -> None:
        k = self.k
        stop = k.min(start + CHUNK, self.sizes.val(self.depth))
        whole = start + ((stop - start) // TOGETHER) * TOGETHER
        with self.every_column() as lane:
            for chain in self.chains:
                k.store(chain, lane, k.const(0, self.dtype))
        with k.loop(whole, start, TOGETHER) as step:
            self.sweep(step, TOGETHER)
        with k.loop(stop, whole) as step:
            self.sweep(step, 1)

    def sweep(self, step: Val, count: int) -> None:
        """`count` steps of k for every column of the stretch."""
        k = self.k
        with self.every_column() as lane:
            values = [k.load(chain, lane) for chain in self.chains]
            for u in range(count):
                self.ask_ahead(step + u, self.base + lane + AHEAD)
            for u in range(count):
                right = self.right(step + u, self.base + lane)
                values = [
                    multiply_add(k, self.left(m, step + u), right, v) for m, v in enumerate(values)
                ]
            for chain, value in zip(self.chains, values, strict=True):
                k.store(chain, lane, value)

    def left(self, row: int, step: Val) -> Val:
        at = operand_at(self.k, self.a, self.batch, self.k.index(row), step)
        return self.k.cast(self.frame.reading.wide(self.a, at), self.dtype)

    def right(self, step: Val, column: Val) -> Val:
        at = operand_at(self.k, self.b, self.batch, step, column)
        return self.k.cast(self.frame.reading.wide(self.b, at), self.dtype)

    def ask_ahead(self, step: Val, column: Val) -> None:
        """For a line of the matrix, where that lies in memory as it is."""
        if self.b in self.frame.reading.buffers:
            at, shape = operand_at(self.k, self.b, self.batch, step, column), self.b.type.shape
            self.k.prefetch(
                self.frame.reading.buffers[self.b],
                offset(self.sizes, at, shape, row_strides(shape)),
            )

    def finish(self, chunk: Val, batch: Val) -> None:
        """parts[chunk, batch, row, column], or the results themselves."""
        k, sizes = self.k, self.sizes
        with self.every_column() as lane:
            for row, chain in enumerate(self.chains):
                value, column = k.load(chain, lane), self.base + lane
                if self.parts is None:
                    at = (*self.batch, k.index(row), column)
                    store_result(self.frame, self.node, self.outputs, at, value)
                    continue
                line = (chunk * sizes.val(product(self.batch_shape)) + batch) * self.rows + row
                k.store(self.parts, line * sizes.val(self.columns) + column, value)


def join_kernel(group: Group, inputs: list[Node], memory: Memory, parts: Slot) -> Launch:
    """The sums of chunks added up in order, then the epilogue. A workgroup has a stretch of all
    results."""
    node, (chunks, total) = group.root, parts.type.shape
    frame = Frame(group.name + "_join", memory)
    k, sizes = frame.k, frame.sizes
    frame.reads(inputs)
    source, outputs = frame.input(parts), output_buffers(frame, group)

    def join(where: Val) -> None:
        value = k.local(0, parts.type.dtype)
        with k.loop(sizes.val(chunks)) as chunk:
            part = k.load(source, chunk * sizes.val(total) + where)
            value.set(k.select(chunk.eq(0), part, value.get() + part))
        store_result(
            frame, node, outputs, Space(k, sizes, node.type.shape, where).axes(), value.get()
        )

    if total == 1:  # at an address all lanes share, they store what all of them have
        join(k.index(0))
    else:
        with k.loop(SHORT_RUN, 0, LANES, always=True) as lane0:
            where = k.group_id() * SHORT_RUN + lane0 + k.lane()
            with frame.within(where, sizes.val(total), total, SHORT_RUN):
                join(where)
    return frame.finish(ceil_div(total, SHORT_RUN), group, flops=product(parts.type.shape))
