"""Qwen3 with mixtures of experts: attention as in Qwen3, and in every block many small feed-forward parts."""

from __future__ import annotations

from collections.abc import Iterator

from tetrad.models.arch import Architecture, register
from tetrad.models.config import Config, Metadata, base_config, expert_config
from tetrad.models.llama import block
from tetrad.models.shapes import Expected, attention_shapes, expert_shapes
from tetrad.models.weights import Factors


def config(meta: Metadata, vocab: int, factors: Factors) -> Config:
    return Config(**base_config(meta, vocab, factors("rope_freqs.weight")), **expert_config(meta))


def shapes(c: Config) -> Iterator[Expected]:
    yield from attention_shapes(c, head_norms=True)
    yield from expert_shapes(c)


register(Architecture("qwen3moe", config, shapes, block))
