"""Models, encoders: what encoders have in common. Every token of a text sees every other, so a text
is evaluated whole, in one step, and nothing of it is kept; there are hidden states in place of
logits.

Texts stand side by side in a step as the sequences of decoders do, and attention is the same op:
the keys and values of the block at work lie in an array that the next block writes over, and a
token looks as far as its text goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from tetrad.core.dtypes import DType, f32
from tetrad.core.errors import SettingError
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
    all_alike,
    as_in_the_file,
)
from tetrad.models.caches import cache_types
from tetrad.models.config import MOST_CONTEXT, MOST_LAYERS, Config, Metadata, common_fields
from tetrad.models.folder.settings import FolderSettings
from tetrad.models.folder.spelling import FolderNames
from tetrad.models.library import layers, td
from tetrad.models.shapes import Expected
from tetrad.models.weights import Factors
from tetrad.tracing.array import Array


@record
class Encoder(Config):
    """The numbers of an encoder."""

    heads: int
    head_size: int
    hidden: int
    epsilon: float
    token_types: int  # rows of token_types.weight


def encoder_fields(meta: Metadata, vocab: int) -> dict[str, Any]:
    """The fields of `Encoder`."""
    fields, heads = common_fields(meta, vocab), meta.count("attention.head_count")
    size, rest = divmod(fields["width"], heads)
    if rest or size % 16:
        problem = (
            f"{heads} heads of {fields['width']} channels are not supported: each needs a "
            "multiple of 16"
        )
        raise meta.error(f"{meta.arch}.attention.head_count", problem)
    if meta.flag("attention.causal", False):
        raise meta.error(
            f"{meta.arch}.attention.causal",
            "expected false: in an encoder a token sees the whole text",
        )
    return {
        **fields,
        "heads": heads,
        "head_size": size,
        "hidden": meta.count("feed_forward_length"),
        "epsilon": meta.positive("attention.layer_norm_epsilon"),
        "token_types": token_types(meta),
    }


def token_types(meta: Metadata) -> int:
    """A key of the tokeniser, and not of the architecture."""
    key = "tokenizer.ggml.token_type_count"
    return Metadata({f"{meta.arch}.{key}": meta.values.get(key, 2)}, meta.path, meta.arch).count(
        key
    )


def folder_keys(s: FolderSettings) -> dict[str, object]:
    """The same from the config.json of BERT and its relatives."""
    s.word("hidden_act", "gelu", ("gelu",))
    s.word("position_embedding_type", "absolute", ("absolute",))
    return {
        "block_count": s.count("num_hidden_layers", most=MOST_LAYERS),
        "context_length": s.count("max_position_embeddings", most=MOST_CONTEXT),
        "embedding_length": s.count("hidden_size"),
        "feed_forward_length": s.count("intermediate_size"),
        "attention.head_count": s.count("num_attention_heads"),
        "attention.layer_norm_epsilon": s.positive("layer_norm_eps", 1e-12),
        "tokenizer.ggml.token_type_count": s.count("type_vocab_size", 2),
    }


# -- tensors ---------------------------------------------------------------------------------------


def norm_shapes(c: Config, name: str) -> Iterator[Expected]:
    yield Expected(f"{name}.weight", (c.width,))
    yield Expected(f"{name}.bias", (c.width,))


def linear_shapes(name: str, rows: int, columns: int) -> Iterator[Expected]:
    """A matrix, with a bias where the file has one."""
    yield Expected(f"{name}.weight", (rows, columns))
    yield Expected(f"{name}.bias", (rows,), False)


def head_shapes(c: Encoder) -> Iterator[Expected]:
    """What ranks texts, where a file has it: a dense layer, and one number of its result."""
    yield Expected("cls.weight", (c.width, c.width), False)
    yield Expected("cls.bias", (c.width,), False)
    yield Expected("cls.output.weight", (1, c.width), False)
    yield Expected("cls.output.bias", (1,), False)


def outer_shapes(c: Encoder) -> Iterator[Expected]:
    yield Expected("token_embd.weight", (c.vocab, c.width))
    yield Expected("token_types.weight", (c.token_types, c.width), False)
    yield from norm_shapes(c, "token_embd_norm")


# -- the step --------------------------------------------------------------------------------------


def one_block(c: Encoder, slots: int, context: int, dtype: DType) -> tuple[ArrayType, ...]:
    """Room for the keys and values of the block at work; they are not kept, so they need not be
    small."""
    if context > c.context:
        raise SettingError(
            "context", f"at most the {c.context} tokens that {c.arch} was trained for", context
        )
    return cache_types(1, slots, c.heads, context, c.head_size, f32)


def ends(kind: object, batch: TokenBatch) -> Arrays:
    """The last position of every token's text: so far it sees."""
    together = batch.slot[:, None] == batch.slot[None, :]
    return (td.max(td.where(together, batch.position[None, :], 0), axis=1),)


def embedded(c: Encoder, weights: Weights, batch: TokenBatch) -> Array:
    """Token and type: all of a text is of the first type."""
    x = layers.embedding(weights["token_embd.weight"], batch.tokens)
    types = weights.get("token_types.weight")
    return x if types is None else x + types[0]


def normalised(c: Encoder, weights: Weights, batch: TokenBatch) -> Array:
    return layers.layer_norm(embedded(c, weights, batch), weights, "token_embd_norm", c.epsilon)


def tanh_head(c: Encoder, weights: Weights, x: Array) -> Array:
    """Scores from the first states of texts."""
    return layers.linear(td.tanh(layers.linear(x, weights, "cls")), weights, "cls.output")


def as_they_are(c: Config, weights: Weights, x: Array) -> Array:
    return x


E = TypeVar("E", bound=Encoder)


def encoder(
    name: str,
    *,
    config: Callable[[Metadata, int, Factors], E],
    shapes: Callable[[E], Iterable[Expected]],
    block: Callable[[E, Weights, Array, BlockInputs], tuple[Array, BlockInputs]],
    outer: Callable[[E], Iterable[Expected]] = outer_shapes,
    inputs: Callable[[E, Weights, TokenBatch], Array] = normalised,
    shared: Callable[[Any, TokenBatch], Arrays] = ends,
    kinds: Callable[[E], Any] = all_alike,
    folder: FolderNames | None = None,
    classify: Callable[[E, Weights, Array], Array] | None = None,
) -> Architecture[E]:
    """An architecture whose tokens see the whole text, like bert where nothing else is said."""
    return Architecture(
        name=name, config=config, outer=outer, shapes=shapes, state=ModelState(Keeps.NOTHING,
        one_block),
        inputs=inputs, kinds=kinds, shared=shared, block=block, output=as_they_are, head=None,
        order=as_in_the_file, folder=folder, classify=classify,
    )  # fmt: skip
