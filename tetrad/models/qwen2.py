"""Qwen2: the blocks of llama, with biases on queries, keys and values; rope pairs (i, i + half)."""

from __future__ import annotations

from collections.abc import Iterator

from tetrad.models.arch import Architecture, register
from tetrad.models.config import Config, Metadata, base_config
from tetrad.models.llama import block
from tetrad.models.shapes import Expected, attention_shapes, gated_shapes
from tetrad.models.weights import Factors


def config(meta: Metadata, vocab: int, factors: Factors) -> Config:
    return Config(**base_config(meta, vocab, factors("rope_freqs.weight")))


def shapes(c: Config) -> Iterator[Expected]:
    yield from attention_shapes(c, bias=True)
    yield from gated_shapes(c)


register(Architecture("qwen2", config, shapes, block))
