"""Ops: conversion between element types, by value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tetrad.core.dtypes import DType, as_dtype, bf16, bool_, f16, f32, f64, i32, i64, u32, u64
from tetrad.core.errors import DtypeError
from tetrad.core.op import Case, op
from tetrad.core.types import ArrayType
from tetrad.graph.nodes import Node
from tetrad.kernel import arith
from tetrad.ops import signs
from tetrad.ops.calculus import cast as cast_to
from tetrad.ops.calculus import run
from tetrad.ops.cases import Rng, pick, random_array, random_shape
from tetrad.ops.rules import COMPLEX, EVERY, HALVES, Array, check_dtype

if TYPE_CHECKING:
    from tetrad.kernel.build import KernelBuilder, Val

WIDE = (f64, i32, i64, u32, u64)  # types with more bits than f32 holds


def cast_type(x: ArrayType, *, dtype: DType) -> ArrayType:
    check_dtype("cast", x.dtype, EVERY)
    check_dtype("cast", dtype, EVERY)
    if x.dtype.is_complex and not (dtype.is_complex or dtype is bool_):
        message = f"cast: a complex number is no {dtype}, its imaginary part would be lost"
        raise DtypeError(message, hint="take td.real, td.imag or td.abs of it first")
    return x.with_dtype(dtype)


def _cast_cases(rng: Rng) -> Case:
    source = pick(rng, EVERY)
    goal = pick(rng, (*COMPLEX, bool_) if source in COMPLEX else EVERY)
    return Case((random_array(rng, source, random_shape(rng), special=0.3),), {"dtype": goal})


@op(
    type=cast_type,
    cases=_cast_cases,
    dtypes=EVERY,
    public=False,
    converts=True,
    sign=signs.as_operand,
)
def cast(x: Array, *, dtype: DType) -> Array:
    """Value conversion: float to int truncates, saturates, NaN gives 0; int to int wraps; to bool
    tests for nonzero; to float rounds once, to nearest even. A complex number becomes complex or
    bool only.

    >>> from tetrad.core.dtypes import i32
    >>> cast(np.array([2.7, -2.7, 1e30, np.nan]), dtype=i32)
    array([         2,         -2, 2147483647,          0], dtype=int32)
    """
    array, source = np.asarray(x), as_dtype(np.asarray(x).dtype)
    if dtype.is_complex or source.is_complex:
        return _complex_cast(array, source, dtype)
    if source in HALVES:
        array, source = array.astype(np.float32), f32
    with np.errstate(all="ignore"):
        # the bf16 of ml_dtypes comes through f32, rounding twice
        if dtype is bf16 and source in WIDE:
            array, source = odd_f32(_odd_f64(array)), f32
        return np.asarray(arith.cast(array, source, dtype))


def _complex_cast(x: Array, source: DType, dtype: DType) -> Array:
    with np.errstate(all="ignore"):
        if source.is_complex:
            return np.asarray(x != 0 if dtype is bool_ else x.astype(dtype.np))
        return np.asarray(arith.cast(x, source, dtype.real)).astype(dtype.np)


def _odd_f64(x: Array) -> Array:
    """x as f64; what does not fit leaves its mark in the last bit (round to odd), so that the next
    rounding sees it."""
    if x.dtype not in (np.int64, np.uint64):
        return x.astype(np.float64)
    marked = ((x >> 11) | ((x & 2047) != 0).astype(x.dtype)) << 11
    return np.where(np.abs(x) >> 53 != 0, marked, x).astype(np.float64)


def odd_f32(x: Array) -> Array:
    near = x.astype(np.float32)
    bits = near.view(np.int32)
    toward_zero = np.where(np.abs(near.astype(np.float64)) > np.abs(x), bits - 1, bits)
    return np.where(near.astype(np.float64) == x, bits, toward_zero | 1).view(np.float32)


@cast.lower
def cast_lower(k: KernelBuilder, x: Val, *, dtype: DType) -> Val:
    """A half is reached through f32, which the caller converts. The first rounding is to odd: only
    the second counts."""
    if dtype not in HALVES:
        return k.cast(x, dtype)
    if x.dtype not in WIDE:
        return k.cast(x, f32)
    if dtype is f16 and x.dtype is not f64:
        return k.cast(x, f32)  # exact below 2**24, and infinite in f16 long before
    return lower_odd_f32(k, _lower_odd_f64(k, x))


def _cast_back(ct: Node, x: Node, *, dtype: DType) -> Node:
    is_real = dtype.is_complex and not x.type.dtype.is_complex
    return cast_to(run("real", ct) if is_real else ct, x.type.dtype)


cast.transpose(_cast_back)


# -- bits as another type --------------------------------------------------------------------------


WORDS = {d: tuple(e for e in (f32, f64, i32, i64, u32, u64) if e.bits == d.bits)
         for d in (f32, f64, i32, i64, u32, u64)}  # fmt: skip


def bitcast_type(x: ArrayType, *, dtype: DType) -> ArrayType:
    check_dtype("bitcast", x.dtype, tuple(WORDS))
    check_dtype(f"bitcast of {x.dtype}", dtype, WORDS[x.dtype])
    return x.with_dtype(dtype)


def _bitcast_cases(rng: Rng) -> Case:
    source = pick(rng, tuple(WORDS))
    given = random_array(rng, source, random_shape(rng), special=0.3)
    return Case((given,), {"dtype": pick(rng, WORDS[source])})


@op(type=bitcast_type, cases=_bitcast_cases, dtypes=tuple(WORDS), public=False)
def bitcast(x: Array, *, dtype: DType) -> Array:
    """The bits of each element as an element of another type of as many bits.

    >>> from tetrad.core.dtypes import i32
    >>> bitcast(np.float32([1.0, -0.0]), dtype=i32)
    array([ 1065353216, -2147483648], dtype=int32)
    """
    return np.asarray(x).view(dtype.np)


@bitcast.lower
def bitcast_lower(k: KernelBuilder, x: Val, *, dtype: DType) -> Val:
    return k.bitcast(x, dtype)


bitcast.not_differentiable("bits do not change smoothly")


def _lower_odd_f64(k: KernelBuilder, x: Val) -> Val:
    if x.dtype not in (i64, u64):
        return k.cast(x, f64)
    marked = ((x >> 11) | k.cast((x & 2047).ne(0), x.dtype)) << 11
    return k.cast(k.select((k.abs(x) >> 53).ne(0), marked, x), f64)


def lower_odd_f32(k: KernelBuilder, x: Val) -> Val:
    near = k.cast(x, f32)
    back, bits = k.cast(near, f64), k.bitcast(near, i32)
    toward_zero = k.select(k.abs(back) > k.abs(x), bits - 1, bits)
    return k.bitcast(k.select(back.eq(x), bits, toward_zero | 1), f32)
