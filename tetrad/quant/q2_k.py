"""Block format q2_k: d * scale * code - dmin * min, 2-bit codes, blocks of 256 in sub-blocks of 16.

16 bytes with a 4-bit scale (low) and min (high) each, 64 bytes of codes, d f16, dmin f16. Codes come 32 bytes at a
time; each pair of bits, from the lowest, is the next 32 elements.
"""

from __future__ import annotations

import numpy as np

from tetrad.quant.fields import F32, U8, Plane, half_bytes, read_half
from tetrad.quant.format import Format, Parts, register
from tetrad.quant.search import fit_with_mins


def encode(x: F32) -> Parts:
    fit, codes = fit_with_mins(x, sub_block=16, top=3, scale_top=15)
    pairs = fit.scales.astype(np.uint8) | (fit.mins.astype(np.uint8) << np.uint8(4))
    fields = {0: pairs, 80: half_bytes(fit.factor), 82: half_bytes(fit.min_factor)}
    return codes, fields


def read_scales(blocks: U8) -> F32:
    return read_half(blocks, start=80) * (blocks[:, :16] & 15).astype(np.float32)


def read_mins(blocks: U8) -> F32:
    return read_half(blocks, start=82) * (blocks[:, :16] >> 4).astype(np.float32)


register(
    Format(
        name="q2_k",
        block=256,
        nbytes=84,
        bits=2,
        budget=0.0735,
        encode=encode,
        sub_block=16,
        planes=(Plane(start=16, nbytes=64, bits=2, run=32),),
        read_scales=read_scales,
        read_mins=read_mins,
    )
)
