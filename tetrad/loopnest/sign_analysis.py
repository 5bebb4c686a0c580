"""Loop nests, sign analysis: which values are never positive, or never negative, by how they are
computed.

Receives a graph node, returns its sign, or 0 for "unknown"; the rule of each op derives it from the
operands (`Op.sign`). An op may have a cheaper kernel for such operands (`Op.lower_nonpositive`). It
gives the same bits, because how much is known depends on where a function is cut.
"""

from __future__ import annotations

from math import copysign, isnan

from tetrad.core.record import record, replace
from tetrad.graph.constants import constant_value
from tetrad.graph.nodes import Node

DEPTH = 8  # of the expressions looked at: exp(-(x - m)**2 / (2 s**2)) needs five


@record
class Signs:
    """A question for the sign of a node, to be asked so many levels down. `zeros`: of all elements,
    zeros by their sign included."""

    depth: int = DEPTH
    zeros: bool = False

    def __call__(self, node: Node) -> int:
        """1: never negative; -1: never positive; 0: not known."""
        if self.depth == 0 or not node.type.dtype.is_float:
            return 0
        value = constant_value(node)
        if value is not None:
            return self.of_number(value)
        rule = node.op.sign
        return 0 if rule is None else rule(replace(self, depth=self.depth - 1), node)

    def of_number(self, value: float) -> int:
        if isnan(value):
            return 0
        return int(copysign(1, value)) if self.zeros else (1 if value >= 0 else -1)

    def with_zeros(self) -> Signs:
        return replace(self, zeros=True)


sign = Signs()
