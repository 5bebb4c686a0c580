"""Block format q4_1: d * code + m, 4-bit codes, blocks of 32.

d f16, m f16, 16 bytes of nibbles. Nibbles lie as in q4_0.

The min is -m: adding m and taking away -m give the same bits, but for the sign of a nan.
"""

from __future__ import annotations

from tetrad.quant.fields import F32, Factor, Plane, half_bytes
from tetrad.quant.format import Format, Parts
from tetrad.quant.lanes import register
from tetrad.quant.rounding import round_with_min


def encode(x: F32) -> Parts:
    step, low, codes = round_with_min(x, top=15)
    return codes, {0: half_bytes(step), 2: half_bytes(low)}


register(
    Format(
        name="q4_1",
        number=3,
        block=32,
        nbytes=20,
        bits=4,
        budget=0.0188,
        encode=encode,
        sub_block=32,
        planes=(Plane(start=4, nbytes=16, bits=4, run=16),),
        factors=(Factor(0), Factor(2)),
        adds_mins=True,
    )
)
