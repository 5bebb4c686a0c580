"""Tracing, inline: run a derived graph here and now.

Receives a graph and arrays for its inputs; returns arrays: computed with NumPy when all are concrete, else nodes of the
current trace, with the graph's nodes in place of a call.
"""

from __future__ import annotations

from collections.abc import Sequence

from tetrad.graph.build import spliced
from tetrad.graph.evaluate import evaluate
from tetrad.graph.nodes import Graph
from tetrad.tracing.array import Array, TracedArray, array_type, node_of, trace_of


def run_graph(graph: Graph, arrays: Sequence[Array]) -> list[Array]:
    traced = next((a for a in arrays if isinstance(a, TracedArray)), None)
    if traced is None:
        return evaluated(graph, arrays)
    trace = trace_of(traced)
    return [TracedArray.of(node, trace) for node in spliced(graph, [node_of(a, trace) for a in arrays])]


def evaluated(graph: Graph, arrays: Sequence[Array]) -> list[Array]:
    results = evaluate(graph, [a.view for a in arrays])
    made = []
    for node, view in zip(graph.outputs, results, strict=True):
        array = Array.__new__(Array)
        array.type, array._view, array._storage = array_type(node.type.dtype, view.shape), view, None
        made.append(array)
    return made
