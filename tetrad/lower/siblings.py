"""Lowering, siblings: products that differ only in sizes share one kernel, which is told them.

Receives launches as they are made; a kernel waits until every product of the graph that may be like it is lowered. What
is alike becomes one program (`kernel.alike`): layers of different widths are compiled once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from tetrad.core.record import replace
from tetrad.kernel.alike import merged
from tetrad.kernel.nodes import Program
from tetrad.lower.launch import Launch, Step
from tetrad.passes.fuse import Group

DEAR = "matmul"  # the kind whose kernels take long enough to compile
Told = tuple[Program, dict[str, int]]  # the program to run instead, and the arguments it has in addition


class Siblings:
    """The kernels of one graph that wait for others. `told`: what became of each, for all graphs of a program."""

    def __init__(self, groups: Iterable[Group], told: dict[Program, Told]) -> None:
        self.told = told
        self.waiting: dict[Hashable, list[Program]] = {}
        self.missing: dict[Hashable, set[Hashable]] = {}
        for group in groups:
            if group.kind == DEAR:
                self.missing.setdefault(outline(group), set()).add(sizes(group))

    def lowered(self, group: Group, launches: Sequence[Launch]) -> list[Program]:
        """Take the launches of a group; the programs that wait for nothing any more."""
        programs = [launch.program for launch in launches]
        if group.kind != DEAR:
            return programs
        key = outline(group)
        self.missing[key].discard(sizes(group))
        self.waiting.setdefault(key, []).extend(programs)
        return [] if self.missing[key] else self.joined(self.waiting.pop(key))

    def rest(self) -> list[Program]:
        """Those whose siblings took over the kernels of another graph."""
        return [program for programs in self.waiting.values() for program in self.joined(programs)]

    def joined(self, programs: list[Program]) -> list[Program]:
        """One program for all that are alike."""
        families: list[Family] = []
        for program in programs:
            if not any(family.takes(program) for family in families):
                families.append(Family(program))
        for family in families:
            self.told.update(family.told())
        return [family.program for family in families]


class Family:
    """Programs that are alike, and the one that runs for all of them."""

    def __init__(self, program: Program) -> None:
        self.members, self.program = [program], program
        self.numbers: tuple[dict[str, int], ...] = ({},)

    def takes(self, program: Program) -> bool:
        found = merged((*self.members, program))
        if found is not None:
            self.members, self.program, self.numbers = [*self.members, program], found.program, found.numbers
        return found is not None

    def told(self) -> dict[Program, Told]:
        return {old: (self.program, new) for old, new in zip(self.members, self.numbers, strict=True) if new}


def outline(group: Group) -> Hashable:
    """Equal for groups that may be alike."""
    return tuple((node.op.name, node.type.dtype, node.type.rank) for node in group.members)


def sizes(group: Group) -> Hashable:
    return tuple(node.type.shape for node in (group.root, *group.root.inputs))


def told(step: Step, instead: dict[Program, Told]) -> Step:
    """A step that runs the kernel it shares with others."""
    if not isinstance(step, Launch) or step.program not in instead:
        return step
    program, numbers = instead[step.program]
    return replace(step, program=program, args={**step.args, **numbers})
