"""Nomic BERT (nomic-embed-text): BERT with rotary positions (pairs (i, i + half)), queries, keys
and values in one matrix, and a gated feed-forward part with SiLU.
"""

from __future__ import annotations

from collections.abc import Iterator

from tetrad.core.record import record
from tetrad.models.arch import Arrays, BlockInputs, TokenBatch, Weights, register
from tetrad.models.config import MOST_CONTEXT, MOST_LAYERS, Metadata
from tetrad.models.encoder import Encoder, encoder, encoder_fields, linear_shapes, norm_shapes
from tetrad.models.folder.rope import rope_settings
from tetrad.models.folder.settings import FolderSettings
from tetrad.models.folder.spelling import FolderNames
from tetrad.models.library import layers, nn
from tetrad.models.rope import Rope, read_rope
from tetrad.models.shapes import Expected
from tetrad.models.weights import Factors
from tetrad.tracing.array import Array


def keys(s: FolderSettings) -> dict[str, object]:
    """Of the library's own folders, and of the older ones, with the names of GPT-2."""
    if s.has("activation_function"):
        s.word("activation_function", "swiglu", ("swiglu",))
    s.word("hidden_act", "silu", ("silu",))
    if s.flag("prenorm", False):
        raise s.error("prenorm", "expected false: norms come after each part")
    if s.number("rotary_emb_fraction", 1.0) != 1.0:
        raise s.error("rotary_emb_fraction", "expected 1: all channels turn")
    base = rope_settings(s).positive("rope_theta") if not s.has("rotary_emb_base") else 0.0
    return {
        "block_count": s.count(s.first_of("num_hidden_layers", "n_layer"), most=MOST_LAYERS),
        "context_length": s.count(
            s.first_of("max_position_embeddings", "n_positions"), most=MOST_CONTEXT
        ),
        "embedding_length": s.count(s.first_of("hidden_size", "n_embd")),
        "feed_forward_length": s.count(s.first_of("intermediate_size", "n_inner")),
        "attention.head_count": s.count(s.first_of("num_attention_heads", "n_head")),
        "attention.layer_norm_epsilon": s.positive(
            s.first_of("layer_norm_eps", "layer_norm_epsilon"), 1e-12
        ),
        "rope.freq_base": base or s.positive("rotary_emb_base"),
        "tokenizer.ggml.token_type_count": s.count("type_vocab_size", 2),
    }


NAMES = FolderNames(
    keys=keys,
    outer={
        "token_embd": "embeddings.word_embeddings",
        "token_types": "embeddings.token_type_embeddings",
        "token_embd_norm": "emb_ln",
    },
    layer="encoder.layers.",
    block={
        "attn_qkv": "attn.Wqkv",
        "attn_output": "attn.out_proj",
        "attn_output_norm": "norm1",
        "ffn_up": "mlp.fc11",
        "ffn_gate": "mlp.fc12",
        "ffn_down": "mlp.fc2",
        "layer_output_norm": "norm2",
    },
)


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


def shared(kind: Rope, batch: TokenBatch, weights: Weights) -> Arrays:
    return layers.rope_tables(kind, batch.position)


def block(c: NomicBert, weights: Weights, x: Array, at: BlockInputs) -> tuple[Array, BlockInputs]:
    y, at = layers.attention_to_all(c, weights, x, at)
    x = layers.layer_norm(x + y, weights, "attn_output_norm", c.epsilon)
    y = layers.gated(weights, x, nn.silu)
    return layers.layer_norm(x + y, weights, "layer_output_norm", c.epsilon), at


register(
    encoder(
        "nomic-bert", config=config, shapes=shapes, kinds=kinds, shared=shared, block=block,
        folder=NAMES,
    )
)  # fmt: skip
