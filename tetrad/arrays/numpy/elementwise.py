"""Arrays, NumPy's names: functions of single elements, composed of ops.

Receives arrays, returns arrays.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tetrad.arrays.creation import asarray
from tetrad.arrays.manipulation import broadcast_arrays
from tetrad.arrays.numpy.common import floats, no_out, where
from tetrad.arrays.statistics import any
from tetrad.core.dtypes import bool_, f32, f64, i32, i64, u8, u64
from tetrad.core.errors import DtypeError
from tetrad.tracing.array import Array, fail
from tetrad.tracing.loops import while_loop
from tetrad.tracing.operands import apply, as_array, common, convert, expand, run


def round(a: Any, decimals: int = 0, out: None = None) -> Array:
    """Rounded to so many decimals (negative: to tens, hundreds, ...); halves go to the even
    neighbour.

    >>> import tetrad as td
    >>> td.round(td.asarray([0.5, 1.25, 2.346]), 2)
    Array([0.5 , 1.25, 2.35], float32)
    """
    no_out("round", out)
    x = as_array(a)
    if not isinstance(decimals, int | np.integer):
        fail(DtypeError, f"round: decimals is an int, got {decimals!r}")
    if decimals == 0:
        return apply("round", x)
    if x.dtype.is_complex:
        return run("complex", *(round(run(part, x), decimals) for part in ("real", "imag")))
    if x.dtype.is_integer:
        return x if decimals > 0 else _round_integers(x, int(decimals))
    wide = convert(x, f32) if x.dtype.bits < 32 else x
    factor = 10.0 ** abs(decimals)
    scaled = apply("multiply" if decimals > 0 else "divide", wide, factor)
    back = apply("divide" if decimals > 0 else "multiply", apply("round", scaled), factor)
    return convert(back, x.dtype)


def _round_integers(x: Array, decimals: int) -> Array:
    """To tens, hundreds, ...: exact, in the widest integers."""
    wide = convert(x, i64 if x.dtype.is_signed else u64)
    step = 10**-decimals
    if step > np.iinfo(wide.dtype.np).max:
        return apply("multiply", x, 0)
    count = apply("floor_divide", wide, step)
    rest = apply("subtract", wide, apply("multiply", count, step))
    half = step // 2
    is_odd = apply("not_equal", apply("bitwise_and", count, 1), 0)
    is_up = apply(
        "logical_or",
        apply("greater", rest, half),
        apply("logical_and", apply("equal", rest, half), is_odd),
    )
    return convert(
        apply("multiply", apply("add", count, convert(is_up, wide.dtype)), step), x.dtype
    )


def rint(x: Any, /) -> Array:
    """The nearest whole number, as a float; halves go to the even neighbour."""
    given = as_array(x)
    return apply(
        "round", given if given.dtype.is_float or given.dtype.is_complex else convert(given, f32)
    )


# -- rounding and remainders -----------------------------------------------------------------------


def fabs(x: Any, /) -> Array:
    """The magnitude, as a float."""
    (given,) = floats(x)
    return apply("abs", given)


def fmod(x1: Any, x2: Any, /) -> Array:
    """The remainder of a division towards zero: it has the sign of x1.

    >>> import tetrad as td
    >>> td.fmod(td.asarray([-3, 3]), 2)
    Array([-1,  1], int32)
    """
    x, y = common((x1, x2))
    if x.dtype.is_integer:
        rest = apply("remainder", x, y)
        is_other = apply("logical_and", apply("not_equal", rest, 0), _differ(x, rest))
        return where(is_other, apply("subtract", rest, y), rest)
    x, y = floats(x, y)
    return apply("copysign", apply("remainder", apply("abs", x), apply("abs", y)), x)


def _differ(x: Array, y: Array) -> Array:
    """Where signs differ."""
    return apply("logical_xor", apply("less", x, 0), apply("less", y, 0))


def divmod(x1: Any, x2: Any, /) -> tuple[Array, Array]:
    """The quotient rounded down, and the remainder, as Python's divmod.

    >>> import tetrad as td
    >>> td.divmod(7, 2)
    (Array(3, int32), Array(1, int32))
    """
    return apply("floor_divide", x1, x2), apply("remainder", x1, x2)


def fix(x: Any, /, out: None = None) -> Array:
    """Rounded toward zero: `td.trunc`, as floats.

    >>> import tetrad as td
    >>> td.fix(td.asarray([2.7, -2.7]))
    Array([ 2., -2.], float32)
    """
    no_out("fix", out)
    return apply("trunc", x)


def modf(x: Any, /) -> tuple[Array, Array]:
    """The part behind the point and the whole part, both with the sign of x.

    >>> import tetrad as td
    >>> td.modf(td.asarray(2.5))
    (Array(0.5, float32), Array(2., float32))
    """
    (given,) = floats(x)
    whole = apply("trunc", given)
    rest = where(apply("isinf", given), 0, apply("subtract", given, whole))
    return apply("copysign", rest, given), whole


def frexp(x: Any, /) -> tuple[Array, Array]:
    """A number of magnitude 0.5 or more and below 1, and the power of two it is to be multiplied
    with.

    >>> import tetrad as td
    >>> td.frexp(td.asarray(6.0))
    (Array(0.75, float32), Array(3, int32))
    """
    (given,) = floats(x)
    wide = convert(given, f32) if given.dtype.bits < 32 else given
    is_plain = apply("logical_and", apply("isfinite", wide), apply("not_equal", wide, 0))
    size = where(is_plain, apply("abs", wide), 1)
    lift = 64 if wide.dtype is f64 else 30  # subnormal numbers are made normal ones first
    is_tiny = apply("less", size, 2.0**-1000 if wide.dtype is f64 else 2.0**-120)
    size = where(is_tiny, apply("multiply", size, 2.0**lift), size)
    power = convert(apply("floor", apply("log2", size)), i32)
    share = ldexp(size, apply("negative", power))
    # the logarithm of a number beside a power of two may be rounded to that of the power
    above, below = (convert(found, i32) for found in (share >= 2, share < 1))
    power = apply("add", apply("subtract", power, below), above)
    share = ldexp(size, apply("negative", apply("add", power, 1)))
    power = apply("subtract", apply("add", power, 1), where(is_tiny, lift, 0))
    mantissa = apply("copysign", share, wide)
    return (
        convert(where(is_plain, mantissa, wide), given.dtype),
        where(is_plain, power, 0),
    )


def ldexp(x1: Any, x2: Any, /) -> Array:
    """x1 times two to the power of the integer x2.

    >>> import tetrad as td
    >>> td.ldexp(td.asarray(0.75), 3)
    Array(6., float32)
    """
    (x,) = floats(x1)
    power = as_array(x2)
    if not power.dtype.is_integer:
        fail(DtypeError, f"ldexp: the power is an integer, got {power.type}")
    # in four steps, so that no factor is beyond the range; the largest comes last
    wide = convert(x, f32) if x.dtype.bits < 32 else x
    left = convert(apply("minimum", apply("maximum", power, -9000), 9000), i32)
    most = 1000 if wide.dtype is f64 else 120
    for _ in range(3):
        step = apply("minimum", apply("maximum", left, -most), most)
        wide = apply("multiply", wide, apply("exp2", convert(step, wide.dtype)))
        left = apply("subtract", left, step)
    return convert(wide, x.dtype)


# -- roots, powers, logarithms ---------------------------------------------------------------------


def cbrt(x: Any, /) -> Array:
    """The cube root, also of negative numbers.

    >>> import tetrad as td
    >>> td.cbrt(td.asarray([-8.0, 27.0]))
    Array([-2.,  3.], float32)
    """
    (given,) = floats(x)
    wide = convert(given, f32) if given.dtype.bits < 32 else given
    is_plain = apply("logical_and", apply("isfinite", wide), apply("not_equal", wide, 0))
    size = where(is_plain, apply("abs", wide), 1)
    root = apply("pow", size, 1 / 3)
    square = apply("square", root)  # a step of Newton's method; the power is not exact
    root = root - (root * square - size) / (3 * square)
    # at zero the slope is infinite, which the square root says
    edge = where(is_plain, 0, wide)
    found = where(is_plain, apply("copysign", root, wide), _edge_root(edge))
    return convert(found, given.dtype)


def _edge_root(x: Array) -> Array:
    """Of zero, infinity and NaN the number itself."""
    return apply("copysign", apply("sqrt", apply("abs", x)), x)


def float_power(x1: Any, x2: Any, /) -> Array:
    """x1 to the power x2, in floats also for integers.

    >>> import tetrad as td
    >>> td.float_power(2, -1)
    Array(0.5, float32)
    """
    x, y = floats(x1, x2)
    return apply("pow", x, y)


def logaddexp2(x1: Any, x2: Any, /) -> Array:
    """log2(2**x1 + 2**x2), without overflow.

    >>> import tetrad as td
    >>> td.logaddexp2(td.asarray(1000.0), 1000.0)
    Array(1001., float32)
    """
    x, y = floats(x1, x2)
    high, low = apply("maximum", x, y), apply("minimum", x, y)
    apart = where(apply("equal", high, low), 0, apply("subtract", low, high))
    more = apply("multiply", apply("log1p", apply("exp2", apart)), 1 / math.log(2))
    return apply("add", high, more)


def sinc(x: Any, /) -> Array:
    """sin(pi x) / (pi x), which is 1 at 0.

    >>> import tetrad as td
    >>> td.sinc(td.asarray([0.0, 0.5]))
    Array([1.        , 0.63661975], float32)
    """
    (given,) = floats(x)
    angle = apply("multiply", given, math.pi)
    is_small = apply("less", apply("abs", angle), 0.03)
    # near zero the series, whose derivatives are right there as well
    square = apply("square", where(is_small, angle, 0))
    series = 1 - square / 6 * (1 - square / 20 * (1 - square / 42 * (1 - square / 72)))
    away = where(is_small, 1, angle)
    return where(is_small, series, apply("divide", apply("sin", away), away))


# -- comparisons -----------------------------------------------------------------------------------


def fmax(x1: Any, x2: Any) -> Array:
    """The larger of two numbers; NaN only where both are.

    >>> import tetrad as td
    >>> td.fmax(td.asarray([1.0, float("nan")]), 0.5)
    Array([1. , 0.5], float32)
    """
    return _number_of("maximum", x1, x2)


def fmin(x1: Any, x2: Any) -> Array:
    """The smaller of two numbers; NaN only where both are."""
    return _number_of("minimum", x1, x2)


def _number_of(name: str, x1: Any, x2: Any) -> Array:
    x, y = common((x1, x2))
    found = apply(name, x, y)
    if not (x.dtype.is_float or x.dtype.is_complex):
        return found
    return where(apply("isnan", x), y, where(apply("isnan", y), x, found))


def heaviside(x1: Any, x2: Any, /) -> Array:
    """0 below zero, 1 above it, x2 at it.

    >>> import tetrad as td
    >>> td.heaviside(td.asarray([-1.0, 0.0, 2.0]), 0.5)
    Array([0. , 0.5, 1. ], float32)
    """
    x, at_zero = floats(x1, x2)
    sides = where(apply("less", x, 0), 0.0, where(apply("equal", x, 0), at_zero, 1.0))
    return where(apply("isnan", x), x, convert(sides, x.dtype))


def isneginf(x: Any, out: None = None) -> Array:
    """Where elements are minus infinity."""
    no_out("isneginf", out)
    return apply("logical_and", apply("isinf", x), apply("less", x, 0))


def isposinf(x: Any, out: None = None) -> Array:
    """Where elements are infinity."""
    no_out("isposinf", out)
    return apply("logical_and", apply("isinf", x), apply("greater", x, 0))


def iscomplex(x: Any) -> Array:
    """Where elements have an imaginary part that is not 0."""
    given = asarray(x)
    if not given.dtype.is_complex:
        return expand(convert(False, bool_), given.shape)
    return apply("not_equal", given.imag, 0)


def isreal(x: Any) -> Array:
    """Where elements have no imaginary part, or 0."""
    return apply("logical_not", iscomplex(x))


def spacing(x: Any, /) -> Array:
    """How far the next number is, away from zero."""
    (given,) = floats(x)
    ahead = apply("nextafter", given, apply("copysign", float("inf"), given))
    return where(apply("isinf", given), float("nan"), apply("subtract", ahead, given))


# -- angles ----------------------------------------------------------------------------------------


def deg2rad(x: Any, /) -> Array:
    """Angles in degrees as radians.

    >>> import tetrad as td
    >>> td.deg2rad(td.asarray(180.0))
    Array(3.1415927, float32)
    """
    (given,) = floats(x)
    return apply("multiply", given, math.pi / 180)


def rad2deg(x: Any, /) -> Array:
    """Angles in radians as degrees."""
    (given,) = floats(x)
    return apply("multiply", given, 180 / math.pi)


def angle(z: Any, deg: bool = False) -> Array:
    """The angle of a complex number in the plane, in radians or degrees."""
    given = as_array(z)
    found = apply("angle", given)
    return rad2deg(found) if deg else found


# -- integers --------------------------------------------------------------------------------------


def bitwise_count(x: Any, /) -> Array:
    """How many bits of the magnitude are set.

    >>> import tetrad as td
    >>> td.bitwise_count(td.asarray([7, -8]))
    Array([3, 1], uint8)
    """
    given = as_array(x)
    if given.dtype is bool_:
        return convert(given, u8)
    if not given.dtype.is_integer:
        fail(DtypeError, f"bitwise_count: takes integers, got {given.type}")
    size = apply("abs", given) if given.dtype.is_signed else given
    bits = convert(size, u64)
    if given.dtype.is_signed and given.dtype.bits < 64:  # the least integer has no magnitude
        bits = apply("bitwise_and", bits, (1 << given.dtype.bits) - 1)
    for shift, mask in ((1, 0x5555555555555555), (2, 0x3333333333333333), (4, 0x0F0F0F0F0F0F0F0F)):
        ones = apply("bitwise_and", bits, mask)
        more = apply("bitwise_and", apply("bitwise_right_shift", bits, shift), mask)
        bits = apply("add", ones, more)
    whole = apply("multiply", bits, 0x0101010101010101)
    return convert(apply("bitwise_right_shift", whole, 56), u8)


def gcd(x1: Any, x2: Any) -> Array:
    """The greatest common divisor.

    >>> import tetrad as td
    >>> td.gcd(td.asarray([12, 7]), 18)
    Array([6, 1], int32)
    """
    x, y = broadcast_arrays(*common((x1, x2)))
    if not x.dtype.is_integer:
        fail(DtypeError, f"gcd: takes integers, got {x.type}")
    sizes = (apply("abs", x), apply("abs", y)) if x.dtype.is_signed else (x, y)
    divisor, _ = while_loop(lambda pair: any(apply("not_equal", pair[1], 0)), _euclid, sizes)
    found: Array = divisor
    return found


def _euclid(pair: tuple[Array, Array]) -> tuple[Array, Array]:
    a, b = pair
    is_done = apply("equal", b, 0)
    rest = apply("remainder", a, where(is_done, 1, b))
    return where(is_done, a, b), where(is_done, b, rest)


def lcm(x1: Any, x2: Any) -> Array:
    """The least common multiple.

    >>> import tetrad as td
    >>> td.lcm(4, 6)
    Array(12, int32)
    """
    x, y = broadcast_arrays(*common((x1, x2)))
    divisor = gcd(x, y)
    is_zero = apply("equal", divisor, 0)
    times = apply("floor_divide", x, where(is_zero, 1, divisor))
    found = apply("multiply", times, y)
    return where(is_zero, 0, apply("abs", found) if x.dtype.is_signed else found)
