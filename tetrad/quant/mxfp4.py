"""Block format mxfp4: 2**(e - 128) * table[code], 4-bit floats (E2M1) with a power of two for each
32.

e u8, 16 bytes of nibbles. Nibbles lie as in q4_0. The table holds twice what E2M1 means, so that
its entries are whole, and e stands for half the power of two of the OCP specification of MX
formats, version 1.0.
"""

from __future__ import annotations

import numpy as np

from tetrad.quant.codebook import CodeBook
from tetrad.quant.fields import F32, U8, Factor, Plane, power_of_two
from tetrad.quant.format import Format, Parts
from tetrad.quant.lanes import register

BOOK = CodeBook((0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12))
# powers of two tried, beside the one that puts the largest number between the last two entries
NEAR = (-1, 0, 1)


def encode(x: F32) -> Parts:
    first = np.frexp(np.abs(x).max(axis=1, keepdims=True))[1] + 124
    tried = [np.clip(first + step, 0, 254).astype(np.uint8) for step in NEAR]
    errors = np.concatenate([squared_error(x, e) for e in tried], axis=1)
    best = np.take_along_axis(
        np.concatenate(tried, axis=1), errors.argmin(axis=1, keepdims=True), axis=1
    )
    return BOOK.codes(BOOK.nearest(x, power_of_two(best))), {0: best}


def squared_error(x: F32, e: U8) -> F32:
    step = power_of_two(e)
    # squares of subnormals vanish in f32
    wrong = (BOOK.nearest(x, step) * step - x).astype(np.float64)
    return np.asarray((wrong * wrong).sum(axis=1, keepdims=True))


register(
    Format(
        name="mxfp4",
        number=39,
        block=32,
        nbytes=17,
        bits=4,
        budget=0.0242,
        encode=encode,
        sub_block=32,
        planes=(Plane(start=1, nbytes=16, bits=4, run=16),),
        table=BOOK.table,
        factors=(Factor(0, "e8m0"),),
    )
)
