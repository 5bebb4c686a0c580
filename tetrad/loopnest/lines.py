"""Loop nests, lines: the walk of a generator along one axis of an array seen as [outer, axis,
inner]. Lanes run along inner where there is one.
"""

from __future__ import annotations

from collections.abc import Callable

from tetrad.core.machine import LANES
from tetrad.core.sizes import Size, ceil_div, product
from tetrad.graph.nodes import Node
from tetrad.kernel.build import Val
from tetrad.loopnest.frame import Frame
from tetrad.loopnest.index import Space
from tetrad.loopnest.reader import At


class Lines:
    """The walk of an axis-wise op: a workgroup takes 16 neighbouring lines (or one, when the axis
    is the last)."""

    def __init__(self, frame: Frame, node: Node, axis: int) -> None:
        k, shape = frame.k, node.inputs[0].type.shape
        self.frame, self.axis, self.shape = frame, axis, shape
        self.outer, self.inner = shape[:axis], shape[axis + 1 :]
        lines = product(self.inner)
        self.blocks: Size = ceil_div(lines, LANES)
        position = Space(k, frame.sizes, (product(self.outer), self.blocks), k.group_id())
        self.row = Space(k, frame.sizes, self.outer, position.span(0, 1)).axes()
        self.is_scalar = lines == 1
        self.lane = k.index(0) if self.is_scalar else position.span(1, 2) * LANES + k.lane()
        self.end = frame.sizes.val(lines)

    @property
    def groups(self) -> Size:
        return product(self.outer) * self.blocks

    def at(self, position: Val) -> At:
        return (
            *self.row,
            position,
            *Space(self.frame.k, self.frame.sizes, self.inner, self.lane).axes(),
        )

    def run(self, body: Callable[[], None]) -> None:
        if self.is_scalar:
            body()
            return
        with self.frame.k.when(self.lane < self.end, guard=True):
            body()
