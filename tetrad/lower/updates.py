"""Lowering, updates: ops that change an array in place, and the copies that make this safe.

An op with `in_place` (a KV cache taking in new keys) gives an array that lies where its operand 0 lay. That holds
through calls: an output of a sub-graph that updates an input lies where the caller's operand lies. Where somebody else
still needs the old contents, the operand is copied first; a caller's argument that is not donated is copied by the
driver.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from tetrad.graph.build import apply, make_graph, with_inputs
from tetrad.graph.nodes import Graph, Node, uses
from tetrad.ops.movement import copy

_updates: WeakKeyDictionary[Graph, dict[int, int]] = WeakKeyDictionary()


def updated(node: Node) -> Node | None:
    """The operand a node changes in place, if it does."""
    if node.op.in_place:
        return node.inputs[0]
    if node.op.name == "item" and node.inputs[0].op.name == "call":
        call = node.inputs[0]
        operand = updates_of(call.param("graph")).get(node.param("index"))
        return None if operand is None else call.inputs[operand]
    return None


def home(node: Node) -> Node:
    """The node whose memory a node lies in: itself, or what a chain of updates began with."""
    while (before := updated(node)) is not None:
        node = before
    return node


def updates_of(graph: Graph) -> dict[int, int]:
    """Outputs of a graph that are inputs changed in place: output position -> input position."""
    found = _updates.get(graph)
    if found is None:
        place = {node: i for i, node in enumerate(graph.inputs)}
        homes = {i: home(o) for i, o in enumerate(graph.outputs) if updated(o) is not None}
        found = _updates[graph] = {i: place[node] for i, node in homes.items() if node in place}
    return found


def with_room_for_updates(graph: Graph) -> Graph:
    """The graph with a copy in front of every update whose operand is needed elsewhere, or has no memory of its own."""
    counts = uses(graph)
    done: dict[Node, Node] = {}
    copies = 0
    for node in graph.nodes():
        inputs = [done[i] for i in node.inputs]
        for position in overwritten(node):
            operand = node.inputs[position]
            if counts[operand] > 1 or operand.op.name in ("constant", "reshape"):
                inputs[position] = apply(copy, [inputs[position]], {"which": copies}, node.source)
                copies += 1
        done[node] = with_inputs(node, tuple(inputs))
    return make_graph(graph.name, graph.inputs, [done[o] for o in graph.outputs]) if copies else graph


def overwritten(node: Node) -> tuple[int, ...]:
    """Positions of the operands whose memory a node changes."""
    if node.op.in_place:
        return (0,)
    return tuple(updates_of(node.param("graph")).values()) if node.op.name == "call" else ()
