"""The schedule language, outputs: a schedule in, how each result of a call gets its memory out.

A result may live where a donated input was, be one of the inputs, a constant, or another result;
else it is fresh. A back end follows the plan at every call.
"""

from __future__ import annotations

from collections.abc import Mapping

from tetrad.core.sizes import bind
from tetrad.schedule.nodes import Launch, Schedule, Slot

# How an output gets its memory, and a detail: fresh (bytes), constant (bytes), input (a copy of
# that input), donated (the memory of that input), same (as that output).
OutputPlan = tuple[str, int]


class Outputs:
    """The memory of one program's results, for any sizes."""

    def __init__(self, schedule: Schedule, donated: tuple[int, ...]) -> None:
        self.outputs = schedule.outputs
        self.takeover = donations(schedule, donated)
        self.written = frozenset(
            s.position for step in schedule.steps for s in step.writes if s.kind == "input"
        )
        # changed in place, but the caller's: the program gets copies
        self.copied = self.written - set(donated)
        self.given = self.written | set(donated)  # the program's own

    def plans(self, dims: Mapping[str, int]) -> list[OutputPlan]:
        return [self.plan(i, slot, dims) for i, slot in enumerate(self.outputs)]

    def plan(self, i: int, slot: Slot, dims: Mapping[str, int]) -> OutputPlan:
        """How output i gets its memory: (kind, detail)."""
        first = self.outputs.index(slot)
        if first != i:
            return "same", first
        if slot.kind == "input":
            return "donated" if slot.position in self.given else "input", slot.position
        if slot in self.takeover:
            return "donated", self.takeover[slot]
        return ("fresh" if slot.kind == "output" else "constant"), bind(slot.type.nbytes, dims)


def donations(schedule: Schedule, donated: tuple[int, ...]) -> dict[Slot, int]:
    """Outputs that may live where a donated input was: output slot -> input position."""
    taken: dict[Slot, int] = {}
    for position in donated:
        source = schedule.inputs[position]
        for slot in schedule.outputs:
            same_size = slot.kind == "output" and slot.type.nbytes == source.type.nbytes
            if slot not in taken and same_size and fits_in_place(schedule, slot, source):
                taken[slot] = position
                break
    return taken


def fits_in_place(schedule: Schedule, result: Slot, source: Slot) -> bool:
    """Is the result only written once the source is no longer needed?"""
    reads = [
        i for i, step in enumerate(schedule.steps) if source in step.reads or source in step.writes
    ]
    writes = [i for i, step in enumerate(schedule.steps) if result in step.writes]
    if source in schedule.outputs or not writes:
        return False
    last, first = max(reads, default=-1), min(writes)
    step = schedule.steps[first]
    return last < first or (
        last == first and isinstance(step, Launch) and (result, source) in step.inplace
    )
