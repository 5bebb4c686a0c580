"""Tracing, deferred: arrays that are computed when somebody asks for their elements.

Receives ops that products compute as they read (`Op.inline`: the numbers of a quantised weight)
applied to arrays that have values, and then views, transposes and conversions of them; returns
`Deferred` arrays, which remember how they are made. A product with one is compiled together with
what it reads, so that the numbers of a weight are never in memory. Whatever else asks for elements
has them computed, once. In a trace they are nodes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tetrad.core import lazy, tree
from tetrad.core.errors import TetradError
from tetrad.core.op import Op
from tetrad.core.record import record as record_class
from tetrad.core.types import ArrayType
from tetrad.graph.build import apply, make_graph, make_parameter
from tetrad.graph.nodes import Node
from tetrad.tracing.apply_op import evaluate, record
from tetrad.tracing.array import (
    Array,
    TracedArray,
    alias,
    is_inline,
    located,
    node_of,
)
from tetrad.tracing.context import Trace, current_trace
from tetrad.tracing.signature import Arguments

PROGRAMS = 256  # compiled products that are kept
_types: dict[ArrayType, ArrayType] = {}


class Deferred(Array):
    """An array that remembers how it is made, and is made when its elements are asked for."""

    __slots__ = ("op", "operands", "params")
    is_deferred = True

    op: Op
    operands: tuple[Array, ...]  # none: it was donated
    params: tuple[tuple[str, Any], ...]

    @staticmethod
    def of(kind: ArrayType, op: Op, operands: Sequence[Array], params: dict[str, Any]) -> Deferred:
        made = Deferred.__new__(Deferred)
        # not the object that other arrays have: compiled functions know by it that this one may
        # be handed over as its operands
        made.type = _types.setdefault(kind, kind)
        made._view = made._storage = None
        made.op, made.operands, made.params = (
            op,
            tuple(map(alias, operands)),
            tuple(sorted(params.items())),
        )
        return made

    @property
    def memory(self) -> np.ndarray:
        if super().is_deleted and self.operands:
            self._compute()
        return super().memory

    def _compute(self) -> None:
        made = (
            run_compiled(self.op, self.operands, dict(self.params))
            if self.op.inline
            else evaluate(self.op, tuple(map(plain, self.operands)), dict(self.params))
        )
        self._view, self._storage = made._view, made._storage

    def delete(self) -> None:
        self.operands = ()
        super().delete()

    @property
    def is_deleted(self) -> bool:
        return not self.operands


def plain(x: Array) -> Array:
    """The same elements as an array that is there."""
    return Array.from_numpy(x.memory) if isinstance(x, Deferred) else x


def applied(op: Op, arrays: Sequence[Array], params: dict[str, Any]) -> Any:
    """An op on arrays of which some are deferred, or one that defers. None: on their elements."""
    try:
        kind = op.type(*(x.type for x in arrays), **params)
    except TetradError as error:
        raise located(error) from None
    if isinstance(kind, ArrayType) and (op.inline or is_seen_otherwise(op)):
        return Deferred.of(kind, op, arrays, params)
    trace = current_trace()
    if trace is not None:
        nodes = tuple(TracedArray.of(node_of(x, trace), trace) for x in arrays)
        return record(op, nodes, params)
    return run_compiled(op, arrays, params) if reads_views(op, arrays, params) else None


def is_seen_otherwise(op: Op) -> bool:
    """Are these elements of the operand as they are, or in another dtype?"""
    return op.view or op.strided or op.converts


def reads_views(op: Op, arrays: Sequence[Array], params: dict[str, Any]) -> bool:
    trait = op.prologue
    return trait if isinstance(trait, bool) else trait(*(x.type for x in arrays), **params)


def node_of_deferred(x: Deferred, trace: Trace) -> Node:
    """The node that makes it, in a trace: loops and branches that close over the numbers of a
    weight take its codes from outside."""
    made: Node = apply(x.op, [node_of(o, trace) for o in x.operands], dict(x.params))
    return made


# -- arguments -------------------------------------------------------------------------------------


@record_class
class OpenedArgument:
    """A deferred argument of a compiled function: a tree of what it is made of, which is made
    inside."""

    leaves: tuple[Array, ...]
    recipe: Hashable


tree.register(
    OpenedArgument,
    lambda x: (x.leaves, x.recipe),
    lambda recipe, leaves: made_from(recipe, iter(leaves)),
)


def opened(arguments: Arguments) -> Arguments:
    """The arguments with the operands of deferred ones in their place."""
    leaves = [
        OpenedArgument(tuple(leaves_of(x)), recipe_of(x)) if is_deferred(x) else x
        for x in arguments.leaves
    ]
    flat, shape = tree.flatten(tree.unflatten(arguments.tree, leaves))
    return Arguments(flat, shape, arguments.static_args, arguments.static_kwargs)


def is_deferred(x: Any) -> bool:
    return isinstance(x, Array) and is_inline(x)


def made_from(recipe: Any, leaves: Iterator[Any]) -> Any:
    """Of nodes or of arrays."""
    if recipe is None:
        return next(leaves)
    op, operands, params = recipe
    return op(*[made_from(o, leaves) for o in operands], **dict(params))


# -- compiled --------------------------------------------------------------------------------------


def run_compiled(op: Op, arrays: Sequence[Array], params: dict[str, Any]) -> Array:
    """op(*arrays) as one program with all that makes the deferred ones among them."""
    leaves = [leaf for x in arrays for leaf in leaves_of(x)]
    recipe = (op, tuple(map(recipe_of, arrays)), tuple(sorted(params.items())))
    try:
        program = program_of(recipe, tuple(leaf.type for leaf in leaves))
        result: Array = program.run(leaves)[0]
    except TetradError as error:
        raise located(error) from None
    return result


def leaves_of(x: Array) -> Iterator[Array]:
    """The arrays that are there of which it is made."""
    operands = operands_of(x)
    if operands is None:
        yield x
    else:
        for operand in operands:
            yield from leaves_of(operand)


def recipe_of(x: Array) -> Hashable:
    """How it is made of its leaves; None is a leaf."""
    operands = operands_of(x)
    if operands is None:
        return None
    op, params = (x.node.op, x.node.params) if isinstance(x, TracedArray) else (x.op, x.params)  # type: ignore[attr-defined]
    return op, tuple(map(recipe_of, operands)), params


def operands_of(x: Array) -> tuple[Array, ...] | None:
    """What it is made of, if it is computed as it is read; in a trace, too."""
    if isinstance(x, TracedArray):
        is_made = is_inline(x)
        return tuple(TracedArray.of(i, x.home_trace) for i in x.node.inputs) if is_made else None
    return x.operands if isinstance(x, Deferred) else None


@lru_cache(maxsize=PROGRAMS)
def program_of(recipe: Hashable, kinds: tuple[ArrayType, ...]) -> Any:
    parameters = [make_parameter(kind, i, fresh=True) for i, kind in enumerate(kinds)]
    made: Node = made_from(recipe, iter(parameters))
    graph = make_graph(made.op.name, parameters, [made])
    return lazy.provided("compiled graphs").compiled(graph)
