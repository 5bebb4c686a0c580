"""SentencePiece unigram: the segmentation with the greatest sum of scores ("t5"), through the
`tokenizers` library.

Receives a vocabulary and how the file wants text prepared; returns a function from text without
special tokens to ids.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from tokenizers import models

from tetrad.core.errors import FileFormatError
from tetrad.text.sentencepiece import SPACE, ByteFallback
from tetrad.text.vocabulary import CHARSMAP, TokenKind, Vocabulary

Encoder = Callable[[str], list[int]]


def unigram_encoder(
    vocabulary: Vocabulary, charsmap: bytes, *, prefix: bool, squeeze: bool
) -> Encoder:
    """Prepare the text, then Viterbi. `squeeze`: outer spaces go, inner runs become one space."""
    usable = vocabulary.ids_of(
        TokenKind.NORMAL, TokenKind.USER_DEFINED, TokenKind.UNUSED, TokenKind.UNDEFINED
    )
    # A made-up entry stands for what is unknown: the library wants one, and its name can occur in
    # no prepared text.
    pieces = [(" ", min(float(vocabulary.scores[usable].min()), 0.0))] if usable else [(" ", 0.0)]
    defined = set(vocabulary.ids_of(TokenKind.USER_DEFINED))
    named = zip(vocabulary.texts(usable), usable, strict=True)
    pieces += [(text, 0.0 if i in defined else float(vocabulary.scores[i])) for text, i in named]
    model = models.Unigram(pieces, unk_id=0, byte_fallback=False)
    characters = Charsmap(charsmap)
    fallback = ByteFallback(vocabulary)

    def encode(text: str) -> list[int]:
        ready = prepare(characters(text), prefix=prefix, squeeze=squeeze)
        found: list[int] = []
        for token in model.tokenize(ready) if ready else ():
            found += fallback(token.value) if token.id == 0 else (usable[token.id - 1],)
        return found

    return encode


def prepare(text: str, *, prefix: bool, squeeze: bool) -> str:
    """Spaces as the vocabulary wants them.

    >>> prepare("  to  be ", prefix=True, squeeze=True)
    '▁to▁be'
    """
    if squeeze:
        text = " ".join(word for word in text.split(" ") if word)
    if not text:
        return ""
    return (" " * prefix + text).replace(" ", SPACE)


class Charsmap:
    """SentencePiece's table of replacements: a double-array trie over UTF-8 and the strings its
    leaves point to."""

    def __init__(self, table: bytes) -> None:
        size = int.from_bytes(table[:4], "little")
        if table and (size % 4 or 4 + size >= len(table) or not size):
            raise FileFormatError(
                f"expected a trie of whole words and strings after it, got {size} bytes of trie in "
                f"{len(table)}",
                file="",
                part=CHARSMAP,
            )
        self.units: tuple[int, ...] = (
            struct.unpack_from(f"<{size // 4}I", table, 4) if table else ()
        )
        self.strings = table[4 + size :]

    def __call__(self, text: str) -> str:
        """The text with every longest known prefix replaced, from the left."""
        if not self.units:
            return text
        source, at, parts = text.encode(), 0, []
        while at < len(source):
            length, target = self.longest(source, at)
            if length:
                parts.append(self.replacement(target))
            else:
                length = utf8_length(source[at])
                parts.append(source[at : at + length])
            at += length
        return b"".join(parts).decode(errors="replace")

    def longest(self, source: bytes, at: int) -> tuple[int, int]:
        """Length of the longest entry that starts here (0: none), and where its replacement
        lies."""
        units, length, target = self.units, 0, 0
        node = base(units[0])
        for i in range(at, len(source)):
            node ^= source[i]
            if source[i] == 0 or node >= len(units) or units[node] & 0x800000FF != source[i]:
                break
            leaf, node = units[node] >> 8 & 1, node ^ base(units[node])
            if leaf:
                length, target = i + 1 - at, self.value(node)
        return length, target

    def value(self, node: int) -> int:
        if node >= len(self.units):
            raise FileFormatError(
                f"the trie points to unit {node} of {len(self.units)}", file="", part=CHARSMAP
            )
        return self.units[node] & 0x7FFFFFFF

    def replacement(self, target: int) -> bytes:
        stop = self.strings.find(b"\0", target)
        if stop < 0 or target >= len(self.strings):
            raise FileFormatError(f"no string ends after byte {target}", file="", part=CHARSMAP)
        return self.strings[target:stop]


def base(unit: int) -> int:
    """Where the children of a node are found: 21 bits, shifted by 8 if bit 9 is set."""
    return unit >> 10 << ((unit & 0x200) >> 6)


def utf8_length(lead: int) -> int:
    """Bytes of the character that begins with this byte; the text is valid UTF-8."""
    return 1 if lead < 0x80 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
