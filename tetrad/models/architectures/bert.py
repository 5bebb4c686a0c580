"""BERT and what is built like it (MiniLM, BGE, E5, GTE): an encoder with learnt positions, a norm
after each part of a block, and GELU. Files name how states become one vector (`bert.pooling_type`).
"""

from __future__ import annotations

from collections.abc import Iterator

from tetrad.models.arch import BlockInputs, TokenBatch, Weights, register
from tetrad.models.config import Metadata
from tetrad.models.encoder import (
    Encoder,
    embedded,
    encoder,
    encoder_fields,
    folder_keys,
    head_shapes,
    linear_shapes,
    norm_shapes,
    outer_shapes,
    tanh_head,
)
from tetrad.models.folder.spelling import FolderNames
from tetrad.models.library import layers, nn
from tetrad.models.shapes import Expected
from tetrad.models.weights import Factors
from tetrad.tracing.array import Array

NAMES = FolderNames(
    keys=folder_keys,
    prefixes=("", "bert."),
    outer={
        "token_embd": "embeddings.word_embeddings",
        "token_types": "embeddings.token_type_embeddings",
        "position_embd": "embeddings.position_embeddings",
        "token_embd_norm": "embeddings.LayerNorm",
    },
    layer="encoder.layer.",
    block={
        "attn_q": "attention.self.query",
        "attn_k": "attention.self.key",
        "attn_v": "attention.self.value",
        "attn_output": "attention.output.dense",
        "attn_output_norm": "attention.output.LayerNorm",
        "ffn_up": "intermediate.dense",
        "ffn_down": "output.dense",
        "layer_output_norm": "output.LayerNorm",
    },
    heads={"cls": "bert.pooler.dense", "cls.output": "classifier"},
    unused=("pooler.", "cls.", "embeddings.position_ids"),
)


def config(meta: Metadata, vocab: int, factors: Factors) -> Encoder:
    return Encoder(**encoder_fields(meta, vocab))


def outer(c: Encoder) -> Iterator[Expected]:
    yield from outer_shapes(c)
    yield Expected("position_embd.weight", (c.context, c.width))
    yield from head_shapes(c)


def shapes(c: Encoder) -> Iterator[Expected]:
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        yield from linear_shapes(name, c.width, c.width)
    yield from norm_shapes(c, "attn_output_norm")
    yield from linear_shapes("ffn_up", c.hidden, c.width)
    yield from linear_shapes("ffn_down", c.width, c.hidden)
    yield from norm_shapes(c, "layer_output_norm")


def inputs(c: Encoder, weights: Weights, batch: TokenBatch) -> Array:
    x = embedded(c, weights, batch) + layers.embedding(
        weights["position_embd.weight"], batch.position
    )
    return layers.layer_norm(x, weights, "token_embd_norm", c.epsilon)


def block(c: Encoder, weights: Weights, x: Array, at: BlockInputs) -> tuple[Array, BlockInputs]:
    y, at = layers.attention_to_all(c, weights, x, at)
    return after_attention(c, weights, x + y), at


def after_attention(c: Encoder, weights: Weights, x: Array) -> Array:
    """A norm, the feed-forward part, a norm."""
    x = layers.layer_norm(x, weights, "attn_output_norm", c.epsilon)
    y = nn.gelu(layers.linear(x, weights, "ffn_up"), approximate=False)
    return layers.layer_norm(
        x + layers.linear(y, weights, "ffn_down"), weights, "layer_output_norm", c.epsilon
    )


register(
    encoder(
        "bert", config=config, outer=outer, shapes=shapes, inputs=inputs, block=block,
        folder=NAMES, classify=tanh_head,
    )
)  # fmt: skip
