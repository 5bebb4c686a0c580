"""Station 0, shared words: what a choice of tokens is told beside the logits, as columns of
numbers.

`ops.sampling.op` reads them, whoever asks for a token fills them in.
"""

from __future__ import annotations

TOP_K, SEED, INDEX = 0, 1, 3  # columns of `numbers`: seed and index take two each, low word first
SETTINGS, NUMBERS = 12, 5
BITS = 32  # of a word of a mask
