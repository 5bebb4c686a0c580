"""Tracing, inline: run a derived graph here and now.

Receives a graph and arrays for its inputs; returns arrays: computed with NumPy when all are
concrete, else nodes of the current trace, with the graph's nodes in place of a call.
"""

from __future__ import annotations

from collections.abc import Sequence

from tetrad.graph.build import spliced
from tetrad.graph.evaluate import evaluate
from tetrad.graph.nodes import Graph
from tetrad.tracing.array import Array, TracedArray, array_type, kept, node_of, trace_of
from tetrad.tracing.context import current_trace


def run_graph(graph: Graph, arrays: Sequence[Array]) -> list[Array]:
    traced = next((a for a in arrays if isinstance(a, TracedArray)), None)
    trace = trace_of(traced) if traced is not None else current_trace()
    if trace is None or (
        traced is None and all(kind.is_static for node in graph.nodes() for kind in node.types)
    ):
        # (a size that is a Dim has no number here, even where all values are known)
        return evaluated(graph, arrays)
    return [
        TracedArray.of(node, trace) for node in spliced(graph, [node_of(a, trace) for a in arrays])
    ]


def evaluated(graph: Graph, arrays: Sequence[Array]) -> list[Array]:
    results = evaluate(graph, [kept(a).view for a in arrays])
    made = []
    for node, view in zip(graph.outputs, results, strict=True):
        array = Array.__new__(Array)
        array.type, array._view, array._storage = (
            node.type if node.type.dtype.is_nibble else array_type(node.type.dtype, view.shape),
            view,
            None,
        )
        made.append(array)
    return made
