"""Passes, algebra: rules that remove arithmetic. Bit-exact (NaN payloads are free), or the rule
names its licence.

Receives and returns graphs through the rule engine. In a pattern `x + 0` means +0.0 for floats,
which differs from -0.0. Adding 0.0 turns -0.0 into 0.0, so that rule holds for integers only;
adding -0.0 and subtracting 0.0 change nothing, for any type.
"""

# mypy: disable-error-code="no-any-return"
# Op functions return what their operands are: nodes, here.

from __future__ import annotations

import math

import numpy as np

from tetrad.core.dtypes import DType, bf16, bool_, f16, f32, f64
from tetrad.graph.constants import constant_value
from tetrad.graph.nodes import Node
from tetrad.ops.arithmetic import abs_, add, maximum, minimum, multiply, negative, pow_, subtract
from tetrad.ops.compare import (
    equal,
    greater,
    greater_equal,
    less,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
    not_equal,
    where,
)
from tetrad.ops.convert import cast
from tetrad.passes.rewrite import Rules, full, is_number, var

algebra = Rules("algebra")
x, y, c = var("x"), var("y"), var("c")


def is_integer(node: Node) -> bool:
    return node.type.dtype.is_integer


def is_signed(node: Node) -> bool:
    return node.type.dtype.is_float or node.type.dtype.is_signed


n = var("n", where=is_integer)


# -- neutral and absorbing elements ----------------------------------------------------------------


@algebra.rule(x * 1, 1 * x, x / 1, x - 0, x + -0.0, -0.0 + x)
def neutral_element(x: Node) -> Node:
    """x * 1, x / 1, x - 0, x + -0.0  ->  x."""
    return x


@algebra.rule(n + 0, 0 + n)
def add_zero(n: Node) -> Node:
    """n + 0  ->  n, for integers."""
    return n


@algebra.rule(n * 0, 0 * n)
def multiply_by_zero(n: Node) -> Node:
    """n * 0  ->  0, for integers; a float may be NaN or infinite."""
    return full(0, n.type)


@algebra.rule(n - n)
def subtract_itself(n: Node) -> Node:
    """n - n  ->  0, for integers."""
    return full(0, n.type)


# -- signs -----------------------------------------------------------------------------------------


@algebra.rule(negative(negative(x)))
def double_negative(x: Node) -> Node:
    """-(-x)  ->  x."""
    return x


@algebra.rule(x * -1, -1 * x, -0.0 - x, 0 - n)
def negative_is_shorter(**operand: Node) -> Node:
    """x * -1, -0.0 - x  ->  -x; also 0 - n for integers."""
    return negative(*operand.values())


@algebra.rule(x + -y, -y + x)
def add_negative(x: Node, y: Node) -> Node:
    """x + (-y)  ->  x - y."""
    return subtract(x, y)


@algebra.rule(x - -y)
def subtract_negative(x: Node, y: Node) -> Node:
    """x - (-y)  ->  x + y."""
    return add(x, y)


@algebra.rule(-x * -y)
def multiply_negatives(x: Node, y: Node) -> Node:
    """(-x) * (-y)  ->  x * y."""
    return multiply(x, y)


@algebra.rule(abs_(abs_(x)), abs_(-var("x", where=is_signed)))
def magnitude_has_no_sign(x: Node) -> Node:
    """abs(abs(x)), abs(-x)  ->  abs(x); not for unsigned integers, where -x wraps."""
    return abs_(x)


# -- division, powers ------------------------------------------------------------------------------


@algebra.rule(x / c)
def divide_by_power_of_two(x: Node, c: Node) -> Node | None:
    """x / 2**k  ->  x * 2**-k: both round the same exact quotient."""
    value = constant_value(c)
    if value is None or not math.isfinite(value) or abs(math.frexp(value)[0]) != 0.5:
        return None
    inverse = 1.0 / value
    with np.errstate(over="ignore"):  # the inverse of a subnormal may be too large
        exact = math.isfinite(inverse) and float(np.asarray(inverse, c.type.dtype.np)) == inverse
    return multiply(x, full(inverse, c.type)) if exact else None


@algebra.rule(pow_(x, c), licence="one rounding of x*x is closer than what pow promises")
def second_power(x: Node, c: Node) -> Node | None:
    """pow(x, 2)  ->  x * x."""
    return multiply(x, x) if is_number(constant_value(c), 2) else None


