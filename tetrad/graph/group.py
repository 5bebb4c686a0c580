"""Graph language, groups: nodes that share a kernel, and what that kernel reads from memory.

`passes.fuse` makes groups; lowering turns each into a kernel or a short series of kernels.
"""

from __future__ import annotations

from collections.abc import Container

from tetrad.core.op import Trait
from tetrad.core.record import record
from tetrad.graph.nodes import Node


@record(eq=False)
class Group:
    """Nodes of one kernel (or a short series): it computes `members`, and stores those in
    `outputs`."""

    kind: str
    root: Node
    members: tuple[Node, ...]
    outputs: tuple[Node, ...]

    @property
    def name(self) -> str:
        return (
            "_".join(dict.fromkeys(m.op.name for m in self.members if m.op.kind != "structural"))[
                :60
            ]
            or self.kind
        )


def holds(trait: Trait, node: Node) -> bool:
    """Has a node a trait of its op, with the operands and settings it has?"""
    if isinstance(trait, bool):
        return trait
    return trait(*(i.type for i in node.inputs), **dict(node.params))


def inputs_of(group: Group, memory: Container[Node]) -> list[Node]:
    """What a group reads from memory: leaves, and outputs of other groups. Its own outputs are in
    registers."""
    found: dict[Node, None] = {}
    seen = set(group.members)
    stack = [i for m in group.members for i in m.inputs if i not in seen]
    seen.update(stack)
    while stack:
        node = stack.pop()
        if node in memory or node.op.leaf:
            found[node] = None
            continue
        fresh = [i for i in node.inputs if i not in seen]
        seen.update(fresh)
        stack.extend(fresh)
    return list(found)
