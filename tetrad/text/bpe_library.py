"""Byte-pair encoding by ranked merges ("gpt2", and "gemma4" over characters), through the
`tokenizers` library.

Receives a vocabulary and its pre-tokeniser; returns a function from pieces of text to ids. Loaded
when it is needed: the library, and its tables of a vocabulary, take longer than most prompts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from tetrad.text.bpe_small import UNREACHABLE, read_merges
from tetrad.text.pretokenizers import PreTokenizer
from tetrad.text.vocabulary import Vocabulary

PiecesEncoder = Callable[[list[str]], list[int]]


def reachable_names(vocabulary: Vocabulary) -> dict[str, int]:
    """Token to id; those that plain text must never become get a name with a space, which no word
    can contain."""
    tokens = list(vocabulary.tokens)
    names = {text: i for i, text in enumerate(tokens)}
    for i in vocabulary.ids_of(*UNREACHABLE):
        if names.get(tokens[i]) == i:
            del names[tokens[i]]
        names[f" {i}"] = i
    return names if vocabulary.unk is None else names | {f" {vocabulary.unk}": vocabulary.unk}


def merging_model(vocabulary: Vocabulary, pre: PreTokenizer) -> models.BPE:
    lines = cast(list[str], list(vocabulary.merges))
    settings = {
        "unk_token": None if vocabulary.unk is None else f" {vocabulary.unk}",
        "byte_fallback": not pre.byte_level,
        "fuse_unk": not pre.byte_level,
        "ignore_merges": pre.ignore_merges,
    }
    try:  # the library checks the pairs itself; when it complains, we look which one it is
        return models.BPE(
            reachable_names(vocabulary), [pair_of(line) for line in lines], **settings
        )
    except Exception:
        read_merges(vocabulary)
        raise


def pair_of(line: str) -> tuple[str, str]:
    cut = line.index(" ", 1)  # a token may begin with a space
    return line[:cut], line[cut + 1 :]


def word_splitter(pre: PreTokenizer) -> pre_tokenizers.PreTokenizer:
    """Cuts text into words, as text."""
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated") for pattern in pre.patterns]
    )


def library_encoder(vocabulary: Vocabulary, pre: PreTokenizer) -> PiecesEncoder:
    """Cut into words, merge each word by rank; ties go to the left."""
    tokenizer = tokenizers.Tokenizer(merging_model(vocabulary, pre))
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    splitter = word_splitter(pre)
    tokenizer.pre_tokenizer = (
        pre_tokenizers.Sequence([splitter, as_bytes]) if pre.byte_level else splitter
    )
    if not pre.byte_level:
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
    return lambda pieces: (
        tokenizer.encode(pieces, is_pretokenized=True, add_special_tokens=False).ids
    )
