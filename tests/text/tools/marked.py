"""A small vocabulary that holds marks of calls and reasoning as tokens, and grammars for it.

Any text can be written with it: it has a token for each byte.
"""

from __future__ import annotations

import random
from functools import cache

import numpy as np

from tests.models.tiny import tokenizer_keys
from tetrad.models.decoding.constraints import Grammars
from tetrad.text.tokenizer import Tokenizer, tokenizer_from_gguf

CONTROL, USER_DEFINED, UNUSED = 3, 4, 5
WORDS = 320


@cache
def marked_tokenizer(control: tuple[str, ...] = (), defined: tuple[str, ...] = ()) -> Tokenizer:
    """`control` are control tokens, `defined` those that a user has defined."""
    keys = tokenizer_keys(WORDS)
    tokens, kinds = keys["tokenizer.ggml.tokens"], keys["tokenizer.ggml.token_type"]
    free = [i for i, kind in enumerate(kinds) if kind == UNUSED]
    for mark, kind in [*((m, CONTROL) for m in control), *((m, USER_DEFINED) for m in defined)]:
        i = free.pop(0)
        tokens[i], kinds[i] = mark, kind
    return tokenizer_from_gguf(keys)


def written_by_chance(
    tokenizer: Tokenizer, lark: str, seed: int, most: int = 4000, first: str = ""
) -> tuple[str, bool]:
    """What a model that knows nothing writes under a grammar, and whether it came to an end. It
    begins with `first`, which must be allowed. The end, and the marks, are a little more likely
    than the rest, or nothing would ever happen."""
    constraint = Grammars(tokenizer, tokenizer.vocab_size).constraint({"lark": lark})
    assert constraint is not None
    chance, tokens = random.Random(seed), tokenizer.encode(first, add_special=False)
    for token in tokens:
        mask = constraint.mask()
        assert mask is not None and mask[0, token // 32] >> (token % 32) & 1
        constraint.accept(token)
    liked = [i for i in range(tokenizer.vocab_size) if tokenizer.kind(i) in (CONTROL, USER_DEFINED)]
    for _ in range(most):
        mask = constraint.mask()
        if mask is None:
            return tokenizer.decode(tokens), True
        bits = np.unpackbits(mask.view(np.uint8), bitorder="little")[: tokenizer.vocab_size]
        allowed = np.flatnonzero(bits).tolist()
        marks = [i for i in allowed if i in liked]
        token = chance.choice(marks if marks and chance.random() < 0.2 else allowed)
        if token in tokenizer.stop_ids:
            return tokenizer.decode(tokens), True
        constraint.accept(token)
        tokens.append(token)
    return tokenizer.decode(tokens), False
