"""Gemma 3 (text): the blocks of Gemma 2 without its caps; every head's query and key is normalised, five layers of six
see a window only, and those turn with a rope of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from tetrad.models.arch import Architecture, register
from tetrad.models.config import Config, Metadata, base_config, read_rope
from tetrad.models.gemma2 import block
from tetrad.models.shapes import Expected, attention_shapes, gated_shapes
from tetrad.models.weights import Factors

PERIOD = 6  # one layer of six sees everything, where the file does not say
LAYERS_OF_27B = 62


def config(meta: Metadata, vocab: int, factors: Factors) -> Config:
    fields = base_config(meta, vocab)
    if fields["layers"] == LAYERS_OF_27B:  # the file does not say that this one scales by the share of the width
        fields["scale"] = (fields["width"] // fields["heads"]) ** -0.5
    turned = 2 * len(fields["rope"].speeds)
    return Config(
        **fields,
        window_period=meta.count("attention.sliding_window_pattern", PERIOD),
        local_rope=read_rope(meta, turned, meta.positive("rope.freq_base_swa", 10000.0, above=1.0), None, scaled=False),
        score_cap=meta.number("attn_logit_softcapping", 0.0),
        logit_cap=meta.number("final_logit_softcapping", 0.0),
        embedding_scale=math.sqrt(fields["width"]),
    )


def shapes(c: Config) -> Iterator[Expected]:
    yield from attention_shapes(c, head_norms=True)
    yield Expected("post_attention_norm.weight", (c.width,))
    yield from gated_shapes(c)
    yield Expected("post_ffw_norm.weight", (c.width,))


register(Architecture("gemma3", config, shapes, block))
