"""Transforms, batch: a graph on whole batches, one new leading axis on some of its inputs.

Receives a graph and which inputs have the axis; returns the graph that has it on every output that
depends on them, and says which. One batched op for each op, no loop; what does not depend on the
batch is computed once. An op without a rule is applied to the rows one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from tetrad.core.errors import TetradError
from tetrad.core.op import Op
from tetrad.core.record import record
from tetrad.core.sizes import Size
from tetrad.core.source import taken_from
from tetrad.graph.build import (
    apply,
    call,
    item,
    make_call,
    make_graph,
    make_parameter,
    results,
    with_inputs,
)
from tetrad.graph.loops import make_scan
from tetrad.graph.nodes import Graph, Node, topological
from tetrad.ops.calculus import all_batched, expand
from tetrad.transforms.jvp import Flags

Many = tuple[tuple[Node, ...], Flags]  # of every result: the node, and whether it has the axis


@record
class Axis:
    """The new axis: how many rows, and the name by which collective ops know it."""

    size: Size
    name: Any = None


NestedRule = Callable[[Node, Sequence[Node], Flags, Axis], Many]
NESTED: dict[Op, NestedRule] = {}
# of ops whose param `axis_name` is the axis
COLLECTIVE: dict[Op, NestedRule] = {}


@record
class BatchedGraph:
    """The graph with the axis on its inputs as asked, and which outputs have it."""

    graph: Graph
    batched: Flags


_done: WeakKeyDictionary[Graph, dict[tuple[Flags, Axis, Flags | None], BatchedGraph]] = (
    WeakKeyDictionary()
)


def batch(graph: Graph, batched: Flags, axis: Axis, forced: Flags | None = None) -> BatchedGraph:
    """The graph on batches; `forced` marks outputs that shall have the axis in any case."""
    memo = _done.setdefault(graph, {})
    key = batched, axis, forced
    if key not in memo:
        inputs = [
            make_parameter(
                p.type.with_shape((axis.size, *p.type.shape)) if flag else p.type, -1, fresh=True
            )
            for p, flag in zip(graph.inputs, batched, strict=True)
        ]
        seeds = dict(zip(graph.inputs, zip(inputs, batched, strict=True), strict=True))
        outputs, flags = lift(graph.outputs, seeds, axis)
        if forced is not None:
            outputs = tuple(
                with_axis(o, f, axis) if w else o
                for o, f, w in zip(outputs, flags, forced, strict=True)
            )
            flags = tuple(f or w for f, w in zip(flags, forced, strict=True))
        memo[key] = BatchedGraph(make_graph(f"{graph.name}.batched", inputs, outputs), flags)
    return memo[key]


def with_axis(x: Node, batched: bool, axis: Axis) -> Node:
    return x if batched else expand(x, (axis.size, *x.type.shape))


def lift(outputs: Sequence[Node], seeds: Mapping[Node, tuple[Node, bool]], axis: Axis) -> Many:
    """The outputs on batches, when the nodes in `seeds` stand for others that may have the axis."""
    done: dict[Node, Many] = {node: ((made,), (flag,)) for node, (made, flag) in seeds.items()}
    for node in topological(outputs):
        if node not in done:
            try:
                with taken_from(node.source):
                    done[node] = lift_node(node, done, axis)
            except TetradError as error:
                raise error.located(node.source) from None
    return tuple(done[o][0][0] for o in outputs), tuple(done[o][1][0] for o in outputs)


def lift_node(node: Node, done: Mapping[Node, Many], axis: Axis) -> Many:
    if node.op is item:
        nodes, flags = done[node.inputs[0]]
        return nodes[node.param("index") :][:1], flags[node.param("index") :][:1]
    inputs = tuple(done[i][0][0] for i in node.inputs)
    batched = tuple(done[i][1][0] for i in node.inputs)
    if is_collective(node, axis):
        return COLLECTIVE[node.op](node, inputs, batched, axis)
    if node.op in NESTED and (any(batched) or axis.name is not None):
        return NESTED[node.op](node, inputs, batched, axis)
    if not any(batched):
        same = with_inputs(node, inputs)
        made = results(same) if len(node.types) > 1 or node.op in NESTED else (same,)
        return made, (False,) * len(made)
    found = batched_op(node, inputs, batched, axis)
    made = found if isinstance(found, tuple) else (found,)
    return made, (True,) * len(made)


def is_collective(node: Node, axis: Axis) -> bool:
    return axis.name is not None and node.op in COLLECTIVE and node.param("axis_name") == axis.name


def batched_op(node: Node, inputs: Sequence[Node], batched: Flags, axis: Axis) -> Any:
    params = dict(node.params)
    if node.op.batch_rule is not None:
        made = node.op.batch_rule(batched, *inputs, **params)
        return row_by_row(node, inputs, batched, axis) if made is None else made
    if node.op.kind == "elementwise":
        return apply(node.op, all_batched(batched, inputs), params)
    return row_by_row(node, inputs, batched, axis)


def row_by_row(node: Node, inputs: Sequence[Node], batched: Flags, axis: Axis) -> tuple[Node, ...]:
    """The op on one row after the other."""
    shared = [i for i, flag in enumerate(batched) if not flag]
    rows = [i for i, flag in enumerate(batched) if flag]
    order = [*shared, *rows]
    parameters = [make_parameter(node.inputs[i].type, -1, fresh=True) for i in order]
    placed = tuple(parameters[order.index(i)] for i in range(len(order)))
    one = with_inputs(node, placed)
    body = make_graph(node.op.name, parameters, results(one) if len(one.types) > 1 else [one])
    return make_scan(
        body, [inputs[i] for i in shared], [], [inputs[i] for i in rows], length=axis.size
    )


# -- graphs inside ---------------------------------------------------------------------------------


def batch_call(node: Node, inputs: Sequence[Node], batched: Flags, axis: Axis) -> Many:
    made = batch(node.param("graph"), batched, axis)
    return results(make_call(made.graph, inputs, node.source)), made.batched


NESTED[call] = batch_call
