"""Passes, fold: constant folding, when the program is compiled.

Receives and returns graphs through the rule engine. Only exact results are folded, so the program
gives the same bits as without folding. A broadcast of a constant stays a broadcast: it needs no
memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tetrad.core.errors import TetradError
from tetrad.graph.build import constant, literal_node, make_constant
from tetrad.graph.evaluate import evaluate_node
from tetrad.graph.nodes import Literal, Node
from tetrad.ops.movement import expand, reshape
from tetrad.passes.rewrite import Rules, var

fold = Rules("fold")
MAX_BYTES = 64 << 20  # of a folded result, and of its operands


@fold.rule(var("value", ops=(constant,)))
def one_value_is_broadcast(value: Node) -> Node | None:
    """constant([c, c, c])  ->  expand(constant(c))

    Equal bytes of quantised blocks are no repeated element.
    """
    if value.type.size == 1 or value.type.dtype.is_quantized:
        return None
    element = value.param("value").splat
    return None if element is None else expand(make_constant(element), shape=value.type.shape)


def stored(node: Node) -> Node | None:
    """The constant that a node is, or broadcasts."""
    inner = node.inputs[0] if node.op is expand else node
    return inner if inner.op is constant else None


def is_foldable(node: Node) -> bool:
    if node.op.kind == "structural" or node.op is expand or not node.inputs or not is_exact(node):
        return False
    if not node.op.foldable:
        return False
    if len(node.types) > 1:  # one node stands for all results, a constant for one
        return False
    constants = [stored(i) for i in node.inputs]
    return all(c is not None for c in constants) and is_affordable(
        node, [c for c in constants if c is not None]
    )


def is_exact(node: Node) -> bool:
    """Does the reference give the bits of compiled code? Not for sums of floats, whose order NumPy
    does not follow."""
    dtypes = [i.type.dtype for i in node.inputs]
    if node.op.kind in ("elementwise", "movement"):
        return not any(node.op.ulps.get(dtype) for dtype in dtypes)
    return not any(dtype.is_float or dtype.is_complex for dtype in dtypes)


def is_affordable(node: Node, constants: list[Node]) -> bool:
    """Operands and result are small, and no broadcast would be written out."""
    kinds = (node.type, *(i.type for i in node.inputs))
    # a size with a Dim and a 0 is 0, so ask the shape
    sizes = [kind.nbytes for kind in kinds]
    if not all(
        kind.is_static and isinstance(n, int) and n <= MAX_BYTES
        for kind, n in zip(kinds, sizes, strict=True)
    ):
        return False
    repeated = any(i.op is expand for i in node.inputs)
    return not repeated or sizes[0] <= max(Literal.SMALL, *(c.type.nbytes for c in constants))  # type: ignore[operator, type-var]


def is_seen_otherwise(node: Node) -> bool:
    kind = node.type
    return (
        node.op is reshape
        and node.inputs[0].op is constant
        and kind.is_static
        and not kind.dtype.is_quantized
    )


@fold.rule(var("node", where=is_seen_otherwise))
def same_bytes(node: Node) -> Node:
    """reshape(constant)  ->  constant, without reading its content."""
    return literal_node(node.inputs[0].param("value").reshaped(node.type.shape), node.type)


@fold.rule(var("node", where=is_foldable))
def compute_now(node: Node) -> Node | None:
    """op(constants)  ->  constant."""
    try:
        return make_constant(
            evaluate_node(node, [(operand(i),) for i in node.inputs], {})[0], node.type
        )
    except (
        TetradError
    ):  # such as an index out of range: the program will report it, with the user's line
        return None


def operand(node: Node) -> Any:
    if node.op is constant:
        return node.param("value").array
    return np.broadcast_to(node.inputs[0].param("value").array, node.type.shape)  # type: ignore[arg-type]
