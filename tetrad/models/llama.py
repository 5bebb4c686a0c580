"""Llama and what is built like it (SmolLM2, Mistral, TinyLlama): pre-norm blocks, rotary positions, a gated
feed-forward part, or (Mixtral) a mixture of such parts. The file pairs rope channels (2i, 2i+1).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import tetrad as td
from tetrad import models
from tetrad.models.arch import Architecture, Tables, register
from tetrad.models.config import Config, Metadata, base_config, expert_config
from tetrad.models.shapes import Expected, attention_shapes, expert_shapes, gated_shapes
from tetrad.models.weights import Factors
from tetrad.tracing.array import Array

if TYPE_CHECKING:
    from tetrad.models.layers import Place, Weights


def config(meta: Metadata, vocab: int, factors: Factors) -> Config:
    experts = expert_config(meta) if meta.count("expert_count", 0, least=0) else {}
    return Config(**base_config(meta, vocab, factors("rope_freqs.weight")), **experts, is_interleaved=True)


def shapes(c: Config) -> Iterator[Expected]:
    yield from attention_shapes(c)
    yield from expert_shapes(c) if c.experts else gated_shapes(c)


def block(
    c: Config, weights: Weights, x: Array, place: Place, layer: Array, tables: Tables, window: int
) -> tuple[Array, Place]:
    layers = models.layers
    y = layers.norm(x, weights, "attn_norm", c.epsilon)
    y, place = layers.attention(c, weights, y, place, layer, tables, window)
    x = x + y
    y = layers.norm(x, weights, "ffn_norm", c.epsilon)
    return x + (layers.mixture(c, weights, y) if c.experts else layers.gated(weights, y, td.nn.silu)), place


register(Architecture("llama", config, shapes, block))
