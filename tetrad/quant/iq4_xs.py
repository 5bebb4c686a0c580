"""Block format iq4_xs: d * (scale - 32) * table[code], 4-bit codes, blocks of 256 in sub-blocks of
32.

The code book is that of iq4_nl. d f16, 2 bytes with the high bit pairs of eight 6-bit scales, 4
bytes with their low nibbles, 128 bytes of nibbles. Each 16 bytes are a sub-block, whose nibbles lie
as in q4_0.
"""

from __future__ import annotations

import numpy as np

from tetrad.quant.fields import F32, Factor, Levels, Plane, half_bytes
from tetrad.quant.format import Format, Parts
from tetrad.quant.iq4_nl import BOOK
from tetrad.quant.lanes import register
from tetrad.quant.search import fit_book

LEVEL_PLANES = (
    Plane(start=4, nbytes=4, bits=4, run=1),
    Plane(start=2, nbytes=2, bits=2, run=1, shift=4),
)
LEVELS = Levels(LEVEL_PLANES, offset=32)


def encode(x: F32) -> Parts:
    fit, codes = fit_book(x, sub_block=32, book=BOOK, scale_half=32)
    return codes, {
        0: half_bytes(fit.factor),
        **LEVELS.fields(fit.scales.astype(np.int8).view(np.uint8)),
    }


register(
    Format(
        name="iq4_xs",
        number=23,
        block=256,
        nbytes=136,
        bits=4,
        budget=0.0161,
        encode=encode,
        sub_block=32,
        planes=(Plane(start=8, nbytes=128, bits=4, run=16),),
        table=BOOK.table,
        factors=(Factor(0),),
        levels=LEVELS,
    )
)
