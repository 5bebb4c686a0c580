"""Passes, group order: in which order the groups of a graph run. Receives groups, returns them
with operands before users, such that arrays are read for the last time soon.

A gradient has much work that only an optimiser waits for: products for weights, sums for biases.
Left to the end it would keep everything it reads in memory till then, so what frees more than it
takes runs as soon as it can; numbers that it waits for, such as a step's, are computed before it.
An optimiser's update so finds the gradient in the cache, and its memory serves the next one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from tetrad.core.errors import CompileError
from tetrad.core.sizes import bind
from tetrad.graph.build import parameter
from tetrad.graph.group import Group, inputs_of
from tetrad.graph.nodes import Node

DIM = 256  # what a Dim is taken for
SHRINKS = 8  # a group that reads so many times what it writes lets others free what it reads
FEW = 256  # bytes that a group reads and writes which others need not wait for


def ordered(made: Iterable[Group], memory: Container[Node], results: set[Node]) -> list[Group]:
    """The groups in an order in which each comes after those it reads."""
    groups = list(made)
    reads = {group: inputs_of(group, memory) for group in groups}
    maker = {o: g for g in groups for o in g.outputs}
    return Freeing(topological_groups(groups, reads, maker), reads, maker, results).order()


def topological_groups(
    groups: Sequence[Group], reads: Mapping[Group, list[Node]], maker: Mapping[Node, Group]
) -> list[Group]:
    """Each group after those it reads, else as they come."""
    done: dict[Group, None] = {}
    begun: set[Group] = set()
    for start in groups:
        stack = [start]
        while stack:
            group = stack[-1]
            if group in done:
                stack.pop()
                continue
            waits = [maker[i] for i in reads[group] if i in maker and maker[i] not in done]
            waits = [w for w in waits if w is not group]
            # `fits` and `can_merge` exclude cycles; an error is better than an endless loop
            if waits and group in begun:
                raise CompileError(f"{group.name} waits for itself", source=group.root.source)
            begun.add(group)
            if waits:
                stack.extend(waits)
            else:
                done[group] = None
                stack.pop()
    return list(done)


class Freeing:
    """The walk through groups that takes those first which free memory."""

    def __init__(
        self,
        groups: list[Group],
        reads: Mapping[Group, list[Node]],
        maker: Mapping[Node, Group],
        results: set[Node],
    ) -> None:
        self.groups, self.results, self.reads = groups, results, reads
        self.made_by = maker
        self.arrays = {g: {self.storage(i) for i in reads[g] if i in maker} for g in groups}
        self.arguments = {g: {i for i in reads[g] if i.op is parameter} for g in groups}
        self.readers: dict[Node, list[Group]] = defaultdict(list)
        for group in groups:
            for array in self.arrays[group] | self.arguments[group]:
                self.readers[array].append(group)
        self.waits = {
            g: {maker[i]: None for i in reads[g] if i in maker and maker[i] is not g}
            for g in groups
        }
        self.users: dict[Group, dict[Group, None]] = defaultdict(dict)
        for group in groups:
            for array in reads[group]:
                if array in maker and maker[array] is not group:
                    self.users[maker[array]][group] = None
        self.left = Counter({array: len(found) for array, found in self.readers.items()})
        self.done: dict[Group, None] = {}

    def order(self) -> list[Group]:
        for group in self.groups:
            stack = [group]
            while stack:
                following = stack.pop()
                if following not in self.done and (following is group or self.frees(following)):
                    for before in [*self.waits[following], following]:
                        stack.extend(self.run(before))
        return list(self.done)

    def run(self, group: Group) -> Iterator[Group]:
        """The groups that may free memory now that this one has run, the first of them last."""
        self.done[group] = None
        touched: dict[Group, None] = {}
        for user in self.users[group]:
            del self.waits[user][group]
            touched[user] = None
        for array in self.arrays[group] | self.arguments[group]:
            self.left[array] -= 1
            if self.left[array] == 1:
                touched.update((g, None) for g in self.readers[array] if g not in self.done)
        return reversed(touched)

    def frees(self, group: Group) -> bool:
        """Can it run, and does it free at least what it takes, or read many times that?"""
        if self.takes_over(group) or not all(map(self.is_little, self.waits[group])):
            return False
        takes = sum(nbytes(o) for o in group.outputs if self.takes_memory(o))
        read = self.arrays[group]
        frees = sum(nbytes(i) for i in read if self.left[i] == 1 and i not in self.results)
        return takes <= frees or takes * SHRINKS <= sum(map(nbytes, read))

    def is_little(self, group: Group) -> bool:
        """Can it run, and is it a few numbers?"""
        touched = [*self.reads[group], *group.outputs]
        return not self.waits[group] and sum(map(nbytes, touched)) <= FEW

    def takes_over(self, group: Group) -> bool:
        """May a result live where an argument is that others have still to read?"""
        kinds = {o.type for o in group.outputs if o in self.results}
        return any(i.type in kinds and self.left[i] > 1 for i in self.arguments[group])

    def takes_memory(self, node: Node) -> bool:
        return node not in self.results and self.storage(node) is node

    def storage(self, node: Node) -> Node:
        """The array whose memory a view or one of several results has."""
        while node in self.made_by and (node.op.view or self.made_by[node].kind == "item"):
            node = node.inputs[0]
        return node


def nbytes(node: Node) -> int:
    return sum(bind(kind.nbytes, defaultdict(lambda: DIM)) for kind in node.types)
