"""Models, decoders: what decoders have in common, so that one is a short file.

Their numbers, read and checked; their tensors; and the parts of a step that most share: tokens look
at earlier ones of their sequence through caches of keys and values, positions turn queries and
keys, the output is a norm and a matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from tetrad.core.dtypes import DType
from tetrad.core.record import record
from tetrad.core.types import ArrayType
from tetrad.models.arch import (
    Architecture,
    Arrays,
    BlockInputs,
    Keeps,
    ModelState,
    TokenBatch,
    Weights,
    as_in_the_file,
)
from tetrad.models.caches import cache_types
from tetrad.models.config import MOST_CONTEXT, MOST_LAYERS, Config, Metadata, common_fields
from tetrad.models.folder.rope import rope_factors, rope_keys, turned_channels
from tetrad.models.folder.settings import FolderSettings
from tetrad.models.folder.spelling import FolderNames
from tetrad.models.library import layers, nn
from tetrad.models.rope import MOST_CHANNELS, Rope, read_rope, rope_order
from tetrad.models.shapes import Expected
from tetrad.models.weights import Factors
from tetrad.tracing.array import Array

# weights and biases whose rows are channels that turn with the position
TURNED = ("attn_q.", "attn_k.")

# -- numbers ---------------------------------------------------------------------------------------


@record
class Gated:
    """A dense feed-forward part: down(activation(gate(x)) * up(x))."""

    hidden: int


@record
class Experts:
    """A mixture of gated parts, of which every token uses a few."""

    count: int
    used: int
    hidden: int
    is_normalised: bool  # the weights of the chosen experts add up to one


@record
class Decoder(Config):
    """The numbers of a decoder."""

    heads: int
    kv_heads: int
    head_size: int
    epsilon: float
    rope: Rope
    window: int  # positions a layer sees; 0: all
    feed_forward: Gated | Experts


@record
class Layer:
    """What tells blocks of a decoder apart."""

    rope: Rope
    window: int


def decoder_fields(
    meta: Metadata,
    vocab: int,
    factors: np.ndarray | None = None,
    feed_forward: Gated | Experts | None = None,
) -> dict[str, Any]:
    """The fields of `Decoder`; `feed_forward` is a dense part if it is not given."""
    width, heads = meta.count("embedding_length"), meta.count("attention.head_count")
    head_size = meta.count("attention.key_length", width // heads, most=MOST_CHANNELS)
    if heads % (kv_heads := meta.count("attention.head_count_kv", heads)):
        raise meta.error(
            f"{meta.arch}.attention.head_count_kv",
            f"{heads} heads are not shared evenly by {kv_heads}",
        )
    if head_size % 16 or meta.count("attention.value_length", head_size) != head_size:
        raise meta.error(
            f"{meta.arch}.attention.key_length",
            f"heads of {head_size} channels are not supported yet",
        )
    turned = meta.count("rope.dimension_count", head_size, most=MOST_CHANNELS)
    if turned % 2 or turned > head_size:
        raise meta.error(
            f"{meta.arch}.rope.dimension_count",
            f"{turned} of {head_size} channels cannot turn in pairs",
        )
    return {
        **common_fields(meta, vocab),
        "heads": heads,
        "kv_heads": kv_heads,
        "head_size": head_size,
        "epsilon": meta.positive("attention.layer_norm_rms_epsilon"),
        "rope": read_rope(
            meta, turned, meta.positive("rope.freq_base", 10000.0, above=1.0), factors
        ),
        "window": meta.count("attention.sliding_window", 0, least=0),
        "feed_forward": feed_forward or Gated(meta.count("feed_forward_length")),
    }


def decoder_config(meta: Metadata, vocab: int, factors: Factors) -> Decoder:
    return Decoder(**decoder_fields(meta, vocab, factors("rope_freqs.weight")))


def read_experts(meta: Metadata) -> Experts:
    count, used = meta.count("expert_count"), meta.count("expert_used_count")
    if used > count:
        raise meta.error(
            f"{meta.arch}.expert_used_count", f"{used} experts a token, but there are only {count}"
        )
    hidden = meta.count("expert_feed_forward_length", meta.count("feed_forward_length", 0, least=0))
    return Experts(count, used, hidden, meta.flag("expert_weights_norm", True))


def folder_keys(s: FolderSettings) -> dict[str, object]:
    """The same from the config.json of llama and its relatives."""
    s.word("hidden_act", "silu", ("silu",))
    width, heads = s.count("hidden_size"), s.count("num_attention_heads")
    size = s.count("head_dim", width // heads or 1, most=MOST_CHANNELS)
    return {
        "block_count": s.count("num_hidden_layers", most=MOST_LAYERS),
        "context_length": s.count("max_position_embeddings", most=MOST_CONTEXT),
        "embedding_length": width,
        "feed_forward_length": s.count("intermediate_size"),
        "attention.head_count": heads,
        "attention.head_count_kv": s.count("num_key_value_heads", heads),
        "attention.key_length": size,
        "attention.value_length": size,
        "attention.layer_norm_rms_epsilon": s.positive("rms_norm_eps", 1e-6),
        "attention.sliding_window": s.count("sliding_window", 0, least=0),
        "rope.dimension_count": turned_channels(s),
        **rope_keys(s),
    }


def unwindowed_keys(s: FolderSettings) -> dict[str, object]:
    """Of models that name a window and do not use it."""
    if s.flag("use_sliding_window", False):
        raise s.error("use_sliding_window", "expected false: windows on some layers are not read")
    return {**folder_keys(s), "attention.sliding_window": 0}


NAMES = FolderNames(
    keys=folder_keys,
    made=rope_factors,
    prefixes=("model.", ""),
    outer={"token_embd": "embed_tokens", "output_norm": "norm"},
    heads={"output": "lm_head"},
    layer="layers.",
    block={
        "attn_norm": "input_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_q_norm": "self_attn.q_norm",
        "attn_k_norm": "self_attn.k_norm",
        "attn_output": "self_attn.o_proj",
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    },
)


# -- tensors ---------------------------------------------------------------------------------------


def outer_shapes(c: Config) -> Iterator[Expected]:
    """What stands outside the blocks. A file without output.weight uses its embedding twice."""
    yield Expected("token_embd.weight", (c.vocab, c.width))
    yield Expected("output_norm.weight", (c.width,))
    yield Expected("output.weight", (c.vocab, c.width), False)


def attention_shapes(
    c: Decoder, bias: bool = False, head_norms: bool = False
) -> Iterator[Expected]:
    """Norm, queries, keys, values and output of a block. Biases are used where the file has them;
    `bias`: it must."""
    q, kv = c.heads * c.head_size, c.kv_heads * c.head_size
    yield Expected("attn_norm.weight", (c.width,))
    for name, rows in (("attn_q", q), ("attn_k", kv), ("attn_v", kv)):
        yield Expected(f"{name}.weight", (rows, c.width))
        yield Expected(f"{name}.bias", (rows,), bias)
    yield Expected("attn_output.weight", (c.width, q))
    yield Expected("attn_output.bias", (c.width,), False)
    if head_norms:
        yield Expected("attn_q_norm.weight", (c.head_size,))
        yield Expected("attn_k_norm.weight", (c.head_size,))


def feed_forward_shapes(c: Decoder) -> Iterator[Expected]:
    """Norm and matrices of a feed-forward part."""
    yield Expected("ffn_norm.weight", (c.width,))
    yield from (
        expert_shapes(c, c.feed_forward) if isinstance(c.feed_forward, Experts) else gated_shapes(c)
    )


def gated_shapes(c: Decoder) -> Iterator[Expected]:
    """The three matrices of a dense part, with biases where the file has them."""
    hidden = c.feed_forward.hidden
    for name, rows, columns in (
        ("ffn_gate", hidden, c.width),
        ("ffn_up", hidden, c.width),
        ("ffn_down", c.width, hidden),
    ):
        yield Expected(f"{name}.weight", (rows, columns))
        yield Expected(f"{name}.bias", (rows,), False)


def expert_shapes(c: Decoder, experts: Experts) -> Iterator[Expected]:
    """The router, and the matrices of all experts."""
    yield Expected("ffn_gate_inp.weight", (experts.count, c.width))
    yield Expected("ffn_gate_exps.weight", (experts.count, experts.hidden, c.width))
    yield Expected("ffn_up_exps.weight", (experts.count, experts.hidden, c.width))
    yield Expected("ffn_down_exps.weight", (experts.count, c.width, experts.hidden))


def neighbours_turn(c: Decoder, name: str) -> np.ndarray | None:
    """The `order` for files whose rope pairs are (2i, 2i + 1); layers turn (i, i + pairs)."""
    short = name.split(".", 2)[-1] if name.startswith("blk.") else name
    if not short.startswith(TURNED):
        return None
    heads = c.heads if short.startswith("attn_q.") else c.kv_heads
    return rope_order(heads, c.head_size, 2 * len(c.rope.speeds))


# -- the step --------------------------------------------------------------------------------------


def keys_and_values(c: Decoder, slots: int, context: int, dtype: DType) -> tuple[ArrayType, ...]:
    return cache_types(c.layers, slots, c.kv_heads, context, c.head_size, dtype)


def embedded(c: Config, weights: Weights, batch: TokenBatch) -> Array:
    return layers.embedding(weights["token_embd.weight"], batch.tokens)


def layers_alike(c: Decoder) -> list[Layer]:
    return [Layer(c.rope, c.window)] * c.layers


def turns(kind: Layer, batch: TokenBatch, weights: Weights) -> Arrays:
    """cos and sin of the angles of every token."""
    return layers.rope_tables(kind.rope, batch.position)


def pre_norm_block(
    c: Decoder, weights: Weights, x: Array, at: BlockInputs
) -> tuple[Array, BlockInputs]:
    """The block of llama: a norm before each part, SiLU in the feed-forward part."""
    y, at = layers.attention(c, weights, layers.norm(x, weights, "attn_norm", c.epsilon), at)
    x = x + y
    y = layers.norm(x, weights, "ffn_norm", c.epsilon)
    return x + layers.feed_forward(c, weights, y, nn.silu), at


def output_norm(c: Decoder, weights: Weights, x: Array) -> Array:
    return layers.rms_norm(x, weights["output_norm.weight"], c.epsilon)


def output_matrix(c: Config, weights: Weights, x: Array) -> Array:
    return layers.head(x, weights.get("output.weight", weights["token_embd.weight"]))


D = TypeVar("D", bound=Decoder)


def decoder(
    name: str,
    *,
    shapes: Callable[[D], Iterable[Expected]],
    config: Callable[[Metadata, int, Factors], D] = decoder_config,  # type: ignore[assignment]
    block: Callable[[D, Weights, Array, BlockInputs], tuple[Array, BlockInputs]] = pre_norm_block,
    inputs: Callable[[D, Weights, TokenBatch], Array] = embedded,
    kinds: Callable[[D], Sequence[Layer]] = layers_alike,
    head: Callable[[D, Weights, Array], Array] = output_matrix,
    order: Callable[[D, str], np.ndarray | None] = as_in_the_file,
    folder: FolderNames | None = None,
) -> Architecture[D]:
    """An architecture that is like llama where nothing else is said."""
    return Architecture(
        name=name, config=config, outer=outer_shapes, shapes=shapes, state=ModelState(Keeps.TOKENS,
        keys_and_values),
        inputs=inputs, kinds=kinds, shared=turns, block=block, output=output_norm, head=head,
        order=order, folder=folder,
    )  # fmt: skip
