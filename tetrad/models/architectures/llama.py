"""Llama and what is built like it (SmolLM2, Mistral, TinyLlama): pre-norm blocks, rotary positions,
a gated feed-forward part, or (Mixtral) a mixture of such parts. The file pairs rope channels (2i,
2i+1).
"""

from __future__ import annotations

from collections.abc import Iterator

from tetrad.models.arch import register
from tetrad.models.config import Metadata
from tetrad.models.decoder import (
    NAMES,
    Decoder,
    attention_shapes,
    decoder,
    decoder_fields,
    feed_forward_shapes,
    neighbours_turn,
    read_experts,
)
from tetrad.models.shapes import Expected
from tetrad.models.weights import Factors


def config(meta: Metadata, vocab: int, factors: Factors) -> Decoder:
    experts = read_experts(meta) if meta.count("expert_count", 0, least=0) else None
    return Decoder(**decoder_fields(meta, vocab, factors("rope_freqs.weight"), experts))


def shapes(c: Decoder) -> Iterator[Expected]:
    yield from attention_shapes(c)
    yield from feed_forward_shapes(c)


register(decoder("llama", config=config, shapes=shapes, order=neighbours_turn, folder=NAMES))
