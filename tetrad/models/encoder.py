"""Models, encoders: what encoders have in common. Every token of a text sees every other, so a text
is evaluated whole, in one step, and nothing of it is kept; there are hidden states in place of
logits.

Texts stand side by side in a step, without padding, and `slot` says where they begin. Many tokens
meet every weight, so those of floats are laid out in panels (`quant.panels`) when a model is
loaded, queries, keys and values as one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from tetrad.core.dtypes import DType, bf16
from tetrad.core.errors import SettingError
from tetrad.core.machine import LANES
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
    nothing_shared,
)
from tetrad.models.config import MOST_CONTEXT, MOST_LAYERS, Config, Metadata, common_fields
from tetrad.models.folder.settings import FolderSettings
from tetrad.models.folder.spelling import FolderNames
from tetrad.models.library import layers, td
from tetrad.models.shapes import Expected
from tetrad.models.weights import Factors, aligned_copy
from tetrad.quant.panels import BYTES, HALVES, in_bytes, panels_of
from tetrad.tracing.array import Array

QKV, ENDS = ("attn_q", "attn_k", "attn_v"), ("weight", "bias")


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


def in_panels(c: Encoder, weights: dict[str, Array], dtype: str) -> dict[str, Array]:
    """Matrices of floats in panels, of `dtype` where one is asked for; queries, keys and values as
    one where their weights allow."""
    parts = [{end: weights.get(f"{name}.{end}") for end in ENDS} for name in QKV]
    kept = dict(weights)
    if can_stack(parts):
        for end in ENDS:
            rows = [part[end] for part in parts if part[end] is not None]
            kept |= {f"attn_qkv.{end}": stacked(rows)} if rows else {}
        kept = {name: w for name, w in kept.items() if name.rpartition(".")[0] not in QKV}
    made: dict[str, Array] = {}
    for name, weight in kept.items():
        made |= laid(name, weight, dtype) if fills_panels(weight) else {name: weight}
    return made


def laid(name: str, weight: Array, dtype: str) -> dict[str, Array]:
    """In panels; a weight in 8 bits has scales and offsets beside it."""
    if dtype == "int8" and weight.shape[1] % BYTES == 0:
        parts, stem = in_bytes(weight.memory), name.removesuffix(".weight")
        names = (name, f"{stem}.scale", f"{stem}.offset")
        return dict(zip(names, map(placed, parts), strict=True))
    if dtype == "bf16" and weight.shape[1] % HALVES == 0:
        return {name: placed(panels_of(weight.memory.astype(bf16.np), HALVES))}
    wide = weight.memory.astype(np.float32) if dtype == "f32" else weight.memory
    return {name: placed(panels_of(wide))}


def placed(values: np.ndarray) -> Array:
    return Array.from_numpy(aligned_copy(values))


def can_stack(parts: Sequence[Mapping[str, Array | None]]) -> bool:
    """All there, of floats of one type, and all with a bias or none."""
    found = [part["weight"] for part in parts]
    kinds = {None if w is None or not fills_panels(w) else w.dtype for w in found}
    return len(kinds) == 1 and None not in kinds and len({p["bias"] is None for p in parts}) == 1


def fills_panels(weight: Array) -> bool:
    return weight.ndim == 2 and weight.dtype.is_float and weight.shape[0] % LANES == 0


def stacked(rows: Sequence[Array | None]) -> Array:
    return Array.from_numpy(np.concatenate([row.memory for row in rows if row is not None]))


# -- the step --------------------------------------------------------------------------------------


def no_state(c: Encoder, slots: int, context: int, dtype: DType) -> tuple[ArrayType, ...]:
    if context > c.context:
        raise SettingError(
            "context", f"at most the {c.context} tokens that {c.arch} was trained for", context
        )
    return ()


def embedded(c: Encoder, weights: Weights, batch: TokenBatch) -> Array:
    """Token and type."""
    x = layers.embedding(weights["token_embd.weight"], batch.tokens)
    types = weights.get("token_types.weight")
    if types is not None and batch.types is not None:
        x += layers.embedding(types, batch.types)
    return x


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
    shared: Callable[[Any, TokenBatch, Weights], Arrays] = nothing_shared,
    output: Callable[[E, Weights, Array], Array] = as_they_are,
    kinds: Callable[[E], Any] = all_alike,
    folder: FolderNames | None = None,
    classify: Callable[[E, Weights, Array], Array] | None = None,
) -> Architecture[E]:
    """An architecture whose tokens see the whole text, like bert where nothing else is said."""
    return Architecture(
        name=name, config=config, outer=outer, shapes=shapes, state=ModelState(Keeps.NOTHING,
        no_state),
        inputs=inputs, kinds=kinds, shared=shared, block=block, output=output, head=None,
        order=as_in_the_file, prepare=in_panels, folder=folder, classify=classify,
    )  # fmt: skip
