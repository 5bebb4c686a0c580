"""Block format q4_k: d * scale * code - dmin * min, 4-bit codes, blocks of 256 in sub-blocks of 32.

d f16, dmin f16, 12 bytes with eight 6-bit scales and mins, 128 bytes of nibbles.
Nibbles come 32 bytes at a time: the low ones are one sub-block, the high ones the next.
"""

from __future__ import annotations

import numpy as np

from tetrad.quant.fields import F32, Factor, Plane, SixBitPairs, half_bytes
from tetrad.quant.format import Format, Parts
from tetrad.quant.lanes import register
from tetrad.quant.search import fit_with_mins

LEVELS = SixBitPairs(4)


def encode(x: F32, top: int = 15) -> Parts:
    fit, codes = fit_with_mins(x, sub_block=32, top=top, scale_top=63)
    levels = np.concatenate([fit.scales, fit.mins], axis=1).astype(np.uint8)
    return codes, {
        0: half_bytes(fit.factor),
        2: half_bytes(fit.min_factor),
        **LEVELS.fields(levels),
    }


register(
    Format(
        name="q4_k",
        number=12,
        block=256,
        nbytes=144,
        bits=4,
        budget=0.0169,
        encode=encode,
        sub_block=32,
        planes=(Plane(start=16, nbytes=128, bits=4, run=32),),
        factors=(Factor(0), Factor(2)),
        levels=LEVELS,
    )
)
