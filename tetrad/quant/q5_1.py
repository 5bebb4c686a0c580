"""Block format q5_1: d * code + m, 5-bit codes, blocks of 32.

d f16, m f16, 4 bytes of high bits, 16 bytes of nibbles. Nibbles and high bits lie as in q5_0.

The min is -m: adding m and taking away -m give the same bits, but for the sign of a nan.
"""

from __future__ import annotations

from tetrad.quant.fields import F32, Factor, Plane, half_bytes
from tetrad.quant.format import Format, Parts
from tetrad.quant.lanes import register
from tetrad.quant.rounding import round_with_min


def encode(x: F32) -> Parts:
    step, low, codes = round_with_min(x, top=31)
    return codes, {0: half_bytes(step), 2: half_bytes(low)}


register(
    Format(
        name="q5_1",
        number=7,
        block=32,
        nbytes=24,
        bits=5,
        budget=0.0091,
        encode=encode,
        sub_block=32,
        planes=(
            Plane(start=8, nbytes=16, bits=4, run=16),
            Plane(start=4, nbytes=4, bits=1, run=1, shift=4),
        ),
        factors=(Factor(0), Factor(2)),
        adds_mins=True,
    )
)
