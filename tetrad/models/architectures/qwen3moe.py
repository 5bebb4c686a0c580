"""Qwen3 with mixtures of experts: attention as in Qwen3, and in every block many small feed-forward
parts."""

from __future__ import annotations

from collections.abc import Iterator

from tetrad.models.arch import register
from tetrad.models.config import Metadata
from tetrad.models.decoder import (
    Decoder,
    attention_shapes,
    decoder,
    decoder_fields,
    feed_forward_shapes,
    read_experts,
)
from tetrad.models.shapes import Expected
from tetrad.models.weights import Factors


def config(meta: Metadata, vocab: int, factors: Factors) -> Decoder:
    return Decoder(**decoder_fields(meta, vocab, factors("rope_freqs.weight"), read_experts(meta)))


def shapes(c: Decoder) -> Iterator[Expected]:
    yield from attention_shapes(c, head_norms=True)
    yield from feed_forward_shapes(c)


register(decoder("qwen3moe", config=config, shapes=shapes))
