"""Block format q8_0: d * q, q a signed byte, blocks of 32.

d f16, 32 signed bytes. The code of a byte is q + 128.
"""

from __future__ import annotations

import numpy as np

from tetrad.quant.fields import F32, Factor, Plane, half_bytes
from tetrad.quant.format import Format, Parts
from tetrad.quant.lanes import register
from tetrad.quant.rounding import ONE, over, round_away


def encode(x: F32) -> Parts:
    step = np.abs(x).max(axis=1, keepdims=True) / np.float32(127)
    codes = round_away(x * over(ONE, step)) + np.float32(128)
    return codes.astype(np.uint8), {0: half_bytes(step)}


register(
    Format(
        name="q8_0",
        number=8,
        block=32,
        nbytes=34,
        bits=8,
        budget=0.00113,
        encode=encode,
        sub_block=32,
        offset=128,
        planes=(Plane(start=2, nbytes=32, bits=8, run=32),),
        flip=0x80,
        factors=(Factor(0),),
    )
)
