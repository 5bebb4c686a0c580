"""Passes, the pipeline: the one list that orders all passes. A graph in, a better graph of the same
meaning out.

There is no pass for dead code: a graph is what its outputs need, so what nobody uses is not in it.
There is none for common subexpressions: equal nodes are one node. Graphs inside graphs go through
the same list, each once, before the graph that holds them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from tetrad.core.errors import CompileError, FlagError
from tetrad.core.flags import flag_words
from tetrad.core.record import record
from tetrad.graph.nested import innermost_first, replace_graphs
from tetrad.graph.nodes import Graph
from tetrad.graph.text import diff, to_text
from tetrad.graph.verify import verify
from tetrad.passes.algebra import algebra
from tetrad.passes.fold import fold
from tetrad.passes.hoist import hoist
from tetrad.passes.layout import layout
from tetrad.passes.quantized import quantized
from tetrad.passes.rewrite import Fired, RuleLog, Rules
from tetrad.passes.split import parts, split
from tetrad.passes.unroll import unroll


@record
class Pass:
    """One step: a name for people, and what it does to a graph."""

    name: str
    run: Callable[[Graph, RuleLog | None], Graph]


# One walk with all sets of rules: each makes room for the others, and after the walk none of them
# fires.
simplify = Rules("simplify", parts, layout, algebra, quantized, fold)

PIPELINE: tuple[Pass, ...] = (
    Pass("unroll", lambda graph, _: unroll(graph)),
    Pass("split", split),
    Pass("hoist", lambda graph, _: hoist(graph, simplify.apply)),
    Pass("simplify", simplify.apply),
)


def optimise(graph: Graph, trace: RuleLog | None = None) -> Graph:
    """The graph after every pass. `trace` receives the rules that fired."""
    show("graph", "", lambda: to_text(graph))
    done: dict[Graph, Graph] = {}
    for part in innermost_first(graph):
        done[part] = optimise_one(replace_graphs(part, done), trace)
    return done[graph]


def optimise_one(graph: Graph, trace: RuleLog | None) -> Graph:
    """Every pass on one graph; the graphs inside it are left as they are."""
    checking = "1" in flag_words("TETRAD_CHECK")
    if checking:
        verify(graph)
    for step in PIPELINE:
        log = RuleLog()
        before, graph = graph, step.run(graph, log)
        check_kept(step, before, graph)
        if checking:
            verify(graph)
        show_pass(step, before, graph, log.fired)
        if trace is not None:
            trace.fired.extend(log.fired)
    return graph


def check_kept(step: Pass, before: Graph, after: Graph) -> None:
    """A pass keeps the types of all results, as each rule keeps those of its node."""
    old, new = ([output.type for output in graph.outputs] for graph in (before, after))
    if old != new:
        raise CompileError(
            f"pass {step.name} turned the results of graph {before.name} from {old} into {new}"
        )


def show(station: str, detail: str, text: Callable[[], str]) -> None:
    """Print a station to stderr when TETRAD_SHOW asks for it, by name alone or with this detail."""
    wanted = flag_words("TETRAD_SHOW").get(station)
    if wanted is not None and wanted in ("", detail):
        print(text(), file=sys.stderr)


def show_pass(step: Pass, before: Graph, after: Graph, fired: list[Fired]) -> None:
    wanted = flag_words("TETRAD_SHOW").get("passes", "")
    if wanted and wanted not in {p.name for p in PIPELINE}:
        known = ", ".join(p.name for p in PIPELINE)
        raise FlagError(
            f"TETRAD_SHOW=passes:{wanted}: there is no such pass", hint=f"passes: {known}"
        )
    show("passes", step.name, lambda: describe(step, before, after, fired))


def describe(step: Pass, before: Graph, after: Graph, fired: list[Fired]) -> str:
    """What a pass did: the rules that fired, then the change line by line."""
    if after is before:
        return f"pass {step.name}: graph {before.name}: nothing to do"
    lines = [
        f"pass {step.name}: graph {before.name}: {len(before.nodes())} nodes -> "
        f"{len(after.nodes())}"
    ]
    return "\n".join([*lines, *(f"  {f}" for f in fired), diff(before, after)])
