"""Block format q5_0: d * (code - 16), 5-bit codes, blocks of 32.

d f16, 4 bytes of high bits, 16 bytes of nibbles. Low nibbles hold elements 0..15, high nibbles
16..31. High bits form one little-endian word, bit i for element i.
"""

from __future__ import annotations

from tetrad.quant.fields import F32, Factor, Plane, half_bytes
from tetrad.quant.format import Format, Parts
from tetrad.quant.lanes import register
from tetrad.quant.rounding import round_signed


def encode(x: F32) -> Parts:
    step, codes = round_signed(x, half=16)
    return codes, {0: half_bytes(step)}


register(
    Format(
        name="q5_0",
        number=6,
        block=32,
        nbytes=22,
        bits=5,
        budget=0.009,
        encode=encode,
        sub_block=32,
        offset=16,
        planes=(
            Plane(start=6, nbytes=16, bits=4, run=16),
            Plane(start=2, nbytes=4, bits=1, run=1, shift=4),
        ),
        factors=(Factor(0),),
    )
)
