"""Block format q8_k: d * q, q a signed byte, blocks of 256, d in f32.

d f32, 256 signed bytes, 16 sums of 16 elements each as i16 (written, never read). The code of a
byte is q + 128. There is one scale a block; it is given once per 32 elements, so that every format
has sub-blocks of 16 or 32.
"""

from __future__ import annotations

import numpy as np

from tetrad.quant.fields import F32, Factor, Plane
from tetrad.quant.format import Format, Parts
from tetrad.quant.lanes import register
from tetrad.quant.rounding import ONE, largest, over


def encode(x: F32) -> Parts:
    per_unit = over(np.float32(-127), largest(x, axis=1))
    q = np.rint(x * per_unit).astype(np.int16)
    sums = q.reshape(-1, 16, 16).sum(axis=2, dtype="<i2")
    step = over(ONE, per_unit)
    return (q + 128).astype(np.uint8), {
        0: step.astype("<f4").view(np.uint8),
        260: sums.view(np.uint8),
    }


register(
    Format(
        name="q8_k",
        number=15,
        block=256,
        nbytes=292,
        bits=8,
        budget=0.00114,
        encode=encode,
        sub_block=32,
        offset=128,
        planes=(Plane(start=4, nbytes=256, bits=8, run=256),),
        flip=0x80,
        factors=(Factor(0, "f32"),),
        rest=(260, 32),
    )
)
