"""Kernel language, arithmetic: the meaning of every operator, on NumPy arrays.

Receives the name of an operator, its dtype and operand arrays of that dtype; returns an array.
Every operator is total: no data raises an error. Programs, masks and memory are the business of
`kernel.evaluate`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tetrad.core.dtypes import DType, bool_

Array = Any  # np.ndarray: NumPy's stubs give Any for arrays of any dtype


def binary(op: str, dtype: DType, a: Array, b: Array) -> Array:
    """a op b; both of `dtype`."""
    table = _FLOAT_BINARY if dtype.is_float else _BOOL_BINARY if dtype is bool_ else _INT_BINARY
    return table[op](a, b)


def compare(op: str, a: Array, b: Array) -> Array:
    return _COMPARISONS[op](a, b)


def unary(op: str, dtype: DType, x: Array) -> Array:
    table = _FLOAT_UNARY if dtype.is_float else _BOOL_UNARY if dtype is bool_ else _INT_UNARY
    return table[op](x)


def cast(x: Array, source: DType, target: DType) -> Array:
    """The value of x in another type; float to int truncates, saturates, NaN gives 0."""
    if target is bool_:
        return x != 0
    if source.is_float and target.is_integer:
        return _float_to_int(x, target.np)
    return x.astype(target.np)


def dot4(acc: Array, u: Array, s: Array, is_signed: bool = False) -> Array:
    """acc plus the four products of the bytes of u (signed or not) with the signed bytes of s,
    modulo 2**32."""
    total = acc
    for byte in range(4):
        left = (
            signed_byte(u, byte)
            if is_signed
            else ((u >> np.uint32(8 * byte)) & np.uint32(255)).view(np.int32)
        )
        total = total + left * signed_byte(s, byte)
    return total


def lookup(x: Array, table: tuple[int, ...]) -> Array:
    """Words whose bytes are table[b] for the bytes b of x."""
    entries = np.array(table, np.uint8)
    return entries[np.ascontiguousarray(x)[..., None].view(np.uint8)].view(np.uint32)[..., 0]


def signed_byte(words: Array, byte: int) -> Array:
    return (words << np.uint32(24 - 8 * byte)).view(np.int32) >> np.int32(24)


def _float_to_int(x: Array, target: np.dtype[Any]) -> Array:
    limits = np.iinfo(target)
    # the largest value plus one: a power of two, which a float holds exactly
    top = x.dtype.type(float(limits.max // 2 + 1) * 2)
    whole = np.trunc(np.where(np.isnan(x), x.dtype.type(0), x))
    inside = (whole < top) & (whole >= x.dtype.type(limits.min))
    number = np.where(inside, whole, x.dtype.type(0)).astype(target)
    ends = np.where(whole < 0, target.type(limits.min), target.type(limits.max))
    return np.where(inside, number, ends)


def _float_min(a: Array, b: Array) -> Array:
    return np.where(a == b, np.where(np.signbit(a), a, b), np.minimum(a, b))


def _float_max(a: Array, b: Array) -> Array:
    return np.where(a == b, np.where(np.signbit(a), b, a), np.maximum(a, b))


def _safe_divisor(a: Array, b: Array) -> Array:
    """b, or 1 where the processor would trap: for b = 0, and for MIN / -1, which wraps to MIN as
    MIN / 1 does."""
    unsafe = b == 0
    if a.dtype.kind == "i":
        unsafe = unsafe | ((b == -1) & (a == np.iinfo(a.dtype).min))
    return np.where(unsafe, a.dtype.type(1), b)


def _int_div(a: Array, b: Array) -> Array:
    divisor = _safe_divisor(a, b)
    quotient = (a - np.fmod(a, divisor)) // divisor  # exact, so floor is truncation
    return np.where(b == 0, a.dtype.type(0), quotient)


def _int_mod(a: Array, b: Array) -> Array:
    return np.fmod(a, _safe_divisor(a, b))


def _shift_count(x: Array) -> Array:
    return x & x.dtype.type(x.dtype.itemsize * 8 - 1)


def _wide(x: Array) -> Array:
    """In 64 bits, where a product of two values of at most 32 bits is exact."""
    return x.astype(np.int64 if x.dtype.kind == "i" else np.uint64)


def _saturated(x: Array, dtype: np.dtype[Any]) -> Array:
    """A wide integer, or the end of the narrow type that it lies beyond."""
    limits = np.iinfo(dtype)
    low, high = x.dtype.type(limits.min), x.dtype.type(limits.max)
    return np.minimum(np.maximum(x, low), high).astype(dtype)


def _add_sat(a: Array, b: Array) -> Array:
    return _saturated(a.astype(np.int64) + b.astype(np.int64), a.dtype)


def _sub_sat(a: Array, b: Array) -> Array:
    return _saturated(a.astype(np.int64) - b.astype(np.int64), a.dtype)


def _mul_sat(a: Array, b: Array) -> Array:
    return _saturated(_wide(a) * _wide(b), a.dtype)


def _mulhi(a: Array, b: Array) -> Array:
    product = _wide(a) * _wide(b)
    return (product >> product.dtype.type(32)).astype(a.dtype)


def _rotl(a: Array, b: Array) -> Array:
    return np.left_shift(a, _shift_count(b)) | np.right_shift(a, _shift_count(-b))


def _reverse_bits(x: Array) -> Array:
    """Bytes from the last to the first, the bits of each turned round."""
    parts = np.ascontiguousarray(x)[..., None].view(np.uint8)[..., ::-1]
    return np.ascontiguousarray(_TURNED[parts]).view(x.dtype)[..., 0]


_TURNED = np.array([int(f"{byte:08b}"[::-1], 2) for byte in range(256)], np.uint8)


def _unsigned(x: Array) -> Array:
    return x.view(np.dtype(f"u{x.dtype.itemsize}"))


def _popcount(x: Array) -> Array:
    return np.bitwise_count(_unsigned(x)).astype(x.dtype)


def _clz(x: Array) -> Array:
    """The number of zero bits above the highest one; the width for 0."""
    smeared, shift = _unsigned(x), 1
    while shift < x.dtype.itemsize * 8:
        smeared = smeared | (smeared >> smeared.dtype.type(shift))
        shift *= 2
    return (x.dtype.itemsize * 8 - np.bitwise_count(smeared)).astype(x.dtype)


def _ctz(x: Array) -> Array:
    """The number of zero bits below the lowest one; the width for 0."""
    bits = _unsigned(x)
    return np.bitwise_count((bits & -bits) - bits.dtype.type(1)).astype(x.dtype)


def _round_half_away(x: Array) -> Array:
    whole = np.trunc(x)
    return whole + np.copysign((np.abs(x - whole) >= 0.5).astype(x.dtype), x)


def _table(**rows: Any) -> dict[str, Callable[..., Array]]:
    return {name.rstrip("_"): rule for name, rule in rows.items()}


_FLOAT_BINARY = _table(
    add=np.add,
    sub=np.subtract,
    mul=np.multiply,
    div=np.divide,
    min=_float_min,
    max=_float_max,
    copysign=np.copysign,
)
_INT_BINARY = _table(
    add=np.add,
    sub=np.subtract,
    mul=np.multiply,
    div=_int_div,
    mod=_int_mod,
    min=np.minimum,
    max=np.maximum,
    and_=np.bitwise_and,
    or_=np.bitwise_or,
    xor=np.bitwise_xor,
    shl=lambda a, b: np.left_shift(a, _shift_count(b)),
    shr=lambda a, b: np.right_shift(a, _shift_count(b)),
    add_sat=_add_sat,
    sub_sat=_sub_sat,
    mul_sat=_mul_sat,
    mulhi=_mulhi,
    rotl=_rotl,
    rotr=lambda a, b: _rotl(a, -b),
    absdiff=lambda a, b: np.maximum(a, b) - np.minimum(a, b),
)
_BOOL_BINARY = _table(and_=np.logical_and, or_=np.logical_or, xor=np.logical_xor)
_COMPARISONS = _table(
    eq=np.equal, ne=np.not_equal, lt=np.less, le=np.less_equal, gt=np.greater, ge=np.greater_equal
)
_FLOAT_UNARY = _table(
    neg=np.negative,
    abs=np.abs,
    sqrt=np.sqrt,
    floor=np.floor,
    ceil=np.ceil,
    trunc=np.trunc,
    round_even=np.rint,
    round=_round_half_away,
)
_INT_UNARY = _table(
    neg=np.negative,
    abs=np.abs,
    not_=np.invert,
    popcount=_popcount,
    clz=_clz,
    ctz=_ctz,
    reverse_bits=_reverse_bits,
)
_BOOL_UNARY = _table(not_=np.logical_not)
