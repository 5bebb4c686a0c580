"""Gemma 2: norms before and after each part of a block, every other layer sees a window only,
attention scores and logits are capped by a tanh, the embedding is scaled; rope pairs (i, i + half).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from tetrad.core.record import record
from tetrad.models.arch import BlockInputs, TokenBatch, Weights, register
from tetrad.models.config import Metadata
from tetrad.models.decoder import (
    Decoder,
    Layer,
    attention_shapes,
    decoder,
    decoder_fields,
    embedded,
    feed_forward_shapes,
    output_matrix,
)
from tetrad.models.library import layers, nn, td
from tetrad.models.shapes import Expected
from tetrad.models.weights import Factors
from tetrad.tracing.array import Array

PERIOD = 2  # one layer of two sees everything, where the file does not say
LAYERS_OF_27B = 46


@record
class Gemma(Decoder):
    """The numbers of a Gemma."""

    window_period: int  # the last layer of so many sees everything
    scale: float  # of attention scores
    score_cap: float
    logit_cap: float


def gemma_fields(meta: Metadata, vocab: int, period: int, layers_of_27b: int) -> dict[str, Any]:
    fields = decoder_fields(meta, vocab)
    # The file does not say that the 27B scales by the share of the width.
    size = (
        fields["width"] // fields["heads"]
        if fields["layers"] == layers_of_27b
        else fields["head_size"]
    )
    return {
        **fields,
        "window_period": meta.count("attention.sliding_window_pattern", period),
        "scale": meta.positive("attention.scale", size**-0.5),
        "score_cap": meta.number("attn_logit_softcapping", 0.0),
        "logit_cap": meta.number("final_logit_softcapping", 0.0),
    }


def config(meta: Metadata, vocab: int, factors: Factors) -> Gemma:
    return Gemma(**gemma_fields(meta, vocab, PERIOD, LAYERS_OF_27B))


def shapes(c: Gemma) -> Iterator[Expected]:
    yield from attention_shapes(c)
    yield Expected("post_attention_norm.weight", (c.width,))
    yield from feed_forward_shapes(c)
    yield Expected("post_ffw_norm.weight", (c.width,))


def is_windowed(c: Gemma, layer: int) -> bool:
    return c.window > 0 and layer % c.window_period < c.window_period - 1


def kinds(c: Gemma) -> list[Layer]:
    return [Layer(c.rope, c.window if is_windowed(c, i) else 0) for i in range(c.layers)]


def inputs(c: Gemma, weights: Weights, batch: TokenBatch) -> Array:
    return embedded(c, weights, batch) * math.sqrt(c.width)  # type: ignore[no-any-return]


def block(c: Gemma, weights: Weights, x: Array, at: BlockInputs) -> tuple[Array, BlockInputs]:
    y = layers.norm(x, weights, "attn_norm", c.epsilon)
    y, at = layers.attention(c, weights, y, at, scale=c.scale, softcap=c.score_cap)
    x = x + layers.norm(y, weights, "post_attention_norm", c.epsilon)
    y = layers.feed_forward(c, weights, layers.norm(x, weights, "ffn_norm", c.epsilon), nn.gelu)
    return x + layers.norm(y, weights, "post_ffw_norm", c.epsilon), at


def head(c: Gemma, weights: Weights, x: Array) -> Array:
    logits = output_matrix(c, weights, x)
    return c.logit_cap * td.tanh(logits / c.logit_cap) if c.logit_cap else logits


register(
    decoder(
        "gemma2", config=config, shapes=shapes, kinds=kinds, inputs=inputs, block=block, head=head
    )
)
