"""Passes, fuse: which nodes share a kernel. Receives an optimised graph, returns groups in
execution order.

Decided by data flow and use counts, before memory is planned. A node is *materialised* if it gets
memory; every other node is computed inside the kernels that read it. Kinds of group:

    map       one walk over an index space, any number of outputs of one shape
    rows      reductions over trailing axes with all that works on the same rows (softmax, norms),
              and reductions over all rows of that (gradients of weights)
    columns   a reduction over other axes
    transpose a change of the last axis, by tiles
    concat    of many parts, one after the other
    matmul    a product of arrays of one type, with light work on them and the elementwise work on
              its result
    special   any other op with a generator of its own, with the work on its result where its
              kernels take that
    call, scan, while_loop, switch   sub-graphs;  item  one of several results
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from itertools import islice

from tetrad.core import lazy
from tetrad.core.flags import flag_words
from tetrad.core.record import record
from tetrad.graph.group import Group, holds, inputs_of
from tetrad.graph.nodes import Graph, Node, topological
from tetrad.ops.movement import transpose
from tetrad.passes.group_order import ordered
from tetrad.passes.questions import (
    CHEAP,
    SUMS,
    aligned,
    at_hand,
    below_strides,
    costliest,
    group_kind,
    is_column_sum,
    is_prologue,
    is_read_inline,
    is_row_reduction,
    is_splat,
    is_stored,
    may_sum_columns,
    reorders,
    row_arrays,
    row_level,
    row_shape,
    total_weight,
    weight,
)
from tetrad.passes.recompute import recomputed

WIDE_RECOMPUTE = 2  # like CHEAP, for values that a broadcast would repeat many times
# operations per element that one kernel may spend on recomputing a value at further indices
AGAIN = 16
# the most distinct indices that are counted; the index of the kernel's own results
MANY, HERE = AGAIN + 2, frozenset({0})
# Limits of the work (see `weight`) in one kernel, because LLVM's time grows faster than the code. A
# few hundred operations hide the memory traffic between two kernels. Rows repeat their work for
# every sweep and vector, products for a tile.
MAP_WORK, ROW_WORK, TILE_WORK = 512, 256, 256
STORE_WORK = 4
# Results that a product stores at most. More, as an optimiser has (a weight and its moments), are
# rather computed by a kernel of their own: a tile would read and write short pieces of many rows.
STORED = 2
TRIES = 16  # candidates that a map may be merged with, the latest first
NO_LEVEL = -1


def fuse(graph: Graph) -> tuple[Group, ...]:
    """The groups of a graph, operands before users."""
    off = flag_words("TETRAD_UNFUSED")
    apart = lazy.module("tetrad.passes.fusions").seams_of(graph, off) if off else ()
    return _Fusion(graph, frozenset(apart)).groups()


Times = dict[Node, int]


def levels(nodes: Iterable[Node]) -> Times:
    """The depth of operands below each node; operands come first."""
    found: Times = {}
    for node in nodes:
        found[node] = 1 + max((found[i] for i in node.inputs), default=-1)
    return found


@record(eq=False)
class FusedNodes:
    """Nodes that run together (the first is the representative), and the nodes they wait for."""

    members: tuple[Node, ...]
    inputs: tuple[Node, ...]


@record(eq=False)
class Map:
    """What a map reads from memory, what it computes, and its weight."""

    reads: frozenset[Node]
    inside: frozenset[Node]
    work: int


class _Fusion:
    """The analysis of one graph. Steps, in order: rows, epilogues, materialised nodes, maps,
    merging."""

    def __init__(self, graph: Graph, apart: frozenset[Node] = frozenset()) -> None:
        # `apart`: nodes that get memory because a named fusion is off
        self.graph, self.apart = graph, apart
        self.nodes = graph.nodes()
        self.place = {node: i for i, node in enumerate(self.nodes)}
        self.users: dict[Node, list[Node]] = {node: [] for node in self.nodes}
        for node in self.nodes:
            for operand in node.inputs:
                self.users[operand].append(node)
        self.results = set(graph.outputs)
        # array -> the reductions along rows that read it
        self.reductions: dict[Node, list[Node]] = {}
        for node in filter(is_row_reduction, self.nodes):
            for array in row_arrays(node):
                self.reductions.setdefault(array, []).append(node)
        self.whole: dict[Node, FusedNodes] = {}  # member -> its group, of the groups made so far
        self.level = levels(self.nodes)
        # node -> the largest place, and the deepest level, among all that runs before or with it
        self.until, self.depth = dict(self.place), dict(self.level)
        self.flat: dict[Node, bool] = {}
        self.maps: dict[Group, Map] = {}

    def groups(self) -> tuple[Group, ...]:
        made = recomputed(self.row_groups() + self.matmul_groups(), self.users, self.results)
        absorbed = set(self.whole)
        memory = self.materialised(made, absorbed)
        made += [
            self.single(node) for node in self.nodes if node in memory and node not in absorbed
        ]
        return tuple(ordered(merge_maps(self, made, memory), memory, self.results))

    def single(self, node: Node) -> Group:
        kind = group_kind(node)
        return Group(kind, node, (node,), (node,))

    def made(self, kind: str, root: Node, members: Iterable[Node]) -> Group:
        """A group of these members; its outputs are the members that others read."""
        together = dict.fromkeys(members)
        self.run_together(together)
        return Group(
            kind, root, tuple(together), tuple(m for m in together if self.leaves(m, together))
        )

    def run_together(self, members: Mapping[Node, object], is_map: bool = False) -> None:
        """Record that no member runs before what any member needs. Levels are updated only for the
        few groups made before maps: with every node that joins a map, everything after it would
        sink by a level."""
        needs = dict.fromkeys(i for m in members for i in m.inputs if i not in members)
        whole = FusedNodes(tuple(members), tuple(needs))
        self.whole.update((m, whole) for m in members)
        for until in (self.until,) if is_map else (self.until, self.depth):
            self.delay(until, whole.members, max(until[m] for m in members))

    def delay(self, until: Times, nodes: Iterable[Node], time: int) -> None:
        """Record that the nodes, and all that wait for them, run no earlier than `time`."""
        stack = list(nodes)
        while stack:
            node = stack.pop()
            if until[node] < time:
                for member in self.whole[node].members if node in self.whole else (node,):
                    until[member] = time
                    stack.extend(self.users[member])

    def fits(
        self, node: Node, members: Mapping[Node, str], root: Node, lowest: int | None = None
    ) -> bool:
        """May `node` join the members? Not if it is in another group, or waits for something that
        runs after them. `lowest`: no member has a lower level; else that is the root's."""
        if node in self.whole:
            return False
        return not self.wait(
            [i for i in node.inputs if i not in members],
            members,
            self.place[root],
            self.level[root] if lowest is None else lowest,
        )

    def wait(
        self, nodes: Iterable[Node], members: Container[Node], place: int, level: int = NO_LEVEL
    ) -> bool:
        """Does one of the nodes depend on `members`, if each group made so far runs as a whole? No
        member has an earlier place than `place` or a lower level than `level`, so a dependent node
        has a later place and a higher level: others are skipped."""
        stack, seen = list(nodes), set[Node]()
        while stack:
            node = stack.pop()
            whole = self.whole.get(node)
            one, inputs = (whole.members[0], whole.inputs) if whole else (node, node.inputs)
            if one in members:
                return True
            if one not in seen and self.until[node] > place and self.depth[node] > level:
                seen.add(one)
                stack.extend(inputs)
        return False

    def any_waits(self, nodes: Iterable[Node], group: Group) -> bool:
        """Does one of the nodes depend on this map group? Its first member is the
        representative."""
        return self.wait(nodes, group.members[:1], self.place[group.members[0]])

    # -- rows --------------------------------------------------------------------------------------

    def row_groups(self) -> list[Group]:
        found = []
        for node in self.nodes:
            if is_row_reduction(node) and node not in self.whole:
                members = self.absorb_rows(node)
                found.append(self.made("rows", node, (*members, *self.column_sums(node, members))))
        return found

    def absorb_rows(self, first: Node) -> dict[Node, str]:
        """Nodes that work on the same rows as `first`: member -> "row" (one value per row) or
        "full"."""
        outer, inner = row_shape(first)
        members: dict[Node, str] = {first: "row"}
        seen = {first}
        work = self.work_for(first, seen)
        siblings = self.siblings(first)
        lowest = min(self.level[n] for n in (first, *siblings))
        for node in self.after(first, members, (i for s in (first, *siblings) for i in s.inputs)):
            level = row_level(node, members, outer, inner)
            if level is None and node in siblings:
                level = "row"
            if level is not None and self.fits(node, members, first, lowest):
                work += self.work_for(node, seen)
                if work > ROW_WORK:
                    break
                members[node] = level
        return self.trimmed(members)

    def column_sums(self, first: Node, members: Mapping[Node, str]) -> list[Node]:
        """Reductions over all rows of what the kernel of these members has at hand anyway."""
        outer, inner = row_shape(first)
        if not may_sum_columns(outer, inner):
            return []
        users = {u for node in at_hand(members) for u in self.users[node]}
        sums = [u for u in users if is_column_sum(u, outer, inner)]
        sums = [node for node in sums if self.may_join_later(node, members, first)]
        return sorted(sums, key=self.place.__getitem__)[:SUMS]

    def may_join_later(self, node: Node, members: Mapping[Node, str], first: Node) -> bool:
        """May a node whose result no member has at hand run with them? Not before the first, and
        not if one waits for it."""
        lowest = min(self.level[m] for m in members)
        early = self.place[node] < self.place[first] or self.level[node] < lowest
        if early or not self.fits(node, members, first, lowest):
            return False
        needs = [i for m in members for i in m.inputs if i not in members]
        return not self.wait(needs, {node}, self.place[node], self.level[node])

    def after(
        self, first: Node, members: Mapping[Node, str], also: Iterable[Node] = ()
    ) -> Iterator[Node]:
        """Nodes after `first` that read a member or one of `also`, in order. The caller may add
        members meanwhile."""
        waiting = [self.place[user] for node in (first, *also) for user in self.users[node]]
        heapify(waiting)
        last = self.place[first]
        while waiting:
            place = heappop(waiting)
            if place <= last:
                continue
            last, node = place, self.nodes[place]
            yield node
            if node in members:
                for user in self.users[node]:
                    heappush(waiting, self.place[user])

    def work_for(self, node: Node, seen: set[Node]) -> int:
        """The weight of a member of a rows group and of the nodes computed on the spot for it,
        without those in `seen`.

        Large work below a member counts in part only: `cuts` gives the rest memory.
        """
        total, below, stack = weight(node), 0, [node]
        while stack and below <= ROW_WORK // 4:
            fresh = [
                i
                for i in stack.pop().inputs
                if i not in seen and i not in self.whole and group_kind(i) == "map"
            ]
            below += sum(weight(i) for i in fresh)
            seen.update(fresh)
            stack.extend(fresh)
        seen.add(node)
        return total + min(below, ROW_WORK // 4)

    def siblings(self, first: Node) -> set[Node]:
        """Reductions of the same rows that read, element by element, what `first` reads."""
        near = {n for array in row_arrays(first) for n in self.reductions.get(array, ())}
        return {n for n in near if row_shape(n) == row_shape(first)} - {first}

    def trimmed(self, members: dict[Node, str]) -> dict[Node, str]:
        """Without trailing members that only rearrange a row result: their readers can do that."""
        for node in reversed(list(members)):
            inside = any(u in members for u in self.users[node])
            if not inside and node not in self.results and node.op.kind == "movement":
                del members[node]
        return members

    def leaves(self, node: Node, members: Container[Node]) -> bool:
        kept = node in self.results or node in self.apart
        return kept or any(u not in members for u in self.users[node])

    # -- matmul epilogues --------------------------------------------------------------------------

    def matmul_groups(self) -> list[Group]:
        products = [node for node in self.nodes if holds(node.op.epilogue, node)]
        return [self.made(group_kind(node), node, self.epilogue(node)) for node in products]

    def epilogue(self, product: Node) -> dict[Node, str]:
        """The product and the elementwise work on its result."""
        members = {product: "full"}
        work = 0
        for node in self.after(product, members):
            same = node.op.kind == "elementwise" and node.type.shape == product.type.shape
            same = same and not node.type.dtype.is_complex  # parts are joined by a map
            same = same and self.apart.isdisjoint(node.inputs)
            if same and self.fits(node, members, product):
                work += weight(node)
                if work > TILE_WORK:
                    break
                members[node] = "full"
        stored = sum(1 for m in members if self.leaves(m, members))
        return members if stored <= STORED else {product: "full"}

    # -- memory ------------------------------------------------------------------------------------

    def materialised(self, made: list[Group], absorbed: set[Node]) -> set[Node]:
        memory = {o for g in made for o in g.outputs} | {o for o in self.results if not o.op.leaf}
        memory |= self.apart
        for node in self.nodes:
            if node.op.leaf or node in absorbed:
                continue
            if group_kind(node) != "map" and not self.is_read_in_place(node):
                memory.add(node)
        for node in self.nodes:
            memory.update(self.demanded(node, memory))
        memory -= {n for n in self.nodes if n.op.leaf}
        memory |= self.shared_work(memory, absorbed)
        cut = self.cuts(memory, absorbed)
        return memory | cut | self.shared_work(memory | cut, absorbed) if cut else memory

    def cuts(self, memory: set[Node], absorbed: set[Node]) -> set[Node]:
        """Nodes that get memory because a kernel would otherwise hold too much work."""
        cut: set[Node] = set()
        # node without memory -> the nodes computed on the spot for it, itself included
        inside: dict[Node, frozenset[Node]] = {}
        # upper bound of its weight; the exact one, counting shared nodes once, takes longer
        bound: dict[Node, int] = {}
        for node in self.nodes:
            # every part of a concat has its own kernel
            if node.op.leaf or group_kind(node) == "concat":
                continue
            most = (
                ROW_WORK // 4
                if node in absorbed or node.op.kind == "reduce"
                else MAP_WORK - weight(node)
            )
            parts = {i: inside[i] for i in node.inputs if i in inside}
            work = sum(bound[i] for i in parts)
            while work > most:
                work = total_weight(parts.values())
                costly = costliest(parts, inside) if work > most else None
                if costly is None:
                    break
                gone = inside.pop(costly)
                parts = {
                    i: p - gone if costly in p else p for i, p in parts.items() if i is not costly
                }
                cut.add(costly)
            if node not in memory and node not in absorbed:
                inside[node] = frozenset({node}).union(*parts.values())
                bound[node] = work + weight(node)
        return cut

    def is_read_in_place(self, node: Node) -> bool:
        """Is it a transpose that only matmuls read? They read its operand directly. Or is it
        computed as they read?"""
        if node in self.results:
            return False
        if node.op is transpose and all(holds(u.op.prologue, u) for u in self.users[node]):
            return True
        return is_read_inline(node, self.users, self.results)

    def demanded(self, node: Node, memory: set[Node]) -> list[Node]:
        """Operands that a node can read from memory only."""
        if node.op.in_memory is not None:
            return [node.inputs[i] for i in node.op.in_memory]
        if holds(node.op.prologue, node):
            return [base for i in node.inputs for base in self.bases(i, memory)]
        if node.op.kind in ("structural", "special"):
            return list(node.inputs)
        if node.op.view and reorders(node) and not self.is_flat(node.inputs[0]):
            return [node.inputs[0]]
        return []

    def bases(self, node: Node, memory: set[Node]) -> list[Node]:
        """What a product that reads operands in place needs in memory to read this one: nothing
        more, a reshape of what lies there (the same memory), or the operand itself."""
        if self.is_read_by(node, memory):
            return []
        base = below_strides(node)
        is_there = base.op.view and is_stored(base.inputs[0], memory)
        return [base if is_there else node]

    def is_read_by(self, node: Node, memory: set[Node]) -> bool:
        """Can a product that reads operands in place read this one without memory of its own?"""
        return is_prologue(node, memory) or is_read_inline(node, self.users, self.results)

    def is_flat(self, node: Node) -> bool:
        """Is it elementwise work on arrays of its own shape? Then it can be read at any flat
        position."""
        if node.op.leaf:
            return True
        if node.op.view:
            return self.is_flat(node.inputs[0])
        if node.op.kind != "elementwise":
            return False
        if node not in self.flat:  # memoised: the number of paths may be exponential
            self.flat[node] = all(
                i.type.size == 1 or is_splat(i) or self.is_flat(i) for i in node.inputs
            )
        return self.flat[node]

    def shared_work(self, memory: set[Node], absorbed: set[Node]) -> set[Node]:
        """Costly nodes that several kernels, or one kernel at many indices, would recompute."""
        extra: set[Node] = set()
        owners: dict[Node, set[object]] = {}
        indices: dict[Node, frozenset[int]] = {}
        cost = self.costs(memory)
        group_of = {m: id(m) for m in absorbed}
        for node in reversed(self.nodes):
            if node.op.leaf or node in memory or node in absorbed:
                continue
            found: set[object] = set()
            repeated = False
            for user in self.users[node]:
                kept = user in memory or user in extra or user in absorbed
                found |= {group_of.get(user, user)} if kept else owners.get(user, set())
                repeated |= user.op.spreads and node.type.size != 1
            indices[node] = self.indices_read(node, indices)
            again = (len(indices[node]) - 1) * cost[node] if node.op.kind == "elementwise" else 0
            shared = (len(found) > 1 and cost[node] > CHEAP) or again > AGAIN
            if not node.op.spreads and (shared or (repeated and cost[node] > WIDE_RECOMPUTE)):
                extra.add(node)
                indices[node] = HERE
            owners[node] = found
        return extra

    def indices_read(self, node: Node, indices: Mapping[Node, frozenset[int]]) -> frozenset[int]:
        """The distinct indices at which kernels compute the node. Overlapping slices of one array
        double the number at every step; it is capped at MANY."""
        found: set[int] = set()
        for user in self.users[node]:
            outer = indices.get(user, HERE)
            found |= (
                outer
                if user.op.kind == "elementwise"
                else {hash((self.place[user], i)) for i in outer}
            )
        return frozenset(sorted(found)[:MANY])

    def costs(self, memory: set[Node]) -> dict[Node, int]:
        """Operations per element, if operands without memory are computed on the spot."""
        cost: dict[Node, int] = {}
        for node in self.nodes:
            # movement costs nothing
            own = node.op.cost if node.op.kind == "elementwise" or node.op.cost > 1 else 0
            inner = (0 if i in memory or i.op.leaf else cost[i] for i in node.inputs)
            cost[node] = min(own + sum(inner), 1 << 20)
        return cost

    def map(self, group: Group, memory: set[Node]) -> Map:
        """The `Map` of a group of one node."""
        if group not in self.maps:
            reads = frozenset(inputs_of(group, memory))
            inside = frozenset(topological(group.members, known=reads))
            self.maps[group] = Map(reads, inside, sum(map(weight, inside)) + STORE_WORK)
        return self.maps[group]

    def join(self, first: Group, second: Group, made: Group) -> None:
        """Record the `Map` of a group merged from two."""
        a, b = self.maps[first], self.maps[second]
        reads = (a.reads | b.reads).difference(made.members)
        work = a.work + sum(map(weight, b.inside - a.inside))
        stores = STORE_WORK * (len(made.outputs) - len(first.outputs))
        self.maps[made] = Map(reads, a.inside | b.inside, work + stores)

    def is_kept(
        self, node: Node, second: Group, members: Container[Node], memory: set[Node]
    ) -> bool:
        """Does a result of a map still need memory once `second` is merged with it into
        `members`?"""
        is_asked = node not in self.maps[second].reads or node in self.results | self.apart
        return is_asked or fusion_reader(self, node, members, memory)


# -- merging ---------------------------------------------------------------------------------------


def merge_maps(fusion: _Fusion, groups: list[Group], memory: set[Node]) -> list[Group]:
    """Merge map groups of one shape that feed each other element by element, or read the same
    array."""
    merged: dict[int, Group] = {}  # by number, in order of creation
    touching: dict[Node, set[int]] = {}  # array -> the groups that write or read it
    for group in sorted((g for g in groups if g.kind == "map"), key=lambda g: fusion.place[g.root]):
        near = set().union(*(touching.get(i, ()) for i in fusion.map(group, memory).reads))
        roomy = (
            n for n in sorted(near, reverse=True) if has_room(fusion, merged[n], group, memory)
        )
        number = next(
            (n for n in islice(roomy, TRIES) if can_merge(fusion, merged[n], group, memory)), None
        )
        if number is None:
            number, made = len(merged), group
        else:
            made = joined(fusion, merged[number], group, memory)
        merged[number] = made
        for node in (*fusion.map(group, memory).reads, group.root):
            touching.setdefault(node, set()).add(number)
    return [g for g in groups if g.kind != "map"] + list(merged.values())


def has_room(fusion: _Fusion, first: Group, second: Group, memory: set[Node]) -> bool:
    """Do both maps have one shape, and together not too much work for one kernel?"""
    work = fusion.map(first, memory).work + fusion.map(second, memory).work
    return first.root.type.shape == second.root.type.shape and work <= MAP_WORK


def can_merge(fusion: _Fusion, first: Group, second: Group, memory: set[Node]) -> bool:
    """May both maps, of one shape, become one kernel?"""
    a, b = fusion.map(first, memory), fusion.map(second, memory)
    feeds = [o for o in first.outputs if o in b.reads]
    related = feeds or any(i.type.shape == first.root.type.shape for i in a.reads & b.reads)
    if not related or not all(aligned(second.root, o, memory) for o in feeds):
        return False
    others = b.reads.difference(first.outputs)
    return not fusion.any_waits(others, first) and not fusion.any_waits(a.reads, second)


def joined(fusion: _Fusion, first: Group, second: Group, memory: set[Node]) -> Group:
    """Both groups as one; what only the second (a single node) read needs no memory any more."""
    members = dict.fromkeys((*first.members, *second.members))
    outputs = []
    for node in first.outputs:
        if fusion.is_kept(node, second, members, memory):
            outputs.append(node)
        else:
            memory.discard(node)
    fusion.run_together(members, is_map=True)
    made = Group("map", second.root, tuple(members), (*outputs, *second.outputs))
    fusion.join(first, second, made)
    return made


def fusion_reader(fusion: _Fusion, node: Node, members: Container[Node], memory: set[Node]) -> bool:
    """Does a kernel other than that of `members` read `node`?"""
    stack, seen = [node], {node}
    while stack:
        current = stack.pop()
        for user in fusion.users[current]:
            if user in members or user in seen:
                continue
            if user in memory or user.op.kind != "elementwise" and group_kind(user) != "map":
                return True
            seen.add(user)
            stack.append(user)
    return False
