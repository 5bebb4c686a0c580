"""Graph language, nested: the graphs that a graph holds in params (`call`, loops, branches).

Receives a graph, returns the graphs inside it, each once, innermost first; or returns the graph
with its inner graphs replaced. Every walk over a whole program (text, verify, passes) starts here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from tetrad.graph.build import intern, make_graph, with_inputs
from tetrad.graph.nodes import Graph, Node

_direct: WeakKeyDictionary[Graph, tuple[Graph, ...]] = WeakKeyDictionary()


def graphs_in(value: Any) -> Iterator[Graph]:
    """The graphs in a param: the param itself, or inside tuples."""
    if isinstance(value, Graph):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from graphs_in(part)


def direct(graph: Graph) -> tuple[Graph, ...]:
    """The graphs that nodes of this graph hold, each once, in order of appearance. Remembered:
    every step of the pipeline asks."""
    found = _direct.get(graph)
    if found is None:
        held = (g for node in graph.nodes() for _, value in node.params for g in graphs_in(value))
        found = _direct[graph] = tuple(dict.fromkeys(held))
    return found


def innermost_first(graph: Graph) -> tuple[Graph, ...]:
    """The graph and every graph inside it, each once and after those it holds; the graph itself is
    last."""
    order: dict[Graph, None] = {}
    stack: list[tuple[Graph, tuple[Graph, ...] | None]] = [(graph, None)]
    while stack:
        current, held = stack.pop()
        if current in order:
            continue
        if held is None:
            held = direct(current)
            stack.append((current, held))
            stack.extend((g, None) for g in reversed(held))
        else:
            order[current] = None
    return tuple(order)


def replace_graphs(graph: Graph, replaced: Mapping[Graph, Graph]) -> Graph:
    """The graph with the graphs it holds directly replaced by others of the same signature."""
    if all(replaced.get(g, g) is g for g in direct(graph)):
        return graph
    done: dict[Node, Node] = {}
    for node in graph.nodes():
        moved = with_inputs(node, tuple(done[i] for i in node.inputs))
        params = tuple(
            (name, _mapped(value, lambda g: replaced.get(g, g))) for name, value in node.params
        )
        done[node] = intern(moved.op, moved.inputs, params, moved.types, moved.source)
    return make_graph(graph.name, graph.inputs, [done[o] for o in graph.outputs])


def _mapped(value: Any, change: Callable[[Graph], Graph]) -> Any:
    if isinstance(value, Graph):
        return change(value)
    return tuple(_mapped(part, change) for part in value) if isinstance(value, tuple) else value
