"""Gemma 3 (text): the blocks of Gemma 2 without its caps; every head's query and key is normalised,
five layers of six see a window only, and those turn with a rope of their own.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tetrad.core.record import record, replace
from tetrad.models.arch import register
from tetrad.models.architectures.gemma2 import Gemma, block, gemma_fields, head, inputs, is_windowed
from tetrad.models.config import Metadata
from tetrad.models.decoder import (
    NAMES,
    Layer,
    attention_shapes,
    decoder,
    feed_forward_shapes,
    folder_keys,
)
from tetrad.models.folder.rope import rope_keys, rope_settings
from tetrad.models.folder.settings import FolderSettings
from tetrad.models.folder.spelling import nothing_more
from tetrad.models.rope import Rope, read_rope
from tetrad.models.shapes import Expected
from tetrad.models.weights import Factors

PERIOD = 6  # one layer of six sees everything, where the file does not say
LAYERS_OF_27B = 62


def keys(s: FolderSettings) -> dict[str, object]:
    s.word("hidden_activation", "gelu_pytorch_tanh", ("gelu_pytorch_tanh",))
    if s.flag("use_bidirectional_attention", False):
        raise s.error("use_bidirectional_attention", "expected false")
    local = rope_settings(s, "sliding_attention")
    base = s.value("rope_local_base_freq", local.value("rope_theta", 1e4))
    scale = s.positive("query_pre_attn_scalar", 256.0) ** -0.5
    return {
        **folder_keys(s.with_fields({"hidden_act": "silu", "head_dim": s.value("head_dim", 256)})),
        **rope_keys(s, "full_attention"),
        "rope.freq_base_swa": s.with_fields({"rope_local_base_freq": base}).positive(
            "rope_local_base_freq"
        ),
        "attention.scale": scale,
        "attention.sliding_window_pattern": period_of(s),
        "attn_logit_softcapping": s.number("attn_logit_softcapping", 0.0),
        "final_logit_softcapping": s.number("final_logit_softcapping", 0.0),
    }


def period_of(s: FolderSettings) -> int:
    """The last layer of so many sees everything, which the list of layers must agree with."""
    kinds = s.words("layer_types")
    usual = s.count(s.first_of("sliding_window_pattern", "_sliding_window_pattern"), PERIOD)
    full = [i for i, kind in enumerate(kinds) if kind == "full_attention"]
    period = full[0] + 1 if full else max(usual, len(kinds) + 1)
    wanted = [
        "full_attention" if i % period == period - 1 else "sliding_attention"
        for i in range(len(kinds))
    ]
    if kinds and kinds != wanted:
        raise s.error("layer_types", "expected a layer that sees everything at equal distances")
    return period if kinds else usual


def plus_one(weight: np.ndarray, s: FolderSettings) -> np.ndarray:
    """Norms scale by 1 + weight there."""
    return weight + np.float32(1)


NORMS = {
    "ffn_norm": "pre_feedforward_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
FOLDER = replace(
    NAMES,
    keys=keys,
    made=nothing_more,
    prefixes=("model.", "language_model.model.", "model.language_model."),
    block={**NAMES.block, **NORMS},
    unused=("vision_tower.", "multi_modal_projector."),
    changes=dict.fromkeys(
        ("output_norm", "attn_norm", "attn_q_norm", "attn_k_norm", *NORMS), plus_one
    ),
)


@record
class Gemma3(Gemma):
    """The numbers of a Gemma 3."""

    local_rope: Rope  # of the layers with a window


def config(meta: Metadata, vocab: int, factors: Factors) -> Gemma3:
    fields = gemma_fields(meta, vocab, PERIOD, LAYERS_OF_27B)
    turned, base = (
        2 * len(fields["rope"].speeds),
        meta.positive("rope.freq_base_swa", 10000.0, above=1.0),
    )
    return Gemma3(**fields, local_rope=read_rope(meta, turned, base, None, scaled=False))


def shapes(c: Gemma3) -> Iterator[Expected]:
    yield from attention_shapes(c, head_norms=True)
    yield Expected("post_attention_norm.weight", (c.width,))
    yield from feed_forward_shapes(c)
    yield Expected("post_ffw_norm.weight", (c.width,))


def kinds(c: Gemma3) -> list[Layer]:
    return [
        Layer(c.local_rope, c.window) if is_windowed(c, i) else Layer(c.rope, 0)
        for i in range(c.layers)
    ]


register(
    decoder(
        "gemma3", config=config, shapes=shapes, kinds=kinds, inputs=inputs, block=block, head=head,
        folder=FOLDER,
    )
)  # fmt: skip
