"""Transforms, jvp: a graph and its change in a direction, together. Forward mode.

Receives a graph and which of its inputs change; returns a graph that also takes their tangents and
also gives the tangents of the outputs that change. Each graph inside is derived once for each
pattern of changing inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

from tetrad.core.op import Op
from tetrad.core.record import record
from tetrad.graph.build import call, make_call, make_graph, make_parameter, results
from tetrad.graph.nodes import Graph, Node
from tetrad.transforms.forward import Both, NestedRule, Tangent, push

Flags = tuple[bool, ...]


@record
class Forward:
    """inputs..., tangents of those that change  ->  outputs..., tangents of those that change."""

    graph: Graph
    changes: Flags  # of the outputs

    def split(self, values: Sequence[Node]) -> Both:
        """The results of the graph: outputs, and a tangent or None for each."""
        count = len(self.changes)
        rest = iter(values[count:])
        return tuple(values[:count]), tuple(
            next(rest) if changes else None for changes in self.changes
        )


_done: WeakKeyDictionary[Graph, dict[Flags, Forward]] = WeakKeyDictionary()
NESTED: dict[Op, NestedRule] = {}


def jvp(graph: Graph, wrt: Flags) -> Forward:
    """The graph with the tangents of the inputs that `wrt` marks."""
    memo = _done.setdefault(graph, {})
    if wrt not in memo:
        marked = zip(graph.inputs, wrt, strict=True)
        tangents = [make_parameter(p.type, -1, fresh=True) if w else None for p, w in marked]
        primals, changes = push(
            graph.outputs, dict(zip(graph.inputs, tangents, strict=True)), NESTED
        )
        inputs = [*graph.inputs, *(t for t in tangents if t is not None)]
        made = make_graph(
            f"{graph.name}.jvp", inputs, [*primals, *(t for t in changes if t is not None)]
        )
        memo[wrt] = Forward(made, tuple(t is not None for t in changes))
    return memo[wrt]


def present(tangents: Sequence[Tangent]) -> list[Node]:
    return [t for t in tangents if t is not None]


def flags_of(tangents: Sequence[Tangent]) -> Flags:
    return tuple(t is not None for t in tangents)


def jvp_call(node: Node, primals: Sequence[Node], tangents: Sequence[Tangent]) -> Both:
    forward = jvp(node.param("graph"), flags_of(tangents))
    return forward.split(
        results(make_call(forward.graph, [*primals, *present(tangents)], node.source))
    )


NESTED[call] = jvp_call
