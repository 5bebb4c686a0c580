"""Passes, in-place updates: ops that change an array in place, and the copies that make this safe.

Receives and returns whole programs. The result of an op with `in_place` (a KV cache that takes in
new keys) has the memory of its operand 0. That holds through calls: an output of a sub-graph that
updates an input has the memory of the caller's operand. If another node still needs the old
content, the operand is copied first. An argument that the caller has not donated is copied too: a
large one by a kernel of the program (`with_large_copies`), a small one as the call begins.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from weakref import WeakKeyDictionary

from tetrad.graph.build import apply, call, constant, intern, item, make_graph, rebuild, with_inputs
from tetrad.graph.loops import scan, switch, while_loop
from tetrad.graph.nested import innermost_first, replace_graphs
from tetrad.graph.nodes import Graph, Node, topological, uses
from tetrad.ops.movement import after, copy

CONTROL = (scan, while_loop, switch)
LARGE_COPY = 1 << 18  # bytes; below, a kernel of its own takes longer than one thread that copies
_updates: WeakKeyDictionary[Graph, dict[int, int]] = WeakKeyDictionary()


def place_updates(graph: Graph) -> Graph:
    """The program with the copies that its updates need, in every graph and in the bodies of its
    loops."""
    done: dict[Graph, Graph] = {}
    for part in innermost_first(graph):
        done[part] = with_room_for_updates(with_own_bodies(replace_graphs(part, done)))
    return done[graph]


def with_own_bodies(graph: Graph) -> Graph:
    """The graph with loops and branches that change only those operands whose memory their results
    have."""
    nodes = graph.nodes()
    if not any(node.op in CONTROL for node in nodes):
        return graph
    done: dict[Node, Node] = {}
    for node in nodes:
        moved = with_inputs(node, tuple(done[i] for i in node.inputs))
        done[node] = with_own_body(moved) if node.op in CONTROL else moved
    return make_graph(graph.name, graph.inputs, [done[o] for o in graph.outputs])


def with_own_body(node: Node) -> Node:
    stays, params = updates_by(node), dict(node.params)
    if node.op is switch:
        params["branches"] = tuple(with_own_updates(b, stays) for b in params["branches"])
    else:
        params["body"] = with_own_updates(params["body"], stays)
    if node.op is while_loop:
        params["condition"] = with_own_updates(params["condition"], ())
    return intern(node.op, node.inputs, tuple(sorted(params.items())), node.types, node.source)


def updated(node: Node) -> Node | None:
    """The operand that a node changes in place, or None."""
    if node.op.in_place:
        return node.inputs[0]
    if node.op is item:
        holder = node.inputs[0]
        operand = updates_by(holder).get(node.param("index"))
        return None if operand is None else holder.inputs[operand]
    return None


def home(node: Node) -> Node:
    """The node whose memory a node has: itself, or the start of a chain of updates."""
    while (before := updated(node)) is not None:
        node = before
    return node


def updates_by(node: Node) -> dict[int, int]:
    """Results of a node with sub-graphs that are operands changed in place: result -> position of
    the operand.

    A carry is, if the body changes it in place; a result of a switch, if every branch changes the
    same operand, or gives it back as it came.
    """
    params = dict(node.params)
    if node.op is call:
        return updates_of(params["graph"])
    if node.op is scan:
        return updated_carries(params["body"], params["consts"], params["carries"], 0)
    if node.op is while_loop:
        return updated_carries(
            params["body"], params["body_consts"], len(node.types), params["condition_consts"]
        )
    if node.op is switch:
        changed = [set(updates_of(branch).items()) for branch in params["branches"]]
        every = [found | kept_of(b) for found, b in zip(changed, params["branches"], strict=True)]
        somewhere = {pair for found in changed for pair in found}
        same = set.intersection(*every) & somewhere
        return {result: operand + 1 for result, operand in same}
    return {}


def kept_of(graph: Graph) -> set[tuple[int, int]]:
    """Outputs of a branch that are inputs as they came: (output position, input position)."""
    place = {node: i for i, node in enumerate(graph.inputs)}
    return {(i, place[o]) for i, o in enumerate(graph.outputs) if o in place}


def updated_carries(body: Graph, consts: int, carries: int, before: int) -> dict[int, int]:
    found = updates_of(body)
    return {i: before + consts + i for i in range(carries) if found.get(i) == consts + i}


def updates_of(graph: Graph) -> dict[int, int]:
    """Outputs of a graph that are inputs changed in place: output position -> input position."""
    found = _updates.get(graph)
    if found is None:
        graph_with_room = with_room_for_updates(graph)
        place = {node: i for i, node in enumerate(graph_with_room.inputs)}
        homes = {
            i: home(o) for i, o in enumerate(graph_with_room.outputs) if updated(o) is not None
        }
        found = _updates[graph] = {i: place[node] for i, node in homes.items() if node in place}
    return found


def with_own_updates(graph: Graph, allowed: Iterable[int]) -> Graph:
    """The graph with a copy of every input that it changes, except for outputs that may have an
    input's memory."""
    roomy = with_room_for_updates(graph)
    place = {node: i for i, node in enumerate(roomy.inputs)}
    keeps = {place[home(roomy.outputs[i])] for i in allowed}
    return with_copies(roomy, [i for i in place.values() if i not in keeps])


