"""A toy architecture whose state is no cache: every block mixes a token into one vector per
sequence and layer.

    h = tanh(decay * h + x w^T),  x = x + h

It shows what an architecture must say that is neither decoder nor encoder, and is registered by the
tests only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import tetrad as td
from tests.models.tiny import fan, near, normal, tokenizer_keys
from tetrad.core.dtypes import DType, f32
from tetrad.core.record import record
from tetrad.core.types import ArrayType
from tetrad.models.arch import (
    Architecture,
    BlockInputs,
    Keeps,
    ModelState,
    Weights,
    all_alike,
    as_in_the_file,
    nothing_shared,
)
from tetrad.models.config import Config, Metadata, common_fields
from tetrad.models.decoder import embedded, output_matrix
from tetrad.models.library import layers
from tetrad.models.shapes import Expected
from tetrad.models.weights import Factors
from tetrad.tracing.array import Array

NAME = "toy-recurrent"


@record
class Recurrent(Config):
    """The numbers of the toy."""

    decay: float


def config(meta: Metadata, vocab: int, factors: Factors) -> Recurrent:
    return Recurrent(**common_fields(meta, vocab), decay=meta.positive("decay"))


def outer(c: Recurrent) -> Iterator[Expected]:
    yield Expected("token_embd.weight", (c.vocab, c.width))


def shapes(c: Recurrent) -> Iterator[Expected]:
    yield Expected("mix.weight", (c.width, c.width))
    yield Expected("mix.bias", (c.width,))


def state(c: Recurrent, slots: int, context: int, dtype: DType) -> tuple[ArrayType, ...]:
    return (ArrayType(f32, (c.layers, slots, c.width)),)


def block(c: Recurrent, weights: Weights, x: Array, at: BlockInputs) -> tuple[Array, BlockInputs]:
    (every,) = at.state
    mine = td.arange(every.shape[0]) == at.layer  # [layers]
    slots = td.arange(every.shape[1])

    def token(held: Array, given: Any) -> tuple[Array, Array]:
        """`held` f32[slots, width]; a token at position 0 begins anew, one below 0 is filling."""
        mixed, slot, position = given
        before = td.where(position == 0, 0.0, td.take(held, slot, axis=0))
        after = td.tanh(c.decay * before + mixed)
        is_here = (slots == slot) & (position >= 0)
        return td.where(is_here[:, None], after, held), after

    held = td.take(every, at.layer, axis=0)
    held, made = td.scan(token, held, (layers.linear(x, weights, "mix"), at.slot, at.position))
    return x + made, at.with_state([td.where(mine[:, None, None], held, every)])


def output(c: Recurrent, weights: Weights, x: Array) -> Array:
    return x


TOY: Architecture[Recurrent] = Architecture(
    name=NAME, config=config, outer=outer, shapes=shapes, state=ModelState(Keeps.LAST, state),
    inputs=embedded,
    kinds=all_alike, shared=nothing_shared, block=block, output=output, head=output_matrix,
    order=as_in_the_file,
)  # fmt: skip


def tiny_recurrent(
    layers: int = 2, width: int = 32, words: int = 300
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    own = {"block_count": layers, "context_length": 128, "embedding_length": width, "decay": 0.9}
    rng = np.random.RandomState(0)
    tensors = {"token_embd.weight": normal(rng, words, width, scale=0.7)}
    for i in range(layers):
        tensors[f"blk.{i}.mix.weight"] = normal(rng, width, width, scale=fan(width))
        tensors[f"blk.{i}.mix.bias"] = near(rng, 0.0, width)
    general = {"general.architecture": NAME, "general.name": "tiny"}
    return general | {f"{NAME}.{key}": value for key, value in own.items()} | tokenizer_keys(
        words
    ), tensors


def forward(
    metadata: dict[str, Any], tensors: dict[str, np.ndarray], tokens: np.ndarray
) -> np.ndarray:
    """Logits [tokens, words] in f64."""
    x = tensors["token_embd.weight"][tokens].astype(np.float64)
    for i in range(metadata[f"{NAME}.block_count"]):
        mixed = (
            x @ tensors[f"blk.{i}.mix.weight"].T.astype(np.float64) + tensors[f"blk.{i}.mix.bias"]
        )
        h, made = np.zeros(x.shape[1]), []
        for row in mixed:
            h = np.tanh(metadata[f"{NAME}.decay"] * h + row)
            made.append(h)
        x = x + np.array(made)
    return np.asarray(x @ tensors["token_embd.weight"].T.astype(np.float64))
