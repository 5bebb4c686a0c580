"""The schedule language, plan: where in the one arena every intermediate of a schedule lies.

Receives a schedule and the values of its Dims; says how many bytes each intermediate has, from
which step to which step it is alive, its aligned offset and the size of the arena. Buffers alive at
the same step never share bytes, except where a kernel writes its result in place. The memory of
results is planned by `schedule.outputs`.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from tetrad.core.errors import CheckError
from tetrad.core.record import record
from tetrad.core.sizes import MAX_ELEMENTS, bind
from tetrad.core.types import ArrayType
from tetrad.schedule.nodes import Control, Launch, Schedule, Slot, Step

if TYPE_CHECKING:
    from numpy.typing import NDArray

ALIGNMENT = 64  # a cache line, and the widest vector
THIRD_ORDER_LIMIT = 800  # above this many buffers a third attempt costs more time than it is worth

Column: TypeAlias = "NDArray[np.int64]"
Dims = Mapping[str, int]
Numbers = Mapping[Slot, int]


@record
class Life:
    """A buffer: first written at step `first`, last read at step `last`, both included.

    `reuse` lists earlier buffers whose storage this one may take over, because the kernel of step
    `first` reads them for the last time and may write over what it reads.
    """

    name: str
    nbytes: int
    first: int
    last: int
    reuse: tuple[int, ...] = ()


@record
class Plan:
    """The byte offset of every buffer, in the order of the lives, and the bytes of the whole
    arena."""

    offsets: tuple[int, ...]
    total: int


def plan(lives: Sequence[Life]) -> Plan:
    """Places every buffer; of two or three packings the smallest, stopping at the first that cannot
    be beaten.

    >>> plan([Life("x", 256, 0, 1), Life("y", 256, 1, 2), Life("z", 256, 2, 3)])
    Plan(offsets=(0, 256, 0), total=512)
    """
    _check_lives(lives)
    bound = lower_bound(lives)
    tried: list[Plan] = []
    for packing in packings(lives):
        tried.append(packing)
        if packing.total == bound:
            break
    return min(tried, key=lambda packing: packing.total)


def packings(lives: Sequence[Life]) -> Iterator[Plan]:
    """The attempts, quickest first, each made when asked for; every one keeps the rules."""
    parents = _takeovers(lives)
    yield _place_by_time(lives, parents)
    chains = _chains(lives, parents)
    yield _place_by_order(lives, sorted(chains, key=_by_size))
    if len(lives) <= THIRD_ORDER_LIMIT:
        yield _place_by_order(lives, sorted(chains, key=_by_area))


def lower_bound(lives: Sequence[Life]) -> int:
    """Bytes that no plan can do without: the largest sum of live bytes at any step, in-place
    results counted once."""
    changes: defaultdict[int, int] = defaultdict(int)
    for life in lives:
        changes[life.first] += _padded(life)
        changes[life.last + 1] -= _padded(life)
    saved = _most_saved(lives)
    most = live = 0
    for step in sorted(changes):
        live += changes[step]
        most = max(most, live - saved.get(step, 0))
    return most


def check_plan(lives: Sequence[Life], plan: Plan) -> None:
    """Raises CheckError when a plan breaks the rules; shares only `_may_replace` with the
    planner."""
    _check_lives(lives)
    if len(plan.offsets) != len(lives):
        raise CheckError(f"plan: {len(lives)} buffers but {len(plan.offsets)} offsets")
    for life, offset in zip(lives, plan.offsets, strict=True):
        if offset < 0 or offset % ALIGNMENT:
            raise CheckError(
                f"plan: {life.name} lies at {offset}, not at a multiple of {ALIGNMENT}"
            )
        if offset + life.nbytes > plan.total:
            raise CheckError(
                f"plan: {life.name} ends at {offset + life.nbytes}, the arena at {plan.total}"
            )
    for i, j in _simultaneous(lives):
        if _share_bytes(lives, plan, i, j) and not _in_place(lives, plan, i, j):
            both = f"{_place(lives, plan, i)} and {_place(lives, plan, j)}"
            raise CheckError(f"plan: {both} share bytes while both are alive")


def describe_plan(name: str, lives: Sequence[Life], plan: Plan) -> str:
    """Where in the arena every intermediate lies, and during which steps."""
    head = f"pass plan_memory: graph {name}: "
    if not lives:
        return head + "nothing to do"
    lines = [
        f"  {offset:8} {life.name}: {life.nbytes} bytes, steps {life.first} to {life.last}"
        for life, offset in zip(lives, plan.offsets, strict=True)
    ]
    return "\n".join([f"{head}{len(lines)} intermediates -> {plan.total} bytes", *lines])


# --- lifetimes ------------------------------------------------------------------------------------


def lifetimes(
    schedule: Schedule, dims: Dims, arenas: Mapping[Slot, int]
) -> tuple[list[Slot], list[Life]]:
    """When each intermediate is written first and read last. `arenas`: the bytes that sub-schedules
    need while they run, by the arena slot of the step that runs them."""
    first: dict[Slot, int] = {}
    last: dict[Slot, int] = {}
    for i, step in enumerate(schedule.steps):
        touched = step.reads | step.writes
        if isinstance(step, Control):
            touched = touched | step.owned
        for slot in touched:
            if slot.kind == "temp":
                first.setdefault(slot, i)
                last[slot] = i
    temps = sorted(first, key=lambda s: (first[s], s.name))
    number = {slot: i for i, slot in enumerate(temps)}
    lives = []
    for slot in temps:
        nbytes = arenas[slot] if slot in arenas else nbytes_at(slot.type, dims)
        reuse = reusable(schedule.steps[first[slot]], slot, first, last, number)
        lives.append(Life(slot.name, nbytes, first[slot], last[slot], reuse))
    return temps, lives


def reusable(
    step: Step, slot: Slot, first: Numbers, last: Numbers, number: Numbers
) -> tuple[int, ...]:
    """The temps whose storage `slot` may take over: read last by the step that writes it, whose
    kernel allows it."""
    if not isinstance(step, Launch):
        return ()
    pairs = [source for result, source in step.inplace if result is slot and source in number]
    return tuple(number[s] for s in pairs if last[s] == first[slot] and first[s] < first[slot])


def nbytes_at(kind: ArrayType, dims: Dims) -> int:
    """The bytes of an array; sizes become numbers first, for multiplying formulas takes far
    longer."""
    shape = [n if type(n) is int else bind(n, dims) for n in kind.shape]
    elements = math.prod(shape)
    # the latter is an error, the type says which
    if kind.dtype.is_quantized or elements > MAX_ELEMENTS:
        return bind(kind.with_shape(tuple(shape)).nbytes, dims)
    return elements * kind.dtype.np.itemsize


# --- rules ----------------------------------------------------------------------------------------


def _padded(life: Life) -> int:
    return -(-life.nbytes // ALIGNMENT) * ALIGNMENT


def _may_replace(lives: Sequence[Life], parent: int, child: int) -> bool:
    """May the child lie where the parent lies, at the one step where both are alive?"""
    old, new = lives[parent], lives[child]
    dies_here = old.first < new.first == old.last
    return parent in new.reuse and dies_here and new.nbytes <= old.nbytes


def _check_lives(lives: Sequence[Life]) -> None:
    for i, life in enumerate(lives):
        if life.nbytes < 0:
            raise CheckError(f"plan: {life.name} has {life.nbytes} bytes")
        if life.last < life.first:
            raise CheckError(
                f"plan: {life.name} is written at step {life.first} but last read at step "
                f"{life.last}"
            )
        if not all(0 <= parent < i for parent in life.reuse):
            raise CheckError(
                f"plan: {life.name} reuses {life.reuse}, but only buffers before {i} may be named"
            )


def _simultaneous(lives: Sequence[Life]) -> Iterable[tuple[int, int]]:
    """Every pair of buffers alive at a common step, the one that starts earlier first."""
    order = sorted(
        (i for i, life in enumerate(lives) if life.nbytes), key=lambda i: (lives[i].first, i)
    )
    for at, i in enumerate(order):
        for j in order[at + 1 :]:
            if lives[j].first > lives[i].last:
                break
            yield i, j


def _share_bytes(lives: Sequence[Life], plan: Plan, i: int, j: int) -> bool:
    a, b = plan.offsets[i], plan.offsets[j]
    return a < b + lives[j].nbytes and b < a + lives[i].nbytes


def _in_place(lives: Sequence[Life], plan: Plan, parent: int, child: int) -> bool:
    return plan.offsets[parent] == plan.offsets[child] and _may_replace(lives, parent, child)


def _place(lives: Sequence[Life], plan: Plan, i: int) -> str:
    life, offset = lives[i], plan.offsets[i]
    return (
        f"{life.name} (bytes {offset} to {offset + life.nbytes}, steps {life.first} to {life.last})"
    )


# --- in place -------------------------------------------------------------------------------------


def _takeovers(lives: Sequence[Life]) -> dict[int, int]:
    """child -> the buffer whose storage it takes over. Large children choose first, and take the
    tightest fit."""
    parents: dict[int, int] = {}
    taken: set[int] = set()
    wanting = (i for i, life in enumerate(lives) if life.nbytes and life.reuse)
    for child in sorted(wanting, key=lambda i: (-lives[i].nbytes, i)):
        fits = [p for p in lives[child].reuse if p not in taken and _may_replace(lives, p, child)]
        if fits:
            parents[child] = min(fits, key=lambda p: (lives[p].nbytes, p))
            taken.add(parents[child])
    return parents


def _most_saved(lives: Sequence[Life]) -> dict[int, int]:
    """step -> bytes that results in place can save there: at most the children's, at most those of
    their parents."""
    children: defaultdict[int, int] = defaultdict(int)
    parents: defaultdict[int, set[int]] = defaultdict(set)
    for child, life in enumerate(lives):
        fits = [p for p in life.reuse if _may_replace(lives, p, child)]
        if fits:
            children[life.first] += _padded(life)
            parents[life.first].update(fits)
    return {
        step: min(n, sum(_padded(lives[p]) for p in parents[step])) for step, n in children.items()
    }


# --- packing in order of time ---------------------------------------------------------------------


class _FreeList:
    """The free stretches of an arena that grows at its end."""

    def __init__(self) -> None:
        self.gaps: list[tuple[int, int]] = []  # [start, stop), ascending, never touching
        self.end = 0

    def take(self, size: int) -> int:
        """The start of `size` bytes in the tightest gap; when none fits, at the end of the
        arena."""
        fits = [(stop - start, start) for start, stop in self.gaps if stop - start >= size]
        if not fits:
            return self._grow(size)
        length, start = min(fits)
        at = bisect_left(self.gaps, (start, 0))
        self.gaps[at : at + 1] = [(start + size, start + length)] if length > size else []
        return start

    def _grow(self, size: int) -> int:
        touches_end = bool(self.gaps) and self.gaps[-1][1] == self.end
        start = self.gaps.pop()[0] if touches_end else self.end
        self.end = start + size
        return start

    def give(self, start: int, stop: int) -> None:
        if start == stop:
            return
        at = bisect_left(self.gaps, (start, stop))
        low, high = at, at
        if at > 0 and self.gaps[at - 1][1] == start:
            low, start = at - 1, self.gaps[at - 1][0]
        if at < len(self.gaps) and self.gaps[at][0] == stop:
            high, stop = at + 1, self.gaps[at][1]
        self.gaps[low:high] = [(start, stop)]


def _place_by_time(lives: Sequence[Life], parents: dict[int, int]) -> Plan:
    """Walks the steps as a heap would live through them; quick, and already optimal for most chains
    of layers."""
    free, offsets = _FreeList(), [0] * len(lives)
    # bytes that live on in the child
    kept = {parent: _padded(lives[child]) for child, parent in parents.items()}
    used = [i for i, life in enumerate(lives) if life.nbytes]
    dying = sorted(used, key=lambda i: (-lives[i].last, i))
    for i in sorted(used, key=lambda i: (lives[i].first, -lives[i].nbytes, i)):
        while lives[dying[-1]].last < lives[i].first:
            dead = dying.pop()
            free.give(offsets[dead] + kept.get(dead, 0), offsets[dead] + _padded(lives[dead]))
        offsets[i] = offsets[parents[i]] if i in parents else free.take(_padded(lives[i]))
    return Plan(tuple(offsets), free.end)


# --- packing in order of importance ---------------------------------------------------------------


@record
class _Piece:
    """`size` bytes from step `first` to step `last`."""

    size: int
    first: int
    last: int


@record
class _Chain:
    """Buffers that follow one another at one offset, each in place of the one before, never
    growing."""

    members: list[int]
    pieces: list[_Piece]  # neighbours of equal size joined


def _chains(lives: Sequence[Life], parents: dict[int, int]) -> list[_Chain]:
    child_of = {parent: child for child, parent in parents.items()}
    heads = [i for i, life in enumerate(lives) if life.nbytes and i not in parents]
    return [_chain(lives, child_of, i) for i in heads]


def _chain(lives: Sequence[Life], child_of: dict[int, int], head: int) -> _Chain:
    members, pieces = [head], [_Piece(_padded(lives[head]), lives[head].first, lives[head].last)]
    while (child := child_of.get(members[-1])) is not None:
        members.append(child)
        size, first = _padded(lives[child]), lives[child].first
        if size == pieces[-1].size:
            first = pieces.pop().first
        pieces.append(_Piece(size, first, lives[child].last))
    return _Chain(members, pieces)


def _by_size(chain: _Chain) -> tuple[int, int, int]:
    head = chain.pieces[0]
    return -head.size, head.first - chain.pieces[-1].last, chain.members[0]


def _by_area(chain: _Chain) -> tuple[int, int]:
    return -sum(p.size * (p.last - p.first + 1) for p in chain.pieces), chain.members[0]


class _Placed:
    """The pieces placed so far, as columns in order of offset: one piece is compared with all of
    them at once."""

    def __init__(self, capacity: int) -> None:
        self.count = 1
        self.table = np.zeros((4, capacity + 1), np.int64)
        self.first, self.last, self.low, self.high = self.table
        # A piece alive at every step that ends where the arena begins: no list of blocked offsets
        # is ever empty.
        self.first[0], self.last[0], self.low[0] = (
            np.iinfo(np.int64).min,
            np.iinfo(np.int64).max,
            -(1 << 62),
        )

    def add(self, piece: _Piece, offset: int) -> None:
        n = self.count
        at = int(self.low[:n].searchsorted(offset))
        self.table[:, at + 1 : n + 1] = self.table[:, at:n]
        self.first[at], self.last[at] = piece.first, piece.last
        self.low[at], self.high[at] = offset, offset + piece.size
        self.count += 1

    def tightest_offset(self, pieces: list[_Piece]) -> int:
        """The offset in the tightest gap that holds every piece while it is alive."""
        low, high = self._blocked(pieces[0]) if len(pieces) == 1 else self._blocked_for_any(pieces)
        ends = np.maximum.accumulate(high)
        room = low[1:] - ends[:-1]
        if not len(room):
            return int(ends[-1])
        # as unsigned, negative room is larger than any other
        gap = int(room.view(np.uint64).argmin())
        return int(ends[gap] if room[gap] >= 0 else ends[-1])

    def _blocked(self, piece: _Piece) -> tuple[Column, Column]:
        """The open intervals of offsets where the piece would meet one alive at the same time,
        lowest first."""
        n = self.count
        alive = (self.first[:n] <= piece.last) & (self.last[:n] >= piece.first)
        return self.low[:n][alive] - piece.size, self.high[:n][alive]

    def _blocked_for_any(self, pieces: list[_Piece]) -> tuple[Column, Column]:
        low, high = np.concatenate([self._blocked(piece) for piece in pieces], axis=1)
        order = low.argsort()
        return low[order], high[order]


def _place_by_order(lives: Sequence[Life], chains: list[_Chain]) -> Plan:
    """Places whole chains, most important first, each where it leaves the least room beside it."""
    placed = _Placed(sum(len(chain.pieces) for chain in chains))
    offsets = [0] * len(lives)
    for chain in chains:
        offset = placed.tightest_offset(chain.pieces)
        for piece in chain.pieces:
            placed.add(piece, offset)
        for member in chain.members:
            offsets[member] = offset
    return Plan(tuple(offsets), int(placed.high.max()))
