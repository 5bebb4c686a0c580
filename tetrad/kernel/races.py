"""The kernel language, races: two invocations touch one element, one of them writes, and no barrier stands between.

Receives every access that `kernel.evaluate` makes, with the positions and the active invocations, and raises a
`RaceError` for the first pair that nothing orders. A barrier orders the invocations of its own workgroup; nothing
orders workgroups. A uniform store is made by every invocation alike, so each of them may read it back at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tetrad.core.errors import RaceError
from tetrad.kernel.nodes import Buffer, Program

Array = np.ndarray[Any, Any]

NOBODY, EVERYBODY, SEVERAL = -1, -2, -3  # in place of a workgroup or a lane
Show = Callable[[tuple[int, int]], str]  # (workgroup of the batch, lane) -> words


class Stamps:
    """For each element of a buffer, who touched it last: the workgroup, its stretch between barriers, the lane."""

    def __init__(self, size: int) -> None:
        self.group = np.full(size, NOBODY, np.int32)
        self.stretch = np.zeros(size, np.int32)
        self.lane = np.zeros(size, np.int32)

    def set(self, at: Array, group: Array, stretch: Array, lane: Array | int) -> None:
        self.group[at], self.stretch[at], self.lane[at] = group, stretch, lane


class Races:
    """The accesses of one launch. Workgroups are numbered over the whole launch, stretches from barrier to barrier."""

    def __init__(self, program: Program, counts: Mapping[Buffer, int]) -> None:
        self.program, self.counts = program, counts
        self.lanes = program.lanes
        shared = [b for b in program.buffers if b.is_written]
        self.reads = {b: Stamps(counts[b]) for b in shared}
        self.writes = {b: Stamps(counts[b]) for b in shared}

    def begin(self, groups: range, show: Show) -> None:
        """A batch of workgroups: their scratch is fresh."""
        self.groups, self.show = groups, show
        self.stretch = np.zeros(len(groups), np.int32)
        self.local, self.lane = np.indices((len(groups), self.lanes), np.int32)
        for buffer in self.program.buffers:
            if buffer.is_scratch and self.lanes > 1:
                size = self.counts[buffer] * len(groups)
                self.reads[buffer], self.writes[buffer] = Stamps(size), Stamps(size)

    def barrier(self, mask: Array | None) -> None:
        passed = np.ones(len(self.groups), bool) if mask is None else np.atleast_2d(mask).any(axis=1)
        self.stretch += passed

    def load(self, buffer: Buffer, positions: Any, mask: Array | None) -> None:
        if buffer not in self.writes:
            return  # only ever read, or one invocation's own
        at, local, lane = self.invocations(positions, mask)
        self.check("read", buffer, at, local, lane, self.writes[buffer], EVERYBODY)
        self.note(self.reads[buffer], at, local, lane)

    def store(self, buffer: Buffer, positions: Any, value: Array, mask: Array | None) -> None:
        if buffer not in self.writes:
            return
        at, local, lane = self.invocations(positions, mask)
        if is_uniform(positions) and self.lanes > 1:
            at, local, lane = self.once(buffer, at, local, lane, value)
        elif len(np.unique(at)) != len(at):
            self.collide(buffer, at, local, lane)
        self.check("written", buffer, at, local, lane, self.reads[buffer], NOBODY)
        self.check("written", buffer, at, local, lane, self.writes[buffer], NOBODY)
        self.writes[buffer].set(at, self.groups.start + local, self.stretch[local], lane)

    def once(self, buffer: Buffer, at: Array, local: Array, lane: Array, value: Array) -> tuple[Array, Array, Array]:
        """A uniform store: one write for each workgroup, by everybody or by those who are active."""
        first = np.flatnonzero(np.diff(local, prepend=-1))
        active = np.diff([*first, len(local)])
        if value.shape[-1] > 1 and (active > 1).any():
            self.collide(buffer, at, local, lane)
        who = np.where(active == self.lanes, EVERYBODY, np.where(active == 1, lane[first], SEVERAL))
        at, local = at[first], local[first]
        if len(np.unique(at)) != len(at):
            self.collide(buffer, at, local, who)
        return at, local, who

    def invocations(self, positions: Any, mask: Array | None) -> tuple[Array, Array, Array]:
        """Position, workgroup of the batch, and lane of every active invocation."""
        at = np.broadcast_to(positions, self.lane.shape)
        if mask is None:
            return at.ravel(), self.local.ravel(), self.lane.ravel()
        active = np.broadcast_to(mask, self.lane.shape)
        return at[active], self.local[active], self.lane[active]

    def check(self, how: str, buffer: Buffer, at: Array, local: Array, lane: Array, other: Stamps, fine: int) -> None:
        """Is an access in order after those that `other` remembers? `fine`: whose may come together with any lane's."""
        group, before, by = self.groups.start + local, other.group[at], other.lane[at]
        together = (before == group) & (other.stretch[at] == self.stretch[local])
        unordered = together & (by != fine) & ((by != lane) | (by < 0)) & (self.lanes > 1)
        wrong = unordered | (before != NOBODY) & (before != group)
        if not wrong.any():
            return
        i = int(np.argmax(wrong))
        what = "written" if other is self.writes[buffer] else "read"
        party = "another workgroup" if before[i] != group[i] else name_of(int(by[i]))
        mine = f"invocation {lane[i]}" if lane[i] >= 0 else name_of(int(lane[i]))
        raise self.error(buffer, int(at[i]), f"{what} by {party}", f"{how} by {mine}", int(local[i]), int(lane[i]))

    def note(self, stamps: Stamps, at: Array, local: Array, lane: Array) -> None:
        """Remember a read; of several readers since the last barrier none counts as the only one."""
        group, stretch = self.groups.start + local, self.stretch[local]
        before, same = stamps.group[at], stamps.stretch[at] == stretch
        alone = (before == NOBODY) | (before == group) & (~same | (stamps.lane[at] == lane))
        elsewhere = (before != NOBODY) & (before != group)
        stamps.set(at, np.where(elsewhere, SEVERAL, group), stretch, np.where(alone, lane, SEVERAL))
        # Of invocations that read the same element now, the last one stands there: any other makes it several.
        stamps.lane[at[stamps.lane[at] != np.where(alone, lane, SEVERAL)]] = SEVERAL
        stamps.group[at[(stamps.group[at] != group) & ~elsewhere]] = SEVERAL

    def collide(self, buffer: Buffer, at: Array, local: Array, lane: Array) -> None:
        order = np.argsort(at, kind="stable")
        twice = order[np.flatnonzero(np.diff(at[order]) == 0)[0] + 1]
        told = "written by one invocation", f"by invocation {lane[twice]} at the same time"
        raise self.error(buffer, int(at[twice]), *told, int(local[twice]), int(lane[twice]))

    def error(self, buffer: Buffer, at: int, before: str, now: str, local: int, lane: int) -> RaceError:
        element = at - local * self.counts[buffer] if buffer.is_scratch else at
        text = f"{self.program.name}: element {element} of buffer {buffer.name} is {before} and {now}"
        where = self.show((local, max(lane, 0)))
        return RaceError(f"{text} with no barrier between\n  in {where}", hint="put k.barrier() between the two")


def is_uniform(positions: Any) -> bool:
    return isinstance(positions, int) or np.atleast_2d(positions).shape[1] == 1


def name_of(lane: int) -> str:
    return {EVERYBODY: "every invocation", SEVERAL: "several invocations"}.get(lane, f"invocation {lane}")
