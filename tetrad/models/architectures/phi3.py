"""Phi-3 and Phi-4: the blocks of llama with stacked weights (queries over keys over values, gate
over up), rope on part of a head, and two sets of rope factors: one up to the context the model was
first trained for, one beyond it.
"""

from __future__ import annotations

from collections.abc import Iterator

from tetrad.core.record import replace
from tetrad.models.arch import register
from tetrad.models.config import MOST_CONTEXT, Metadata
from tetrad.models.decoder import NAMES, Decoder, decoder, decoder_fields
from tetrad.models.shapes import Expected
from tetrad.models.weights import Factors


def config(meta: Metadata, vocab: int, factors: Factors) -> Decoder:
    whole = meta.count("context_length", most=MOST_CONTEXT)
    short = meta.count("rope.scaling.original_context_length", whole)
    name = (
        "rope_factors_long.weight"
        if (meta.context or whole) > short
        else "rope_factors_short.weight"
    )
    return Decoder(**decoder_fields(meta, vocab, factors(name)))


def shapes(c: Decoder) -> Iterator[Expected]:
    heads, hidden = c.heads * c.head_size, c.feed_forward.hidden
    yield Expected("attn_norm.weight", (c.width,))
    yield Expected("attn_qkv.weight", (heads + 2 * c.kv_heads * c.head_size, c.width))
    yield Expected("attn_output.weight", (c.width, heads))
    yield Expected("ffn_norm.weight", (c.width,))
    yield Expected("ffn_up.weight", (2 * hidden, c.width))
    yield Expected("ffn_down.weight", (c.width, hidden))


STACKED = {"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"}
FOLDER = replace(NAMES, block={**NAMES.block, **STACKED})

register(decoder("phi3", config=config, shapes=shapes, folder=FOLDER))
