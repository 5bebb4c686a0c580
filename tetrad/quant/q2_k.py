"""Block format q2_k: d * scale * code - dmin * min, 2-bit codes, blocks of 256 in sub-blocks of 16.

16 bytes with a 4-bit scale (low) and min (high) each, 64 bytes of codes, d f16, dmin f16. Codes
come 32 bytes at a time; each pair of bits, from the lowest, is the next 32 elements.
"""

from __future__ import annotations

import numpy as np

from tetrad.quant.fields import F32, Factor, Levels, Plane, half_bytes
from tetrad.quant.format import Format, Parts
from tetrad.quant.lanes import register
from tetrad.quant.search import fit_with_mins

LEVELS = Levels((Plane(start=0, nbytes=16, bits=4, run=16),))


def encode(x: F32) -> Parts:
    fit, codes = fit_with_mins(x, sub_block=16, top=3, scale_top=15)
    levels = np.concatenate([fit.scales, fit.mins], axis=1).astype(np.uint8)
    return codes, {
        80: half_bytes(fit.factor),
        82: half_bytes(fit.min_factor),
        **LEVELS.fields(levels),
    }


register(
    Format(
        name="q2_k",
        number=10,
        block=256,
        nbytes=84,
        bits=2,
        budget=0.0735,
        encode=encode,
        sub_block=16,
        planes=(Plane(start=16, nbytes=64, bits=2, run=32),),
        factors=(Factor(80), Factor(82)),
        levels=LEVELS,
    )
)
