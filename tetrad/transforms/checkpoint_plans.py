"""Transforms, checkpoint plans: which states a checkpointed scan keeps, and in which order it
computes the others again.

Receives a number of steps and a strategy; returns the rows to store on the way forward and a list
of actions for the way back. An action loads a state, computes (one step ahead, or one step of the
derivative), and saves the result.

    ("every", K)      K evenly spaced states, and all states of one segment while it is walked back
    ("bisect", K)     K evenly spaced states, segments halved again and again
    ("binomial", s)   never more than s states; the fewest computations that this allows
    "sqrt"            ("every", ceil(sqrt(length)))
    "none"            only the first state, the whole halved again and again
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from tetrad.core.record import record

ADVANCE, LEAF = 1, 2  # what an action does
FEW = 4  # steps of a segment that are kept rather than halved


@record
class Action:
    """Load a slot (-1: go on with the state at hand), compute step `step`, save the state (-1:
    nowhere)."""

    load: int
    kind: int
    step: int
    save: int


@record
class CheckpointPlan:
    """Slot 0 holds the first state; `stored` says after which steps the forward loop fills slots 1,
    2, ..."""

    length: int
    stored: tuple[int, ...]
    slots: int
    actions: tuple[Action, ...]

    @property
    def recomputations(self) -> int:
        """Steps that the way back computes again."""
        return sum(action.kind == ADVANCE for action in self.actions)


def checkpoint_indices(length: int, count: int) -> list[int]:
    """After which steps `count` evenly spaced states are stored; the last is the final one."""
    return [min(-(-(k + 1) * length // count) - 1, length - 1) for k in range(count)]


def plan(length: int, strategy: str | tuple[str, int]) -> CheckpointPlan:
    name, count = strategy if isinstance(strategy, tuple) else (strategy, 1)
    if name == "sqrt":
        name, count = "every", max(1, math.isqrt(max(length - 1, 0)) + 1)
    count = max(1, min(count, length))
    writer = _Writer()
    if name == "binomial":
        _binomial(writer, 0, length - 1, 0, count)
        stored: list[int] = []
    else:
        stored = checkpoint_indices(length, count if name != "none" else 1)[:-1] if length else []
        writer.take(len(stored))
        _segments(writer, length, stored, _cached if name == "every" else _bisected)
    return CheckpointPlan(length, tuple(stored), writer.most, tuple(writer.actions))


class _Writer:
    """Collects actions and hands out slots; slot 0 is taken from the start."""

    def __init__(self) -> None:
        self.actions: list[Action] = []
        self.used = self.most = 1

    def take(self, count: int = 1) -> int:
        """The first of `count` free slots."""
        first, self.used = self.used, self.used + count
        self.most = max(self.most, self.used)
        return first

    def free(self, count: int = 1) -> None:
        self.used -= count

    def advance(self, load: int, first: int, last: int, save: int) -> None:
        """From a slot over the steps first..last, the result into another slot."""
        for step in range(first, last + 1):
            end = save if step == last else -1
            self.actions.append(Action(load if step == first else -1, ADVANCE, step, end))

    def leaf(self, load: int, step: int) -> None:
        self.actions.append(Action(load, LEAF, step, -1))


def _segments(writer: _Writer, length: int, stored: list[int], process: object) -> None:
    starts = [0, *(s + 1 for s in stored)]
    ends = [*stored, length - 1]
    for k in reversed(range(len(starts))):
        if length:
            process(writer, starts[k], ends[k], k)  # type: ignore[operator]


def _cached(writer: _Writer, low: int, high: int, anchor: int) -> None:
    """All states of the segment, then its steps from the last to the first."""
    count = high - low
    first = writer.take(count)
    for i in range(count):
        writer.advance(anchor if i == 0 else -1, low + i, low + i, first + i)
    for i in reversed(range(count)):
        writer.leaf(first + i, low + i + 1)
    writer.leaf(anchor, low)
    writer.free(count)


def _bisected(writer: _Writer, low: int, high: int, anchor: int) -> None:
    while high - low + 1 > FEW:
        middle = low + (high - low + 1) // 2
        slot = writer.take()
        writer.advance(anchor, low, middle - 1, slot)
        _bisected(writer, middle, high, slot)
        writer.free()
        high = middle - 1
    _cached(writer, low, high, anchor)


def _binomial(writer: _Writer, low: int, high: int, anchor: int, states: int) -> None:
    """`states` counts the anchor. Advance, store, walk back the right part, give the slot back,
    then the left part."""
    while high > low and states > 1:
        ahead = _split(high - low + 1, states)
        slot = writer.take()
        writer.advance(anchor, low, low + ahead - 1, slot)
        _binomial(writer, low + ahead, high, slot, states - 1)
        writer.free()
        high = low + ahead - 1
    for step in range(high, low - 1, -1):
        loads = anchor
        for before in range(low, step):
            writer.advance(loads, before, before, -1)
            loads = -1
        writer.leaf(loads, step)


def _split(length: int, states: int) -> int:
    """How far to advance before the next state is stored, with the fewest computations in all."""
    repeats = next(r for r in _counting() if math.comb(states + r, states) >= length)
    # what the right part can do in `repeats` repetitions
    reach = math.comb(states + repeats - 1, states - 1)
    least = math.comb(states + repeats - 2, states) if repeats >= 2 else 1
    return min(max(length - reach, least, 1), length - 1)


def _counting() -> Iterator[int]:
    number = 1
    while True:
        yield number
        number += 1
