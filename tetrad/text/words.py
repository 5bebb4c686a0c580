"""Cutting text into words before they are merged.

Receives text and the patterns of a pre-tokeniser; returns the words. Patterns speak of classes of
Unicode, which takes the `tokenizers` library; for ASCII text the classes are written out, and
Python's own `re` finds the same words.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator

from tetrad.core import lazy
from tetrad.text.pretokenizers import Digits, PreTokenizer

Cutter = Callable[[str], list[str]]

DIGITS = re.compile(r"\d+")
WORD_CATEGORIES = ("Nd", "Nl", "Pc")
PARTS = re.compile(r"\\p\{\w+\}|\\.|&&|.", re.DOTALL)
ASCII_CLASSES = {  # written as they stand in brackets
    r"\p{L}": "A-Za-z",
    r"\p{Lu}": "A-Z",
    r"\p{Ll}": "a-z",
    r"\p{N}": "0-9",
    r"\p{P}": r"!\"#%&'()*,\-./:;?@\[\\\]_{}",
    r"\p{S}": r"$+<=>\^`|~",
} | dict.fromkeys(
    (r"\p{Lt}", r"\p{Lm}", r"\p{Lo}", r"\p{M}", r"\p{Han}"), "\x80"
)  # no character of ASCII


def word_cutter(pre: PreTokenizer) -> Cutter:
    """Cuts pieces of text, ASCII without the library where that is possible."""
    patterns = [ascii_pattern(pattern) for pattern in pre.patterns]
    quick = [pattern for pattern in patterns if pattern is not None]
    splitters: list[Cutter] = []  # made when it is needed

    def cut(text: str) -> list[str]:
        if text.isascii() and len(quick) == len(patterns):
            return ascii_words(text, quick)
        if not splitters:
            splitter = lazy.module("tetrad.text.bpe_library").word_splitter(pre)
            splitters.append(lambda text: [word for word, _ in splitter.pre_tokenize_str(text)])
        return splitters[0](text)

    return cut


def ascii_words(text: str, patterns: Iterable[re.Pattern[str]]) -> list[str]:
    words = [text]
    for pattern in patterns:
        words = [part for word in words for part in isolated(word, pattern)]
    return words


def isolated(text: str, pattern: re.Pattern[str]) -> Iterator[str]:
    """Every match is a word, and so is what stands between two."""
    done = 0
    for match in pattern.finditer(text):
        start, stop = match.span()
        if done < start:
            yield text[done:start]
        yield text[start:stop]
        done = stop
    if done < len(text):
        yield text[done:]


def ascii_pattern(pattern: str) -> re.Pattern[str] | None:
    r"""The pattern as it meets ASCII text, None where Python's patterns mean something else.

    >>> ascii_pattern(r" ?\p{L}+|[^\s\p{N}]").pattern
    ' ?[A-Za-z]+|[^\\s0-9]'
    """
    written, inside = "", False
    for part in PARTS.findall(pattern):
        if (
            part == "&&"
            or part == "$"
            and not inside
            or part.startswith(r"\p")
            and part not in ASCII_CLASSES
        ):
            return None
        inside = part != "]" and (inside or part == "[")
        chars = ASCII_CLASSES.get(part, part)
        written += chars if inside or part not in ASCII_CLASSES else f"[{chars}]"
    return re.compile(written, re.ASCII)


def group_digits(text: str, how: Digits) -> Iterator[str]:
    """The text in pieces, each number cut in threes from the right.

    >>> list(group_digits("in 1234567!", Digits.GROUPED))
    ['in ', '1', '234', '567', '!']
    """
    done = 0
    for match in DIGITS.finditer(text):
        start, stop = match.span()
        if how is Digits.GROUPED_ALONE and stop < len(text) and is_word_character(text[stop]):
            continue
        if done < start:
            yield text[done:start]
        first = start + ((stop - start) % 3 or 3)
        yield text[start:first]
        yield from (text[i : i + 3] for i in range(first, stop, 3))
        done = stop
    if done < len(text):
        yield text[done:]


def is_word_character(char: str) -> bool:
    category = unicodedata.category(char)
    return category[0] in "LM" or category in WORD_CATEGORIES
