"""Passes, recompute: rows that store less. Receives groups, returns them with fewer outputs: what
others compute again as cheaply as they would read it gets no memory.

A norm is the case: of a row, the gradient wants x - mean, that times the scale, and the scale in
every place. All of it is a few steps from x, which lies in memory, and from two numbers a row.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from tetrad.core.record import replace
from tetrad.graph.group import Group
from tetrad.graph.nodes import Node
from tetrad.passes.questions import CHEAP, group_kind, reorders, row_shape

Users = Mapping[Node, Sequence[Node]]


def recomputed(made: Sequence[Group], users: Users, results: Container[Node]) -> list[Group]:
    """The groups, with those of rows that store no more than they must."""
    memory = {o for g in made for o in g.outputs}
    found = []
    for group in made:
        outputs = stored(group, memory, users, results) if group.kind == "rows" else group.outputs
        memory.difference_update(set(group.outputs).difference(outputs))
        memory.update(outputs)
        found.append(replace(group, outputs=outputs))
    return found


def stored(
    group: Group, memory: Container[Node], users: Users, results: Container[Node]
) -> tuple[Node, ...]:
    """The outputs of rows that are not cheap to compute again, and the values of a row that the
    others take."""
    wanted, kept = set(group.outputs), set[Node]()
    members = frozenset(group.members)
    for node in reversed(group.members):
        if node not in wanted:
            continue
        can_go = (
            node not in results
            and is_full(node, group)
            and is_pulled(node, members, users, results)
        )
        if can_go and is_cheap_again(node, group, memory):
            wanted.update(members.intersection(node.inputs))
        else:
            kept.add(node)
    return tuple(m for m in group.members if m in kept)


def is_full(node: Node, group: Group) -> bool:
    """Has it an element for each element of the rows, not one a row?"""
    outer, inner = row_shape(group.root)
    return node.type.shape == outer + inner


def is_cheap_again(node: Node, group: Group, memory: Container[Node]) -> bool:
    """Is it a few steps from arrays in memory and from values of its row?"""
    members = frozenset(group.members)
    total, stack, seen = 0, [node], {node}
    while stack and total <= CHEAP:
        found = stack.pop()
        is_inside = found in members
        if found.op.leaf or (is_inside and not is_full(found, group)):
            continue
        if not is_inside and (found in memory or group_kind(found) != "map"):
            continue
        total += found.op.cost if found.op.kind == "elementwise" else 0
        fresh = [i for i in found.inputs if i not in seen]
        seen.update(fresh)
        stack.extend(fresh)
    return total <= CHEAP


def is_pulled(node: Node, members: Container[Node], users: Users, results: Container[Node]) -> bool:
    """Do all readers outside of `members` take it element by element, or reduce it? A result in
    another shape is its memory, and what regroups axes reads memory."""
    stack, seen = [node], {node}
    while stack:
        for user in users[stack.pop()]:
            if user in members or user in seen or user.op.kind in ("elementwise", "reduce"):
                continue
            if not user.op.view or user in results or reorders(user):
                return False
            seen.add(user)
            stack.append(user)
    return True
