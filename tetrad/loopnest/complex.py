"""Loop nests, numbers without a kernel type: how kernels load and store complex numbers, and read
integers of four bits.

In memory the real and imaginary part are adjacent. A c64 is one 64-bit word, so a vector load
fetches both parts of sixteen neighbours; a c128 is two f64. Integers of four bits are two in a
byte, the even one in the low half.
"""

from __future__ import annotations

from tetrad.core.dtypes import DType, c64, c128, f32, f64, i4, i8, i32, i64, u4, u8, u32
from tetrad.kernel.build import KernelBuilder, Val
from tetrad.kernel.nodes import Buffer

# the type of buffer elements, and how many make a complex number
HELD: dict[DType, tuple[DType, int]] = {c64: (i64, 1), c128: (f64, 2), u4: (u8, 1), i4: (u8, 1)}


def held_as(dtype: DType) -> tuple[DType, int]:
    """The element dtype of a buffer of these numbers, and the number of elements per number;
    blocks of a quantised type are bytes."""
    return HELD.get(dtype, (u8 if dtype.is_quantized else dtype, 1))


def load_part(k: KernelBuilder, buffer: Buffer, at: Val, which: int) -> Val:
    if buffer.dtype is f64:
        return k.load(buffer, at * 2 + which)
    word = k.load(buffer, at)
    return k.bitcast(k.cast(word >> 32 if which else word, i32), f32)


def store_parts(
    k: KernelBuilder, buffer: Buffer, at: Val, re: Val, im: Val, hint: str = ""
) -> None:
    if buffer.dtype is f64:
        k.store(buffer, at * 2, re)
        k.store(buffer, at * 2 + 1, im)
        return
    low, high = (k.cast(k.bitcast(x, u32), i64) for x in (re, im))
    k.store(buffer, at, low | (high << 32), hint)


def load_nibble(k: KernelBuilder, buffer: Buffer, at: Val, is_signed: bool) -> Val:
    """The element of an array of four-bit integers at a flat position, as i8 or u8."""
    word = k.cast(k.load(buffer, at // 2), u32)
    code = (word >> (k.cast(at % 2, u32) << 2)) & 15
    return k.cast(k.bitcast(code ^ 8, i32) - 8, i8) if is_signed else k.cast(code, u8)
