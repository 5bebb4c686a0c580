"""Block format q3_k: d * (scale - 32) * (code - 4), 3-bit codes, blocks of 256 in sub-blocks of 16.

32 bytes of high bits, 64 bytes of low bits, 12 bytes of scales, d f16. Bit j of high byte l belongs
to element l of the j-th 32. Scales have 6 bits: low nibbles in the first 8 bytes, two high bits in
the last 4, folded as codes are.
"""

from __future__ import annotations

import numpy as np

from tetrad.quant.fields import F32, Factor, Levels, Plane, half_bytes
from tetrad.quant.format import Format, Parts
from tetrad.quant.lanes import register
from tetrad.quant.search import fit_signed

LEVEL_PLANES = (
    Plane(start=96, nbytes=8, bits=4, run=8),
    Plane(start=104, nbytes=4, bits=2, run=4, shift=4),
)
LEVELS = Levels(LEVEL_PLANES, offset=32)


def encode(x: F32) -> Parts:
    fit, codes = fit_signed(x, sub_block=16, half=4, scale_half=32)
    return codes, {
        108: half_bytes(fit.factor),
        **LEVELS.fields(fit.scales.astype(np.int8).view(np.uint8)),
    }


register(
    Format(
        name="q3_k",
        number=11,
        block=256,
        nbytes=110,
        bits=3,
        budget=0.0342,
        encode=encode,
        sub_block=16,
        offset=4,
        planes=(
            Plane(start=32, nbytes=64, bits=2, run=32),
            Plane(start=0, nbytes=32, bits=1, run=32, shift=2),
        ),
        factors=(Factor(108),),
        levels=LEVELS,
    )
)
