"""Block format q4_k: d * scale * code - dmin * min, 4-bit codes, blocks of 256 in sub-blocks of 32.

d f16, dmin f16, 12 bytes with eight 6-bit scales and mins, 128 bytes of nibbles.
Nibbles come 32 bytes at a time: the low ones are one sub-block, the high ones the next.
"""

from __future__ import annotations

import numpy as np

from tetrad.quant.fields import F32, U8, Plane, half_bytes, read_half, read_six_bit_pairs, six_bit_pair_bytes
from tetrad.quant.format import Format, Parts, register
from tetrad.quant.search import fit_with_mins


def encode(x: F32, top: int = 15) -> Parts:
    fit, codes = fit_with_mins(x, sub_block=32, top=top, scale_top=63)
    pairs = six_bit_pair_bytes(fit.scales.astype(np.uint8), fit.mins.astype(np.uint8))
    fields = {0: half_bytes(fit.factor), 2: half_bytes(fit.min_factor), 4: pairs}
    return codes, fields


def read_scales(blocks: U8) -> F32:
    return read_half(blocks, start=0) * read_six_bit_pairs(blocks, start=4)[0].astype(np.float32)


def read_mins(blocks: U8) -> F32:
    return read_half(blocks, start=2) * read_six_bit_pairs(blocks, start=4)[1].astype(np.float32)


register(
    Format(
        name="q4_k",
        block=256,
        nbytes=144,
        bits=4,
        budget=0.0169,
        encode=encode,
        sub_block=32,
        planes=(Plane(start=16, nbytes=128, bits=4, run=32),),
        read_scales=read_scales,
        read_mins=read_mins,
    )
)
