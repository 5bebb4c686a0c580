"""Phi-3 and Phi-4: the blocks of llama with stacked weights (queries over keys over values, gate over up), rope on part
of a head, and two sets of rope factors: one up to the context the model was first trained for, one beyond it.
"""

from __future__ import annotations

from collections.abc import Iterator

from tetrad.models.arch import Architecture, register
from tetrad.models.config import Config, Metadata, base_config
from tetrad.models.llama import block
from tetrad.models.shapes import Expected
from tetrad.models.weights import Factors


def config(meta: Metadata, vocab: int, factors: Factors) -> Config:
    whole = meta.count("context_length")
    short = meta.count("rope.scaling.original_context_length", whole)
    name = "rope_factors_long.weight" if (meta.context or whole) > short else "rope_factors_short.weight"
    return Config(**base_config(meta, vocab, factors(name)))


def shapes(c: Config) -> Iterator[Expected]:
    heads = c.heads * c.head_size
    yield Expected("attn_norm.weight", (c.width,))
    yield Expected("attn_qkv.weight", (heads + 2 * c.kv_heads * c.head_size, c.width))
    yield Expected("attn_output.weight", (c.width, heads))
    yield Expected("ffn_norm.weight", (c.width,))
    yield Expected("ffn_up.weight", (2 * c.hidden, c.width))
    yield Expected("ffn_down.weight", (c.width, c.hidden))


register(Architecture("phi3", config, shapes, block))
