"""Qwen2: the blocks of llama, with biases on queries, keys and values; rope pairs (i, i + half)."""

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
    yield from attention_shapes(c, bias=True)
    yield from feed_forward_shapes(c)


register(decoder("qwen2", shapes=shapes, folder=replace(NAMES, keys=unwindowed_keys)))
