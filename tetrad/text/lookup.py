"""Where strings stand in a vocabulary, for thousands of strings at once and without a Python object
for any of them.

Receives strings in one piece of memory; returns their places in another. A dictionary of a
vocabulary takes longer to make than most prompts to encode; here every step is one NumPy call over
all strings, eight bytes at a time.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tetrad.core.record import record
from tetrad.formats.strings import Strings

WORD = 8  # bytes that are compared at once
LONG = 40  # bytes: longer strings are few, and taken one by one
LEVELS = 8
FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, of no pattern: 2**64 / golden ratio
HALF = np.uint64(32)
ALL_BITS = (1 << 64) - 1
# masks of the first n bytes
KEPT = np.array([(1 << 8 * n) - 1 for n in range(WORD + 1)], np.uint64)


@record(eq=False)
class Spans:
    """Strings that lie anywhere in one piece of memory, which goes on for a word after the last of
    them.

    Those with a gap leave out the byte so far from their start.
    """

    data: bytes
    starts: np.ndarray  # i64[count]
    lengths: np.ndarray  # i64[count], without gaps
    gaps: np.ndarray | None  # i64[count]
    first: np.ndarray  # u64[count], their first words; most strings have no other

    def __len__(self) -> int:
        return len(self.starts)

    def raw(self, i: int) -> bytes:
        start, length = self.starts[i], self.lengths[i]
        if self.gaps is None:
            return self.data[start : start + length]
        return (
            self.data[start : start + self.gaps[i]]
            + self.data[start + self.gaps[i] + 1 : start + length + 1]
        )

    def words(self, which: np.ndarray, at: int) -> np.ndarray:  # u64[len(which)]
        gaps = None if self.gaps is None else self.gaps[which] - at
        return words_at(self.data, self.starts[which] + at, self.lengths[which] - at, gaps)

    def some(self, which: np.ndarray) -> Spans:
        gaps = None if self.gaps is None else self.gaps[which]
        return Spans(self.data, self.starts[which], self.lengths[which], gaps, self.first[which])


# u64[count]
def words_at(
    data: bytes, starts: np.ndarray, lengths: np.ndarray, gaps: np.ndarray | None
) -> np.ndarray:
    """Eight bytes from each place on, zero where fewer are left."""
    anywhere = np.ndarray((len(data) - WORD + 1,), f"V{WORD}", data, 0, (1,))
    found: np.ndarray = anywhere[starts].view("<u8")
    if gaps is not None:
        before = KEPT[np.clip(gaps, 0, WORD)]
        found = found & before | anywhere[starts + 1].view("<u8") & ~before
    found &= KEPT[np.minimum(lengths, WORD)]
    return found


def spans(
    data: bytes, starts: np.ndarray, lengths: np.ndarray, gaps: np.ndarray | None = None
) -> Spans:
    return Spans(data, starts, lengths, gaps, words_at(data, starts, lengths, gaps))


def spans_of(strings: Strings) -> Spans:
    return spans(strings.data + bytes(WORD), *strings.places())


def hashes(some: Spans) -> np.ndarray:  # u64[count]
    """A number for each string, the same for equal ones."""
    found = mixed(some.lengths.astype(np.uint64), some.first)
    for at in range(WORD, LONG, WORD):
        which = np.flatnonzero(some.lengths > at)
        if not len(which):
            return found
        found[which] = mixed(found[which], some.words(which, at))
    for i in np.flatnonzero(some.lengths > LONG).tolist():
        found[i] = hash(some.raw(i)) & ALL_BITS
    return found


def mixed(state: np.ndarray, word: np.ndarray) -> np.ndarray:
    product: np.ndarray = (state * FACTOR ^ word) * FACTOR
    product ^= product >> HALF
    return product


def are_same(a: Spans, b: Spans, places: np.ndarray) -> np.ndarray:  # bool[len(a)]
    """Whether each string of `a` is the one at its place in `b`, byte by byte."""
    same: np.ndarray = (a.lengths == b.lengths[places]) & (a.first == b.first[places])
    for at in range(WORD, LONG, WORD):
        which = np.flatnonzero(same & (a.lengths > at))
        if not len(which):
            return same
        same[which] = a.words(which, at) == b.words(places[which], at)
    for i in np.flatnonzero(same & (a.lengths > LONG)).tolist():
        same[i] = a.raw(i) == b.raw(places[i])
    return same


class StringTable:
    """Finds strings. Of equal strings the last counts, as in a dictionary made of them.

    Hash tables on top of each other: who finds its slot taken by another hash goes to the next.
    Other strings of the same hash, and too many of the same slots, which takes a file made for
    that, are in a dictionary.

    >>> known, asked = (spans_of(Strings.of(list(letters))) for letters in ("bab", "abc"))
    >>> StringTable(known).find(asked).tolist()
    [1, 2, -1]
    """

    def __init__(self, spans: Spans) -> None:
        self.spans, self.hashes = spans, hashes(spans)
        self.tables: list[np.ndarray] = []
        left, hidden = np.arange(len(spans)), [np.empty(0, np.int64)]
        while len(left) and len(self.tables) < LEVELS:
            taken = self.add_table(left)
            lost = np.flatnonzero(taken != left)
            left, taken = left[lost], taken[lost]
            twins = np.flatnonzero(self.hashes[left] == self.hashes[taken])
            hidden.append(left[twins[~are_same(spans.some(left[twins]), spans, taken[twins])]])
            left = np.delete(left, twins)
        self.rest = {spans.raw(i): i for i in np.concatenate([*hidden, left]).tolist()}

    def add_table(self, places: np.ndarray) -> np.ndarray:  # i64[count] -> i64[count]
        """Puts strings into a new table, the last of those that meet; who has the slot of each of
        them."""
        table = np.full(1 << (4 * len(places)).bit_length(), -1, np.int32)
        slots = self.slots(self.hashes[places], len(self.tables), len(table))
        np.maximum.at(table, slots, places.astype(np.int32))
        self.tables.append(table)
        taken: np.ndarray = table[slots].astype(np.int64)
        return taken

    @staticmethod
    def slots(hashes: np.ndarray, level: int, size: int) -> np.ndarray:  # i64[len(hashes)]
        """The places in the table of a level, of `size` slots, a power of two."""
        return (
            hashes * (FACTOR + np.uint64(2 * level)) >> np.uint64(65 - size.bit_length())
        ).astype(np.int64)

    def find(self, wanted: Spans) -> np.ndarray:  # i64[count]
        """The place of each of the wanted strings, -1 for those that are not there."""
        if not len(self.spans):
            return np.full(len(wanted), -1)
        found = self.of_hashes(hashes(wanted), 0)
        others = np.flatnonzero((found < 0) | ~are_same(wanted, self.spans, found))
        found[others] = (
            [self.rest.get(wanted.raw(i), -1) for i in others.tolist()] if self.rest else -1
        )
        return found

    def of_hashes(self, keys: np.ndarray, level: int) -> np.ndarray:  # u64[count] -> i64[count]
        """Places of strings with these hashes, -1 where there are none, in the tables from a level
        on."""
        if level == len(self.tables):
            return np.full(len(keys), -1)
        table = self.tables[level]
        places: np.ndarray = table[self.slots(keys, level, len(table))].astype(np.int64)
        others = np.flatnonzero((places >= 0) & (self.hashes[places] != keys))
        if len(others):
            places[others] = self.of_hashes(keys[others], level + 1)
        return places

    def places(self, texts: Iterable[str]) -> list[int]:
        """Every place where one of some strings stands."""
        wanted = spans_of(Strings.of(texts))
        known = {wanted.raw(i) for i in range(len(wanted))}
        likely = np.flatnonzero(np.isin(self.hashes, hashes(wanted))).tolist()
        return [i for i in likely if self.spans.raw(i) in known]
