"""Qwen3: the blocks of llama, with every head's query and key normalised before it turns; rope
pairs (i, i + half)."""

from __future__ import annotations

from collections.abc import Iterator

from tetrad.core.record import replace
from tetrad.models.arch import register
from tetrad.models.decoder import (
    NAMES,
    Decoder,
    attention_shapes,
    decoder,
    feed_forward_shapes,
    unwindowed_keys,
)
from tetrad.models.shapes import Expected


def shapes(c: Decoder) -> Iterator[Expected]:
    yield from attention_shapes(c, head_norms=True)
    yield from feed_forward_shapes(c)


register(decoder("qwen3", shapes=shapes, folder=replace(NAMES, keys=unwindowed_keys)))
