"""Byte-pair encoding by ranked merges ("gpt2", and "gemma4" over characters).

Receives a vocabulary and its pre-tokeniser; returns a function from text without special tokens to
ids. Byte-level text is merged by `ranked` as long as there is little of it; then, and for the other
kind, the library is loaded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from tetrad.core import lazy
from tetrad.core.errors import TextError
from tetrad.text.bpe_small import WordEncoder
from tetrad.text.pretokenizers import Digits, PreTokenizer
from tetrad.text.vocabulary import Vocabulary
from tetrad.text.words import group_digits, word_cutter

Encoder = Callable[[str], list[int]]
PiecesEncoder = Callable[[list[str]], list[int]]

# characters in all; merging them here takes a fraction of what the library needs to start
FEW = 8192


def bpe_encoder(vocabulary: Vocabulary, pre: PreTokenizer) -> Encoder:
    """Cut into words, merge each word by rank; ties go to the left."""
    encode_pieces = (
        SmallFirst(vocabulary, pre) if pre.byte_level else library_encoder(vocabulary, pre)
    )
    if pre.digits is Digits.AS_THEY_ARE:
        return lambda text: encode_pieces([text])
    return lambda text: encode_pieces(list(group_digits(text, pre.digits)))


class SmallFirst:
    """Encodes the first few texts by itself, and those after by the library, which is made then."""

    def __init__(self, vocabulary: Vocabulary, pre: PreTokenizer) -> None:
        self.vocabulary, self.pre = vocabulary, pre
        self.words, self.cut = WordEncoder(vocabulary, pre.ignore_merges), word_cutter(pre)
        self.missing = frozenset(byte for byte, i in enumerate(self.words.alphabet) if i is None)
        self.left, self.lock = FEW, threading.Lock()
        self.library: PiecesEncoder | None = None

    def __call__(self, pieces: list[str]) -> list[int]:
        if self.missing:
            refuse_missing("".join(pieces), self.missing)
        library = self.library or self.after(sum(map(len, pieces)))
        if library is not None:
            return library(pieces)
        return self.words.encode([word.encode() for piece in pieces for word in self.cut(piece)])

    def after(self, characters: int) -> PiecesEncoder | None:
        """The library after so many more characters, None as long as there were few."""
        self.left -= characters
        if self.left >= 0:
            return None
        with self.lock:
            self.library = self.library or library_encoder(self.vocabulary, self.pre)
        return self.library


def library_encoder(vocabulary: Vocabulary, pre: PreTokenizer) -> PiecesEncoder:
    made: PiecesEncoder = lazy.module("tetrad.text.bpe_library").library_encoder(vocabulary, pre)
    return made


def refuse_missing(text: str, missing: frozenset[int]) -> None:
    """The library drops bytes without a token silently; we do not."""
    found = missing.intersection(text.encode())
    if found:
        raise TextError(
            f"encode: the vocabulary has no token for byte 0x{min(found):02x}, nor one for unknown "
            "bytes",
            hint="the model cannot read this text; leave these characters out",
        )
