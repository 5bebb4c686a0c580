"""Compiler, the pipeline: every step between a traced graph and its schedule, in one list.

Receives a graph, returns what it is lowered to. There is no pass for dead code: a graph is what its
outputs need, so what nobody uses is not in it. There is none for common subexpressions: equal nodes
are one node. Each step is shown by `TETRAD_SHOW=passes:NAME`, verified under TETRAD_CHECK=1 and
timed under TETRAD_TIME=1.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any

from tetrad.core import lazy, show
from tetrad.core.errors import FlagError
from tetrad.core.flags import flag_words
from tetrad.core.record import record
from tetrad.graph.nested import innermost_first, replace_graphs
from tetrad.graph.nodes import Graph
from tetrad.graph.text import to_text
from tetrad.lower.lower import Lowerer
from tetrad.passes.block_scans import block_scans
from tetrad.passes.fused import describe_groups, fuse_program, verify_fused
from tetrad.passes.hoist import hoist
from tetrad.passes.in_place_updates import place_updates, with_large_copies
from tetrad.passes.inline_custom import INLINE_CUSTOM
from tetrad.passes.merge_products import merge_products
from tetrad.passes.rewrite import RuleLog
from tetrad.passes.simplify import simplify
from tetrad.passes.split import split
from tetrad.passes.step import Pass, run_pass, show_step, verify_if_asked
from tetrad.passes.unroll import unroll
from tetrad.schedule.nodes import Control, Schedule


@record
class Translation:
    """A step from one language to the next, and how its result is verified and shown."""

    name: str
    run: Callable[[Any, Lowerer], Any]
    describe: Callable[[Any], str]
    verify: Callable[[Any], None] = lambda value: None


@record
class Substep:
    """A step that happens within another, kernel by kernel or size by size, where it is timed and
    shown."""

    name: str
    of: str


def describe_steps(schedule: Schedule) -> str:
    """The steps of a program and of the graphs inside it."""
    made = f"{len(schedule.steps)} steps" if schedule.steps else "nothing to do"
    head = f"pass lower: graph {schedule.graph.name}: {made}"
    lines = [f"  {i} {step.name}" for i, step in enumerate(schedule.steps)]
    return "\n".join([head, *lines, *map(describe_steps, bodies_of(schedule))])


def bodies_of(schedule: Schedule) -> Iterator[Schedule]:
    """The lowered graphs that steps hold, each once."""
    held = (body for step in schedule.steps if isinstance(step, Control) for body in step.bodies)
    yield from dict.fromkeys(held)


def verify_schedule(schedule: Schedule) -> None:
    lazy.module("tetrad.schedule.verify").verify(schedule)


PIPELINE: tuple[Pass | Translation | Substep, ...] = (
    # from graph to graph
    INLINE_CUSTOM,
    Pass("unroll", lambda graph, _: unroll(graph)),
    Pass("split", split),
    Pass("hoist", lambda graph, _: hoist(graph, simplify.apply)),
    Pass("simplify", simplify.apply),
    Pass("merge_products", lambda graph, log: merge_products(graph, log, simplify.apply)),
    Pass("block_scans", lambda graph, _: block_scans(graph), is_whole=True),
    Pass("in_place_updates", lambda graph, _: place_updates(graph), is_whole=True),
    # from graph to fused graph to schedule
    Translation("fuse", lambda graph, _: fuse_program(graph), describe_groups, verify_fused),
    # the driver verifies the kernels, after it has shown them
    Translation(
        "lower", lambda fused, lowerer: lowerer.lower(fused), describe_steps, verify_schedule
    ),
    Substep("deduplicate", of="lower"),
    Substep("merge_kernels", of="lower"),
    Substep("plan_memory", of="schedule"),
)


def lower_graph(graph: Graph, lowerer: Lowerer, kept: Iterable[int] = ()) -> Schedule:
    """A graph through the whole list: what is run of it, with memory still to be placed. `kept`
    are the inputs that stay as they are."""
    with show.timed("passes"):
        better = with_large_copies(optimise(graph), kept)
    if show.wants():
        show.save("graph", graph.name, str(graph))
        show.save("passes", better.name, str(better))
    value: Any = better
    with show.timed("lower"):
        for step in PIPELINE:
            value = (
                run_translation(step, value, lowerer) if isinstance(step, Translation) else value
            )
    schedule: Schedule = value
    return schedule


def optimise(graph: Graph, trace: RuleLog | None = None) -> Graph:
    """The graph after every step from graph to graph. `trace` receives the rules that fired."""
    check_shown()
    if "graph" in flag_words("TETRAD_SHOW"):
        print(to_text(graph), file=sys.stderr)
    verify_if_asked(graph)
    passes = [step for step in PIPELINE if isinstance(step, Pass)]
    for is_whole, steps in groupby(passes, lambda step: step.is_whole):
        stretch = tuple(steps)
        graph = run_all(stretch, graph, trace) if is_whole else run_nested(stretch, graph, trace)
    return graph


def run_nested(steps: tuple[Pass, ...], graph: Graph, trace: RuleLog | None) -> Graph:
    """Several steps on one graph after the other, each once, those inside a graph before it."""
    done: dict[Graph, Graph] = {}
    for part in innermost_first(graph):
        done[part] = run_all(steps, replace_graphs(part, done), trace)
    return done[graph]


def run_all(steps: tuple[Pass, ...], graph: Graph, trace: RuleLog | None) -> Graph:
    for step in steps:
        log = RuleLog()
        graph = run_pass(step, graph, log)
        if trace is not None:
            trace.fired.extend(log.fired)
    return graph


def run_translation(step: Translation, value: Any, lowerer: Lowerer) -> Any:
    with show.spending(step.name):
        made = step.run(value, lowerer)
    if "1" in flag_words("TETRAD_CHECK"):
        step.verify(made)
    show_step(step.name, lambda: step.describe(made))
    return made


def check_shown() -> None:
    """TETRAD_SHOW=passes:NAME names a step of the list."""
    wanted = flag_words("TETRAD_SHOW").get("passes", "")
    if wanted and wanted not in {step.name for step in PIPELINE}:
        known = ", ".join(step.name for step in PIPELINE)
        raise FlagError(
            f"TETRAD_SHOW=passes:{wanted}: there is no such pass", hint=f"passes: {known}"
        )
