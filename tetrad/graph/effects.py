"""Graph language, effects: nodes that do something beside computing their results (they print, they
write a file), and how they stay in a graph that is what its outputs need.

A node with an effect is one of an effectful op, or one that holds a graph with such nodes: a loop,
a branch, a call. Every output of a graph is tied to the effects that were recorded in it (`tie` is
its operand, once others have been computed), so whoever needs an output runs the effects. Each
effect also waits for the one before it, by an operand that is called a token.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from weakref import WeakKeyDictionary

from tetrad.core.dtypes import u8
from tetrad.core.errors import UnsupportedError
from tetrad.core.op import REGISTRY
from tetrad.core.types import ArrayType
from tetrad.graph.build import filled, item, make_graph, make_item, rebuild
from tetrad.graph.nested import graphs_in, innermost_first, replace_graphs
from tetrad.graph.nodes import Graph, Node, topological

TOKEN = ArrayType(u8, ())

_known: WeakKeyDictionary[Graph, bool] = WeakKeyDictionary()


def has_effects(graph: Graph) -> bool:
    found = _known.get(graph)
    if found is None:
        found = _known[graph] = any(map(is_effect, graph.nodes()))
    return found


def is_effect(node: Node) -> bool:
    if node.op.effectful:
        return True
    if node.op.kind != "structural" or node.op.leaf or node.op is item:
        return False
    return any(has_effects(graph) for _, value in node.params for graph in graphs_in(value))


def effects_of(outputs: Iterable[Node], known: Iterable[Node] = ()) -> list[Node]:
    """The nodes with effects that the outputs need, operands first; without what only `known`
    nodes need."""
    return [node for node in topological(outputs, known=known) if is_effect(node)]


def token_of(effect: Node) -> Node:
    """What an operand has to be to come after this effect: a number, always 0."""
    if effect.op.effectful:
        last = len(effect.types) - 1
        return make_item(effect, last) if last else effect
    results = [make_item(effect, i) for i in range(len(effect.types))]
    small = min(results, key=lambda r: r.type.nbytes if isinstance(r.type.nbytes, int) else 1 << 62)
    found: Node = REGISTRY["tie"](filled(0, TOKEN), small)
    return found


def waiting(nodes: Sequence[Node], tokens: Sequence[Node]) -> list[Node]:
    """The nodes, which cannot be computed before the tokens; blocks of weights stay as they are."""
    tie = REGISTRY["tie"]
    return [n if n.type.dtype.is_quantized else tie(n, *tokens) for n in nodes]


def tied(outputs: Sequence[Node], effects: Sequence[Node]) -> list[Node]:
    """The outputs, which cannot be computed without the effects. If none of them can be tied, a
    token stands behind them."""
    if not effects:
        return list(outputs)
    tokens = [token_of(effect) for effect in effects]
    made = waiting(outputs, tokens)
    if all(o.type.dtype.is_quantized for o in outputs):
        made += waiting([filled(0, TOKEN)], tokens)
    return made


def without_effects(graph: Graph, why: str) -> Graph:
    """The graph without effects, for a second run of what has run before."""
    if not has_effects(graph):
        return graph
    done: dict[Graph, Graph] = {}
    for part in innermost_first(graph):
        done[part] = untied(replace_graphs(part, done))
    for part in innermost_first(done[graph]):
        for node in part.nodes():
            if node.op.effectful:
                message = f"{node.op.name}: its result is needed again: {why}"
                hint = "pass the result on as an argument, or td.pure_callback if it is pure"
                raise UnsupportedError(message, source=node.source, hint=hint)
    return done[graph]


def untied(graph: Graph) -> Graph:
    tie = REGISTRY["tie"]
    free: dict[Node, Node] = {}
    for node in graph.nodes():
        if node.op is tie:
            free[node] = rebuild([node.inputs[0]], free)[0]
    return make_graph(graph.name, graph.inputs, rebuild(graph.outputs, free)) if free else graph
