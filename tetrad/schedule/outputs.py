"""The driver, outputs: lowered steps in, how each result of a call gets its memory out.

A result may live where a donated input was, be one of the inputs, a constant, or another result;
else it is fresh. `backends.cpu.executable` follows the plan at every call.
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

    def __init__(self, lowered: Schedule, donated: tuple[int, ...]) -> None:
        self.outputs = lowered.outputs
        self.takeover = donations(lowered, donated)
        self.written = frozenset(
            s.position for step in lowered.steps for s in step.writes if s.kind == "input"
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


def donations(lowered: Schedule, donated: tuple[int, ...]) -> dict[Slot, int]:
    """Outputs that may live where a donated input was: output slot -> input position."""
    taken: dict[Slot, int] = {}
    for position in donated:
        source = lowered.inputs[position]
        for slot in lowered.outputs:
            same_size = slot.kind == "output" and slot.type.nbytes == source.type.nbytes
            if slot not in taken and same_size and fits_in_place(lowered, slot, source):
                taken[slot] = position
                break
    return taken


def fits_in_place(lowered: Schedule, result: Slot, source: Slot) -> bool:
    """Is the result only written once the source is no longer needed?"""
    reads = [
        i for i, step in enumerate(lowered.steps) if source in step.reads or source in step.writes
    ]
    writes = [i for i, step in enumerate(lowered.steps) if result in step.writes]
    if source in lowered.outputs or not writes:
        return False
    last, first = max(reads, default=-1), min(writes)
    step = lowered.steps[first]
    return last < first or (
        last == first and isinstance(step, Launch) and (result, source) in step.inplace
    )
