"""Kernel language, races: two invocations access one element, at least one writes, nothing orders
them.

Receives every access of `kernel.evaluate`, with positions and active invocations; raises a
`RaceError` for the first unordered pair. A barrier orders the invocations of its workgroup; nothing
orders workgroups. Every invocation makes a uniform store, so each may read it back at once. Stores
with the hint "same" may meet; that they write the same bits is checked. Atomics may meet atomics,
of other workgroups too, but no other access.

For every element one word records the last writer and one the reader: workgroup, stretch (the
number of barriers passed), lane. Accesses of one workgroup in different stretches are ordered.
Several readers in one stretch are recorded as SOME.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from tetrad.core.errors import BadInputs, RaceError
from tetrad.kernel.nodes import Buffer, Program, Store, atomic_buffers

Array = np.ndarray[Any, Any]
Show = Callable[[tuple[int, int]], str]  # (workgroup of the batch, lane) -> words

# A word: workgroup + 1, the stretch, the lane (or ALL or SOME lanes of the workgroup). 0 is nobody.
LANE_BITS, GROUP_SHIFT = 13, 39
ALL, SOME, FIRST_LANE = 1, 2, 3
LANE_MASK, MOST_STRETCHES = (1 << LANE_BITS) - 1, 1 << (GROUP_SHIFT - LANE_BITS)
GROUPS = -1  # several workgroups
MOST_GROUPS = (1 << (63 - GROUP_SHIFT)) - 2

APART = "no workgroup waits for another: write in one kernel, read in a later one"
TOGETHER = "put k.barrier() between the two"
ATOMICALLY = "changed atomically"
ONE_PLACE = "give every invocation an element of its own, or let one of them write"


class Access(NamedTuple):
    """Positions in the array of a buffer, and the word of the accessing invocation, of one
    shape."""

    at: Array
    who: Array


class Races:
    """The accesses of one launch so far. Workgroups are numbered over the whole launch."""

    def __init__(self, program: Program, counts: Mapping[Buffer, int]) -> None:
        self.program, self.counts, self.lanes = program, counts, program.lanes
        self.writes: dict[Buffer, Array] = {}
        self.reads: dict[Buffer, Array] = {}
        self.remember([b for b in program.buffers if b.is_written], 1)
        shared = atomic_buffers(program.body)
        self.atomics = {b: np.zeros(counts[b], np.int64) for b in program.buffers if b in shared}

    def remember(self, buffers: list[Buffer], copies: int) -> None:
        for buffer in buffers:
            self.writes[buffer] = np.zeros(self.counts[buffer] * copies, np.int64)
            if buffer.access != "write":
                self.reads[buffer] = np.zeros(self.counts[buffer] * copies, np.int64)

    def begin(self, groups: range, show: Show) -> None:
        """Start a batch of workgroups, with fresh scratch."""
        if groups.stop > MOST_GROUPS:
            raise BadInputs(
                f"{self.program.name}: races are looked for in up to {MOST_GROUPS} workgroups"
            )
        self.groups, self.show = groups, show
        self.stretch = np.zeros((len(groups), 1), np.int64)
        self.enter_stretch()
        if self.lanes > 1:
            self.remember([b for b in self.program.buffers if b.space == "workgroup"], len(groups))

    def barrier(self, mask: Array | None) -> None:
        self.stretch += True if mask is None else mask.any(axis=1, keepdims=True)
        if self.stretch.max() == MOST_STRETCHES:
            raise BadInputs(
                f"{self.program.name}: races are looked for up to {MOST_STRETCHES} barriers"
            )
        self.enter_stretch()

    def enter_stretch(self) -> None:
        """The words of the next stretch: one per workgroup, and one per lane."""
        number = np.arange(self.groups.start + 1, self.groups.stop + 1, dtype=np.int64)[:, None]
        self.word = number << GROUP_SHIFT | self.stretch << LANE_BITS
        self.lane_words = self.word + np.arange(FIRST_LANE, FIRST_LANE + self.lanes)

    # -- accesses ----------------------------------------------------------------------------------

    def load(self, buffer: Buffer, positions: Any, mask: Array | None) -> None:
        writes = self.writes.get(buffer)
        if writes is None:
            return  # read-only, or private scratch: no race
        at, who = access = self.access(positions, mask)
        self.check("read", buffer, access, writes[at], "written")
        self.check_atomics("read", buffer, access)
        before = self.reads[buffer][at]
        if (before != who).any():
            self.note(self.reads[buffer], access, before)

    def store(
        self, store: Store, positions: Any, value: Array, mask: Array | None, memory: Array
    ) -> None:
        """Check a store, before it is made in `memory`."""
        buffer, writes = store.buffer, self.writes.get(store.buffer)
        if writes is None:
            return
        at, who = access = self.access(
            positions, mask, is_varying=value.shape[-1] > 1 or store.hint == "same"
        )
        if buffer.access != "write":
            self.check("written", buffer, access, self.reads[buffer][at], "read")
        self.check_atomics("written", buffer, access)
        if store.hint == "same":
            self.store_same(buffer, access, chosen(value, self.lane_words, mask).at, memory)
            return
        self.check("written", buffer, access, writes[at], "written")
        writes[at] = who
        collides = writes[at] != who
        if collides.any():
            raise self.error(
                buffer,
                access,
                collides,
                writes[at],
                "written",
                "written at the same time",
                ONE_PLACE,
            )

    def atomic(self, buffer: Buffer, positions: Any, mask: Array | None) -> None:
        """Check an atomic; each invocation makes its own."""
        at, _ = access = chosen(positions, self.lane_words, mask)
        self.check(ATOMICALLY, buffer, access, self.writes[buffer][at], "written")
        self.check(ATOMICALLY, buffer, access, self.reads[buffer][at], "read")
        self.note(self.atomics[buffer], access, self.atomics[buffer][at])

    def check_atomics(self, how: str, buffer: Buffer, access: Access) -> None:
        if buffer in self.atomics:
            self.check(how, buffer, access, self.atomics[buffer][access.at], ATOMICALLY)

    def store_same(self, buffer: Buffer, access: Access, value: Array, memory: Array) -> None:
        """Check that the bits equal those that others have written in this launch, or write now."""
        at, writes = access.at, self.writes[buffer]
        before = writes[at]
        self.check(
            "written",
            buffer,
            access,
            np.where(bits(memory[at]) == bits(value), 0, before),
            "written",
        )
        self.note(writes, access, before)
        memory[at] = value
        differs = bits(memory[at]) != bits(value)
        if differs.any():
            raise self.error(
                buffer,
                access,
                differs,
                writes[at],
                "written",
                "written at the same time",
                ONE_PLACE,
            )

    def access(self, positions: Any, mask: Array | None, is_varying: bool = False) -> Access:
        """Positions and words of an access. What all invocations of a workgroup do alike is one
        access by ALL."""
        uniform = isinstance(positions, int) or positions.shape[1] == 1
        if self.lanes == 1 or not uniform or is_varying:
            return chosen(positions, self.lane_words, mask)
        if mask is None or mask.shape[1] == 1:
            return chosen(positions, self.word | ALL, mask)
        return chosen(positions, self.joint(mask), np.any(mask, axis=1, keepdims=True))

    def joint(self, mask: Array) -> Array:
        """The word of the active lanes: ALL, SOME, or the only one."""
        active = np.broadcast_to(mask, self.lane_words.shape)
        count = active.sum(axis=1, keepdims=True)
        only = FIRST_LANE + active.argmax(axis=1, keepdims=True)
        return self.word | np.where(count == self.lanes, ALL, np.where(count == 1, only, SOME))

    # -- order -------------------------------------------------------------------------------------

    def check(self, how: str, buffer: Buffer, access: Access, before: Array, what: str) -> None:
        """Is the access ordered after those recorded in `before`?"""
        if not before.any():
            return
        apart = before ^ access.who
        same_stretch = apart >> LANE_BITS == 0
        alike = (apart == 0) & (access.who & LANE_MASK >= FIRST_LANE)
        if how == "read":  # each lane wrote it itself
            alike |= before & LANE_MASK == ALL
        wrong = same_stretch & ~alike
        if not buffer.is_scratch:
            wrong |= (before != 0) & (apart >> GROUP_SHIFT != 0)
        if wrong.any():
            raise self.error(buffer, access, wrong, before, what, how, TOGETHER)

    def note(self, words: Array, access: Access, before: Array) -> None:
        """Record an access, merged with those of this stretch and of other workgroups."""
        at, who = access
        words[at] = now = merged(before, who)
        found = words[at]
        crowded = found != now  # several access the element now; one is recorded
        if crowded.any():
            words[at[crowded]] = merged(found[crowded], now[crowded])

    def error(
        self,
        buffer: Buffer,
        access: Access,
        wrong: Array,
        before: Array,
        what: str,
        how: str,
        hint: str,
    ) -> RaceError:
        i = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
        at, mine, other = int(access.at[i]), int(access.who[i]), int(before[i])
        local, lane = (
            (mine >> GROUP_SHIFT) - 1 - self.groups.start,
            max((mine & LANE_MASK) - FIRST_LANE, 0),
        )
        is_apart = mine >> GROUP_SHIFT != other >> GROUP_SHIFT
        element = at - local * self.counts[buffer] if buffer.is_scratch else at
        by = "another workgroup" if is_apart else name_of(other)
        text = (
            f"{self.program.name}: element {element} of buffer {buffer.name} is {what} by {by} "
            f"and {how}"
        )
        order = "" if hint is ONE_PLACE else " with no barrier between"
        where = self.show((local, lane))
        return RaceError(
            f"{text} by {name_of(mine)}{order}\n  in {where}", hint=APART if is_apart else hint
        )


def chosen(positions: Any, who: Array, mask: Array | None) -> Access:
    """Positions and words of the active invocations."""
    at = np.broadcast_to(positions, who.shape)
    if mask is None:
        return Access(at, who)
    active = np.broadcast_to(mask, who.shape)
    return Access(at[active], who[active])


def bits(x: Array) -> Array:
    """The same bytes as integers, for an exact comparison."""
    return x.view(f"u{x.itemsize}")


def merged(before: Array, who: Array) -> Array:
    """One word for `before` and `who`: the later one, unless they are unordered."""
    apart = before ^ who
    crowd = (apart >> LANE_BITS == 0) & (apart != 0)
    word = np.where(crowd, who & ~LANE_MASK | SOME, who)
    return np.where((before != 0) & (apart >> GROUP_SHIFT != 0), GROUPS, word)


def name_of(word: int) -> str:
    lane = word & LANE_MASK
    return {ALL: "every invocation", SOME: "several invocations"}.get(
        lane, f"invocation {lane - FIRST_LANE}"
    )
