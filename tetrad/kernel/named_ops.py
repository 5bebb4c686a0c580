"""Kernel language, operators by name: those without a sign in Python, as methods of the builder.

Receives a builder and operands, of which one may be a Python number; returns a value. What the
operators mean is in `kernel.nodes` and `kernel.arith`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tetrad.kernel.build import KernelBuilder, Val


def min(k: KernelBuilder, a: object, b: object) -> Val:
    return k.binary("min", a, b)


def max(k: KernelBuilder, a: object, b: object) -> Val:
    return k.binary("max", a, b)


def sqrt(k: KernelBuilder, x: object) -> Val:
    return k.unary("sqrt", x)


def abs(k: KernelBuilder, x: object) -> Val:
    return k.unary("abs", x)


def floor(k: KernelBuilder, x: object) -> Val:
    return k.unary("floor", x)


def round_even(k: KernelBuilder, x: object) -> Val:
    return k.unary("round_even", x)


def copysign(k: KernelBuilder, magnitude: object, sign: object) -> Val:
    return k.binary("copysign", magnitude, sign)


# -- integers --------------------------------------------------------------------------------------


def add_sat(k: KernelBuilder, a: object, b: object) -> Val:
    """a + b, or the end of the type that it lies beyond; of integers of at most 32 bits."""
    return k.binary("add_sat", a, b)


def sub_sat(k: KernelBuilder, a: object, b: object) -> Val:
    """a - b, or the end of the type that it lies beyond; of integers of at most 32 bits."""
    return k.binary("sub_sat", a, b)


def mul_sat(k: KernelBuilder, a: object, b: object) -> Val:
    """a * b, or the end of the type that it lies beyond; of integers of at most 32 bits."""
    return k.binary("mul_sat", a, b)


def mulhi(k: KernelBuilder, a: object, b: object) -> Val:
    """The upper 32 bits of the product of two u32 or two i32."""
    return k.binary("mulhi", a, b)


def rotl(k: KernelBuilder, a: object, count: object) -> Val:
    """The bits of a u32 turned to the left, the count modulo 32."""
    return k.binary("rotl", a, count)


def rotr(k: KernelBuilder, a: object, count: object) -> Val:
    """The bits of a u32 turned to the right, the count modulo 32."""
    return k.binary("rotr", a, count)


def absdiff(k: KernelBuilder, a: object, b: object) -> Val:
    """The distance of two u32."""
    return k.binary("absdiff", a, b)


def reverse_bits(k: KernelBuilder, x: object) -> Val:
    """The bits of an integer from the last to the first."""
    return k.unary("reverse_bits", x)
