"""Tracing, origins: where a traced array came from, for errors, and how it is printed.

Receives a traced array; returns words. Loaded by the first error.
"""

from __future__ import annotations

import numpy as np

from tetrad.core.errors import TetradError
from tetrad.graph.build import make_graph, parameter
from tetrad.graph.effects import is_effect
from tetrad.graph.evaluate import evaluate
from tetrad.graph.nodes import Node, topological
from tetrad.tracing.array import TracedArray, known_value

MOST = 3  # arguments that are named
SHOWN_ROWS = 8  # examples of a batch that are printed


def arguments_of(x: TracedArray) -> list[tuple[str, str]]:
    """(function, argument) of all that it follows from."""
    found: dict[tuple[str, str], None] = {}
    names = x.home_trace.named()
    outside = {node: value for value, node in x.home_trace.captured.values()}
    for node in parameters_of(x.node):
        if node in names:
            found[x.home_trace.name, names[node]] = None
        elif isinstance(outer := outside.get(node), TracedArray):
            found |= dict.fromkeys(arguments_of(outer))
    return list(found)


def parameters_of(node: Node) -> list[Node]:
    return [n for n in topological([node]) if n.op is parameter]


def listed(names: list[str]) -> str:
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return ", ".join(names[:MOST]) + more


def told(x: TracedArray) -> str:
    """`; it follows from the argument x of f`."""
    found = arguments_of(x)
    if not found:
        return made(x)
    functions = dict.fromkeys(function for function, _ in found)
    parts = []
    for function in functions:
        names = [name for owner, name in found if owner == function]
        noun = "argument" if len(names) == 1 else "arguments"
        parts.append(f"{noun} {listed(names)} of {function}")
    given = x.node if x.wide is None else x.wide
    verb = "is" if given.op is parameter else "follows from"
    return f"; it {verb} the {' and the '.join(parts)}"


def static(x: TracedArray) -> str:
    """What to do if the argument is a setting."""
    trace = x.home_trace
    if trace.rows or trace.values or trace.parent is not None:  # no compiled function
        return ""
    whole = [name for _, name in arguments_of(x) if name.isidentifier()]
    if not whole:
        return "; static_argnums for plain settings"
    return f"; static_argnames={whole[0]!r} if {whole[0]} is a plain setting"


def made(x: TracedArray) -> str:
    """`; multiply made it in f, file line 3`, or what argument it is."""
    source, names = x.node.source, x.home_trace.named()
    given = x.node if x.wide is None else x.wide
    if given in names:
        return f"; it is the argument {names[given]}"
    if source is None:
        return ""
    return f"; {x.node.op.name} made it in {source.function}, {source.file} line {source.line}"


def shown(x: TracedArray) -> str:
    """`Traced<f32[3]>`, with the values that it has in a derivative or a batch."""
    head = f"Traced<{x.type}>"
    if not x.home_trace.active:
        return f"{head} of {x.home_trace.name}, whose tracing has ended"
    try:
        value = known_value(x)
        rows = rows_of(x) if value is None else None
    except TetradError:
        return head
    if value is not None:
        return f"{head} with primal {np.array2string(value, separator=', ')}"
    return head if rows is None else f"{head} with rows {rows}"


def rows_of(x: TracedArray) -> str | None:
    """What it is in each example of the batch that is traced."""
    given, nodes = x.home_trace.rows, parameters_of(x.node)
    if (
        not nodes
        or any(n not in given for n in nodes)
        or any(map(is_effect, topological([x.node])))
    ):
        return None
    batched = [given[n].type != n.type for n in nodes]
    if any(isinstance(given[n], TracedArray) for n in nodes) or not any(batched):
        return None
    views = [np.asarray(given[n]) for n in nodes]
    count = next(len(v) for v, flag in zip(views, batched, strict=True) if flag)
    graph = make_graph(x.home_trace.name, nodes, [x.node])
    made = [
        evaluate(graph, [v[t] if flag else v for v, flag in zip(views, batched, strict=True)])[0]
        for t in range(min(count, SHOWN_ROWS))
    ]
    more = ", ..." if count > SHOWN_ROWS else ""
    return f"[{', '.join(np.array2string(row, separator=', ') for row in made)}{more}]"
