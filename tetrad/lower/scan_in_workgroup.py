"""Lowering, scans in a workgroup: a scan whose step is a few small products and elementwise work
becomes one kernel of one workgroup.

The groups of the body run one after the other inside the loop; what passes between them, and the
carries, stays in scratch. For a recurrent cell of 64 channels this is some hundred nanoseconds a
step, less than starting its kernels one by one. The sums are those of `ops.matmul.tiles`, to the
bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tetrad.core.machine import LANES
from tetrad.core.record import replace
from tetrad.core.sizes import Shape, plain, product
from tetrad.core.types import row_strides
from tetrad.graph.group import Group
from tetrad.graph.nodes import Node
from tetrad.kernel.build import Val
from tetrad.kernel.nodes import Buffer
from tetrad.loopnest.frame import Frame, Memory
from tetrad.loopnest.index import Space, offset
from tetrad.loopnest.reader import At
from tetrad.lower.scan_in_lanes import rounds
from tetrad.ops.matmul.epilogue import accumulator, multiply_add
from tetrad.passes.plan_loop import LoopPlan, ScanLoop, loop_of
from tetrad.schedule.nodes import Launch

VECTORS = 8  # of accumulators at a time
UNROLLED = 2  # vectors of a walk that are written out


def lower_in_workgroup(node: Node, plan: LoopPlan, memory: Memory) -> Launch:
    """One kernel for the whole scan."""
    loop, groups = loop_of(node), plan.groups
    work = sum(
        product((*g.root.type.shape, g.root.inputs[0].type.shape[-1]))
        for g in groups
        if g.kind == "matmul"
    )
    cell = Cell(Frame(f"scan_{'_'.join(g.name for g in groups)}"[:60], memory), loop, groups)
    cell.run()
    return replace(cell.frame.finish(1, flops=2 * work * loop.length), source=node.source)


class Cell:
    """The kernel under construction."""

    def __init__(self, frame: Frame, loop: ScanLoop, groups: tuple[Group, ...]) -> None:
        self.frame, self.k, self.reading, self.loop, self.groups = (
            frame,
            frame.k,
            frame.reading,
            loop,
            groups,
        )
        given = [frame.input(frame.memory.slots[i]) for i in loop.node.inputs]
        made = [frame.output(slot) for slot in frame.memory.results(loop.node)]
        first = loop.consts + loop.carries
        self.init, self.xs = given[loop.consts : first], given[first:]
        self.final, self.ys = made[: loop.carries], made[loop.carries :]
        self.reading.buffers.update(zip(loop.body.inputs[: loop.consts], given, strict=False))
        self.reading.buffers.update((carry, self.scratch(carry)) for carry in loop.carried)

    def scratch(self, node: Node) -> Buffer:
        return self.frame.scratch("held", node.type.dtype, product(node.type.shape))

    def run(self) -> None:
        loop, k = self.loop, self.k
        results = {node: self.scratch(node) for g in self.groups for node in g.outputs}
        for carry, buffer in zip(loop.carried, self.init, strict=True):
            self.copy(buffer, self.reading.buffers[carry], carry.type.shape)
        k.barrier()
        rounds(self.frame, loop, lambda t: self.step(t, results))
        for carry, buffer in zip(loop.carried, self.final, strict=True):
            self.copy(self.reading.buffers[carry], buffer, carry.type.shape)

    def step(self, t: Val, results: dict[Node, Buffer]) -> None:
        loop = self.loop
        for row, buffer in zip(loop.rows, self.xs, strict=True):
            self.reading.provided[row] = self.reader(row, buffer, t)
        for group in self.groups:
            self.product(group, results) if group.kind == "matmul" else self.map(group, results)
            self.reading.buffers.update((node, results[node]) for node in group.outputs)
            self.k.barrier()
        for node, buffer in zip(loop.body.outputs[loop.carries :], self.ys, strict=True):
            self.write(node, buffer, t * product(node.type.shape))
        self.k.barrier()
        for node, carry in zip(loop.body.outputs, loop.carried, strict=False):
            if node is not carry:
                self.write(node, self.reading.buffers[carry], self.k.index(0))
        self.k.barrier()
        for group in self.groups:
            for node in group.outputs:
                del self.reading.buffers[node]

    def reader(self, row: Node, buffer: Buffer, t: Val) -> Callable[[At], Val]:
        """xs[t] at any index."""
        shape = row.type.shape
        start = t * self.frame.sizes.val(product(shape))
        return lambda at: self.k.load(
            buffer, start + offset(self.frame.sizes, at, shape, row_strides(shape))
        )

    # -- walks -------------------------------------------------------------------------------------

    def vectors(self, shape: Shape) -> Iterator[Val]:
        """Flat positions, sixteen at a time; what is done with each is built inside loop and
        mask."""
        k, count = self.k, plain(product(shape))
        full = count // LANES
        if full > UNROLLED:
            with k.loop(full * LANES, 0, LANES, always=True) as first:
                yield first + k.lane()
        else:
            for v in range(full):
                yield k.index(v * LANES) + k.lane()
        if count % LANES:
            position = k.index(full * LANES) + k.lane()
            with k.when(position < count, guard=True):
                yield position

    def copy(self, source: Buffer, target: Buffer, shape: Shape) -> None:
        for position in self.vectors(shape):
            self.k.store(target, position, self.k.load(source, position))

    def write(self, node: Node, buffer: Buffer, start: Val) -> None:
        """A result of the step from `start` on."""
        for position in self.vectors(node.type.shape):
            at = Space(self.k, self.frame.sizes, node.type.shape, position).axes()
            self.k.store(buffer, start + position, self.reading.read(node, at))

    def map(self, group: Group, results: dict[Node, Buffer]) -> None:
        shape = group.root.type.shape
        for position in self.vectors(shape):
            at = Space(self.k, self.frame.sizes, shape, position).axes()
            for node in group.outputs:
                self.k.store(results[node], position, self.reading.read(node, at))

    # -- products ----------------------------------------------------------------------------------

    def product(self, group: Group, results: dict[Node, Buffer]) -> None:
        """Lanes along the columns; full vectors several at a time, the rest under a mask."""
        rows, columns = (plain(n) for n in group.root.type.shape)
        k, at_once = self.k, max(1, VECTORS // rows)
        full = [k.index(v * LANES) + k.lane() for v in range(columns // LANES)]
        for first in range(0, len(full), at_once):
            self.tile(group, rows, full[first : first + at_once], results)
        if columns % LANES:
            position = k.index(columns // LANES * LANES) + k.lane()
            with k.when(position < columns, guard=True):
                self.tile(group, rows, [position], results)

    def tile(
        self, group: Group, rows: int, columns: list[Val], results: dict[Node, Buffer]
    ) -> None:
        k, node = self.k, group.root
        a, b = node.inputs
        dtype, depth = accumulator(node.type.dtype), plain(a.type.shape[-1])
        sums = [[k.local(0, dtype) for _ in columns] for _ in range(rows)]
        together = next(n for n in (4, 2, 1) if depth % n == 0)
        with k.loop(depth, 0, together, always=True) as start:
            for step in range(together):
                matrix = [self.reading.read(b, (start + step, column)) for column in columns]
                for row, chain in enumerate(sums):
                    left = self.reading.read(a, (k.index(row), start + step))
                    for total, right in zip(chain, matrix, strict=True):
                        total.set(multiply_add(k, left, right, total.get()))
        for row, chain in enumerate(sums):
            for total, column in zip(chain, columns, strict=True):
                self.finish(group, (k.index(row), column), total.get(), results)

    def finish(self, group: Group, at: At, total: Val, results: dict[Node, Buffer]) -> None:
        """The elementwise work on one vector of the product."""
        self.reading.provided[group.root] = lambda _: total
        for node in group.outputs:
            where = offset(self.frame.sizes, at, node.type.shape, row_strides(node.type.shape))
            self.k.store(results[node], where, self.reading.read(node, at))
        del self.reading.provided[group.root]
