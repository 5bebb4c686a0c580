"""Lowering, short rows: reductions over a few trailing elements (a point in space) and all that
goes with them.

A lane takes one row: the elements of a row are joined in registers, in the canonical order of
`lower.row_reductions`, and what is computed of them is at hand for everything else. A row to a
workgroup would leave most lanes without work.
"""

from __future__ import annotations

import numpy as np

from tetrad.core.machine import LANES
from tetrad.core.sizes import Shape, product
from tetrad.graph.group import Group
from tetrad.graph.nodes import Node
from tetrad.kernel.build import KernelBuilder, Val
from tetrad.loopnest.frame import Frame, Memory
from tetrad.loopnest.index import Space
from tetrad.loopnest.reader import At
from tetrad.lower.elementwise import computed, guarded_vectors, operations
from tetrad.passes.questions import weight
from tetrad.schedule.nodes import Launch

SHORT = 8  # elements of a row
# operations of one row, written out for all its elements: LLVM's time grows faster than the code
SHORT_WORK = 512


def is_short(group: Group, inputs: list[Node], outer: Shape, inner: Shape) -> bool:
    rows, size = product(outer), product(inner)
    if (
        not isinstance(rows, int)
        or not isinstance(size, int)
        or rows < LANES
        or not 0 < size <= SHORT
    ):
        return False
    return size * sum(map(weight, computed(group, inputs))) <= SHORT_WORK


def lower_short_rows(
    group: Group, inputs: list[Node], memory: Memory, outer: Shape, inner: Shape
) -> Launch:
    frame = Frame(group.name, memory)
    frame.reads(inputs)
    buffers = {node: frame.output(memory.slots[node]) for node in group.outputs}
    rows = product(outer)

    def body(position: Val) -> None:
        row = ShortRow(frame, position, outer, inner)
        row.reduce([m for m in group.members if m.op.kind == "reduce"])
        places = [(node, at) for node in buffers for at in row.places(node)]
        values = [frame.reading.read(node, at) for node, at in places]
        for (node, at), value in zip(places, values, strict=True):
            frame.write(buffers[node], node, at, value)

    guarded_vectors(frame, frame.k.group_id() * LANES, rows, 1, body)
    return frame.finish(-(-rows // LANES), group, flops=operations(computed(group, inputs)))


class ShortRow:
    """One row a lane: where its elements are, and the results of its reductions."""

    def __init__(self, frame: Frame, position: Val, outer: Shape, inner: Shape) -> None:
        self.frame, self.outer, self.inner = frame, outer, inner
        self.k, self.axes = frame.k, Space(frame.k, frame.sizes, outer, position).axes()

    def reduce(self, reductions: list[Node]) -> None:
        """Each in turn: members are in order, so what one needs of others is there."""
        for node in reductions:
            elements = [self.frame.reading.wide(node.inputs[0], at) for at in self.elements()]
            result = self.k.cast(joined(self.k, node, elements), node.type.dtype)
            self.frame.reading.provided[node] = lambda at, result=result: result  # type: ignore[misc]

    def elements(self) -> list[At]:
        sizes = [n for n in self.inner if isinstance(n, int)]  # all of them: see `is_short`
        return [(*self.axes, *map(self.k.index, column)) for column in np.ndindex(*sizes)]

    def places(self, node: Node) -> list[At]:
        """The elements of a member that lie in this row: one, or one for every column."""
        if node.type.shape == self.outer + self.inner and node.type.shape != self.outer:
            return self.elements()
        return [(*self.axes, *(self.k.index(0),) * (node.type.rank - len(self.outer)))]


def joined(k: KernelBuilder, node: Node, elements: list[Val]) -> Val:
    """As a chunk of long rows is: every element in a partial result of its own, these by halving
    the 16 lanes."""
    monoid, dtype = node.op.monoid, node.type.dtype.computing
    parts: list[Val] = [monoid.combine(k, k.const(monoid.init(dtype), dtype), x) for x in elements]
    width = LANES // 2
    while width:
        paired = [monoid.combine(k, a, b) for a, b in zip(parts, parts[width:], strict=False)]
        parts = paired + parts[len(paired) : width]
        width //= 2
    return parts[0]
