"""SentencePiece BPE: pieces with scores, no list of merges ("llama").

Receives a vocabulary; returns a function from text without special tokens to ids. Two neighbours
merge when their join is a piece; the piece with the best score goes first, ties to the left; what
is no piece in the end becomes bytes.

The `tokenizers` library has merges by rank only. Ranks made from scores differ where one piece can
be made in two ways ("▁▁" + "▁" and "▁" + "▁▁"), and a character known only inside longer pieces
cannot take part; so this is our own.
"""

from __future__ import annotations

import functools
import heapq
import re
from collections.abc import Callable

import numpy as np

from tetrad.core.errors import TextError
from tetrad.formats.strings import Strings
from tetrad.text.lookup import Spans, StringTable, spans_of
from tetrad.text.vocabulary import TokenKind, Vocabulary

Encoder = Callable[[str], list[int]]

SPACE = "▁"
BYTE_NAME = re.compile("<0x([0-9A-Fa-f]{2})>")
CACHED_LENGTH = 64  # characters: words this long or shorter are remembered
CACHED_WORDS = 1 << 15
# characters in all: what is looked up for them takes less than a dictionary of all pieces
FEW = 8192
MOST_PARTS = 8192  # of one text


def piece_bytes(text: str) -> bytes:
    """What a piece stands for.

    >>> piece_bytes("▁Hi"), piece_bytes("<0x0A>")
    (b' Hi', b'<0x0A>')
    """
    return text.replace(SPACE, " ").encode()


def byte_of(name: str) -> int | None:
    """The byte that a byte token names."""
    match = BYTE_NAME.fullmatch(name)
    return int(match[1], 16) if match else None


def byte_tokens(vocabulary: Vocabulary) -> dict[int, int]:
    """Byte to id, for the bytes that have a token."""
    named = ((byte_of(vocabulary.tokens[i]), i) for i in vocabulary.ids_of(TokenKind.BYTE))
    return {byte: i for byte, i in named if byte is not None}


class ByteFallback:
    """Ids for a character that is no piece: its bytes, else the unknown token."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.ids = byte_tokens(vocabulary)
        self.unknown = vocabulary.unk

    def __call__(self, text: str) -> list[int]:
        found = [self.ids.get(byte) for byte in text.encode()]
        whole = [i for i in found if i is not None]
        if len(whole) == len(found):
            return whole
        if self.unknown is None:
            raise TextError(
                f"encode: the vocabulary has no token for {text!r}, no byte tokens and no unknown "
                "token",
                hint="the model cannot read this text; leave these characters out",
            )
        return [self.unknown]


class Pieces:
    """Some pieces, with ids and ranks, and words made of them."""

    def __init__(self, ids: dict[str, int], ranks: dict[str, int], fallback: ByteFallback) -> None:
        self.ids, self.ranks, self.fallback = ids, ranks, fallback
        self.remembered = functools.lru_cache(CACHED_WORDS)(self.of_word)

    def encode(self, words: list[str]) -> list[int]:
        found: list[int] = []
        for word in words:
            found += (self.remembered if len(word) <= CACHED_LENGTH else self.of_word)(word)
        return found

    def of_word(self, word: str) -> list[int]:
        found: list[int] = []
        for piece in merge(word, self.ranks):
            i = self.ids.get(piece)
            found += self.fallback(piece) if i is None else (i,)
        return found


class ScoreEncoder:
    """Greedy merging by score. Spaces are ▁ inside; a space in front of the text is the caller's
    affair.

    As long as there is little text, only the pieces that may be in it are looked up; then all
    become dictionaries.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.usable = np.array(
            vocabulary.ids_of(TokenKind.NORMAL, TokenKind.USER_DEFINED, TokenKind.UNDEFINED),
            np.int64,
        )
        self.lookup = StringTable(vocabulary.lookup.spans.some(self.usable))
        self.ranks = ranks_of(vocabulary.scores[self.usable])
        # bytes, so at least as many as characters
        self.longest = int(self.lookup.spans.lengths.max(initial=1))
        self.borders = word_borders(self.lookup.spans)
        self.vocabulary, self.fallback = vocabulary, ByteFallback(vocabulary)
        self.left = FEW
        self.all: Pieces | None = None

    def __call__(self, text: str) -> list[int]:
        words = self.borders.split(text.replace(" ", SPACE))
        self.left -= len(text)
        if (
            self.all is None
            and self.left >= 0
            and (parts := substrings(words, self.longest)) is not None
        ):
            return self.pieces_of(parts).encode(words)
        self.all = self.all or self.all_pieces()
        return self.all.encode(words)

    def pieces_of(self, texts: list[str]) -> Pieces:
        """Those of the texts that are pieces."""
        places = self.lookup.find(spans_of(Strings.of(texts)))
        known = np.flatnonzero(places >= 0)
        names = [texts[i] for i in known.tolist()]
        return self.named(names, places[known])

    def all_pieces(self) -> Pieces:
        return self.named(self.vocabulary.texts(self.usable.tolist()), np.arange(len(self.usable)))

    def named(self, names: list[str], places: np.ndarray) -> Pieces:
        ids = dict(zip(names, self.usable[places].tolist(), strict=True))
        return Pieces(
            ids, dict(zip(names, self.ranks[places].tolist(), strict=True)), self.fallback
        )


