"""Explain, pressure: what the launches of a program hand on from one to the next, asked as a tensor
train.

Receives an `Explanation`, returns its chains with their ranks, the pressure of each, and who
answered: the kernel form through `td.dispatch`, or the closed form where a chain exceeds its
limits. Nothing in the compiler waits for the answer (docs/compiler.md says why).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from tetrad.compiler.dispatch import dispatch
from tetrad.compiler.pressure import (
    TensorTrainScratch,
    fusion_pressure_via_with_scratch,
    product_of,
    should_fuse_chain,
)
from tetrad.core.errors import BadInputs
from tetrad.core.record import record
from tetrad.core.sizes import bind
from tetrad.schedule.nodes import Control, Leaf, Step

if TYPE_CHECKING:
    from tetrad.explain.story import Explanation


@record
class ChainPressure:
    """Launches of which each reads what the one before wrote: the question and the answer."""

    names: tuple[str, ...]
    ranks: tuple[int, ...]  # elements handed on from each to the next
    nbytes: int  # of all that is handed on
    pressure: int
    answered_by: str
    should_fuse: bool | None  # None: no threshold was given

    @property
    def mean(self) -> float:
        """Elements a link, as the geometric mean."""
        logarithms = [math.log(rank) for rank in self.ranks if rank]
        return math.exp(sum(logarithms) / len(self.ranks))

    def __str__(self) -> str:
        links = " ".join(
            f"{name} -{rank}->" for name, rank in zip(self.names, self.ranks, strict=False)
        )
        verdict = {None: "", True: "; fuse", False: "; do not fuse"}[self.should_fuse]
        return (
            f"{links} {self.names[-1]}\n"
            f"    pressure {self.pressure}, mean {self.mean:.0f} elements a link, {self.nbytes} "
            f"bytes in flight, by {self.answered_by}{verdict}"
        )


@record
class PressureReport:
    """The chains of a program; `print` it."""

    name: str
    chains: tuple[ChainPressure, ...]

    def __str__(self) -> str:
        lines = [f"  {chain}" for chain in self.chains]
        return "\n".join([f"pressure of {self.name}", *(lines or ["  no launch reads another's"])])

    __repr__ = __str__


def pressure_of(story: Explanation, threshold: float | None) -> PressureReport:
    scratch = TensorTrainScratch()
    found = [asked(chain, story.dims, threshold, scratch) for chain in chains(story.steps)]
    return PressureReport(story.name, tuple(found))


def chains(steps: Sequence[Step]) -> Iterator[list[Leaf]]:
    """Runs of steps of which each reads what the one before wrote."""
    run: list[Leaf] = []
    for step in steps:
        if isinstance(step, Control) or (run and not run[-1].writes & step.reads):
            yield from [run] * (len(run) > 1)
            run = []
        run += [] if isinstance(step, Control) else [step]
    yield from [run] * (len(run) > 1)


def asked(
    chain: list[Leaf], dims: Mapping[str, int], threshold: float | None, scratch: TensorTrainScratch
) -> ChainPressure:
    shared = [before.writes & after.reads for before, after in pairwise(chain)]
    ranks = tuple(sum(bind(slot.type.size, dims) for slot in slots) for slots in shared)
    nbytes = sum(bind(slot.type.nbytes, dims) for slots in shared for slot in slots)
    try:
        pressure = int(fusion_pressure_via_with_scratch(dispatch, ranks, scratch))
        answered_by = "kernel"
    except BadInputs as refusal:
        pressure = product_of(ranks)
        answered_by = f"closed form ({refusal.message.removeprefix('fusion pressure: ')})"
    verdict = None if threshold is None else should_fuse_chain(ranks, threshold)
    names = tuple(step.name for step in chain)
    return ChainPressure(names, ranks, nbytes, pressure, answered_by, verdict)
