"""Lowering, merged kernels: kernels that differ only in sizes and numbers become one kernel, which
is told them.

Receives launches as they are made; a kernel waits until every group of the graph that may be like
it is lowered. What is alike becomes one program (`kernel.merge`): layers of different widths, or a
hundred branches, are compiled once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from tetrad.core import lazy, show
from tetrad.core.record import replace
from tetrad.graph.nodes import Graph
from tetrad.kernel.nodes import Program
from tetrad.lower.dedup import Look, Outline
from tetrad.schedule.nodes import Launch, Step

if TYPE_CHECKING:
    from tetrad.kernel import merge
else:
    merge = lazy.later("tetrad.kernel.merge")

DEAR = "matmul"  # the kind whose kernels take so long to compile that two are compared
MANY = 4  # others are when there are that many: one that is not told its sizes is the quicker one
# the program to run instead, and the arguments it has in addition
Told = tuple[Program, dict[str, int]]


class Siblings:
    """The kernels of one graph that wait for others. `told`: what became of each, for all graphs of
    a program."""

    def __init__(self, looks: Iterable[Look], told: dict[Program, Told]) -> None:
        self.told = told
        self.compared: dict[tuple[Program, ...], merge.Merged | None] = {}
        self.waiting: dict[Outline, list[Program]] = {}
        missing: dict[Outline, set[Hashable]] = {}
        for look in looks:
            missing.setdefault(look.outline, set()).add(look.key)
        self.missing = {o: keys for o, keys in missing.items() if len(keys) >= MANY or o[0] == DEAR}

    def lowered(self, look: Look, launches: Sequence[Launch]) -> list[Program]:
        """Take the launches of a group; the programs that wait for nothing any more."""
        programs = [launch.program for launch in launches]
        missing = self.missing.get(look.outline)
        if missing is None:
            return programs if len(programs) < MANY else self.joined(programs)
        missing.discard(look.key)
        self.waiting.setdefault(look.outline, []).extend(programs)
        return [] if missing else self.joined(self.waiting.pop(look.outline))

    def rest(self) -> list[Program]:
        """Those whose siblings took over the kernels of another graph."""
        return [program for programs in self.waiting.values() for program in self.joined(programs)]

    def joined(self, programs: list[Program]) -> list[Program]:
        """One program for all that are alike: mostly they all are."""
        with show.spending("merge_kernels"):
            one = self.shared(programs)
            families = [] if one else self.like_the_first(programs)
            parts = [program for family in families for program in self.halved(family)]
        return [one] if one else parts

    def halved(self, family: list[Program]) -> list[Program]:
        """One program for a family, or for each half of it: many may need more arguments than two
        of them do."""
        one = self.shared(family)
        half = len(family) // 2
        return [one] if one else [*self.halved(family[:half]), *self.halved(family[half:])]

    def shared(self, programs: list[Program]) -> Program | None:
        """The one program to run instead of all these, if there is such."""
        if len(programs) == 1:
            return programs[0]
        found = self.merged(*programs)
        if found is None:
            return None
        self.told.update(
            (old, (found.program, new))
            for old, new in zip(programs, found.numbers, strict=True)
            if new
        )
        return found.program

    def like_the_first(self, programs: list[Program]) -> list[list[Program]]:
        """Families of programs that are like the first of them."""
        families: list[list[Program]] = []
        for program in programs:
            family = next((f for f in families if self.merged(f[0], program) is not None), None)
            families.append([program]) if family is None else family.append(program)
        return families

    def merged(self, *programs: Program) -> merge.Merged | None:
        """Compared once: a family of two was when it was found."""
        if programs not in self.compared:
            self.compared[programs] = merge.merged(programs)
        return self.compared[programs]


def told(step: Step, instead: dict[Program, Told]) -> Step:
    """A step that runs the kernel it shares with others."""
    if not isinstance(step, Launch) or step.program not in instead:
        return step
    program, numbers = instead[step.program]
    return replace(step, program=program, args={**step.args, **numbers})


def describe_merged(graph: Graph, steps: Iterable[Step], instead: Mapping[Program, Told]) -> str:
    """Which kernels run as one that is told their sizes and numbers."""
    launches = [step for step in steps if isinstance(step, Launch) and step.program in instead]
    head = f"pass merge_kernels: graph {graph.name}: "
    if not launches:
        return head + "nothing to do"
    merged = {launch.program: instead[launch.program] for launch in launches}
    into = len({program for program, _ in merged.values()})
    lines = [f"  {old.name} is {new.name} of {numbers}" for old, (new, numbers) in merged.items()]
    return "\n".join([f"{head}{len(merged)} kernels -> {into}", *lines])
