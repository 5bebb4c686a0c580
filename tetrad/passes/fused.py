"""Passes, fused program: every graph of a program with its groups and the plans of its loops.

Receives an optimised program, returns a `Fused`, which lowering reads. `passes.fuse` decides which
nodes share a kernel, `passes.plan_loop` how a scan is computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tetrad.core.errors import CompileError
from tetrad.core.record import record
from tetrad.graph.group import Group, inputs_of
from tetrad.graph.loops import scan, while_loop
from tetrad.graph.nested import graphs_in
from tetrad.graph.nodes import Graph, Node, topological
from tetrad.graph.text import to_text
from tetrad.passes.fuse import fuse
from tetrad.passes.plan_loop import LoopPlan, plan_loop


@record(eq=False)
class Fused:
    """A graph, its groups in execution order, the plans of its loops, and the same for the inner
    graphs it runs."""

    graph: Graph
    groups: tuple[Group, ...]
    loops: Mapping[Node, LoopPlan]
    inner: Mapping[Graph, Fused]


def fuse_program(graph: Graph) -> Fused:
    """A graph and the graphs inside it, each fused once."""
    return _Fuser().fused(graph)


class _Fuser:
    """The graphs of one program fused so far."""

    def __init__(self) -> None:
        self.done: dict[Graph, Fused] = {}
        self.made: dict[Graph, tuple[Group, ...]] = {}

    def groups(self, graph: Graph) -> tuple[Group, ...]:
        if graph not in self.made:
            self.made[graph] = fuse(graph)
        return self.made[graph]

    def fused(self, graph: Graph) -> Fused:
        if graph not in self.done:
            nodes = graph.nodes()
            loops = {n: plan_loop(n, self.groups) for n in nodes if n.op in (scan, while_loop)}
            stepped = [n for n in nodes if n not in loops or not loops[n].is_written_whole]
            inner = {g: self.fused(g) for node in stepped for g in held_by(node)}
            self.done[graph] = Fused(graph, self.groups(graph), loops, inner)
        return self.done[graph]


def held_by(node: Node) -> Iterator[Graph]:
    for _, value in node.params:
        yield from graphs_in(value)


def verify_fused(fused: Fused) -> None:
    """Every group runs after those it reads, and every result is written."""
    memory = {o for group in fused.groups for o in group.outputs}
    written: set[Node] = set()
    for group in fused.groups:
        early = [i for i in inputs_of(group, memory) if i in memory and i not in written]
        if early:
            raise CompileError(
                f"{group.name} reads {early[0].op.name} before it is written",
                source=group.root.source,
            )
        written.update(group.outputs)
    for node in fused.graph.outputs:
        if node not in written and not node.op.leaf:
            raise CompileError(f"no group writes {node.op.name}", source=node.source)
    for inner in fused.inner.values():
        verify_fused(inner)


# -- as text ---------------------------------------------------------------------------------------


def describe_groups(fused: Fused) -> str:
    """The groups as text: under each group the nodes computed in it."""
    return "\n".join(line for part in graphs_of(fused) for line in group_lines(part))


def graphs_of(fused: Fused) -> list[Fused]:
    """A program's graphs, each once, the outermost first."""
    found = [fused]
    for part in found:
        found.extend(inner for inner in part.inner.values() if inner not in found)
    return found


def group_lines(fused: Fused) -> Iterator[str]:
    graph, lines = fused.graph, lines_of(fused.graph)
    numbers = {node: f"%{i}" for i, node in enumerate(ordered(graph))}
    memory = {o for group in fused.groups for o in group.outputs}
    made = f"{len(graph.nodes())} nodes -> {len(fused.groups)} groups"
    yield f"pass fuse: graph {graph.name}: {made if fused.groups else 'nothing to do'}"
    for number, group in enumerate(fused.groups):
        plan = fused.loops.get(group.root)
        kind = group.kind if plan is None else f"{group.kind} {plan.how}"
        yield f"  {number} {kind} -> {' '.join(numbers[o] for o in group.outputs)}"
        inside = topological(group.members, known=set(inputs_of(group, memory)))
        yield from (f"      {lines[node]}" for node in inside if not node.op.leaf)


def ordered(graph: Graph) -> list[Node]:
    """Nodes in the order of their numbers in the printed graph."""
    return list(dict.fromkeys((*graph.inputs, *graph.nodes())))


def lines_of(graph: Graph) -> dict[Node, str]:
    """The line each node prints as."""
    text = to_text(graph).rstrip().split("\n\n")[-1].splitlines()
    printed = {line.split(":")[0].strip(): line.strip() for line in text if line.startswith("  %")}
    inputs = {f"%{i}": f"%{i}: {node.type} = input {i}" for i, node in enumerate(graph.inputs)}
    return {node: {**inputs, **printed}[f"%{number}"] for number, node in enumerate(ordered(graph))}
