"""Block format q4_1: d * code + m, 4-bit codes, blocks of 32.

d f16, m f16, 16 bytes of nibbles. Nibbles lie as in q4_0.

The min is -m: adding m and taking away -m give the same bits, but for the sign of a nan.
"""

from __future__ import annotations

from functools import partial

from tetrad.quant.fields import F32, U8, Plane, half_bytes, read_half
from tetrad.quant.format import Format, Parts, register
from tetrad.quant.rounding import round_with_min


def encode(x: F32) -> Parts:
    step, low, codes = round_with_min(x, top=15)
    return codes, {0: half_bytes(step), 2: half_bytes(low)}


def read_mins(blocks: U8) -> F32:
    return -read_half(blocks, start=2)


register(
    Format(
        name="q4_1",
        block=32,
        nbytes=20,
        bits=4,
        budget=0.0188,
        encode=encode,
        sub_block=32,
        planes=(Plane(start=4, nbytes=16, bits=4, run=16),),
        read_scales=partial(read_half, start=0),
        read_mins=read_mins,
    )
)
