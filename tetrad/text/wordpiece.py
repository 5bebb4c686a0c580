"""WordPiece, the longest known piece first ("bert"), through the `tokenizers` library.

Receives a vocabulary as GGUF spells it (▁ before the first piece of a word, nothing before the
others); returns a function from text without special tokens to ids.
"""

from __future__ import annotations

from collections.abc import Callable

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from tetrad.text.sentencepiece import SPACE
from tetrad.text.vocabulary import TokenKind, Vocabulary, wrong

Encoder = Callable[[str], list[int]]
CONTINUES = "##"


def library_name(text: str) -> str:
    """
    >>> library_name("▁play"), library_name("ing")
    ('play', '##ing')
    """
    return text[1:] if text.startswith(SPACE) else CONTINUES + text


def wordpiece_encoder(vocabulary: Vocabulary, *, lowercase: bool, strip_accents: bool) -> Encoder:
    if vocabulary.unk is None:
        raise wrong("tokenizer.ggml.unknown_token_id", "the id of the unknown token", "none")
    usable = vocabulary.ids_of(TokenKind.NORMAL, TokenKind.USER_DEFINED, TokenKind.UNDEFINED)
    names = {
        library_name(text): i for text, i in zip(vocabulary.texts(usable), usable, strict=True)
    }
    unknown = " unknown"  # no word contains a space
    model = models.WordPiece(
        names | {unknown: vocabulary.unk}, unk_token=unknown, continuing_subword_prefix=CONTINUES
    )
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = normalizers.BertNormalizer(
        lowercase=lowercase, strip_accents=strip_accents
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids
