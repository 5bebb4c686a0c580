"""Block formats f32, f16 and bf16: plain floats, as blocks of one element.

They have no codes; they are here so that whoever reads a file treats every tensor alike. Rounding
is to nearest, ties to even. inf stays inf, and nan stays nan with the payload bits that fit.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tetrad.quant.fields import F32, U8, half_bytes
from tetrad.quant.format import Format, Parts
from tetrad.quant.lanes import register

NO_CODES = np.empty((0, 0), np.uint8)


def single_bytes(x: F32) -> U8:
    return x.astype("<f4").view(np.uint8)


def bfloat_bytes(x: F32) -> U8:
    bits = x.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> 16 & 1)) >> 16
    quiet = bits >> 16 | np.uint32(0x40)  # rounding could carry a nan into inf
    return np.where(np.isnan(x), quiet, rounded).astype("<u2").view(np.uint8)


def read_bfloat(blocks: U8) -> F32:
    return (blocks.view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)


def register_float(
    name: str,
    number: int,
    nbytes: int,
    budget: float,
    to_bytes: Callable[[F32], U8],
    decode: Callable[[U8], F32],
) -> None:
    def encode(x: F32) -> Parts:
        return NO_CODES, {0: to_bytes(x)}

    register(Format(name, number, 1, nbytes, 8 * nbytes, budget, encode, decode=decode))


register_float("f32", 0, 4, 0.0, single_bytes, lambda blocks: blocks.view("<f4").astype(np.float32))
register_float(
    "f16", 1, 2, 1.05e-4, half_bytes, lambda blocks: blocks.view("<f2").astype(np.float32)
)
register_float("bf16", 30, 2, 8.4e-4, bfloat_bytes, read_bfloat)
