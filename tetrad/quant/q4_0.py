"""Block format q4_0: d * (code - 8), 4-bit codes, blocks of 32.

d f16, 16 bytes of nibbles. Low nibbles hold elements 0..15, high nibbles 16..31.
"""

from __future__ import annotations

from tetrad.quant.fields import F32, Factor, Plane, half_bytes
from tetrad.quant.format import Format, Parts
from tetrad.quant.lanes import register
from tetrad.quant.rounding import round_signed


def encode(x: F32) -> Parts:
    step, codes = round_signed(x, half=8)
    return codes, {0: half_bytes(step)}


register(
    Format(
        name="q4_0",
        number=2,
        block=32,
        nbytes=18,
        bits=4,
        budget=0.0181,
        encode=encode,
        sub_block=32,
        offset=8,
        planes=(Plane(start=2, nbytes=16, bits=4, run=16),),
        factors=(Factor(0),),
    )
)
