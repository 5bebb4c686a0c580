"""Ops: floats of eight bits. An array of them is bytes, a code each; they are moved and converted,
never computed with.

A code is sign, exponent and fraction from the top. `encode_float8` rounds once, to nearest even, as
ml_dtypes does: what is too large is infinite where the format has infinities, else NaN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tetrad.core.dtypes import FLOAT8, DType, f32, f64, i32, u8, u32
from tetrad.core.errors import DtypeError
from tetrad.core.op import Case, op
from tetrad.core.record import record
from tetrad.core.types import ArrayType
from tetrad.ops.cases import Rng, pick, random_array, random_shape
from tetrad.ops.convert import lower_odd_f32, odd_f32
from tetrad.ops.rules import Array, check_dtype

if TYPE_CHECKING:
    from tetrad.kernel.build import KernelBuilder, Val
    from tetrad.loopnest.reader import At, Operand

FRACTION, BIAS = 23, 127  # of f32
SIGN = 0x80


@record
class Float8Format:
    """Magnitudes from `special` on are no numbers: infinity, if there is one, then NaN. Without a
    negative zero its code is NaN."""

    fraction: int  # bits
    bias: int  # of the exponent
    special: int = SIGN
    has_infinity: bool = False

    @property
    def has_negative_zero(self) -> bool:
        return self.special < SIGN

    @property
    def overflow(self) -> int:
        """The code of what is too large, and of infinity."""
        return self.special

    @property
    def nan(self) -> int:
        return self.special + (2 if self.has_infinity else 0)


FORMATS = {
    "float8_e4m3fn": Float8Format(3, 7, 0x7F),
    "float8_e5m2": Float8Format(2, 15, 0x7C, has_infinity=True),
    "float8_e4m3fnuz": Float8Format(3, 8),
    "float8_e5m2fnuz": Float8Format(2, 16),
}


def format_of(name: str, dtype: DType) -> Float8Format:
    if not dtype.is_float8:
        raise DtypeError(f"{name}: takes {', '.join(FORMATS)}, got {dtype}")
    return FORMATS[dtype.short_name]


# -- bytes -----------------------------------------------------------------------------------------


def unpack_float8_type(x: ArrayType) -> ArrayType:
    format_of("unpack_float8", x.dtype)
    return x.with_dtype(u8)


@op(type=unpack_float8_type, kind="movement", typed=True, public=False)
def unpack_float8(x: Array, *, types: Any) -> Array:
    """The codes of floats of eight bits.

    >>> import tetrad as td
    >>> unpack_float8(td.asarray([1.0, -2.0], dtype=td.float8_e5m2))
    Array([ 60, 192], uint8)
    """
    return x


def pack_float8_type(x: ArrayType, *, dtype: DType) -> ArrayType:
    check_dtype("pack_float8", x.dtype, (u8,))
    format_of("pack_float8", dtype)
    return x.with_dtype(dtype)


@op(type=pack_float8_type, kind="movement", typed=True, public=False)
def pack_float8(x: Array, *, dtype: DType, types: Any) -> Array:
    """Bytes as the codes of floats of eight bits.

    >>> import tetrad as td
    >>> pack_float8(td.asarray([60, 192], dtype=td.uint8), dtype=td.float8_e5m2)
    Array([1, -2], float8_e5m2)
    """
    return x


@unpack_float8.read
@pack_float8.read
def code_read(k: KernelBuilder, at: At, x: Operand, **settings: Any) -> Val:
    return x(at)


unpack_float8.not_differentiable("the result is an integer")
unpack_float8.batch(lambda batched, x: unpack_float8(x))
pack_float8.not_differentiable("codes of eight bits do not change smoothly")
pack_float8.batch(lambda batched, x, **settings: pack_float8(x, **settings))


# -- codes to numbers ------------------------------------------------------------------------------


def decode_float8_type(x: ArrayType, *, dtype: DType) -> ArrayType:
    check_dtype("decode_float8", x.dtype, (u8,))
    format_of("decode_float8", dtype)
    return x.with_dtype(f32)


def _decode_cases(rng: Rng) -> Case:
    return Case((random_array(rng, u8, random_shape(rng)),), {"dtype": pick(rng, FLOAT8)})


@op(type=decode_float8_type, cases=_decode_cases, dtypes=(u8,), public=False)
def decode_float8(x: Array, *, dtype: DType) -> Array:
    """What codes stand for.

    >>> import tetrad as td
    >>> decode_float8(np.uint8([0x7E, 0x01]), dtype=td.float8_e4m3fn)
    array([4.480000e+02, 1.953125e-03], dtype=float32)
    """
    return np.asarray(np.asarray(x).view(dtype.dtype).astype(np.float32))


@decode_float8.lower
def decode_float8_lower(k: KernelBuilder, x: Val, *, dtype: DType) -> Val:
    """The bits, where f32 has them, are the number but for the bias of its exponent: a power of
    two, exact for subnormals too."""
    fmt = FORMATS[dtype.short_name]
    code = k.cast(x, u32)
    size = code & (SIGN - 1)
    number = k.bitcast(size << (FRACTION - fmt.fraction), f32) * 2.0 ** (BIAS - fmt.bias)
    nan = k.const(float("nan"), f32)
    if fmt.has_negative_zero:
        number = k.select(size > (fmt.nan - 2 if fmt.has_infinity else fmt.nan - 1), nan, number)
    if fmt.has_infinity:
        number = k.select(size.eq(fmt.special), k.const(float("inf"), f32), number)
    signed = k.bitcast(k.bitcast(number, u32) | (code & SIGN) << 24, f32)
    return signed if fmt.has_negative_zero else k.select(code.eq(SIGN), nan, signed)


decode_float8.not_differentiable("codes are integers")


# -- numbers to codes ------------------------------------------------------------------------------


def encode_float8_type(x: ArrayType, *, dtype: DType) -> ArrayType:
    check_dtype("encode_float8", x.dtype, (f32, f64))
    format_of("encode_float8", dtype)
    return x.with_dtype(u8)


def _encode_cases(rng: Rng) -> Case:
    x = random_array(rng, pick(rng, (f32, f64)), random_shape(rng), special=0.3)
    return Case((x,), {"dtype": pick(rng, FLOAT8)})


@op(type=encode_float8_type, cases=_encode_cases, dtypes=(f32, f64), public=False)
def encode_float8(x: Array, *, dtype: DType) -> Array:
    """The codes of the nearest numbers; ties go to the even code. There is one code for NaN.

    >>> import tetrad as td
    >>> encode_float8(np.float32([1.0, 500.0]), dtype=td.float8_e4m3fn)
    array([ 56, 127], dtype=uint8)
    """
    with np.errstate(all="ignore"):
        # ml_dtypes comes through f32, rounding twice
        near = odd_f32(x) if x.dtype == np.float64 else x
        codes = np.asarray(near).astype(dtype.dtype).view(np.uint8)
    return np.where(
        np.isnan(x) | is_nan(codes, dtype), np.uint8(FORMATS[dtype.short_name].nan), codes
    )


def is_nan(codes: Array, dtype: DType) -> Array:
    return np.isnan(codes.view(dtype.dtype).astype(np.float32))


@encode_float8.lower
def encode_float8_lower(k: KernelBuilder, x: Val, *, dtype: DType) -> Val:
    """Normal numbers are rounded as integers. Subnormal ones by an addition, after which the last
    bit of f32 is the last bit of the code."""
    fmt = FORMATS[dtype.short_name]
    near = lower_odd_f32(k, x) if x.dtype is f64 else x
    size, bits = k.abs(near), k.bitcast(k.abs(near), i32)
    cut = FRACTION - fmt.fraction
    is_odd = (bits >> cut) & 1
    normal = ((bits + is_odd + ((1 << cut - 1) - 1)) >> cut) - (BIAS - fmt.bias << fmt.fraction)
    least = 2.0 ** (1 - fmt.bias)  # of the normal numbers
    shift = k.const(2.0 ** (1 - fmt.bias + cut), f32)
    tiny = k.bitcast(size + shift, i32) - k.bitcast(shift, i32)
    code = k.min(k.select(size < least, tiny, normal), fmt.overflow)
    sign = k.bitcast(k.bitcast(near, u32) >> 24, i32) & SIGN
    signed = code | sign
    if not fmt.has_negative_zero:
        signed = k.select(code.eq(0), code, signed)
    is_none = near.ne(near) if fmt.has_infinity else near.ne(near) | (code >= fmt.overflow)
    return k.cast(k.select(is_none, k.const(fmt.nan, i32), signed), u8)


encode_float8.not_differentiable("codes of eight bits do not change smoothly")
