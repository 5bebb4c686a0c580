"""Block format q5_k: d * scale * code - dmin * min, 5-bit codes, blocks of 256 in sub-blocks of 32.

d f16, dmin f16, 12 bytes with eight 6-bit scales and mins, as in q4_k; 32 bytes of high bits, 128
bytes of nibbles. Nibbles come 32 bytes at a time: the low ones are one sub-block, the high ones the
next. Bit s of high byte l belongs to element l of sub-block s.
"""

from __future__ import annotations

from functools import partial

from tetrad.quant.fields import Factor, Plane
from tetrad.quant.format import Format
from tetrad.quant.lanes import register
from tetrad.quant.q4_k import LEVELS, encode

register(
    Format(
        name="q5_k",
        number=13,
        block=256,
        nbytes=176,
        bits=5,
        budget=0.0083,
        encode=partial(encode, top=31),
        sub_block=32,
        planes=(
            Plane(start=48, nbytes=128, bits=4, run=32),
            Plane(start=16, nbytes=32, bits=1, run=32, shift=4),
        ),
        factors=(Factor(0), Factor(2)),
        levels=LEVELS,
    )
)
