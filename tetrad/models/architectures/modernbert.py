"""ModernBERT: norms before each part, rotary positions, a gated feed-forward part with GELU; one
layer of three sees the whole text, the others only near tokens, with a rope of their own.
"""

from __future__ import annotations

from collections.abc import Iterator

from tetrad.core.record import record
from tetrad.models.arch import Arrays, BlockInputs, TokenBatch, Weights, register
from tetrad.models.config import MOST_CONTEXT, MOST_LAYERS, Metadata
from tetrad.models.encoder import Encoder, encoder, encoder_fields, head_shapes, linear_shapes
from tetrad.models.folder.rope import rope_settings
from tetrad.models.folder.settings import FolderSettings
from tetrad.models.folder.spelling import FolderNames
from tetrad.models.library import layers, nn
from tetrad.models.rope import Rope, read_rope
from tetrad.models.shapes import Expected
from tetrad.models.weights import Factors
from tetrad.tracing.array import Array

PERIOD = 3  # the first layer of so many sees everything, where nothing else is said


@record
class ReachLayer:
    """What tells layers apart."""

    rope: Rope
    window: int  # tokens seen to each side; 0: all


@record
class ModernBert(Encoder):
    """The numbers of a ModernBERT."""

    layer_kinds: tuple[ReachLayer, ...]


def keys(s: FolderSettings) -> dict[str, object]:
    for name in ("hidden_activation", "classifier_activation"):
        s.word(name, "gelu", ("gelu",))
    return {
        "block_count": s.count("num_hidden_layers", most=MOST_LAYERS),
        "context_length": s.count("max_position_embeddings", most=MOST_CONTEXT),
        "embedding_length": s.count("hidden_size"),
        "feed_forward_length": s.count("intermediate_size"),
        "attention.head_count": s.count("num_attention_heads"),
        "attention.layer_norm_epsilon": s.positive("norm_eps", 1e-5),
        "attention.sliding_window": s.count("local_attention", 128),
        "attention.sliding_window_pattern": period_of(s),
        "rope.freq_base": base_of(s, "full_attention", "global_rope_theta", 160000.0),
        "rope.freq_base_swa": base_of(s, "sliding_attention", "local_rope_theta", 10000.0),
        "classifier_pooling": s.word("classifier_pooling", "cls", ("cls", "mean")),
    }


def base_of(s: FolderSettings, layers: str, old: str, usual: float) -> float:
    if s.has("rope_parameters"):
        return rope_settings(s, layers).positive("rope_theta")
    return s.positive(old, usual)


def period_of(s: FolderSettings) -> int:
    """The first layer of so many sees everything, which the list of layers must agree with."""
    period, kinds = s.count("global_attn_every_n_layers", PERIOD), s.words("layer_types")
    full = [i for i, kind in enumerate(kinds) if kind == "full_attention"]
    period = full[1] if len(full) > 1 else max(period, len(kinds)) if kinds else period
    wanted = ["sliding_attention" if i % period else "full_attention" for i, _ in enumerate(kinds)]
    if kinds != wanted:
        raise s.error("layer_types", "expected a layer that sees everything at equal distances")
    return period


NAMES = FolderNames(
    keys=keys,
    prefixes=("", "model."),
    outer={
        "token_embd": "embeddings.tok_embeddings",
        "token_embd_norm": "embeddings.norm",
        "output_norm": "final_norm",
    },
    layer="layers.",
    block={
        "attn_norm": "attn_norm",
        "attn_qkv": "attn.Wqkv",
        "attn_output": "attn.Wo",
        "ffn_norm": "mlp_norm",
        "ffn_up": "mlp.Wi",
        "ffn_down": "mlp.Wo",
    },
    heads={"cls": "head.dense", "cls_norm": "head.norm", "cls.output": "classifier"},
    unused=("decoder.",),
)


def config(meta: Metadata, vocab: int, factors: Factors) -> ModernBert:
    fields = encoder_fields(meta, vocab)
    size = fields["head_size"]
    bases = [
        meta.positive("rope.freq_base", 160000.0, above=1.0),
        meta.positive("rope.freq_base_swa", 10000.0, above=1.0),
    ]
    whole, near = (read_rope(meta, size, base, None, scaled=False) for base in bases)
    window = meta.count("attention.sliding_window", 128) // 2
    period = meta.count("attention.sliding_window_pattern", PERIOD)
    kinds = [
        ReachLayer(near, window) if i % period else ReachLayer(whole, 0)
        for i in range(fields["layers"])
    ]
    return ModernBert(**fields, layer_kinds=tuple(kinds))


def norm_shapes(c: ModernBert, name: str, from_block: int = 0) -> Iterator[Expected]:
    """A norm, with a bias where the file has one."""
    yield Expected(f"{name}.weight", (c.width,), from_block=from_block)
    yield Expected(f"{name}.bias", (c.width,), False, from_block)


def outer(c: ModernBert) -> Iterator[Expected]:
    yield Expected("token_embd.weight", (c.vocab, c.width))
    yield from norm_shapes(c, "token_embd_norm")
    yield from norm_shapes(c, "output_norm")
    yield from head_shapes(c)
    yield Expected("cls_norm.weight", (c.width,), False)
    yield Expected("cls_norm.bias", (c.width,), False)


def shapes(c: ModernBert) -> Iterator[Expected]:
    yield from norm_shapes(c, "attn_norm", from_block=1)  # what enters the first is normalised
    yield from linear_shapes("attn_qkv", 3 * c.width, c.width)
    yield from linear_shapes("attn_output", c.width, c.width)
    yield from norm_shapes(c, "ffn_norm")
    yield from linear_shapes("ffn_up", 2 * c.hidden, c.width)
    yield from linear_shapes("ffn_down", c.width, c.hidden)


def kinds(c: ModernBert) -> tuple[ReachLayer, ...]:
    return c.layer_kinds


def shared(kind: ReachLayer, batch: TokenBatch, weights: Weights) -> Arrays:
    return layers.rope_tables(kind.rope, batch.position)


def block(c: ModernBert, weights: Weights, x: Array, at: BlockInputs) -> tuple[Array, BlockInputs]:
    is_first = "attn_norm.weight" not in weights
    y = x if is_first else layers.layer_norm(x, weights, "attn_norm", c.epsilon)
    y, at = layers.attention_to_all(c, weights, y, at, window=at.kind.window)
    x = x + y
    y = layers.layer_norm(x, weights, "ffn_norm", c.epsilon)
    return x + layers.gated(weights, y, exact_gelu), at


def exact_gelu(x: Array) -> Array:
    return nn.gelu(x, approximate=False)


def output(c: ModernBert, weights: Weights, x: Array) -> Array:
    return layers.layer_norm(x, weights, "output_norm", c.epsilon)


def classify(c: ModernBert, weights: Weights, x: Array) -> Array:
    y = exact_gelu(layers.linear(x, weights, "cls"))
    return layers.linear(
        layers.layer_norm(y, weights, "cls_norm", c.epsilon), weights, "cls.output"
    )


register(
    encoder(
        "modernbert", config=config, outer=outer, shapes=shapes, kinds=kinds, shared=shared,
        block=block, output=output, folder=NAMES, classify=classify,
    )
)  # fmt: skip
