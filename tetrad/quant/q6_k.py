"""Block format q6_k: d * scale * (code - 32), 6-bit codes, blocks of 256 in sub-blocks of 16.

128 bytes of low nibbles, 64 bytes of high bit pairs, 16 signed bytes of scales, d f16. Nibbles come
64 bytes at a time (low ones first), bit pairs 32 bytes at a time.
"""

from __future__ import annotations

import numpy as np

from tetrad.quant.fields import F32, Factor, Levels, Plane, half_bytes
from tetrad.quant.format import Format, Parts
from tetrad.quant.lanes import register
from tetrad.quant.search import fit_signed

LEVELS = Levels((Plane(start=192, nbytes=16, bits=8, run=16),), signed=True)


def encode(x: F32) -> Parts:
    fit, codes = fit_signed(x, sub_block=16, half=32, scale_half=128)
    return codes, {
        208: half_bytes(fit.factor),
        **LEVELS.fields(fit.scales.astype(np.int8).view(np.uint8)),
    }


register(
    Format(
        name="q6_k",
        number=14,
        block=256,
        nbytes=210,
        bits=6,
        budget=0.004,
        encode=encode,
        sub_block=16,
        offset=32,
        planes=(
            Plane(start=0, nbytes=128, bits=4, run=64),
            Plane(start=128, nbytes=64, bits=2, run=32, shift=4),
        ),
        factors=(Factor(208),),
        levels=LEVELS,
    )
)