def with_large_copies(graph: Graph, kept: Iterable[int]) -> Graph:
    """The program with a copy of every large input among `kept` that it changes: all threads make
    it."""
    sizes = {i: graph.inputs[i].type.nbytes for i in kept}
    large = [i for i, size in sizes.items() if isinstance(size, int) and size >= LARGE_COPY]
    return with_copies(graph, large)


def with_copies(graph: Graph, positions: Collection[int]) -> Graph:
    """The graph with copies of these inputs, where it changes them."""
    wanted = {graph.inputs[i]: i for i in positions}
    changed = {
        node.inputs[position]: node.source
        for node in graph.nodes()
        for position in overwritten(node)
        if node.inputs[position] in wanted
    }
    copies = {
        x: apply(copy, [x], {"which": -1 - wanted[x]}, source) for x, source in changed.items()
    }
    return make_graph(graph.name, graph.inputs, rebuild(graph.outputs, copies)) if copies else graph


def with_room_for_updates(graph: Graph) -> Graph:
    """The graph with safe updates: every reader of the old content runs before, or there is a copy.

    A copy precedes an update whose operand has no memory of its own, or is needed after the update.
    """
    reads = early_reads(graph)
    counts = uses(graph)
    done: dict[Node, Node] = {}
    changes = 0
    for node in topological(graph.outputs, reads):
        inputs = [done[i] for i in node.inputs]
        for position in overwritten(node) if node.op is not after else ():
            operand = node.inputs[position]
            if node in reads:
                inputs[position] = apply(
                    after, [inputs[position], *(done[r] for r in reads[node])], {}, node.source
                )
            elif counts[operand] > 1 or not owns_memory(operand):
                inputs[position] = apply(copy, [inputs[position]], {"which": changes}, node.source)
            else:
                continue
            changes += 1
        done[node] = with_inputs(node, tuple(inputs))
    return (
        make_graph(graph.name, graph.inputs, [done[o] for o in graph.outputs]) if changes else graph
    )


def early_reads(graph: Graph) -> dict[Node, list[Node]]:
    """Updates that can wait until all others have read the operand, with those others. Their
    results take no more memory than a copy would."""
    users: dict[Node, list[Node]] = {}
    for node in graph.nodes():
        for operand in dict.fromkeys(node.inputs):
            users.setdefault(operand, []).append(node)
    found: dict[Node, list[Node]] = {}
    for node in graph.nodes():
        places = overwritten(node)
        if len(places) != 1 or node.op is after:
            continue
        changed = node.inputs[places[0]]
        others = [user for user in users[changed] if user is not node]
        is_free = changed not in graph.outputs and owns_memory(changed)
        if (
            others
            and is_free
            and node.inputs.count(changed) == 1
            and may_read_before(others, node, changed, found)
        ):
            found[node] = others
    return found


def may_read_before(
    readers: list[Node], update: Node, operand: Node, waits: Mapping[Node, list[Node]]
) -> bool:
    plain = all(r.op.kind != "structural" and not r.op.view and not r.op.in_place for r in readers)
    sizes = [kind.nbytes for r in readers for kind in r.types]
    room = operand.type.nbytes
    if (
        not plain
        or any(len(r.types) > 1 for r in readers)
        or not all(isinstance(n, int) for n in (room, *sizes))
    ):
        return False
    return sum(sizes) <= room and update not in set(topological(readers, waits))  # type: ignore[operator]


def owns_memory(node: Node) -> bool:
    """May what holds its elements be changed? Neither a constant nor what others see in another
    shape."""
    return node.op is not constant and not node.op.view


def overwritten(node: Node) -> tuple[int, ...]:
    """Positions of the operands that a node changes in place."""
    return (0,) if node.op.in_place else tuple(updates_by(node).values())
