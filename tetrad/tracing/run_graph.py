"""Tracing, inline: run a derived graph here and now.

Receives a graph and arrays for its inputs; returns arrays: computed with NumPy when all are
concrete, else nodes of the current trace, with the graph's nodes in place of a call.
"""

from __future__ import annotations

from collections.abc import Sequence

from tetrad.core import lazy
from tetrad.core.dtypes import COMPILED_DTYPES
from tetrad.graph.build import spliced
from tetrad.graph.effects import has_effects
from tetrad.graph.evaluate import evaluate
from tetrad.graph.loops import operations
from tetrad.graph.nested import graphs_in, innermost_first
from tetrad.graph.nodes import Graph
from tetrad.graph.patience import OutOfPatience, limited
from tetrad.tracing.array import Array, TracedArray, array_type, kept, node_of, trace_of
from tetrad.tracing.context import current_trace
from tetrad.tracing.effects import in_order, note_spliced
from tetrad.tracing.switches import checked_values

# operations of loops that NumPy computes; for more it takes longer than to compile them
MOST_EVALUATED = 4096


def run_graph(graph: Graph, arrays: Sequence[Array]) -> list[Array]:
    traced = next((a for a in arrays if isinstance(a, TracedArray)), None)
    trace = trace_of(traced) if traced is not None else current_trace()
    if trace is None or (traced is None and is_known_now(graph)):
        return evaluated(graph, arrays)
    given = in_order(trace, graph, [node_of(a, trace) for a in arrays])
    made = spliced(graph, given)
    note_spliced(trace, graph, given, made)
    return [TracedArray.of(node, trace) for node in made]


def is_known_now(graph: Graph) -> bool:
    """Is it computed while tracing, if all its inputs are known? Not where a size is a Dim, which
    has no number yet, nor what products compute as they read it, which needs no memory later,
    nor what happens once in every run."""
    nodes = graph.nodes()
    if has_effects(graph):
        return False
    return all(k.is_static for n in nodes for k in n.types) and not any(n.op.inline for n in nodes)


def reads_low_bits(graph: Graph) -> bool:
    """Are there weights of low bits in it? NumPy would decode them first, so it is compiled."""
    nodes = (node for inner in innermost_first(graph) for node in inner.nodes())
    return any(
        node.types[0].dtype.is_float and any(i.types[0].dtype.is_quantized for i in node.inputs)
        for node in nodes
    )


def is_pure(graph: Graph) -> bool:
    """Does it compute with nothing but arrays, of types that kernels compute with?"""
    nodes = [node for inner in innermost_first(graph) for node in inner.nodes()]
    return all(node.op.portable for node in nodes) and all(
        kind.dtype in COMPILED_DTYPES or kind.dtype.is_quantized
        for node in (*graph.inputs, *nodes)
        for kind in node.types
    )


def is_long(graph: Graph) -> bool:
    """Do loops in it take longer on NumPy than compiling would?"""
    holds_loops = any(graphs_in(tuple(v for _, v in n.params)) for n in graph.nodes())
    return holds_loops and operations(graph) > MOST_EVALUATED


def compiled(graph: Graph, arrays: Sequence[Array]) -> list[Array]:
    return lazy.provided("compiled graphs").run(graph, arrays)  # type: ignore[no-any-return]


def evaluated(graph: Graph, arrays: Sequence[Array]) -> list[Array]:
    """The outputs, on NumPy; of a graph with long loops by compiled code."""
    if reads_low_bits(graph):
        return compiled(graph, arrays)
    if checked_values() or not is_pure(graph):
        return on_numpy(graph, arrays)
    if is_long(graph):
        return compiled(graph, arrays)
    try:
        with limited(MOST_EVALUATED):
            return on_numpy(graph, arrays)
    except OutOfPatience:
        return compiled(graph, arrays)


def on_numpy(graph: Graph, arrays: Sequence[Array]) -> list[Array]:
    results = evaluate(graph, [kept(a).memory for a in arrays])
    if wanted := checked_values():
        views = [kept(a).memory for a in arrays]
        lazy.provided("bad values").check(graph, views, results, wanted)
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
