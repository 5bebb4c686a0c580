"""Block format q6_k: d * scale * (code - 32), 6-bit codes, blocks of 256 in sub-blocks of 16.

128 bytes of low nibbles, 64 bytes of high bit pairs, 16 signed bytes of scales, d f16. Nibbles come 64 bytes at a time
(low ones first), bit pairs 32 bytes at a time.
"""

from __future__ import annotations

import numpy as np

from tetrad.quant.fields import F32, U8, Plane, half_bytes, read_half
from tetrad.quant.format import Format, Parts, register
from tetrad.quant.search import fit_signed


def encode(x: F32) -> Parts:
    fit, codes = fit_signed(x, sub_block=16, half=32, scale_half=128)
    return codes, {192: fit.scales.astype(np.int8).view(np.uint8), 208: half_bytes(fit.factor)}


def read_scales(blocks: U8) -> F32:
    return read_half(blocks, start=208) * blocks[:, 192:208].view(np.int8).astype(np.float32)


register(
    Format(
        name="q6_k",
        block=256,
        nbytes=210,
        bits=6,
        budget=0.004,
        encode=encode,
        sub_block=16,
        offset=32,
        planes=(Plane(start=0, nbytes=128, bits=4, run=64), Plane(start=128, nbytes=64, bits=2, run=32, shift=4)),
        read_scales=read_scales,
    )
)
