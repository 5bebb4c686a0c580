"""Explain, parts: a lowered graph and those it calls, with the group that computes each node.

Receives what lowering returned; returns graphs with numbered nodes (as they print) and groups (as
they run).
"""

from __future__ import annotations

from collections.abc import Mapping

from tetrad.core.record import record
from tetrad.graph.group import Group
from tetrad.graph.nodes import Graph, Node
from tetrad.passes.fused import lines_of
from tetrad.schedule.nodes import Control, Leaf, Schedule


@record(eq=False)
class GraphPart:
    """One graph: its groups in the order they run, the groups that compute each node, the line each
    node prints as."""

    graph: Graph
    groups: tuple[Group, ...]
    computed: Mapping[Node, tuple[int, ...]]
    lines: Mapping[Node, str]

    def number(self, group: Group) -> int:
        return self.groups.index(group)


def parts_of(schedule: Schedule) -> tuple[GraphPart, ...]:
    """The graph itself first, then those it calls, each once."""
    found: dict[Schedule, None] = {}
    waiting = [schedule]
    while waiting:
        current = waiting.pop(0)
        if current not in found:
            found[current] = None
            waiting.extend(
                body for step in current.steps if isinstance(step, Control) for body in step.bodies
            )
    return tuple(part_of(one) for one in found)


def part_of(schedule: Schedule) -> GraphPart:
    steps = [step for step in schedule.steps if isinstance(step, Leaf)]
    groups = tuple(dict.fromkeys(step.group for step in steps if step.group is not None))
    computed: dict[Node, tuple[int, ...]] = {}
    for number, group in enumerate(groups):
        for node in computed_by(group, schedule):
            computed[node] = (*computed.get(node, ()), number)
    return GraphPart(schedule.graph, groups, computed, lines_of(schedule.graph))


def computed_by(group: Group, schedule: Schedule) -> list[Node]:
    """The members, and what is computed on the spot because it has no memory."""
    found = dict.fromkeys(group.members)
    stack = list(group.members)
    while stack:
        for operand in stack.pop().inputs:
            if operand not in found and operand not in schedule.slots and not operand.op.leaf:
                found[operand] = None
                stack.append(operand)
    return list(found)
