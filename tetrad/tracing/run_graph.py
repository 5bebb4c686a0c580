"""Tracing, inline: run a derived graph here and now.

Receives a graph and arrays for its inputs; returns arrays: computed with NumPy when all are
concrete, else nodes of the current trace, with the graph's nodes in place of a call.
"""

from __future__ import annotations

from collections.abc import Sequence

from tetrad.core import lazy
from tetrad.graph.build import spliced
from tetrad.graph.evaluate import evaluate
from tetrad.graph.nested import innermost_first
from tetrad.graph.nodes import Graph
from tetrad.tracing.array import Array, TracedArray, array_type, kept, node_of, trace_of
from tetrad.tracing.context import current_trace


def run_graph(graph: Graph, arrays: Sequence[Array]) -> list[Array]:
    traced = next((a for a in arrays if isinstance(a, TracedArray)), None)
    trace = trace_of(traced) if traced is not None else current_trace()
    if trace is None or (traced is None and is_known_now(graph)):
        return evaluated(graph, arrays)
    return [
        TracedArray.of(node, trace) for node in spliced(graph, [node_of(a, trace) for a in arrays])
    ]


def is_known_now(graph: Graph) -> bool:
    """Is it computed while tracing, if all its inputs are known? Not where a size is a Dim, which
    has no number yet, nor what products compute as they read it, which needs no memory later."""
    nodes = graph.nodes()
    return all(k.is_static for n in nodes for k in n.types) and not any(n.op.inline for n in nodes)


def reads_low_bits(graph: Graph) -> bool:
    """Are there weights of low bits in it? NumPy would decode them first, so it is compiled."""
    nodes = (node for inner in innermost_first(graph) for node in inner.nodes())
    return any(
        node.types[0].dtype.is_float and any(i.types[0].dtype.is_quantized for i in node.inputs)
        for node in nodes
    )


def evaluated(graph: Graph, arrays: Sequence[Array]) -> list[Array]:
    if reads_low_bits(graph):
        return lazy.provided("compiled graphs").run(graph, arrays)  # type: ignore[no-any-return]
    results = evaluate(graph, [kept(a).view for a in arrays])
    made = []
    for node, view in zip(graph.outputs, results, strict=True):
        array = Array.__new__(Array)
        array.type, array._view, array._storage = (
            node.type if node.type.dtype.is_narrow else array_type(node.type.dtype, view.shape),
            view,
            None,
        )
        made.append(array)
    return made
