"""Explain, fusions: which named fusions fired in a program, which nearly did and why not, and the
bytes they save.

Receives the graph as traced and the parts of the program, returns an outcome for every place. The
fusions are those of `passes.fusions` and `passes.merge_products`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tetrad.compiler.pipeline import optimise
from tetrad.explain.parts import GraphPart
from tetrad.graph.nodes import Graph, Node
from tetrad.ops.matmul.op import is_plain
from tetrad.passes.fusions import FusionOutcome, outcomes
from tetrad.passes.merge_products import NAME, RULE, candidates
from tetrad.passes.rewrite import RuleLog


def fusions_of(traced: Graph, parts: Sequence[GraphPart]) -> tuple[FusionOutcome, ...]:
    """Of all graphs of a program, the outermost first."""
    found = list(merged(traced))
    for part in parts:
        missed = (merge for merge in candidates(part.graph) if merge.why_not)
        found += [FusionOutcome(NAME, m.layers[0].product, 0, m.why_not) for m in missed]
        found += outcomes(part.graph, part.groups)
    return tuple(found)


def merged(traced: Graph) -> Iterator[FusionOutcome]:
    """Products that became one: their left side is read once instead of once for each."""
    log = RuleLog()
    optimise(traced, log)
    last: dict[Node, FusionOutcome] = {}
    for fired in log.fired:
        if fired.rule is RULE:
            x = left_side(fired.before)
            nbytes = x.type.nbytes if x in last and isinstance(x.type.nbytes, int) else 0
            saved = last[x].nbytes if x in last else 0
            last[x] = FusionOutcome(NAME, fired.before, saved + nbytes)
    yield from last.values()


def left_side(result: Node) -> Node:
    """What the product of a layer reads, with or without a bias."""
    return (result if is_plain(result) else result.inputs[0]).inputs[0]
