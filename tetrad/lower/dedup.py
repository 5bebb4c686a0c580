"""Lowering, deduplication: a group that looks like one already lowered takes over its kernels.

Layers repeat; lowering one is enough. Two groups look alike when their nodes match one by one in
op, settings, types and wiring, with memory where the other has memory. What differs is only which
slots the kernels work on.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from tetrad.core.record import record, replace
from tetrad.graph.build import constant
from tetrad.graph.group import Group
from tetrad.graph.nodes import Graph, Node
from tetrad.loopnest.frame import TABLE, Memory
from tetrad.loopnest.reader import elementwise_rule, splat_value
from tetrad.ops.matmul.tiles import pack_constant
from tetrad.schedule.nodes import Callback, HostCall, HostMemory, Launch, Leaf, Slot


@record
class Template:
    """A lowered group: its nodes in canonical order, where they lived, and its steps."""

    nodes: tuple[Node, ...]
    memory: Memory
    steps: tuple[Leaf, ...]


Outline = tuple[Hashable, ...]  # begins with the kind of a group


@record(eq=False)
class Look:
    """How a group looks: its nodes in an order its shape decides, a key that is equal for groups
    that look alike, and an outline that is equal for those that may differ in sizes and numbers
    alone."""

    nodes: tuple[Node, ...]
    key: Hashable
    outline: Outline


def look_of(group: Group, inputs: list[Node]) -> Look:
    leaves = set(inputs).difference(group.members)
    order: dict[Node, int] = {}
    rows, outlines = [], []
    for node in within(group, leaves):
        order[node] = len(order)
        rows.append(describe(node, leaves, order))
        outlines.append(outline(node, leaves, order))
    members, outputs = (tuple(order[n] for n in nodes) for nodes in (group.members, group.outputs))
    places = (group.kind, order[group.root], members, outputs)
    return Look(tuple(order), (*places, tuple(rows)), (*places, tuple(outlines)))


def within(group: Group, leaves: set[Node]) -> list[Node]:
    """Everything from the group's outputs down to what it reads from memory, operands first."""
    seen: set[Node] = set()
    done: list[Node] = []
    stack: list[tuple[Node, bool]] = [
        (n, False) for n in reversed((*group.outputs, *group.members))
    ]
    while stack:
        node, ready = stack.pop()
        if ready:
            done.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            if node not in leaves:
                stack.extend((i, False) for i in reversed(node.inputs))
    return done


def describe(node: Node, leaves: set[Node], order: dict[Node, int]) -> Hashable:
    if node in leaves:
        value = splat_value(node)  # a number is part of the code, even where it has memory too
        return (
            ("memory", node.op is constant, node.types)
            if value is None
            else (repr(value), node.types)
        )
    operands = tuple(order[i] for i in node.inputs)
    rule = elementwise_rule(node)  # it may follow from what was computed before, beyond the leaves
    return (node.op.name, repr(node.params), node.params, node.types, operands, rule)


def outline(node: Node, leaves: set[Node], order: dict[Node, int]) -> Hashable:
    kinds = tuple((kind.dtype, kind.rank) for kind in node.types)
    if node in leaves:
        return (splat_value(node) is None, kinds)
    return (node.op.name, kinds, tuple(order[i] for i in node.inputs))


def describe_reuse(
    graph: Graph, looks: Mapping[Group, Look], templates: Mapping[Hashable, Template]
) -> str:
    """Which groups take over the kernels of one before them."""
    first: dict[Hashable, Group] = {}
    lines = []
    for group, look in looks.items():
        if look.key in templates or look.key in first:
            owner = "another graph" if look.key in templates else first[look.key].root.source
            lines.append(f"  {group.kind} {group.name}   # {group.root.source}, as {owner}")
        first.setdefault(look.key, group)
    head = f"pass deduplicate: graph {graph.name}: "
    found = (
        f"{len(lines)} of {len(looks)} groups look like one before" if lines else "nothing to do"
    )
    return "\n".join([head + found, *lines])


def reused(template: Template, group: Group, nodes: tuple[Node, ...], memory: Memory) -> list[Leaf]:
    """The template's steps, working on the slots of another group."""
    places: dict[Slot, Slot] = {}
    for old, new in zip(template.nodes, nodes, strict=True):
        if old in template.memory.slots and new in memory.slots:
            places[template.memory.slots[old]] = memory.slots[new]
    for step in template.steps:
        for slot in step.slots:
            if slot not in places:
                places[slot] = fresh(slot, group)
    return [moved_step(step, places, group) for step in template.steps]


def moved_step(step: Leaf, places: dict[Slot, Slot], group: Group) -> Leaf:
    match step:
        case HostCall():
            return moved_call(step, places, group)
        case Callback():
            inputs, outputs = (
                tuple(places[s] for s in slots) for slots in (step.inputs, step.outputs)
            )
            source = group.root.source
            return replace(step, inputs=inputs, outputs=outputs, source=source, group=group)
    return moved(step, places, group)


def fresh(slot: Slot, group: Group) -> Slot:
    """Memory a generator made for itself: partial results, tables, or a packed right side."""
    if slot.kind == "temp":
        return Slot(slot.name, slot.type, "temp")
    if slot.name == TABLE:
        return slot
    packed = pack_constant(group.root.inputs[1], slot.type.dtype, slot.type.shape[-1])  # type: ignore[arg-type]
    if packed is None:
        raise TypeError(f"{slot.name} is neither temporary nor packed")
    return packed


def moved(launch: Launch, places: dict[Slot, Slot], group: Group) -> Launch:
    return replace(
        launch,
        slots=tuple(places[s] for s in launch.slots),
        writes=frozenset(places[s] for s in launch.writes),
        updates=frozenset(places[s] for s in launch.updates),
        partly=frozenset(places[s] for s in launch.partly),
        inplace=tuple((places[a], places[b]) for a, b in launch.inplace),
        source=group.root.source,
        group=group,
    )


def moved_call(call: HostCall, places: dict[Slot, Slot], group: Group) -> HostCall:
    memory = tuple(
        replace(part, slot=places[part.slot]) if isinstance(part, HostMemory) else part
        for part in call.memory
    )
    return replace(call, memory=memory, source=group.root.source, group=group)
