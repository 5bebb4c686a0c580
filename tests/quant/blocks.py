"""Blocks to test formats with: random bytes, chosen scales, and comparison by bit pattern."""

from __future__ import annotations

import gguf
import numpy as np

from tetrad.quant import Format, formats
from tetrad.quant.fields import F32, U8

INTEGER = [f for f in formats.values() if f.is_integer]
FLOAT = [f for f in formats.values() if not f.is_integer]
# Where the f16 scales of a block lie.
HALVES = {
    "q4_0": (0,),
    "q4_1": (0, 2),
    "q5_0": (0,),
    "q5_1": (0, 2),
    "q8_0": (0,),
    "q2_k": (80, 82),
    "q3_k": (108,),
    "q4_k": (0, 2),
    "q5_k": (0, 2),
    "q6_k": (208,),
    "iq4_nl": (0,),
    "iq4_xs": (0,),
}


def random_blocks(format: Format, n: int, seed: int = 0) -> U8:
    return np.random.default_rng(seed).integers(0, 256, (n, format.nbytes), dtype=np.uint8)


def with_halves(blocks: U8, format: Format, bits: np.ndarray) -> U8:
    """The same blocks with the f16 of these bits as scale (and min scale) of each."""
    out = blocks.copy()
    for start in HALVES[format.name]:
        out[:, start : start + 2] = bits.astype("<u2")[:, None].view(np.uint8)
    return out


def tame(blocks: U8, format: Format) -> U8:
    """The same blocks with scales that are ordinary numbers."""
    bits = np.random.default_rng(1).uniform(-2, 2, len(blocks)).astype(np.float16).view(np.uint16)
    if format.name == "q8_k":
        out = blocks.copy()
        out[:, :4] = bits.view(np.float16).astype("<f4")[:, None].view(np.uint8)
        return out
    if format.name == "mxfp4":
        out = blocks.copy()
        out[:, 0] = 120 + bits % 8
        return out
    return with_halves(blocks, format, bits)


def gguf_unpack(packed: U8, format: Format) -> F32:
    with np.errstate(all="ignore"):
        result = gguf.quants.dequantize(packed, gguf.GGMLQuantizationType[format.name.upper()])
    return result.astype(np.float32)


def gguf_pack(x: F32, format: Format) -> U8:
    with np.errstate(all="ignore"):
        return gguf.quants.quantize(x, gguf.GGMLQuantizationType[format.name.upper()]).view(
            np.uint8
        )


def assert_same_bits(got: F32, want: F32) -> None:
    """Equal to the bit, -0.0 apart from 0.0; a nan is a nan."""
    assert got.shape == want.shape and got.dtype == want.dtype == np.float32
    nan = np.isnan(want)
    np.testing.assert_array_equal(np.isnan(got), nan)
    np.testing.assert_array_equal(got.view(np.uint32)[~nan], want.view(np.uint32)[~nan])
