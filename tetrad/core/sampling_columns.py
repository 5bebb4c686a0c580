"""Core: the layout of sampling settings, as columns of numbers beside the logits.

`models.decoding.sampling` fills the columns in, the op in `ops.sampling` reads them. They are here
because a start that finds its programs on disk loads no ops.
"""

from __future__ import annotations

TOP_K, SEED, INDEX = 0, 1, 3  # columns of `numbers`: seed and index take two each, low word first
SETTINGS, NUMBERS = 12, 5
BITS = 32  # of a word of a mask
