"""Passes, step: a step of the pipeline, and how it runs: checked, verified, timed and shown.

Receives a graph, returns one of the same meaning. The list of steps is in `compiler.pipeline`. jit
runs the first step by itself, so this file imports no other.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tetrad.core import lazy, show
from tetrad.core.errors import CompileError
from tetrad.core.flags import flag_words
from tetrad.core.record import record
from tetrad.graph.nodes import Graph

if TYPE_CHECKING:
    from tetrad.passes.rewrite import Fired, RuleLog


@record
class Pass:
    """A step from graph to graph: a name and a function. It receives one graph at a time, inner
    graphs first; or, if it `is_whole`, a graph together with those it holds."""

    name: str
    run: Callable[[Graph, RuleLog | None], Graph]
    is_whole: bool = False


def run_pass(step: Pass, graph: Graph, log: RuleLog | None = None) -> Graph:
    """The graph after one step. `log` receives the rules that fired."""
    start = time.perf_counter()
    after = step.run(graph, log)
    show.spend(step.name, time.perf_counter() - start)
    check_kept(step, graph, after)
    verify_if_asked(after)
    fired = () if log is None else log.fired
    show_step(step.name, lambda: describe(step, graph, after, fired))
    return after


def check_kept(step: Pass, before: Graph, after: Graph) -> None:
    """Check that a pass kept the types of all results."""
    old, new = ([output.type for output in graph.outputs] for graph in (before, after))
    if old != new:
        raise CompileError(
            f"pass {step.name} turned the results of graph {before.name} from {old} into {new}"
        )


def verify_if_asked(graph: Graph) -> None:
    """TETRAD_CHECK=1 verifies the graph between any two steps."""
    if "1" in flag_words("TETRAD_CHECK"):
        lazy.module("tetrad.graph.verify").verify(graph)


def show_step(name: str, text: Callable[[], str]) -> None:
    """Print what a step did to stderr when TETRAD_SHOW asks for all of them, or for this one."""
    wanted = flag_words("TETRAD_SHOW").get("passes")
    if wanted is not None and wanted in ("", name):
        print(text(), file=sys.stderr)


def describe(step: Pass, before: Graph, after: Graph, fired: Sequence[Fired]) -> str:
    """What a pass did: the rules that fired, then the changed lines."""
    if after is before:
        return f"pass {step.name}: graph {before.name}: nothing to do"
    lines = [
        f"pass {step.name}: graph {before.name}: {len(before.nodes())} nodes -> "
        f"{len(after.nodes())}"
    ]
    changes: str = lazy.module("tetrad.graph.text").diff(before, after)  # seldom printed
    return "\n".join([*lines, *(f"  {f}" for f in fired), changes])
