"""Ops, stacks of packed weights: a leading axis on every operand, of size 1 where one is shared.

A product of rows [..., columns] and a packed weight (operand 1, a matrix of words) takes rows with
any leading axes. A weight with three axes is a stack, and so are all other operands; the first axis
of the rows walks it. Batching makes stacks: the rule is here, for every such op.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tetrad.core.errors import ShapeError
from tetrad.core.op import Op, Rule
from tetrad.core.sizes import Size
from tetrad.core.types import ArrayType
from tetrad.graph.nodes import Node
from tetrad.ops.calculus import Batched, batch_size, expand, moved, reshape
from tetrad.ops.rules import Array

MATRIX = 2  # axes of a weight that is no stack


def check_stack(name: str, x: ArrayType, others: Sequence[ArrayType]) -> None:
    for side in others:
        if side.shape[0] not in (1, x.shape[0]):
            raise ShapeError(f"{name}: {side} is no stack for rows {x}")


def beside_rows(x: Array, rank: int) -> Array:
    """[stack, n] with axes of size 1 between them, to meet [stack, ..., n]."""
    return x if x.ndim == 1 else x.reshape(x.shape[0], *(1,) * (rank - 2), x.shape[-1])


def between(x: Node, rank: int) -> Node:
    """[(stack,) outputs] with axes of size 1 in between, up to a rank."""
    stack, outputs = x.type.shape[:-1], x.type.shape[-1]
    return reshape(x, (*stack, *(1,) * (rank - 1 - len(stack)), outputs))


def batched_stack(op: Op, rows: tuple[int, ...] = (0,)) -> Rule:
    """A batch of rows is more rows; a batch of weights is a stack. `rows`: the operands that are
    rows, or go with each of them."""

    def rule(batched: Batched, *operands: Node, **params: Any) -> Node:
        has_stack = operands[1].type.rank - batched[1] > MATRIX
        size = batch_size(batched, operands)
        given = [
            (x if flag else expand(x, (size, *x.type.shape)), True) if i in rows else (x, flag)
            for i, (x, flag) in enumerate(zip(operands, batched, strict=True))
        ]
        if not any(flag for i, (_, flag) in enumerate(given) if i not in rows):
            return _more_rows(op, given, params, has_stack)
        if not has_stack:
            made = [x if flag else reshape(x, (1, *x.type.shape)) for x, flag in given]
            return op(*made, **params)  # type: ignore[no-any-return]
        stack = given[0][0].type.shape[1]
        found = op(*(_merged(x, flag, size, stack) for x, flag in given), **params)
        return reshape(found, (size, stack, *found.type.shape[1:]))

    return rule


def _more_rows(
    op: Op, given: Sequence[tuple[Node, bool]], params: dict[str, Any], has_stack: bool
) -> Node:
    """The batch behind the stack, where there is one, which stays in front."""
    if not has_stack:
        return op(*(x for x, _ in given), **params)  # type: ignore[no-any-return]
    return moved(op(*(moved(x, 0, 1) if flag else x for x, flag in given), **params), 1, 0)


def _merged(x: Node, is_batched: bool, size: Size, stack: Size) -> Node:
    """Batch and stack as one axis."""
    if not is_batched and x.type.shape[0] == 1:
        return x
    inner = x.type.shape[2 if is_batched else 1 :]
    return reshape(expand(x, (size, stack, *inner)), (size * stack, *inner))
