"""Kernels with packed weights: operands read at (stack, row, element), and tiles of rows.

Receives a frame and the node of a product of rows with a packed weight (`ops.int4.stack`); gives
elements of its operands as kernel values.
"""

from __future__ import annotations

from collections.abc import Callable

from tetrad.core.machine import Machine
from tetrad.core.sizes import Size, is_multiple, product
from tetrad.graph.nodes import Node
from tetrad.kernel.build import Val
from tetrad.loopnest.frame import Frame
from tetrad.loopnest.index import Space
from tetrad.loopnest.reader import At
from tetrad.ops.int4.stack import MATRIX


class PackedOperands:
    """Operands of a product. `inner`: axes of one row, 1 unless a row is words of codes."""

    def __init__(self, frame: Frame, node: Node, inner: int = 1) -> None:
        self.frame, self.k, self.node = frame, frame.k, node
        self.x, self.w = node.inputs[:2]
        self.is_stacked = self.w.type.rank > MATRIX
        self.lead = self.x.type.shape[1 if self.is_stacked else 0 : -inner]
        self.rows = product(self.lead)
        self.stacks = self.x.type.shape[0] if self.is_stacked else 1
        self.stack = self.k.index(0)

    def row_at(self, row: Val, *at: Val) -> At:
        """The index of an element of the rows, or of the result."""
        outer = Space(self.k, self.frame.sizes, self.lead, row).axes()
        return (self.stack, *outer, *at) if self.is_stacked else (*outer, *at)

    def of_row(self, operand: Node, row: Val, *at: Val) -> Val:
        return self.frame.reading.read(operand, self.row_at(row, *at))

    def shared(self, operand: Node, *at: Val) -> Val:
        """An element of the weight or what goes with it; of a stack of one, that one."""
        if not self.is_stacked:
            return self.frame.reading.read(operand, at)
        stack = self.k.index(0) if operand.type.shape[0] == 1 else self.stack
        return self.frame.reading.read(operand, (stack, *at))

    def tile(
        self, first: Val, count: int, run: Callable[[list[Val]], None], *, repeats: bool = True
    ) -> None:
        """Run a tile of rows. Behind the last row of a known count the last is computed again,
        where a tile `repeats`; else the few that are left go one by one."""
        k, end = self.k, self.frame.sizes.val(self.rows)
        is_cut = count > 1 and not is_multiple(self.rows, count)
        if not is_cut or (repeats and isinstance(self.rows, int)):
            run([k.min(first + t, end - 1) if is_cut else first + t for t in range(count)])
            return
        with k.when(first + count <= end):
            run([first + t for t in range(count)])
        with k.otherwise(), k.loop(end, first) as row:
            run([row])


def tile_rows(rows: Size, most: int) -> int:
    """Rows of a tile, at most so many: tiles of a known count are alike.

    >>> tile_rows(9, 8), tile_rows(3, 8), tile_rows(0, 8)
    (5, 3, 1)
    """
    if not isinstance(rows, int):
        return most
    return -(-rows // -(-rows // most)) if rows else 1


def back_rows(of: PackedOperands, machine: Machine) -> int:
    """Rows of a tile with eight sums for each: two where registers are wide, and so there are
    many."""
    return tile_rows(of.rows, 2 if machine.vector_bits >= 512 else 1)
