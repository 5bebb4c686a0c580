"""Byte-pair encoding by ranked merges ("gpt2", and "gemma4" over characters), through the `tokenizers` library.

Receives a vocabulary and its pre-tokeniser; returns a function from text without special tokens to ids.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from tetrad.core.errors import TextError
from tetrad.text.pretokenizers import Digits, PreTokenizer
from tetrad.text.vocabulary import Kind, Vocabulary, wrong

Encoder = Callable[[str], list[int]]

DIGITS = re.compile(r"\d+")
WORD_CATEGORIES = ("Nd", "Nl", "Pc")


def byte_alphabet() -> dict[int, str]:
    """GPT-2's printable stand-in for each byte: itself where it can be seen, else a character from U+0100 on."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [b for b in range(256) if b not in seen]
    return {b: chr(b) for b in seen} | {b: chr(0x100 + i) for i, b in enumerate(hidden)}


BYTE_TO_CHAR = byte_alphabet()
CHAR_TO_BYTE = {char: byte for byte, char in BYTE_TO_CHAR.items()}


def byte_level_bytes(text: str) -> bytes:
    """What a byte-level token stands for; a token with a character outside the alphabet stands for its own text.

    >>> byte_level_bytes("Ġhi")
    b' hi'
    """
    try:
        return bytes([CHAR_TO_BYTE[char] for char in text])
    except KeyError:
        return text.encode()


def reachable_names(vocabulary: Vocabulary) -> dict[str, int]:
    """Token to id; those that plain text must never become get a name with a space, which no word can contain."""
    names = {text: i for i, text in enumerate(vocabulary.tokens)}
    for i in vocabulary.ids_of(Kind.CONTROL, Kind.UNKNOWN, Kind.UNUSED):
        if names.get(vocabulary.tokens[i]) == i:
            del names[vocabulary.tokens[i]]
        names[f" {i}"] = i
    return names


def read_merges(lines: Sequence[str], names: dict[str, int]) -> list[tuple[str, str]]:
    """The pairs to merge, most urgent first. Each of a pair, and what it makes, must be a token."""
    pairs = []
    for rank, line in enumerate(lines):
        cut = line.find(" ", 1)  # a token may begin with a space
        left, right = line[:cut], line[cut + 1 :]
        if cut < 0 or left not in names or right not in names or left + right not in names:
            raise wrong(f"tokenizer.ggml.merges[{rank}]", "two tokens whose join is a token", repr(line[:60]))
        pairs.append((left, right))
    return pairs


def merging_model(vocabulary: Vocabulary, names: dict[str, int], pre: PreTokenizer) -> models.BPE:
    unknown = None if vocabulary.unk is None else f" {vocabulary.unk}"
    settings = {
        "unk_token": unknown if unknown in names else None,
        "byte_fallback": not pre.byte_level,
        "fuse_unk": not pre.byte_level,
        "ignore_merges": pre.ignore_merges,
    }
    try:  # the library checks the pairs itself, several times quicker; when it complains, we look which one it is
        return models.BPE(names, [line.partition(" ")[::2] for line in vocabulary.merges], **settings)
    except Exception:
        return models.BPE(names, read_merges(vocabulary.merges, names), **settings)


def word_splitter(pre: PreTokenizer) -> pre_tokenizers.PreTokenizer:
    splits = [pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated") for pattern in pre.patterns]
    as_bytes = [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)] if pre.byte_level else []
    return pre_tokenizers.Sequence([*splits, *as_bytes])


def bpe_encoder(vocabulary: Vocabulary, pre: PreTokenizer) -> Encoder:
    """Cut into words, merge each word by rank; ties go to the left."""
    names = reachable_names(vocabulary)
    tokenizer = tokenizers.Tokenizer(merging_model(vocabulary, names, pre))
    tokenizer.pre_tokenizer = word_splitter(pre)
    if not pre.byte_level:
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
    missing = bytes(b for b, char in BYTE_TO_CHAR.items() if char not in names) if pre.byte_level else b""

    def encode(text: str) -> list[int]:
        if missing and vocabulary.unk is None:
            refuse_missing(text, missing)
        if pre.digits is Digits.AS_THEY_ARE:
            return tokenizer.encode(text, add_special_tokens=False).ids
        pieces = list(group_digits(text, pre.digits))
        return tokenizer.encode(pieces, is_pretokenized=True, add_special_tokens=False).ids

    return encode


def refuse_missing(text: str, missing: bytes) -> None:
    """The library drops bytes without a token silently; we do not."""
    found = set(text.encode()) & set(missing)
    if found:
        raise TextError(
            f"encode: the vocabulary has no token for byte 0x{min(found):02x}, nor one for unknown bytes",
            hint="the model cannot read this text; leave these characters out",
        )


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
