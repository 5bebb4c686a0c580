"""Arrays, NumPy's names: the bits of elements as elements of another dtype: `x.view(dtype)`.

Elements of 32 and 64 bits are read as they are; those of 8 and 16, which kernels hold wider, are
put together from integers. NaNs of 16 bits stay NaNs, whichever they were.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tetrad.arrays.creation import asarray
from tetrad.arrays.manipulation import reshape, stack
from tetrad.arrays.numpy.common import where
from tetrad.core.dtypes import DType, as_dtype, bf16, bool_, canonical, f16, f32, named
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.tracing.array import Array, TracedArray, fail
from tetrad.tracing.operands import apply, as_array, convert, run

HALF_BIAS = (127 - 15) << 23  # what the exponent of f32 has more than that of f16, in its place
F32_INF, F16_INF = 0x7F800000, 0x7C00
LEAST_NORMAL = 0x38800000  # 2**-14 as f32: below it an f16 is subnormal


def bitcast(x: Any, dtype: Any = None) -> Array:
    """The memory of an array as elements of another dtype, as NumPy's `x.view(dtype)`: those of
    another width change the size of the last axis.

    >>> import tetrad as td
    >>> td.asarray([1.0, -2.0]).view(td.uint32)
    Array([1065353216, 3221225472], uint32)
    >>> td.asarray([[1, 2]], dtype=td.int16).view("uint8")
    Array([[1, 0, 2, 0]], uint8)
    """
    given = as_array(x)
    goal = given.dtype if dtype is None else canonical(as_dtype(dtype))
    _check(given, goal)
    if goal is given.dtype:
        return given
    if not isinstance(given, TracedArray):
        return asarray(
            np.ascontiguousarray(given.memory).view(goal.np).reshape(_shape(given, goal))
        )
    return _from_integers(_regrouped(_integers(given), goal.real), goal)


def _check(x: Array, goal: DType) -> None:
    wrong = next((d for d in (x.dtype, goal) if d.is_quantized or d.kind == "x"), None)
    if wrong is not None:
        fail(
            DtypeError,
            f"bitcast: {wrong} has no elements of whole bytes",
            "x.dequantize() has numbers",
        )
    if goal is bool_ and x.dtype is not bool_:
        fail(DtypeError, f"bitcast: bits of {x.type} are no truth values", "compare: x != 0")
    _shape(x, goal)


def _shape(x: Array, goal: DType) -> tuple[Any, ...]:
    """The shape of the view."""
    have, want = x.dtype.nbytes, goal.nbytes
    if have == want:
        return x.shape
    if not x.ndim:
        message = f"bitcast: {x.type} has one element of {have} bytes, {goal.name} has {want}"
        fail(ShapeError, message, "x.reshape(1) has an axis to divide")
    if have * x.shape[-1] % want:
        message = f"bitcast: the last axis of {x.type} has {have * x.shape[-1]} bytes"
        fail(ShapeError, message, f"they must be a multiple of the {want} of {goal.name}")
    return (*x.shape[:-1], x.shape[-1] * have // want)


def _unsigned(dtype: DType) -> DType:
    return named(f"u{max(dtype.bits, 8)}")


def _integers(x: Array) -> Array:
    """The bits of elements as unsigned integers of the same width; those of a complex number are
    two integers."""
    dtype = x.dtype
    if dtype.is_complex:
        parts = stack([apply("real", x), apply("imag", x)], axis=-1)
        return _integers(reshape(parts, (*x.shape[:-1], -1) if x.ndim else (2,)))
    if dtype in (f16, bf16):
        return _bits_of_half(x)
    if dtype.is_float:
        return run("bitcast", x, dtype=_unsigned(dtype))
    return convert(x, _unsigned(dtype))  # wraps


def _from_integers(x: Array, goal: DType) -> Array:
    """Elements with these bits."""
    if goal.is_complex:
        pairs = reshape(_from_integers(x, goal.real), (*x.shape[:-1], -1, 2))
        return apply("complex", pairs[..., 0], pairs[..., 1])
    if goal in (f16, bf16):
        return _half_of_bits(x, goal)
    if goal.is_float:
        return run("bitcast", x, dtype=goal)
    return convert(x, goal)


def _regrouped(x: Array, goal: DType) -> Array:
    """Unsigned integers of the width of a dtype, with the same bits in the same order: the lowest
    come first in memory."""
    wide, narrow = x.dtype.bits, max(goal.bits, 8)
    if wide == narrow:
        return x
    made = _unsigned(goal)
    if wide > narrow:
        parts = [convert(apply("bitwise_right_shift", x, i), made) for i in range(0, wide, narrow)]
        return reshape(stack(parts, axis=-1), (*x.shape[:-1], x.shape[-1] * wide // narrow))
    count = narrow // wide
    groups = convert(reshape(x, (*x.shape[:-1], x.shape[-1] // count, count)), made)
    found = groups[..., 0]
    for i in range(1, count):
        shifted = apply("bitwise_left_shift", groups[..., i], i * wide)
        found = apply("bitwise_or", found, shifted)
    return found


def _bits_of_half(x: Array) -> Array:
    """The bits of f16 or bf16, which are among those of the f32 of the same value."""
    word = named("u32")
    bits = run("bitcast", convert(x, f32), dtype=word)
    if x.dtype is bf16:
        return convert(apply("bitwise_right_shift", bits, 16), named("u16"))
    size, sign = bits & 0x7FFFFFFF, apply("bitwise_right_shift", bits, 16) & 0x8000
    small = convert(apply("abs", convert(x, f32)) * 2.0**24, word)
    normal = apply("bitwise_right_shift", size - HALF_BIAS, 13)
    special = (apply("bitwise_right_shift", size, 13) & 0x3FF) | F16_INF
    finite = where(size < LEAST_NORMAL, small, normal)
    return convert(where(size < F32_INF, finite, special) | sign, named("u16"))


def _half_of_bits(x: Array, goal: DType) -> Array:
    word = named("u32")
    bits = convert(x, word)
    if goal is bf16:
        high = apply("bitwise_left_shift", bits, 16)
        return convert(run("bitcast", high, dtype=f32), bf16)
    size, sign = bits & 0x7FFF, apply("bitwise_left_shift", bits & 0x8000, 16)
    small = run("bitcast", convert(size, f32) * 2.0**-24, dtype=word)
    normal = apply("bitwise_left_shift", size, 13) + HALF_BIAS
    special = apply("bitwise_left_shift", size & 0x3FF, 13) | F32_INF
    found = where(size < 0x400, small, where(size < F16_INF, normal, special))
    return convert(run("bitcast", found | sign, dtype=f32), f16)