def substrings(words: list[str], longest: int) -> list[str] | None:
    """Every part of every word that may be a piece, once; None where that is too much to look up.

    >>> sorted(substrings(["aba", "ab"], longest=2))
    ['a', 'ab', 'b', 'ba']
    """
    different = set(words)
    if sum(len(word) * min(len(word), longest) for word in different) > 2 * MOST_PARTS:
        return None
    parts = {
        word[i:j]
        for word in different
        for i in range(len(word))
        for j in range(i + 1, min(i + longest, len(word)) + 1)
    }
    return list(parts)


def ranks_of(scores: np.ndarray) -> np.ndarray:  # f32[count] -> i64[count]
    """Numbers from 0 on, the smaller the better the score; the same for equal scores.

    The bits of floats from 0 on are in the order of the floats; those of negative ones are turned
    round.
    """
    bits = (np.float32(0) - scores).view(np.int32)  # where 0.0 and -0.0 become the same
    return np.where(bits < 0, bits ^ 0x7FFFFFFF, bits).astype(np.int64) + (1 << 31)


def word_borders(pieces: Spans) -> re.Pattern[str]:
    """Where no piece can reach across: before a ▁ whose left neighbour never stands before ▁ inside
    a piece.

    Merges on both sides of such a place cannot meet, so the sides are encoded one by one.
    """
    data, space = np.frombuffer(pieces.data, np.uint8), SPACE.encode()
    found = (data[:-2] == space[0]) & (data[1:-1] == space[1]) & (data[2:] == space[2])
    found[pieces.starts[pieces.lengths > 0]] = False
    # a character has at most four bytes
    anywhere = np.ndarray((len(data) - 3,), "V4", pieces.data, 0, (1,))
    # a length stands before the first piece
    before = np.unique(anywhere[np.flatnonzero(found) - 4].view(np.uint32))
    inside = {raw.tobytes().decode(errors="ignore")[-1:] for raw in before} | {"\n"}  # never empty
    return re.compile(f"(?<=[^{re.escape(''.join(sorted(inside)))}])(?={SPACE})")


def merge(word: str, ranks: dict[str, int]) -> list[str]:
    """The pieces of a word. Symbols are spans; `stop[start]` is 0 for a symbol that became part of
    its left neighbour.

    A candidate is one integer, rank then start then stop, so that the heap orders by rank and from
    the left.

    >>> merge("aaab", {"a": 9, "b": 9, "aa": 0, "ab": 1})
    ['aa', 'ab']
    """
    size = len(word)
    shift = max(size.bit_length(), 1)
    mask = (1 << shift) - 1
    stop = list(range(1, size + 1)) + [0]
    before = list(range(-1, size))
    pairs = ((ranks.get(word[i : i + 2]), i) for i in range(size - 1))
    heap = [((rank << shift | i) << shift) | i + 2 for rank, i in pairs if rank is not None]
    heapq.heapify(heap)
    while heap:
        candidate = heapq.heappop(heap)
        start, end = candidate >> shift & mask, candidate & mask
        middle = stop[start]
        if middle == 0 or middle >= size or stop[middle] != end:
            continue  # one of the two has been merged with another since
        stop[start], stop[middle] = end, 0
        before[end] = start
        left = before[start]
        if left >= 0 and (rank := ranks.get(word[left:end])) is not None:
            heapq.heappush(heap, ((rank << shift | left) << shift) | end)
        if end < size and (rank := ranks.get(word[start : stop[end]])) is not None:
            heapq.heappush(heap, ((rank << shift | start) << shift) | stop[end])
    return [word[i : stop[i]] for i in range(size) if stop[i]]
