"""Transforms, linearize: a graph taken apart into its value and its change, the first half of
reverse mode.

Receives a graph and which inputs change; returns two graphs: one gives the outputs and, beside
them, what the other needs (residuals); that one is linear in the tangents it takes, so
`transforms.transpose` can turn it around.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from weakref import WeakKeyDictionary

from tetrad.core.errors import UnsupportedError
from tetrad.core.op import Op
from tetrad.core.record import record
from tetrad.core.sizes import Size
from tetrad.graph.build import call, constant, make_call, make_graph, make_parameter, results
from tetrad.graph.nodes import Graph, Node, topological
from tetrad.ops.movement import expand, reshape, transpose
from tetrad.transforms.forward import Both, NestedRule, Tangent, push
from tetrad.transforms.jvp import Flags, flags_of, present

CHEAP = 4  # operations an element that are rather done again than kept
MOVES = (expand, reshape, transpose)


@record
class Linear:
    """Two graphs, and how they fit together.

    primal    inputs... -> outputs..., extra...
    tangent   residuals..., tangents... -> tangents of the outputs that change
    """

    primal: Graph
    tangent: Graph
    # where each is found: ("input", i), or ("output", i) of the primal graph
    residuals: tuple[tuple[str, int], ...]
    changes: Flags  # of the outputs

    def residual_values(self, inputs: Sequence[Node], outputs: Sequence[Node]) -> list[Node]:
        return [(inputs if kind == "input" else outputs)[i] for kind, i in self.residuals]

    def spread(self, tangents: Sequence[Node]) -> tuple[Tangent, ...]:
        """One for each output, None for those that do not change."""
        rest = iter(tangents)
        return tuple(next(rest) if changes else None for changes in self.changes)


_done: WeakKeyDictionary[Graph, dict[Flags, Linear]] = WeakKeyDictionary()
NESTED: dict[Op, NestedRule] = {}


def linearize(graph: Graph, wrt: Flags) -> Linear:
    """The value and the change of a graph, when the inputs that `wrt` marks change."""
    memo = _done.setdefault(graph, {})
    if wrt not in memo:
        memo[wrt] = take_apart(graph, wrt)
    return memo[wrt]


def take_apart(graph: Graph, wrt: Flags) -> Linear:
    seeds = {
        p: make_parameter(p.type, -1, fresh=True)
        for p, w in zip(graph.inputs, wrt, strict=True)
        if w
    }
    primals, tangents = push(graph.outputs, {p: seeds.get(p) for p in graph.inputs}, NESTED)
    check_apart(primals, set(seeds.values()))
    changes = present(tangents)
    kept = residuals_of(changes, set(seeds.values()), {*graph.inputs, *primals})
    outputs = list(dict.fromkeys((*primals, *(r for r in kept if r not in graph.inputs))))
    return Linear(
        make_graph(graph.name, graph.inputs, [*primals, *outputs[len(set(primals)) :]]),
        make_graph(f"{graph.name}.tangent", [*kept, *seeds.values()], changes),
        places(kept, graph.inputs, [*primals, *outputs[len(set(primals)) :]]),
        flags_of(tangents),
    )


def check_apart(primals: Sequence[Node], tangents: set[Node]) -> None:
    """What a user's rule computes together cannot be taken apart, unless it is a call."""
    reached = depends_on(primals, tangents)
    for node in primals:
        if node in reached:
            message = (
                "a jvp rule computes values and changes in one loop or branch, so it cannot be "
                "transposed"
            )
            raise UnsupportedError(
                message, source=node.source, hint="compute the changes in a loop of their own"
            )


def places(
    kept: Sequence[Node], inputs: Sequence[Node], outputs: Sequence[Node]
) -> tuple[tuple[str, int], ...]:
    found = {node: ("output", i) for i, node in reversed(list(enumerate(outputs)))}
    found |= {node: ("input", i) for i, node in reversed(list(enumerate(inputs)))}
    return tuple(found[node] for node in kept)


# -- what to keep ----------------------------------------------------------------------------------


def depends_on(outputs: Iterable[Node], sources: set[Node]) -> set[Node]:
    """The nodes between: those that some source reaches."""
    found = set(sources)
    for node in topological(outputs):
        if any(i in found for i in node.inputs):
            found.add(node)
    return found


def residuals_of(changes: Sequence[Node], tangents: set[Node], at_hand: set[Node]) -> list[Node]:
    """What the tangents need of the primal computation: little memory, nothing that is at hand
    anyway twice."""
    linear = depends_on(changes, tangents)
    wanted = [i for n in topological(changes) if n in linear for i in n.inputs if i not in linear]
    wanted += [n for n in changes if n not in linear]
    return cut(dict.fromkeys(wanted), at_hand)


def cut(wanted: Iterable[Node], at_hand: set[Node]) -> list[Node]:
    """Nodes from which all wanted ones follow by constants, views and a few cheap operations."""
    chosen: dict[Node, None] = {}
    for node in wanted:
        for source in sources_of(node, at_hand | chosen.keys(), CHEAP):
            chosen[source] = None
    return list(chosen)


def sources_of(node: Node, at_hand: set[Node], budget: int) -> list[Node]:
    if node.op is constant:
        return []
    if node in at_hand or not node.inputs:
        return [node]
    op = node.op
    if op in MOVES:
        return sources_of(node.inputs[0], at_hand, budget)
    # what products compute as they read it is never kept
    if op.inline or (op.kind == "elementwise" and op.cost <= budget):
        deeper = [s for i in node.inputs for s in sources_of(i, at_hand, budget - op.cost)]
        if all(s in at_hand or is_smaller(s, node) for s in deeper):
            return deeper
    return [node]


def is_smaller(a: Node, b: Node) -> bool:
    sizes: tuple[Size, Size] = a.type.nbytes, b.type.nbytes
    return all(isinstance(n, int) for n in sizes) and 2 * sizes[0] <= sizes[1]  # type: ignore[operator]


# -- graphs inside ---------------------------------------------------------------------------------


def linearize_call(node: Node, primals: Sequence[Node], tangents: Sequence[Tangent]) -> Both:
    linear = linearize(node.param("graph"), flags_of(tangents))
    outputs = results(make_call(linear.primal, primals, node.source))
    if not any(linear.changes):
        return outputs[: len(linear.changes)], linear.spread([])
    kept = linear.residual_values(primals, outputs)
    changes = results(make_call(linear.tangent, [*kept, *present(tangents)], node.source))
    return outputs[: len(linear.changes)], linear.spread(changes)


NESTED[call] = linearize_call
