"""Loop nests, sign analysis: which values are never positive, or never negative, by how they are
computed.

Receives a graph node, returns its sign, or 0 for "unknown". NaN has no sign: the answer holds for
all other elements. An op may have a cheaper kernel for such operands (`Op.lower_nonpositive`). It
gives the same bits, because how much is known depends on where a function is cut.
"""

from __future__ import annotations

from math import copysign, inf, isnan

from tetrad.graph.constants import constant_value
from tetrad.graph.nodes import Node

DEPTH = 8  # of the expressions looked at: exp(-(x - m)**2 / (2 s**2)) needs five
NEVER_NEGATIVE = frozenset({"abs", "square", "exp", "exp2", "sqrt", "sigmoid", "erfc"})
POSITIVE_ZEROS = NEVER_NEGATIVE - {"sqrt"}  # the root of -0 is -0
MOVED = frozenset({"reshape", "expand", "transpose", "slice", "cast"})


def sign(node: Node, depth: int = DEPTH) -> int:
    """1: never negative; -1: never positive; 0: not known."""
    if depth == 0 or not node.type.dtype.is_float:
        return 0
    value = constant_value(node)
    if value is not None:
        return (value >= 0) - (value < 0)
    name, operands = node.op.name, node.inputs
    if name in NEVER_NEGATIVE:
        return 1
    if name in MOVED or name == "reduce_sum":
        return sign(operands[0], depth - 1)
    if name == "negative":
        return -sign(operands[0], depth - 1)
    if name in ("multiply", "divide"):
        return product_sign(name, operands, depth)
    if name in ("add", "subtract"):
        return sum_sign(name, operands, depth)
    if name in ("maximum", "minimum"):
        return extreme_sign(
            1 if name == "maximum" else -1, [sign(operand, depth - 1) for operand in operands]
        )
    return 0


def product_sign(name: str, operands: tuple[Node, ...], depth: int) -> int:
    """x * x is a square; x / x is 1, where it is a number."""
    a, b = operands
    if a is b:
        return 1
    if is_negative_of(a, b) or is_negative_of(b, a):
        return -1
    return sign(a, depth - 1) * (sign if name == "multiply" else divisor_sign)(b, depth - 1)


def divisor_sign(node: Node, depth: int) -> int:
    """The sign of all elements, zeros included: 1 / -0 is -inf. What is never positive may still be
    +0, as x - x is."""
    if depth == 0 or not node.type.dtype.is_float:
        return 0
    value = constant_value(node)
    if value is not None:
        return 0 if isnan(value) else int(copysign(1, value))
    name, operands = node.op.name, node.inputs
    if name in POSITIVE_ZEROS:
        return 1
    if name in MOVED:
        return divisor_sign(operands[0], depth - 1)
    if name == "negative":
        return -divisor_sign(operands[0], depth - 1)
    if name == "multiply":
        a, b = operands
        return 1 if a is b else divisor_sign(a, depth - 1) * divisor_sign(b, depth - 1)
    return 0


def is_negative_of(a: Node, b: Node) -> bool:
    return a.op.name == "negative" and a.inputs[0] is b


def sum_sign(name: str, operands: tuple[Node, ...], depth: int) -> int:
    a, b = operands
    if name == "subtract" and is_bound(b, a):
        return -1
    left, right = sign(a, depth - 1), sign(b, depth - 1)
    return left if left == (right if name == "add" else -right) else 0


def extreme_sign(side: int, signs: list[int]) -> int:
    """One operand above zero lifts a maximum above zero; below it are only maxima of operands
    below."""
    return side if side in signs else -side if all(s == -side for s in signs) else 0


def is_bound(bound: Node, x: Node) -> bool:
    """Whether no element of x is above its bound: the largest along axes of x itself, spread over
    them again."""
    if bound.op.name == "expand":
        bound = bound.inputs[0]
    if bound.op.name == "where":
        bound = lifted(*bound.inputs)
    if bound.op.name != "reshape" or bound.inputs[0].op.name != "reduce_max":
        return False
    top = bound.inputs[0]
    axes, shape = top.param("axes"), x.type.shape
    kept = tuple(1 if axis in axes else n for axis, n in enumerate(shape))
    return top.inputs[0] is x and bound.type.shape == kept


def lifted(condition: Node, value: Node, otherwise: Node) -> Node:
    """where(y == -inf, anything, y) is nowhere below y: then it bounds what y bounds."""
    is_lowest = condition.op.name == "equal" and condition.inputs[0] is otherwise
    return otherwise if is_lowest and constant_value(condition.inputs[1]) == -inf else condition
