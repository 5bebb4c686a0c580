"""Byte-pair encoding by ranked merges in small: for texts that are over before a library has read
its tables.

Receives a vocabulary of byte-level tokens; returns the ids of words. The same ids as the
`tokenizers` library gives, which is several times as quick, but wants a Python object for every
token and every merge first.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterable

import numpy as np

from tetrad.core.record import record
from tetrad.formats.strings import Strings
from tetrad.text.bytelevel import BYTE_TO_CHAR, byte_level_text
from tetrad.text.lookup import WORD, Spans, spans, spans_of
from tetrad.text.vocabulary import TokenKind, Vocabulary, wrong

MERGES = "tokenizer.ggml.merges"
UNREACHABLE = (
    TokenKind.CONTROL,
    TokenKind.UNKNOWN,
    TokenKind.UNUSED,
)  # what plain text must never become


@record(eq=False)
class Merges:
    """Pairs of tokens in ascending order, as left * count + right; for each its rank and what it
    makes."""

    count: int  # of tokens
    pairs: memoryview  # several times as quick to read one by one as an array of NumPy
    ranks: memoryview
    made: memoryview

    def get(self, left: int, right: int) -> tuple[int, int] | None:
        """(rank, token) of a pair; of equal pairs the last counts."""
        pair = left * self.count + right
        at = bisect_right(self.pairs, pair) - 1
        return (self.ranks[at], self.made[at]) if at >= 0 and self.pairs[at] == pair else None


class WordEncoder:
    """Encodes words of bytes, one after the other."""

    def __init__(self, vocabulary: Vocabulary, ignore_merges: bool) -> None:
        self.vocabulary, self.ignore_merges = vocabulary, ignore_merges
        self.merges = read_merges(vocabulary)
        alphabet = self.ids(BYTE_TO_CHAR[byte] for byte in range(256))
        self.alphabet = [vocabulary.unk if i < 0 else i for i in alphabet]

    def ids(self, texts: Iterable[str]) -> list[int]:
        """Of tokens that text can become, -1 for what is none."""
        found: list[int] = reached(self.vocabulary, spans_of(Strings.of(texts))).tolist()
        return found

    def encode(self, words: list[bytes]) -> list[int]:
        whole = self.ids(map(byte_level_text, words)) if self.ignore_merges else [-1] * len(words)
        found: list[int] = []
        known: dict[bytes, list[int]] = {}
        for word, i in zip(words, whole, strict=True):
            if word not in known:
                known[word] = [i] if i >= 0 else self.merged(word)
            found += known[word]
        return found

    def merged(self, word: bytes) -> list[int]:
        """Bytes without a token, where none stands for the unknown, are left out: who asks has
        refused them before."""
        return merge(
            [i for i in map(self.alphabet.__getitem__, word) if i is not None], self.merges
        )


def merge(ids: list[int], merges: Merges) -> list[int]:
    """Merges the pair of the lowest rank, from the left, until no pair has one.

    A candidate stays good when its pair has changed into another that makes the same token: so does
    the library.
    """
    size, gone = len(ids), -1
    ids, after, before = ids[:], list(range(1, size + 1)), list(range(-1, size - 1))
    heap: list[tuple[int, int, int]] = []

    def consider(left: int, right: int) -> None:
        if left >= 0 and right < size and (found := merges.get(ids[left], ids[right])) is not None:
            heapq.heappush(heap, (found[0], left, found[1]))

    for i in range(size - 1):
        consider(i, i + 1)
    while heap:
        _, left, made = heapq.heappop(heap)
        right = after[left]
        if (
            ids[left] == gone
            or right >= size
            or (now := merges.get(ids[left], ids[right])) is None
            or now[1] != made
        ):
            continue
        ids[left], ids[right], after[left] = made, gone, after[right]
        if after[left] < size:
            before[after[left]] = left
        consider(before[left], left)
        consider(left, after[left])
    return [i for i in ids if i != gone]


def reached(vocabulary: Vocabulary, wanted: Spans) -> np.ndarray:
    """Ids of strings, -1 where text becomes no such token."""
    found = vocabulary.lookup.find(wanted)
    found[vocabulary.are(*UNREACHABLE)[found]] = -1
    return found


def read_merges(vocabulary: Vocabulary) -> Merges:
    """The table of merges. Each of a pair, and what it makes, must be a token."""
    left, right, made = (reached(vocabulary, part) for part in split_lines(vocabulary.merges))
    refuse_first(vocabulary.merges, (left < 0) | (right < 0) | (made < 0))
    count = len(vocabulary.tokens)
    pairs = left * count + right  # below 2**48
    # not stable, which is several times as quick, and the same where all pairs differ
    ranks = np.argsort(pairs)
    if (pairs[ranks][1:] == pairs[ranks][:-1]).any():
        ranks = np.argsort(pairs, kind="stable")
    return Merges(count, pairs[ranks].data, ranks.data, made[ranks].data)


def split_lines(lines: Strings) -> tuple[Spans, Spans, Spans]:
    """What stands before and after the space of each line, and the two without it."""
    data, (starts, lengths) = lines.data + bytes(WORD), lines.places()
    spaces = np.append(np.flatnonzero(np.frombuffer(lines.data, np.uint8) == ord(" ")), len(data))
    stops = starts + lengths
    # a token may begin with a space
    cuts = spaces[np.searchsorted(spaces, starts + 1)] if len(lines) else starts
    refuse_first(lines, cuts >= stops)
    return (
        spans(data, starts, cuts - starts),
        spans(data, cuts + 1, stops - cuts - 1),
        spans(data, starts, lengths - 1, cuts - starts),
    )


def refuse_first(lines: Strings, are_wrong: np.ndarray) -> None:
    if are_wrong.any():
        rank = int(are_wrong.argmax())
        line = lines[rank]
        expected = (
            "two tokens whose join is a token"
            if isinstance(line, str)
            else "a string of valid UTF-8"
        )
        raise wrong(f"{MERGES}[{rank}]", expected, repr(line[:60]))
