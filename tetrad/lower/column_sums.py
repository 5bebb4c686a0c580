"""Lowering, column sums: reductions over all rows of what a rows group has at hand, in its kernel.

`lower.row_reductions` sweeps over rows; here a workgroup takes a chunk of them, folds columns into
scratch as rows pass, and stores what it has. A second kernel joins the chunks. The order is that of
`lower.column_reductions`, to the bit: gradients of a norm's weight and bias need no memory for what
they sum.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tetrad.core.sizes import Shape, ceil_div, product
from tetrad.graph.group import Group
from tetrad.graph.nodes import Node
from tetrad.kernel.build import Val
from tetrad.kernel.nodes import Buffer
from tetrad.loopnest.frame import Frame
from tetrad.loopnest.reader import At
from tetrad.lower.column_reductions import CHUNK, join_kernel
from tetrad.lower.elementwise import accumulator
from tetrad.passes.questions import is_column_sum
from tetrad.schedule.nodes import Launch


class ColumnSums:
    """The reductions of a rows group over all its rows; mostly there are none."""

    def __init__(self, frame: Frame, group: Group, outer: Shape, inner: Shape) -> None:
        self.frame, self.rows, self.width = frame, product(outer), product(inner)
        self.nodes = [m for m in group.members if is_column_sum(m, outer, inner) and outer]
        self.chunks = ceil_div(self.rows, CHUNK)
        self.accs: dict[Node, Buffer] = {
            n: frame.private("accs", accumulator(n), self.width) for n in self.nodes
        }
        self.parts = {
            n: frame.memory.temp(f"sums{i}", accumulator(n), self.chunks, self.width)
            for i, n in enumerate(self.nodes)
        }

    @contextmanager
    def every_row(self) -> Iterator[Val]:
        """A loop over the rows of the workgroup's chunk, with nothing summed before."""
        k = self.frame.k
        with self.frame.every_lane(self.frame.sizes.val(self.width), self.width) as lane:
            for node, accs in self.accs.items():
                dtype = accumulator(node)
                k.store(accs, lane, k.const(node.op.monoid.init(dtype), dtype))
        first = k.group_id() * CHUNK
        with k.loop(k.min(first + CHUNK, self.frame.sizes.val(self.rows)), first) as row:
            yield row

    def add(self, column: Val, at: At) -> None:
        """One row's element of a column joins what was summed."""
        k = self.frame.k
        for node, accs in self.accs.items():
            value = self.frame.reading.wide(node.inputs[0], at)
            k.store(accs, column, node.op.monoid.combine(k, k.load(accs, column), value))

    def store(self) -> None:
        k, frame = self.frame.k, self.frame
        outputs = {node: frame.output(slot) for node, slot in self.parts.items()}
        with frame.every_lane(frame.sizes.val(self.width), self.width) as lane:
            for node, out in outputs.items():
                where = k.group_id() * frame.sizes.val(self.width) + lane
                k.store(out, where, k.load(self.accs[node], lane))

    def join(self, group: Group) -> list[Launch]:
        return [join_kernel(group, n, self.frame.memory, self.parts[n]) for n in self.nodes]
