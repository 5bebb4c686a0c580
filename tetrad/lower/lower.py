"""Lowering: a fused graph in, launches of kernels over slots out. One generator per kind of group,
or that of the op where a group is an op with kernels of its own.

Sub-graphs are lowered once each. What a kernel is, is decided by `passes.fuse`; how it looks, by
the generators beside this file; where memory lies, by `schedule.plan` later.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterator, Mapping

from tetrad.core import lazy, show
from tetrad.core.dtypes import COMPILED_DTYPES
from tetrad.core.errors import DtypeError, UnsupportedError
from tetrad.core.machine import Machine
from tetrad.graph.build import constant
from tetrad.graph.group import Group, inputs_of
from tetrad.graph.nodes import Graph, Node
from tetrad.kernel.nodes import Program
from tetrad.loopnest.frame import Memory
from tetrad.loopnest.transpose import lower_transpose
from tetrad.lower.control import CONTROL, lower_control, outputs_of
from tetrad.lower.dedup import Look, Template, describe_reuse, look_of, reused
from tetrad.lower.elementwise import copy_launch, lower_map
from tetrad.lower.merge_kernels import Siblings, Told, describe_merged, told
from tetrad.lower.op_kernels import lower_op
from tetrad.passes.fused import Fused
from tetrad.passes.in_place_updates import home, updates_of
from tetrad.passes.plan_loop import LoopPlan
from tetrad.passes.step import show_step
from tetrad.schedule.build import constant_slot, input_slot, output_slot, temp_slot
from tetrad.schedule.nodes import Call, Launch, Leaf, Schedule, Slot, Step

row_reductions = lazy.later("tetrad.lower.row_reductions")
column_reductions = lazy.later("tetrad.lower.column_reductions")
concat = lazy.later("tetrad.lower.concat")
scan_in_lanes = lazy.later("tetrad.lower.scan_in_lanes")
scan_in_workgroup = lazy.later("tetrad.lower.scan_in_workgroup")
linked_loop = lazy.later("tetrad.lower.linked_loop")
Generator = Callable[[Group, list[Node], Memory], "Launch | list[Launch] | list[Leaf]"]
GENERATORS: dict[str, Generator] = {  # most are loaded when a group first is of their kind
    "map": lower_map,
    "rows": lambda *given: row_reductions.lower_rows(*given),
    "columns": lambda *given: column_reductions.lower_columns(*given),
    "transpose": lower_transpose,
    "concat": lambda *given: concat.lower_concat(*given),
}


class Lowerer:
    """Lowers graphs for one machine, each sub-graph once; hands kernels over to `begin` as soon as
    they are made."""

    def __init__(
        self,
        machine: Machine,
        begin: Callable[[Program], None] = lambda program: None,
        is_inside: bool = False,
    ) -> None:
        """`is_inside`: what is lowered becomes part of a larger kernel."""
        self.machine, self.begin, self.is_inside = machine, begin, is_inside
        self.done: dict[tuple[Graph, frozenset[int]], Schedule] = {}
        self.fused: dict[Graph, Fused] = {}  # of the graphs that those lowered so far hold
        self.templates: dict[Hashable, Template] = {}
        self.told: dict[Program, Told] = {}

    def lower_called(self, graph: Graph, placed: frozenset[int] | None = None) -> Schedule:
        """A sub-graph, once. Its caller says where every output goes, so each is written, copies
        included.

        `placed`: outputs that the caller looks for elsewhere: where an input lay (for a call all
        that are inputs changed in place), or where an output like them lies.
        """
        key = (graph, frozenset(updates_of(graph)) if placed is None else placed)
        if key not in self.done:
            self.done[key] = with_copies(self.lower(self.fused[graph]), self.machine, key[1])
        return self.done[key]

    def lower(self, fused: Fused) -> Schedule:
        """A graph with all it holds."""
        graph, groups = fused.graph, fused.groups
        check_dtypes(graph)
        self.fused.update(fused.inner)
        kept = {o for g in groups for o in g.outputs}
        slots = assign_slots(graph, groups, kept)
        memory = Memory(slots, self.machine)
        made = {g: inputs_of(g, kept) for g in groups if not is_view(g, slots, kept)}
        with show.spending("deduplicate"):
            looks = {group: look_of(group, made[group]) for group in made if is_generated(group)}
        show_step("deduplicate", lambda: describe_reuse(graph, looks, self.templates))
        siblings = Siblings(
            (look for look in looks.values() if look.key not in self.templates), self.told
        )
        steps: list[Step] = []
        for group, inputs in made.items():
            if group in looks:
                steps.extend(self.launches_of(group, inputs, memory, looks[group], siblings))
            else:
                steps.extend(self.steps_of(group, memory, fused))
        for program in siblings.rest():
            self.begin(program)
        show_step("merge_kernels", lambda: describe_merged(graph, steps, self.told))
        steps = [told(step, self.told) for step in steps]
        return Schedule(
            graph,
            tuple(steps),
            tuple(slots[i] for i in graph.inputs),
            output_slots(graph, slots),
            slots,
        )

    def steps_of(self, group: Group, memory: Memory, fused: Fused) -> list[Step]:
        """Of a group that has no kernels of its own."""
        if group.kind == "call":
            node = group.root
            body = self.lower_called(node.param("graph"))
            return [
                Call(
                    body,
                    tuple(memory.slots[i] for i in node.inputs),
                    outputs_of(node, memory),
                    node.source,
                )
            ]
        if group.kind in CONTROL:
            whole = self.lower_in_one(group.root, fused.loops, memory)
            if whole is not None:
                self.begin(whole.program)
            lower = self.lower_called
            return [whole or lower_control(group.root, memory, lower, not self.is_inside)]
        if group.kind != "item" and generator(group) is None:
            raise UnsupportedError(
                f"{group.root.op.name} is not compiled yet", source=group.root.source
            )
        return []

    def lower_in_one(
        self, node: Node, plans: Mapping[Node, LoopPlan], memory: Memory
    ) -> Launch | None:
        """A loop that is planned as one kernel; None if its kernels cannot be linked."""
        plan = plans.get(node)
        if plan is None or not plan.is_one_kernel:
            return None
        made: Launch | None = None
        match plan.how:
            case "in_lanes":
                made = scan_in_lanes.lower_in_lanes(node, plan, memory)
            case "in_workgroup":
                made = scan_in_workgroup.lower_in_workgroup(node, plan, memory)
            case "linked" if not self.is_inside:
                inner = Lowerer(self.machine, is_inside=True)
                inner.fused = self.fused
                step = lower_control(node, memory, inner.lower_called, in_rows=False)
                made = linked_loop.linked_loop(step, memory)
        return made

    def launches_of(
        self, group: Group, inputs: list[Node], memory: Memory, look: Look, siblings: Siblings
    ) -> list[Leaf]:
        """From the generator of its kind, or, for a group like one before, that one's kernels on
        other slots."""
        # of several results, which have a reader is not in the key
        is_single = len(group.root.types) == 1
        if is_single and look.key in self.templates:
            with show.spending("deduplicate"):
                return reused(self.templates[look.key], group, look.nodes, memory)
        made = lower_group(group, inputs, memory)
        launches = [step for step in made if isinstance(step, Launch)]
        for program in siblings.lowered(look, launches):
            self.begin(program)
        # a trap names the user's line, which differs
        if is_single and not any(launch.traps for launch in launches):
            self.templates[look.key] = Template(look.nodes, memory, tuple(made))
        return made


def generator(group: Group) -> Generator | None:
    return lower_op if group.root.op.kind == "special" else GENERATORS.get(group.kind)


def lower_group(group: Group, inputs: list[Node], memory: Memory) -> list[Leaf]:
    write = generator(group)
    if write is None:
        raise TypeError(f"a group of the kind {group.kind} has no generator")
    made = write(group, inputs, memory)
    return [made] if isinstance(made, Launch) else [*made]


def is_generated(group: Group) -> bool:
    """Is there something to compute, and a generator for it?"""
    return generator(group) is not None and not all(0 in kind.shape for kind in group.root.types)


def with_copies(lowered: Schedule, machine: Machine, placed: frozenset[int]) -> Schedule:
    """Outputs that are inputs, constants or the same as an earlier output, each in memory of its
    own."""
    steps, outputs = list(lowered.steps), list(lowered.outputs)
    for i, slot in enumerate(outputs):
        if i not in placed and (slot.kind != "output" or slot.position != i):
            outputs[i] = output_slot(i, slot.type)
            steps.append(copy_launch(slot, outputs[i], Memory({}, machine)))
    return Schedule(lowered.graph, tuple(steps), lowered.inputs, tuple(outputs), lowered.slots)


def check_dtypes(graph: Graph) -> None:
    for node in graph.nodes():
        for kind in node.types:
            if kind.dtype not in COMPILED_DTYPES and not kind.dtype.is_quantized:
                known = ", ".join(map(str, COMPILED_DTYPES))
                message = f"{node.op.name}: {kind.dtype} is not compiled yet"
                raise DtypeError(message, source=node.source, hint=f"compiled: {known}")


def assign_slots(
    graph: Graph, groups: tuple[Group, ...], kept: Container[Node]
) -> dict[Node, Slot]:
    """Memory for inputs, constants, outputs and every node a group writes; an update lies where its
    operand lies."""
    slots: dict[Node, Slot] = {}
    results = {*graph.outputs, *map(home, graph.outputs)}  # each has memory of its own shape
    alone = {g.root for g in groups if g.members == (g.root,)}
    for i, node in enumerate(graph.inputs):
        slots[node] = input_slot(i, node.type)
    for i, node in enumerate(map(home, graph.outputs)):
        if node not in slots and node.op is not constant:
            slots[node] = output_slot(i, node.type)
            free = (n for n in written_as(node, kept, slots, alone) if n not in results)
            slots.update((below, slots[node]) for below in free)
    for node in graph.nodes():
        if node.op is constant and node not in slots:
            slots[node] = constant_slot(f"c{len(slots)}", node.type, node.param("value"))
    for group in groups:
        if is_view(group, slots, kept):
            slots[group.root] = slots[home(group.root.inputs[0])]
            continue
        for node in group.outputs:
            place = home(node)
            if place not in slots and len(node.types) == 1:
                slots[place] = temp_slot(f"t{len(slots)}", node.type)
    slots.update((n, slots[home(n)]) for n in graph.nodes() if home(n) is not n)
    return slots


def is_view(group: Group, slots: Mapping[Node, Slot], kept: Container[Node]) -> bool:
    """A reshape of something in memory, that others read from memory: it is the same memory. That
    of a result is, if what it is a reshape of was written there."""
    root = group.root
    if not root.op.view or group.members != (root,):
        return False
    source = root.inputs[0]
    if root in slots and slots[root].kind == "output":
        return slots.get(home(source)) is slots[root]
    return source.op.leaf or source in kept


def written_as(
    node: Node, kept: Container[Node], slots: Mapping[Node, Slot], alone: Container[Node]
) -> Iterator[Node]:
    """What a result is a reshape of, if it may be written to the result's memory: it has memory, of
    its own or that of an array it is an update of, and no kernel writes the reshape beside other
    results."""
    while node.op.view and node in alone and (node := node.inputs[0]) in kept:
        place = home(node)
        if place in slots or place not in kept or len(place.types) > 1:
            return
        yield place


def output_slots(graph: Graph, slots: dict[Node, Slot]) -> tuple[Slot, ...]:
    return tuple(slots[o] for o in graph.outputs)
