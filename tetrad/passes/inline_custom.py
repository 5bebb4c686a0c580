"""Passes, inline custom calls: removes what only transforms need, so that the program can be
compiled.

Receives and returns whole programs. A `custom_call` becomes the nodes of its graph, a
`checkpoint_call` a plain call, a `linear_call` its forward graph; `stop_gradient(x)` becomes x.
"""

from __future__ import annotations

from collections.abc import Mapping

from tetrad.graph.build import item, make_call, make_graph, results, spliced, with_inputs
from tetrad.graph.custom import checkpoint_call, custom_call, known_forward, linear_call
from tetrad.graph.nested import innermost_first, replace_graphs
from tetrad.graph.nodes import Graph, Node
from tetrad.passes.step import Pass

CALLS = (custom_call, checkpoint_call, linear_call)


def inline_custom(graph: Graph) -> Graph:
    """The program without these calls, in the graph and in the graphs it holds."""
    done: dict[Graph, Graph] = {}
    for part in innermost_first(graph):
        done[part] = without_custom(replace_graphs(part, done))
    return done[graph]


# jit runs this step by itself: the key of the program cache is the text of a plain program.
INLINE_CUSTOM = Pass("inline_custom", lambda graph, _: inline_custom(graph), is_whole=True)


def without_custom(graph: Graph) -> Graph:
    """One graph, whose inner graphs are done already."""
    nodes = graph.nodes()
    if not any(node.op in CALLS or node.op.stops_gradient for node in nodes):
        return graph
    done: dict[Node, tuple[Node, ...]] = {}
    for node in nodes:
        done[node] = plain_results(node, done)
    return make_graph(graph.name, graph.inputs, [done[o][0] for o in graph.outputs])


def plain_results(node: Node, done: Mapping[Node, tuple[Node, ...]]) -> tuple[Node, ...]:
    if node.op is item and node.inputs[0].op in CALLS:
        return done[node.inputs[0]][node.param("index") :][:1]
    inputs = tuple(done[i][0] for i in node.inputs)
    if node.op.stops_gradient:
        return inputs
    if node.op is custom_call:
        return tuple(spliced(node.param("graph"), inputs))
    if node.op is checkpoint_call:
        return results(make_call(node.param("graph"), inputs, node.source))
    if node.op is linear_call:
        return tuple(spliced(known_forward(node.param("forward")), inputs))
    return (with_inputs(node, inputs),)
