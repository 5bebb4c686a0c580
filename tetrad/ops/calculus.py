"""Ops, what derivative and batching rules are written with: small functions on nodes.

Rules of one family use ops of others (the transpose of a broadcast is a sum, of a gather a
scattered sum), so they ask for them here, by name; `t * y` and `1 - y` work on nodes as they stand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tetrad.core.dtypes import DType
from tetrad.core.op import REGISTRY, Op, Rule
from tetrad.core.sizes import Shape, Size
from tetrad.core.types import ArrayType
from tetrad.graph.build import filled
from tetrad.graph.nodes import Node

Batched = tuple[bool, ...]


def run(name: str, *args: Any, **params: Any) -> Any:
    return REGISTRY[name](*args, **params)


def no_change(t: Node, result: Any, *operands: Node, **params: Any) -> None:
    """The rule of an op that is flat wherever it is differentiable."""


def times(derivative: Rule) -> Rule:
    """The jvp rule t * f'(x), from f' as a function of the result and the operands."""
    return lambda t, y, *xs, **params: t * derivative(y, *xs, **params)


def zeros_like(x: Node) -> Node:
    return filled(0, x.type)


def full_like(x: Node, value: float) -> Node:
    return filled(value, x.type)


def zeros(kind: ArrayType, shape: Shape) -> Node:
    return filled(0, kind.with_shape(shape))


def where(condition: Node, x: Any, y: Any) -> Node:
    """x where the condition holds, else y; one of them may be a number."""
    partner = x if isinstance(x, Node) else y
    x, y = (v if isinstance(v, Node) else filled(v, partner.type) for v in (x, y))
    result: Node = run("where", condition, x, y)
    return result


def cast(x: Node, dtype: DType) -> Node:
    result: Node = x if x.type.dtype is dtype else run("cast", x, dtype=dtype)
    return result


def expand(x: Node, shape: Shape) -> Node:
    result: Node = x if x.type.shape == shape else run("expand", x, shape=shape)
    return result


def reshape(x: Node, shape: Shape) -> Node:
    result: Node = x if x.type.shape == shape else run("reshape", x, shape=shape)
    return result


def transpose(x: Node, perm: Sequence[int]) -> Node:
    result: Node = (
        x if list(perm) == list(range(len(perm))) else run("transpose", x, perm=tuple(perm))
    )
    return result


def swapped(x: Node) -> Node:
    """The last two axes, exchanged."""
    rank = x.type.rank
    return transpose(x, (*range(rank - 2), rank - 1, rank - 2))


def moved(x: Node, source: int, target: int) -> Node:
    """One axis in another place."""
    order = [a for a in range(x.type.rank) if a != source]
    return transpose(x, (*order[:target], source, *order[target:]))


def reduce_sum(x: Node, axes: Sequence[int]) -> Node:
    result: Node = run("reduce_sum", x, axes=tuple(axes)) if axes else x
    return result


def sum_to(x: Node, shape: Shape) -> Node:
    """The sum over what a broadcast to x's shape repeated."""
    new = x.type.rank - len(shape)
    repeated = [a for a, n in enumerate(x.type.shape[new:], new) if shape[a - new] == 1 and n != 1]
    return reshape(reduce_sum(x, [*range(new), *repeated]), shape)


def spread(x: Node, axes: Sequence[int], shape: Shape) -> Node:
    """What a reduction over the axes gave, along them again."""
    ones = tuple(1 if a in axes else n for a, n in enumerate(shape))
    return expand(reshape(x, ones), shape)


def sliced(x: Node, axis: int, start: Size, size: Size) -> Node:
    """`size` elements along one axis."""
    rank, shape = x.type.rank, x.type.shape
    starts, sizes = (
        (0,) * axis + (start,) + (0,) * (rank - axis - 1),
        (*shape[:axis], size, *shape[axis + 1 :]),
    )
    result: Node = run("slice", x, starts=starts, sizes=sizes, steps=(1,) * rank)
    return result


def positions(shape: Shape, axis: int, dtype: DType) -> Node:
    """The index along an axis, at every element."""
    ones = filled(1, ArrayType(dtype, (shape[axis],)))
    counted = run("cumsum", ones, axis=0, exclusive=True)
    return spread(counted, [a for a in range(len(shape)) if a != axis], shape)


def amount(size: Size, like: Node) -> Node:
    """A size as numbers like others: known now, or counted when the program runs."""
    if isinstance(size, int):
        return full_like(like, size)
    counted: Node = run("reduce_sum", filled(1, ArrayType(like.type.dtype, (size,))), axes=(0,))
    return expand(counted, like.type.shape)


# -- batching --------------------------------------------------------------------------------------


def batch_size(batched: Batched, operands: Sequence[Node]) -> Size:
    return next(x.type.shape[0] for x, flag in zip(operands, batched, strict=True) if flag)


def all_batched(batched: Batched, operands: Sequence[Node]) -> list[Node]:
    """Every operand with the new leading axis: those without it are repeated along it."""
    size = batch_size(batched, operands)
    pairs = zip(operands, batched, strict=True)
    return [x if flag else expand(x, (size, *x.type.shape)) for x, flag in pairs]


def batched_as_is(op: Op) -> Rule:
    """An op that treats leading axes alike: all operands get the new one."""
    return lambda batched, *operands, **params: op(*all_batched(batched, operands), **params)


def batched_axis(op: Op, **shifts: Any) -> Rule:
    """An op of one operand whose axis settings move by one."""

    def rule(batched: Batched, *operands: Node, **params: Any) -> Any:
        return op(
            *all_batched(batched, operands),
            **{k: _shifted(v) if k in shifts else v for k, v in params.items()},
        )

    return rule


def _shifted(value: Any) -> Any:
    return tuple(v + 1 for v in value) if isinstance(value, tuple) else value + 1
