"""Ops, signs: rules that say whether an op's result is never negative or never positive.

A rule receives a question and a node, and returns 1, -1 or 0 for "not known"; `ask(operand)` is the
sign of an operand. NaN has no sign: what is said holds for all other elements. Where `ask.zeros`,
zeros count by their sign too: 1 / -0 is -inf.
"""

from __future__ import annotations

from math import inf

from tetrad.graph.constants import constant_value
from tetrad.graph.nodes import Node
from tetrad.loopnest.sign_analysis import Signs


def never_negative(ask: Signs, node: Node) -> int:
    return 1


def root(ask: Signs, node: Node) -> int:
    """The root of -0 is -0."""
    return 0 if ask.zeros else 1


def as_operand(ask: Signs, node: Node) -> int:
    return ask(node.inputs[0])


def opposite(ask: Signs, node: Node) -> int:
    return -ask(node.inputs[0])


def of_total(ask: Signs, node: Node) -> int:
    return 0 if ask.zeros else ask(node.inputs[0])


def of_product(ask: Signs, node: Node) -> int:
    """x * x is a square."""
    a, b = node.inputs
    if a is b:
        return 1
    if not ask.zeros and are_opposite(a, b):
        return -1
    return ask(a) * ask(b)


def of_quotient(ask: Signs, node: Node) -> int:
    """x / x is 1, where it is a number. What is never positive may still be +0, as x - x is: of a
    divisor the sign of zeros counts."""
    a, b = node.inputs
    if ask.zeros:
        return 0
    if a is b:
        return 1
    return -1 if are_opposite(a, b) else ask(a) * ask.with_zeros()(b)


def are_opposite(a: Node, b: Node) -> bool:
    return is_negative_of(a, b) or is_negative_of(b, a)


def is_negative_of(a: Node, b: Node) -> bool:
    return a.op.name == "negative" and a.inputs[0] is b


def of_sum(ask: Signs, node: Node) -> int:
    left, right = map(ask, node.inputs)
    return left if left == right and not ask.zeros else 0


def of_difference(ask: Signs, node: Node) -> int:
    a, b = node.inputs
    if ask.zeros:
        return 0
    if is_bound(b, a):
        return -1
    left, right = ask(a), ask(b)
    return left if left == -right else 0


def of_maximum(ask: Signs, node: Node) -> int:
    return of_extreme(1, ask, node)


def of_minimum(ask: Signs, node: Node) -> int:
    return of_extreme(-1, ask, node)


def of_extreme(side: int, ask: Signs, node: Node) -> int:
    """One operand above zero lifts a maximum above zero; below it are only maxima of operands
    below."""
    if ask.zeros:
        return 0
    signs = [ask(operand) for operand in node.inputs]
    return side if side in signs else -side if all(s == -side for s in signs) else 0


def is_bound(bound: Node, x: Node) -> bool:
    """Whether no element of x is above its bound: the largest along axes of x itself, spread over
    them again."""
    if bound.op.spreads:
        bound = bound.inputs[0]
    if bound.op.name == "where":
        bound = lifted(*bound.inputs)
    if not bound.op.view or bound.inputs[0].op.name != "reduce_max":
        return False
    top = bound.inputs[0]
    axes, shape = top.param("axes"), x.type.shape
    kept = tuple(1 if axis in axes else n for axis, n in enumerate(shape))
    return top.inputs[0] is x and bound.type.shape == kept


def lifted(condition: Node, value: Node, otherwise: Node) -> Node:
    """where(y == -inf, anything, y) is nowhere below y: then it bounds what y bounds."""
    is_lowest = condition.op.name == "equal" and condition.inputs[0] is otherwise
    return otherwise if is_lowest and constant_value(condition.inputs[1]) == -inf else condition
