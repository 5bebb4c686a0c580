"""Tracing, effects: which nodes of a trace have effects, and in which order.

Receives nodes as they are recorded; the outputs of the trace are tied to those with effects when it
ends. Inside another trace each effect comes after those that were recorded outside before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tetrad.graph.build import item
from tetrad.graph.effects import effects_of, has_effects, is_effect, tied, token_of, waiting
from tetrad.graph.nodes import Graph, Node
from tetrad.tracing.array import TracedArray, node_of
from tetrad.tracing.context import Trace, stack


def note(trace: Trace, nodes: Iterable[Node]) -> None:
    """Remember which of these results come from a node with effects."""
    for node in nodes:
        made = node.inputs[0] if node.op is item else node
        if is_effect(made):
            trace.effects[made] = None


def note_spliced(trace: Trace, graph: Graph, given: Sequence[Node], made: Sequence[Node]) -> None:
    """The same for the results of a graph whose nodes were put into the trace."""
    if has_effects(graph):
        trace.effects |= dict.fromkeys(effects_of(made, known=given))


def in_order(trace: Trace, graph: Graph, given: list[Node]) -> list[Node]:
    """Operands of a graph whose effects come after those of the trace so far."""
    tokens = last_token(trace) if has_effects(graph) else []
    return waiting(given, tokens) if tokens else given


def last_token(trace: Trace) -> list[Node]:
    """What the next effect waits for: the last one of this trace, or of one around it."""
    for outer in reversed(stack.traces):
        if outer.effects:
            last = next(reversed(outer.effects))
            return [node_of(TracedArray.of(token_of(last), outer), trace)]
    return []


def settled(trace: Trace, outputs: Sequence[Node]) -> list[Node]:
    """The outputs of a trace that ends, which cannot be had without its effects."""
    return tied(outputs, list(trace.effects))
