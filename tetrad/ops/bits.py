"""Ops: bits of integers, element by element. On bool, and, or, xor and invert are the logical ones.

Shifting by the width or more gives 0 (or -1, right of a negative number); a negative count is as
large as can be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tetrad.core.dtypes import bool_
from tetrad.core.op import Case, op
from tetrad.ops.cases import Rng, pick, random_array, random_shape, same_shaped, unary
from tetrad.ops.rules import INTS, Array, same_type

if TYPE_CHECKING:
    from tetrad.kernel.build import KernelBuilder, Val

BITS = (*INTS, bool_)


@op(type=same_type("bitwise_and", BITS), cases=same_shaped(2, BITS), dtypes=BITS, promote="numeric")
def bitwise_and(x: Array, y: Array) -> Array:
    """Bits set in both.

    >>> bitwise_and(np.array([12]), np.array([10]))
    array([8])
    """
    return np.bitwise_and(x, y)


@bitwise_and.lower
def bitwise_and_lower(k: KernelBuilder, x: Val, y: Val) -> Val:
    return x & y


@op(type=same_type("bitwise_or", BITS), cases=same_shaped(2, BITS), dtypes=BITS, promote="numeric")
def bitwise_or(x: Array, y: Array) -> Array:
    """Bits set in at least one.

    >>> bitwise_or(np.array([12]), np.array([10]))
    array([14])
    """
    return np.bitwise_or(x, y)


@bitwise_or.lower
def bitwise_or_lower(k: KernelBuilder, x: Val, y: Val) -> Val:
    return x | y


@op(type=same_type("bitwise_xor", BITS), cases=same_shaped(2, BITS), dtypes=BITS, promote="numeric")
def bitwise_xor(x: Array, y: Array) -> Array:
    """Bits set in exactly one.

    >>> bitwise_xor(np.array([12]), np.array([10]))
    array([6])
    """
    return np.bitwise_xor(x, y)


@bitwise_xor.lower
def bitwise_xor_lower(k: KernelBuilder, x: Val, y: Val) -> Val:
    return x ^ y


@op(type=same_type("bitwise_invert", BITS), cases=unary(BITS), dtypes=BITS, promote="numeric")
def bitwise_invert(x: Array) -> Array:
    """Every bit flipped.

    >>> bitwise_invert(np.array([0, 5]))
    array([-1, -6])
    """
    return np.invert(x)


@bitwise_invert.lower
def bitwise_invert_lower(k: KernelBuilder, x: Val) -> Val:
    return ~x


def _shift_cases(rng: Rng) -> Case:
    """Counts around the width, and some that make no sense."""
    dtype, shape = pick(rng, INTS), random_shape(rng)
    counts = rng.integers(0, dtype.bits + 3, shape).astype(dtype.np)
    odd = random_array(rng, dtype, shape)
    return Case((random_array(rng, dtype, shape), np.where(rng.random(shape) < 0.1, odd, counts)))


@op(
    type=same_type("bitwise_left_shift", INTS),
    cases=_shift_cases,
    dtypes=INTS,
    promote="numeric",
    cost=3,
)
def bitwise_left_shift(x: Array, y: Array) -> Array:
    """x * 2**y, bits beyond the width are lost.

    >>> bitwise_left_shift(np.uint8([3, 3]), np.uint8([1, 7]))
    array([  6, 128], dtype=uint8)
    """
    return np.left_shift(x, y)


@bitwise_left_shift.lower
def bitwise_left_shift_lower(k: KernelBuilder, x: Val, y: Val) -> Val:
    return k.select(_in_width(k, x, y), x << y, k.const(0, x.dtype))


@op(
    type=same_type("bitwise_right_shift", INTS),
    cases=_shift_cases,
    dtypes=INTS,
    promote="numeric",
    cost=3,
)
def bitwise_right_shift(x: Array, y: Array) -> Array:
    """x / 2**y rounded down.

    >>> bitwise_right_shift(np.array([-5, 5]), np.array([1, 1]))
    array([-3,  2])
    """
    return np.right_shift(x, y)


@bitwise_right_shift.lower
def bitwise_right_shift_lower(k: KernelBuilder, x: Val, y: Val) -> Val:
    beyond = x >> (x.dtype.bits - 1) if x.dtype.is_signed else k.const(0, x.dtype)
    return k.select(_in_width(k, x, y), x >> y, beyond)


def _in_width(k: KernelBuilder, x: Val, y: Val) -> Val:
    """The kernel language takes counts modulo the width, so a larger one is told apart first.

    An i8 comes as an i32: shifts by 8 to 31 then already lose or repeat every bit that counts.
    """
    below = y < x.dtype.bits
    return k.binary("and", y >= 0, below) if x.dtype.is_signed else below
