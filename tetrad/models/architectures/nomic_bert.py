"""Nomic BERT (nomic-embed-text): BERT with rotary positions (pairs (i, i + half)), queries, keys
and values in one matrix, and a gated feed-forward part with SiLU.
"""

from __future__ import annotations

from collections.abc import Iterator

from tetrad.core.record import record
from tetrad.models.arch import Arrays, BlockInputs, TokenBatch, Weights, register
from tetrad.models.config import Metadata
from tetrad.models.encoder import Encoder, encoder, encoder_fields, linear_shapes, norm_shapes
from tetrad.models.library import layers, nn
from tetrad.models.rope import Rope, read_rope
from tetrad.models.shapes import Expected
from tetrad.models.weights import Factors
from tetrad.tracing.array import Array


@record
class NomicBert(Encoder):
    """The numbers of a Nomic BERT."""

    rope: Rope


def config(meta: Metadata, vocab: int, factors: Factors) -> NomicBert:
    fields, base = encoder_fields(meta, vocab), meta.positive("rope.freq_base", 1000.0, above=1.0)
    return NomicBert(**fields, rope=read_rope(meta, fields["head_size"], base, None))


def shapes(c: NomicBert) -> Iterator[Expected]:
    yield from linear_shapes("attn_qkv", 3 * c.width, c.width)
    yield from linear_shapes("attn_output", c.width, c.width)
    yield from norm_shapes(c, "attn_output_norm")
    yield from linear_shapes("ffn_gate", c.hidden, c.width)
    yield from linear_shapes("ffn_up", c.hidden, c.width)
    yield from linear_shapes("ffn_down", c.width, c.hidden)
    yield from norm_shapes(c, "layer_output_norm")


def kinds(c: NomicBert) -> list[Rope]:
    return [c.rope] * c.layers


def shared(kind: Rope, batch: TokenBatch) -> Arrays:
    return layers.rope_tables(kind, batch.position)


def block(c: NomicBert, weights: Weights, x: Array, at: BlockInputs) -> tuple[Array, BlockInputs]:
    y, at = layers.attention_to_all(c, weights, x, at)
    x = layers.layer_norm(x + y, weights, "attn_output_norm", c.epsilon)
    y = layers.gated(weights, x, nn.silu)
    return layers.layer_norm(x + y, weights, "layer_output_norm", c.epsilon), at


register(
    encoder("nomic-bert", config=config, shapes=shapes, kinds=kinds, shared=shared, block=block)
)
