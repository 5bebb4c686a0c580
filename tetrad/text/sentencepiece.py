"""SentencePiece BPE: pieces with scores, no list of merges ("llama").

Receives a vocabulary; returns a function from text without special tokens to ids. Two neighbours merge when their join
is a piece; the piece with the best score goes first, ties to the left; what is no piece in the end becomes bytes.

The `tokenizers` library has merges by rank only. Ranks made from scores differ where one piece can be made in two ways
("▁▁" + "▁" and "▁" + "▁▁"), and a character known only inside longer pieces cannot take part; so this is our own.
"""

from __future__ import annotations

import functools
import heapq
import re
from collections.abc import Callable

import numpy as np

from tetrad.core.errors import TextError
from tetrad.text.vocabulary import Kind, Vocabulary

Encoder = Callable[[str], list[int]]

SPACE = "▁"
BYTE_NAME = re.compile("<0x([0-9A-Fa-f]{2})>")
CACHED_LENGTH = 64  # characters: words this long or shorter are remembered
CACHED_WORDS = 1 << 15


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
    named = ((byte_of(vocabulary.tokens[i]), i) for i in vocabulary.ids_of(Kind.BYTE))
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
                f"encode: the vocabulary has no token for {text!r}, no byte tokens and no unknown token",
                hint="the model cannot read this text; leave these characters out",
            )
        return [self.unknown]


def ranks_of(vocabulary: Vocabulary, pieces: list[int]) -> dict[str, int]:
    """Piece to rank, 0 the best; equal scores have equal rank."""
    _, ranks = np.unique(-vocabulary.scores[pieces], return_inverse=True)
    return dict(zip(vocabulary.texts(pieces), ranks.tolist(), strict=True))


def word_borders(pieces: list[str]) -> re.Pattern[str]:
    """Where no piece can reach across: before a ▁ whose left neighbour never stands before ▁ inside a piece.

    Merges on both sides of such a place cannot meet, so the sides are encoded one by one.
    """
    inside = set(re.findall(f"(.){SPACE}", "\n".join(pieces), re.DOTALL)) | {"\n"}
    return re.compile(f"(?<=[^{re.escape(''.join(sorted(inside)))}])(?={SPACE})")


def score_encoder(vocabulary: Vocabulary) -> Encoder:
    """Greedy merging by score. Spaces are ▁ inside; a space in front of the text is the caller's affair."""
    usable = vocabulary.ids_of(Kind.NORMAL, Kind.USER_DEFINED, Kind.UNDEFINED)
    ids = dict(zip(vocabulary.texts(usable), usable, strict=True))
    ranks = ranks_of(vocabulary, usable)
    fallback = ByteFallback(vocabulary)
    borders = word_borders(list(ids))

    def encode_word(word: str) -> list[int]:
        found: list[int] = []
        for piece in merge(word, ranks):
            i = ids.get(piece)
            found += fallback(piece) if i is None else (i,)
        return found

    remembered = functools.lru_cache(CACHED_WORDS)(encode_word)

    def encode(text: str) -> list[int]:
        found: list[int] = []
        for word in borders.split(text.replace(" ", SPACE)):
            found += (remembered if len(word) <= CACHED_LENGTH else encode_word)(word)
        return found

    return encode


def merge(word: str, ranks: dict[str, int]) -> list[str]:
    """The pieces of a word. Symbols are spans; `stop[start]` is 0 for a symbol that became part of its left neighbour.

    A candidate is one integer, rank then start then stop, so that the heap orders by rank and from the left.

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
