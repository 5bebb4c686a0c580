"""Gemma 2: norms before and after each part of a block, every other layer sees a window only, attention scores and
logits are capped by a tanh, the embedding is scaled; rope pairs (i, i + half).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import tetrad as td
from tetrad import models
from tetrad.models.arch import Architecture, Tables, register
from tetrad.models.config import Config, Metadata, base_config
from tetrad.models.shapes import Expected, attention_shapes, gated_shapes
from tetrad.models.weights import Factors
from tetrad.tracing.array import Array

if TYPE_CHECKING:
    from tetrad.models.layers import Place, Weights

PERIOD = 2  # one layer of two sees everything, where the file does not say
LAYERS_OF_27B = 46


def config(meta: Metadata, vocab: int, factors: Factors) -> Config:
    fields = base_config(meta, vocab)
    if fields["layers"] == LAYERS_OF_27B:  # the file does not say that this one scales by the share of the width
        fields["scale"] = (fields["width"] // fields["heads"]) ** -0.5
    return Config(
        **fields,
        window_period=meta.count("attention.sliding_window_pattern", PERIOD),
        score_cap=meta.number("attn_logit_softcapping", 0.0),
        logit_cap=meta.number("final_logit_softcapping", 0.0),
        embedding_scale=math.sqrt(fields["width"]),
    )


def shapes(c: Config) -> Iterator[Expected]:
    yield from attention_shapes(c)
    yield Expected("post_attention_norm.weight", (c.width,))
    yield from gated_shapes(c)
    yield Expected("post_ffw_norm.weight", (c.width,))


def block(
    c: Config, weights: Weights, x: Array, place: Place, layer: Array, tables: Tables, window: int
) -> tuple[Array, Place]:
    layers = models.layers
    y = layers.norm(x, weights, "attn_norm", c.epsilon)
    y, place = layers.attention(c, weights, y, place, layer, tables, window)
    x = x + layers.norm(y, weights, "post_attention_norm", c.epsilon)
    y = layers.gated(weights, layers.norm(x, weights, "ffn_norm", c.epsilon), td.nn.gelu)
    return x + layers.norm(y, weights, "post_ffw_norm", c.epsilon), place


register(Architecture("gemma2", config, shapes, block))
