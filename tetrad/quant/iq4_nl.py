"""Block format iq4_nl: d * table[code], 4-bit codes of a code book, blocks of 32.

d f16, 16 bytes of nibbles. Nibbles lie as in q4_0. Entries of the table lie closer near zero, where
most weights are.
"""

from __future__ import annotations

from tetrad.quant.codebook import CodeBook
from tetrad.quant.fields import F32, Factor, Plane, half_bytes
from tetrad.quant.format import Format, Parts
from tetrad.quant.lanes import register
from tetrad.quant.search import fit_book_step

BOOK = CodeBook((-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113))


def encode(x: F32) -> Parts:
    step, codes = fit_book_step(x, BOOK)
    return codes, {0: half_bytes(step)}


register(
    Format(
        name="iq4_nl",
        number=20,
        block=32,
        nbytes=18,
        bits=4,
        budget=0.0159,
        encode=encode,
        sub_block=32,
        planes=(Plane(start=2, nbytes=16, bits=4, run=16),),
        table=BOOK.table,
        factors=(Factor(0),),
    )
)
