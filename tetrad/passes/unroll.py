"""Passes, unroll: a scan that is unrolled by its whole length is no loop.

Receives and returns graphs. Its steps are placed one after the other, and simplified, fused and
planned together. A scan that asks for fewer steps gets blocks later (`passes.block_scans`).
"""

from __future__ import annotations

from collections.abc import Sequence

from tetrad.graph.build import spliced
from tetrad.graph.loops import replace_loops
from tetrad.graph.nodes import Graph, Node
from tetrad.ops.calculus import reshape, run, sliced
from tetrad.passes.plan_loop import is_unrolled


def unroll(graph: Graph) -> Graph:
    """The graph without the scans that are unrolled completely."""
    return replace_loops(graph, lambda loop: unrolled(loop) if is_unrolled(loop) else None)


def unrolled(loop: Node) -> list[Node]:
    """The results of a scan, computed without a loop."""
    body, length, reverse = (loop.param(name) for name in ("body", "length", "reverse"))
    a, b = loop.param("consts"), loop.param("consts") + loop.param("carries")
    return steps_of(body, loop.inputs[:a], loop.inputs[a:b], loop.inputs[b:], length, reverse)


def steps_of(
    body: Graph,
    consts: Sequence[Node],
    carries: Sequence[Node],
    xs: Sequence[Node],
    length: int,
    reverse: bool,
) -> list[Node]:
    """The final carries, and the stacked results of all steps."""
    state, rows = list(carries), {}
    for t in reversed(range(length)) if reverse else range(length):
        made = spliced(body, [*consts, *state, *(row(x, t) for x in xs)])
        state, rows[t] = (
            made[: len(carries)],
            [reshape(y, (1, *y.type.shape)) for y in made[len(carries) :]],
        )
    columns = zip(*(rows[t] for t in range(length)), strict=True)
    return [
        *state,
        *(run("concat", *column, axis=0) if length > 1 else column[0] for column in columns),
    ]


def row(x: Node, t: int) -> Node:
    return reshape(sliced(x, 0, t, 1), x.type.shape[1:])
