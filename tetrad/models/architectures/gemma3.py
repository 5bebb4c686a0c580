"""Gemma 3 (text): the blocks of Gemma 2 without its caps; every head's query and key is normalised,
five layers of six see a window only, and those turn with a rope of their own.
"""

from __future__ import annotations

from collections.abc import Iterator

from tetrad.core.record import record
from tetrad.models.arch import register
from tetrad.models.architectures.gemma2 import Gemma, block, gemma_fields, head, inputs, is_windowed
from tetrad.models.config import Metadata
from tetrad.models.decoder import Layer, attention_shapes, decoder, feed_forward_shapes
from tetrad.models.rope import Rope, read_rope
from tetrad.models.shapes import Expected
from tetrad.models.weights import Factors

PERIOD = 6  # one layer of six sees everything, where the file does not say
LAYERS_OF_27B = 62


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
        "gemma3", config=config, shapes=shapes, kinds=kinds, inputs=inputs, block=block, head=head
    )
)
