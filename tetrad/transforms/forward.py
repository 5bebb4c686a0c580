"""Transforms, forward: nodes carry tangents. What jvp and linearize share.

Receives outputs and the tangents of some nodes they depend on; returns for each output its primal
node and its tangent node, or None where nothing changes. Rules come from the ops; graphs inside
graphs (calls, loops, custom functions) are handled by the tables of `transforms.jvp` (both
together, forward) and `transforms.linearize` (apart, to be transposed).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

from tetrad.core.errors import TetradError, UnsupportedError
from tetrad.core.op import REGISTRY, Op
from tetrad.core.source import taken_from
from tetrad.core.types import ArrayType
from tetrad.graph.build import apply, filled, item, results, with_inputs
from tetrad.graph.nodes import Node, topological

Tangent = Node | None  # None: it does not change
Both = tuple[tuple[Node, ...], tuple[Tangent, ...]]  # of every result: primal and tangent
NestedRule = Callable[[Node, Sequence[Node], Sequence[Tangent]], Both]


def is_differentiable(kind: ArrayType) -> bool:
    return kind.dtype.is_float or kind.dtype.is_complex


def push(
    outputs: Sequence[Node], seeds: Mapping[Node, Tangent], nested: Mapping[Op, NestedRule]
) -> Both:
    """Primals and tangents of the outputs, when the nodes in `seeds` change as given."""
    done: dict[Node, Both] = {node: ((node,), (tangent,)) for node, tangent in seeds.items()}
    order = list(topological(outputs))
    stopped = behind_stops(outputs, order)
    for node in order:
        if node not in done:
            try:
                with taken_from(node.source):
                    done[node] = push_node(node, done, nested, stopped)
            except TetradError as error:
                raise error.located(node.source) from None
    return tuple(done[o][0][0] for o in outputs), tuple(done[o][1][0] for o in outputs)


def behind_stops(outputs: Sequence[Node], order: Sequence[Node]) -> set[Node]:
    """Nodes that matter to the outputs through a `stop_gradient` only: nobody asks how they change,
    so they need no rule."""
    stop = REGISTRY["stop_gradient"]
    if not any(node.op is stop for node in order):
        return set()
    seen = set(outputs)
    for node in reversed(order):
        if node in seen and node.op is not stop:
            seen.update(node.inputs)
    return set(order) - seen


def push_node(
    node: Node, done: Mapping[Node, Both], nested: Mapping[Op, NestedRule], stopped: set[Node]
) -> Both:
    if node.op is item:
        primals, tangents = done[node.inputs[0]]
        return primals[node.param("index") :][:1], tangents[node.param("index") :][:1]
    primals = tuple(done[i][0][0] for i in node.inputs)
    tangents = tuple(done[i][1][0] for i in node.inputs)
    moved = with_inputs(node, primals)
    all_results = results(moved) if len(moved.types) > 1 or node.op in nested else (moved,)
    if node in stopped or all(t is None for t in tangents):
        return all_results, (None,) * len(all_results)
    if node.op in nested:
        return nested[node.op](moved, primals, tangents)
    return all_results, tangents_of(moved, all_results, tangents)


def tangents_of(
    node: Node, all_results: tuple[Node, ...], tangents: tuple[Tangent, ...]
) -> tuple[Tangent, ...]:
    """By the rules of the op; results that are no floats do not change. (Quantised numbers are
    refused.)"""
    op, params = node.op, dict(node.params)
    if not any(is_differentiable(kind) or kind.dtype.is_quantized for kind in node.types):
        return (None,) * len(all_results)
    result = all_results if len(all_results) > 1 else all_results[0]
    if op.joint_jvp is not None:
        return as_tuple(op.joint_jvp(tangents, result, *node.inputs, **params), len(all_results))
    parts = [
        as_tuple(contribution(node, i, t, result, params), len(all_results))
        for i, t in enumerate(tangents)
        if t is not None
    ]
    return tuple(sum_of(column) for column in zip(*parts, strict=True))


def contribution(node: Node, i: int, tangent: Node, result: Any, params: dict[str, Any]) -> Any:
    """What a change of operand i adds to the change of the result."""
    op = node.op
    if op.jvp_rules is not None:
        if len(op.jvp_rules) > i and (rule := op.jvp_rules[i]) is not None:
            return rule(tangent, result, *node.inputs, **params)
    elif (
        op.transpose_rules is not None
        and len(op.transpose_rules) > i
        and op.transpose_rules[i] is not None
    ):
        return apply(op, [*node.inputs[:i], tangent, *node.inputs[i + 1 :]], params)
    why = op.no_derivative or f"no rule says how it changes with operand {i}"
    raise UnsupportedError(
        f"{op.name} is not differentiable: {why}",
        source=node.source,
        hint="td.stop_gradient around its result makes that a constant",
    )


def as_tuple(value: Any, count: int) -> tuple[Tangent, ...]:
    if value is None:
        return (None,) * count
    return value if isinstance(value, tuple) else (value,)


def sum_of(parts: Sequence[Tangent]) -> Tangent:
    present = [p for p in parts if p is not None]
    return reduce(lambda a, b: REGISTRY["add"](a, b), present) if present else None


def instantiate(tangent: Tangent, kind: ArrayType) -> Node:
    """The tangent, zeros if nothing changes."""
    return filled(0, kind) if tangent is None else tangent