@algebra.rule(pow_(x, 1))
def first_power(x: Node) -> Node:
    """pow(x, 1)  ->  x."""
    return x


# -- choice and comparison -------------------------------------------------------------------------


@algebra.rule(where(c, x, x), where(True, x, y), where(False, y, x))
def choice_is_known(x: Node, **_: Node) -> Node:
    """where(True, x, y), where(c, x, x)  ->  x."""
    return x


@algebra.rule(where(logical_not(c), x, y))
def choice_of_the_other(c: Node, x: Node, y: Node) -> Node:
    """where(not c, x, y)  ->  where(c, y, x)."""
    return where(c, y, x)


@algebra.rule(maximum(x, x), minimum(x, x), logical_and(x, x), logical_or(x, x))
def same_operand_twice(x: Node) -> Node:
    """maximum(x, x)  ->  x; also minimum, and, or."""
    return x


@algebra.rule(less(x, x), greater(x, x), not_equal(n, n))
def never_holds(**operand: Node) -> Node:
    """x < x, x > x  ->  False, NaN or not; n != n for integers."""
    return truth(False, *operand.values())


@algebra.rule(equal(n, n), less_equal(n, n), greater_equal(n, n))
def always_holds(n: Node) -> Node:
    """n == n, n <= n, n >= n  ->  True, for integers; NaN equals nothing."""
    return truth(True, n)


def truth(value: bool, like: Node) -> Node:
    return full(value, like.type.with_dtype(bool_))


@algebra.rule(logical_not(logical_not(x)))
def double_not(x: Node) -> Node:
    """not (not x)  ->  x."""
    return x


@algebra.rule(
    logical_and(x, True), logical_and(True, x), logical_or(x, False), logical_or(False, x)
)
def neutral_truth(x: Node) -> Node:
    """x and True, x or False  ->  x."""
    return x


@algebra.rule(logical_and(x, False), logical_and(False, x))
def and_false(x: Node) -> Node:
    """x and False  ->  False."""
    return truth(False, x)


@algebra.rule(logical_or(x, True), logical_or(True, x))
def or_true(x: Node) -> Node:
    """x or True  ->  True."""
    return truth(True, x)


# -- casts -----------------------------------------------------------------------------------------

# bits; IEEE 754-2019 table 3.5, bfloat16 as in x86 AVX512-BF16
SIGNIFICAND = {f16: 11, bf16: 8, f32: 24, f64: 53}
EXPONENT = {f16: 5, bf16: 8, f32: 8, f64: 11}


def holds(wide: DType, narrow: DType) -> bool:
    """Can `wide` represent every value of `narrow`?"""
    if narrow is bool_ or narrow is wide:
        return True
    if wide.is_complex:
        return holds(wide.real, narrow.real)
    if wide is bool_ or narrow.is_complex or narrow.is_float and not wide.is_float:
        return False
    if wide.is_float and narrow.is_float:
        return SIGNIFICAND[wide] >= SIGNIFICAND[narrow] and EXPONENT[wide] >= EXPONENT[narrow]
    digits = narrow.bits - narrow.is_signed
    if wide.is_float:
        return SIGNIFICAND[wide] >= digits
    return wide.bits - wide.is_signed >= digits and (wide.is_signed or not narrow.is_signed)


@algebra.rule(cast(x, dtype=var("dtype")))
def cast_to_itself(x: Node, dtype: DType) -> Node | None:
    """cast(x, x.dtype)  ->  x."""
    return x if x.type.dtype is dtype else None


@algebra.rule(cast(cast(x, dtype=var("via")), dtype=var("dtype")))
def cast_through_wider(x: Node, via: DType, dtype: DType) -> Node | None:
    """cast(cast(x, via), dtype)  ->  cast(x, dtype), when `via` holds every value of x."""
    given = x.type.dtype
    # A cast from float to integer saturates, from integer to integer it wraps: without the float
    # between, they agree only in range.
    changes_kind = given.is_integer and via.is_float and dtype.is_integer
    if not holds(via, given) or (changes_kind and not holds(dtype, given)):
        return None
    return x if given is dtype else cast(x, dtype=dtype)
