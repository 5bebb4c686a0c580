"""Passes, block scans: a scan with `unroll=n` becomes a scan over blocks of n steps.

Receives and returns whole programs. The body of the new scan is n steps, fused and planned
together; a second scan runs the steps that are left. A scan that is one kernel unrolls inside the
kernel instead (`lower.scan_in_lanes`).
"""

from __future__ import annotations

from tetrad.graph.build import fresh_like, make_graph, make_parameter
from tetrad.graph.loops import make_scan, replace_loops, scan
from tetrad.graph.nested import innermost_first, replace_graphs
from tetrad.graph.nodes import Graph, Node
from tetrad.ops.calculus import reshape, run, sliced
from tetrad.passes.plan_loop import has_blocks, plan_loop
from tetrad.passes.unroll import steps_of


def block_scans(graph: Graph) -> Graph:
    """The program with blocks in every scan whose plan says so."""
    done: dict[Graph, Graph] = {}
    for part in innermost_first(graph):
        done[part] = replace_loops(replace_graphs(part, done), blocked_results)
    return done[graph]


def blocked_results(loop: Node) -> tuple[Node, ...] | None:
    is_blocked = loop.op is scan and has_blocks(loop) and plan_loop(loop).how == "blocked"
    return scan_in_blocks(loop) if is_blocked else None


def scan_in_blocks(node: Node) -> tuple[Node, ...]:
    """The results of a scan: those of the blocks, then those of the remaining steps (the first
    rows, if reversed)."""
    length, unroll, reverse = (node.param(name) for name in ("length", "unroll", "reverse"))
    fixed, count = node.param("consts"), node.param("carries")
    consts, state, xs = (
        node.inputs[:fixed],
        node.inputs[fixed : fixed + count],
        node.inputs[fixed + count :],
    )
    left = length % unroll
    number, start = length // unroll, left if reverse else 0
    blocks = [in_blocks(rows(x, start, length - left), unroll) for x in xs]
    made = make_scan(
        round_of(node), consts, state, blocks, length=number, reverse=reverse, source=node.source
    )
    ys = [reshape(y, (length - left, *y.type.shape[2:])) for y in made[count:]]
    if not left:
        return (*made[:count], *ys)
    rest = [rows(x, 0 if reverse else length - left, left) for x in xs]
    last = make_scan(
        node.param("body"),
        consts,
        made[:count],
        rest,
        length=left,
        reverse=reverse,
        source=node.source,
    )
    pairs = zip(last[count:], ys, strict=True) if reverse else zip(ys, last[count:], strict=True)
    return (*last[:count], *(run("concat", *pair, axis=0) for pair in pairs))


def rows(x: Node, start: int, size: int) -> Node:
    return x if size == x.type.shape[0] else sliced(x, 0, start, size)


def in_blocks(x: Node, size: int) -> Node:
    return reshape(x, (x.type.shape[0] // size, size, *x.type.shape[1:]))


def round_of(node: Node) -> Graph:
    """constants, carries, blocks of rows -> carries, blocks of results."""
    body, unroll = node.param("body"), node.param("unroll")
    split = node.param("consts") + node.param("carries")
    state = fresh_like(body.inputs[:split])
    blocks = [
        make_parameter(x.type.with_shape((unroll, *x.type.shape)), -1, fresh=True)
        for x in body.inputs[split:]
    ]
    consts = node.param("consts")
    made = steps_of(body, state[:consts], state[consts:], blocks, unroll, node.param("reverse"))
    return make_graph(body.name, [*state, *blocks], made)
