"""Ops: arithmetic, element by element. The Python body is the meaning; `lower` writes one element
for a kernel.

Operands arrive with one shape and dtype; the public functions broadcast and promote first. A
`lower` rule sees f32, f64, i32, i64, u8, u32, u64 and bool values: storage types are widened before
and rounded or wrapped after.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tetrad.core import lazy
from tetrad.core.dtypes import DType, as_dtype, f32, f64, i32, i64
from tetrad.core.errors import BadInputs, TetradError
from tetrad.core.op import Case, op
from tetrad.graph.nodes import Node
from tetrad.kernel import arith
from tetrad.ops import signs
from tetrad.ops.calculus import cast, full_like, no_change, run, times, where, zeros_like
from tetrad.ops.cases import Rng, pick, random_array, random_shape, same_shaped, unary
from tetrad.ops.parts import direction, is_complex, magnitude, multiplied, powered, root
from tetrad.ops.rules import (
    ANY_FLOATS,
    ANY_NUMBERS,
    FLOATS,
    INTS,
    NUMBERS,
    Array,
    complex_ulps,
    ieee,
    precise,
    real_type,
    same_type,
    transcendental_dtypes,
    transcendental_ulps,
)

if TYPE_CHECKING:
    from tetrad.kernel.build import KernelBuilder, Val
    from tetrad.kernel.math import exponential as km
else:
    km = lazy.later("tetrad.kernel.math.exponential")

POWERS = transcendental_dtypes("pow") + INTS


# -- sums, products --------------------------------------------------------------------------------


@op(
    type=same_type("add", ANY_NUMBERS),
    truth="logical_or",
    cases=same_shaped(2, ANY_NUMBERS),
    dtypes=ANY_NUMBERS,
    promote="numeric",
    sign=signs.of_sum,
)
@ieee
def add(x: Array, y: Array) -> Array:
    """Sum, element by element; integers wrap.

    >>> add(np.uint8([1, 250]), np.uint8([2, 10]))
    array([3, 4], dtype=uint8)
    """
    return np.add(x, y)


@add.lower
def add_lower(k: KernelBuilder, x: Val, y: Val) -> Val:
    return x + y


add.transpose(lambda ct, x, y: ct, lambda ct, x, y: ct)
add.jvp(lambda t, z, x, y: t, lambda t, z, x, y: t)


@op(
    type=same_type("subtract", ANY_NUMBERS),
    cases=same_shaped(2, ANY_NUMBERS),
    dtypes=ANY_NUMBERS,
    promote="numeric",
    sign=signs.of_difference,
)
@ieee
def subtract(x: Array, y: Array) -> Array:
    """Difference, element by element; integers wrap.

    >>> subtract(np.array([5.0, 1.0]), np.array([2.0, 4.0]))
    array([ 3., -3.])
    """
    return np.subtract(x, y)


@subtract.lower
def subtract_lower(k: KernelBuilder, x: Val, y: Val) -> Val:
    return x - y


subtract.transpose(lambda ct, x, y: ct, lambda ct, x, y: -ct)
subtract.jvp(lambda t, z, x, y: t, lambda t, z, x, y: -t)


@op(
    type=same_type("multiply", ANY_NUMBERS),
    truth="logical_and",
    cases=same_shaped(2, ANY_NUMBERS),
    dtypes=ANY_NUMBERS,
    promote="numeric",
    sign=signs.of_product,
)
@ieee
def multiply(x: Array, y: Array) -> Array:
    """Product, element by element; integers wrap, complex numbers are multiplied part by part.

    >>> multiply(np.array([2, 3]), np.array([4, -5]))
    array([  8, -15])
    """
    return multiplied(x, y) if is_complex(x) else np.multiply(x, y)


@multiply.lower
def multiply_lower(k: KernelBuilder, x: Val, y: Val) -> Val:
    return x * y


multiply.transpose(lambda ct, x, y: ct * y, lambda ct, x, y: ct * x)


@op(
    type=same_type("square", ANY_NUMBERS),
    cases=unary(ANY_NUMBERS),
    dtypes=ANY_NUMBERS,
    promote="numeric",
    sign=signs.never_negative,
)
@ieee
def square(x: Array) -> Array:
    """x*x; integers wrap.

    >>> square(np.array([-3, 4]))
    array([ 9, 16])
    """
    return multiplied(x, x) if is_complex(x) else np.multiply(x, x)


@square.lower
def square_lower(k: KernelBuilder, x: Val) -> Val:
    return x * x


square.jvp(times(lambda y, x: 2 * x))


@op(
    type=same_type("negative", ANY_NUMBERS),
    cases=unary(ANY_NUMBERS),
    dtypes=ANY_NUMBERS,
    promote="numeric",
    sign=signs.opposite,
)
@ieee
def negative(x: Array) -> Array:
    """-x; integers wrap.

    >>> negative(np.int8([5, -128]))
    array([  -5, -128], dtype=int8)
    """
    return np.negative(x)


@negative.lower
def negative_lower(k: KernelBuilder, x: Val) -> Val:
    return -x


negative.transpose(lambda ct, x: -ct)


@op(
    type=real_type("abs", ANY_NUMBERS),
    truth="",
    cases=unary(ANY_NUMBERS),
    dtypes=ANY_NUMBERS,
    promote="numeric",
    ulps=complex_ulps("abs"),
    sign=signs.never_negative,
)
@ieee
def abs_(x: Array) -> Array:
    """Magnitude; the lowest integer has none and stays as it is. Of a complex number it is real.

    >>> abs_(np.array([-2.0, -0.0, 3.0]))
    array([2., 0., 3.])
    """
    return magnitude(x) if is_complex(x) else np.abs(x)


@abs_.lower
def abs_lower(k: KernelBuilder, x: Val) -> Val:
    return k.abs(x)


@abs_.jvp
def abs_jvp(t: Node, y: Node, x: Node) -> Node:
    """The part of the change that points away from 0."""
    result: Node = run("real", run("conj", sign(x)) * t) if x.type.dtype.is_complex else t * sign(x)
    return result


@op(
    type=same_type("sign", ANY_NUMBERS),
    cases=unary(ANY_NUMBERS),
    dtypes=ANY_NUMBERS,
    promote="numeric",
    ulps=complex_ulps("sign"),
    cost=3,
)
@ieee
def sign(x: Array) -> Array:
    """-1, 0 or 1; NaN stays NaN, and both zeros give 0. Of a complex number it is the number of
    size 1 beside it.

    >>> sign(np.array([-7.0, -0.0, np.nan]))
    array([-1.,  0., nan])
    """
    return direction(x) if is_complex(x) else np.sign(x)


@sign.lower
def sign_lower(k: KernelBuilder, x: Val) -> Val:
    one, zero = k.const(1, x.dtype), k.const(0, x.dtype)
    if not x.dtype.is_signed and not x.dtype.is_float:
        return k.select(x.ne(0), one, zero)
    rest = k.select(x.eq(0), zero, x) if x.dtype.is_float else zero
    return k.select(x > 0, one, k.select(x < 0, k.const(-1, x.dtype), rest))


@sign.jvp
def sign_jvp(t: Node, y: Node, x: Node) -> Node | None:
    """Flat for real numbers. A complex one turns by what the change goes around 0, over the
    distance from it."""
    if not x.type.dtype.is_complex:
        return None
    size = abs_(x)
    around = run("imag", run("conj", y) * t) / where(run("equal", size, zeros_like(size)), 1, size)
    result: Node = y * run("complex", zeros_like(around), around)
    return result


@op(
    type=same_type("copysign", FLOATS), cases=same_shaped(2, FLOATS), dtypes=FLOATS, promote="float"
)
@ieee
def copysign(x: Array, y: Array) -> Array:
    """The magnitude of x with the sign of y.

    >>> copysign(np.array([1.0, 2.0]), np.array([-0.0, 5.0]))
    array([-1.,  2.])
    """
    return np.copysign(x, y)


@copysign.lower
def copysign_lower(k: KernelBuilder, x: Val, y: Val) -> Val:
    return k.copysign(x, y)


copysign.jvp(times(lambda z, x, y: sign(x) * copysign(full_like(x, 1), y)), no_change)


EXACT_FLOATS = (f32, f64)  # halves are computed in f32, whose neighbours are not theirs


@op(
    type=same_type("nextafter", EXACT_FLOATS),
    cases=same_shaped(2, EXACT_FLOATS),
    dtypes=EXACT_FLOATS,
    promote="float",
)
@ieee
def nextafter(x: Array, y: Array) -> Array:
    """The float next to x in the direction of y; y if they are equal.

    >>> nextafter(np.array([1.0, 2.0]), np.array([np.inf, 2.0])) - 1
    array([2.22044605e-16, 1.00000000e+00])
    """
    return np.nextafter(x, y)


@nextafter.lower
def nextafter_lower(k: KernelBuilder, x: Val, y: Val) -> Val:
    """Floats of one sign are in the order of their bits."""
    ints = i32 if x.dtype is f32 else i64
    bits = k.bitcast(x, ints)
    moved = k.select(k.binary("xor", x < y, x < 0), bits + 1, bits - 1)
    smallest = k.copysign(k.bitcast(k.const(1, ints), x.dtype), y)
    step = k.select(x.eq(0), smallest, k.bitcast(moved, x.dtype))
    return k.select(x.eq(y), y, k.select(x.ne(x) | y.ne(y), x + y, step))


nextafter.jvp(lambda t, z, x, y: t, no_change)


# -- powers ----------------------------------------------------------------------------------------


@op(
    type=same_type("sqrt", ANY_FLOATS),
    cases=unary(ANY_FLOATS),
    dtypes=ANY_FLOATS,
    promote="float",
    ulps=complex_ulps("sqrt"),
    cost=4,
    sign=signs.root,
)
@ieee
def sqrt(x: Array) -> Array:
    """Square root, correctly rounded; NaN below zero. Of a complex number the one whose real part
    is not negative.

    >>> sqrt(np.array([4.0, -1.0]))
    array([ 2., nan])
    """
    return root(x) if is_complex(x) else np.sqrt(x)


@sqrt.lower
def sqrt_lower(k: KernelBuilder, x: Val) -> Val:
    return k.sqrt(x)


sqrt.jvp(lambda t, y, x: t * (0.5 / y))


@op(
    type=same_type("rsqrt", transcendental_dtypes("rsqrt")),
    cases=unary(transcendental_dtypes("rsqrt")),
    dtypes=transcendental_dtypes("rsqrt"),
    promote="float",
    ulps=transcendental_ulps("rsqrt"),
    cost=8,
)
@precise
def rsqrt(x: Array) -> Array:
    """1/sqrt(x).

    >>> rsqrt(np.array([0.25, 0.0]))
    array([ 2., inf])
    """
    return 1 / np.sqrt(x)


@rsqrt.lower
def rsqrt_lower(k: KernelBuilder, x: Val) -> Val:
    return km.rsqrt(k, x)


rsqrt.jvp(lambda t, y, x: t * (-0.5 * (y / x)))


def _pow_cases(rng: Rng) -> Case:
    """Integers take exponents they can take; those of complex numbers are small, as the error grows
    with them."""
    dtype, shape = pick(rng, POWERS), random_shape(rng)
    if dtype.is_complex:
        base, exponent = (random_array(rng, dtype, shape, special=0) for _ in range(2))
        return Case((base, (exponent / (1 + np.abs(exponent)) * 8).astype(dtype.np)))
    base, exponent = random_array(rng, dtype, shape), random_array(rng, dtype, shape)
    return Case((base, exponent if dtype.is_float else exponent & dtype.np.type(127)))


@op(
    type=same_type("pow", POWERS),
    cases=_pow_cases,
    dtypes=POWERS,
    promote="numeric",
    ulps=transcendental_ulps("pow"),
    may_fail=lambda x, y: x.dtype.is_signed,  # by a negative exponent
    cost=40,
)
def pow_(x: Array, y: Array) -> Array:
    """x**y. Floats as C99's pow; integers wrap, and a negative exponent is an error, as in NumPy.
    Complex numbers as exp(y log x), the principal value.

    >>> pow_(np.array([2.0, 0.0, -8.0]), np.array([3.0, 0.0, 0.5]))
    array([ 8.,  1., nan])
    """
    exponent = np.asarray(y)
    if exponent.dtype.kind == "i" and (exponent < 0).any():
        raise _negative_exponent(exponent)
    return _pow(x, exponent)


@precise
def _pow(x: Array, y: Array) -> Array:
    return powered(x, y) if is_complex(x) else np.power(x, y)


def _negative_exponent(y: Array) -> BadInputs:
    position = tuple(int(p) for p in np.argwhere(y < 0)[0])
    return _refused_exponent(as_dtype(y.dtype), f"{y[position]} at position {list(position)}")


def _refused_exponent(dtype: DType, value: object) -> BadInputs:
    message = f"pow: exponents of {dtype} must not be negative, got {value}"
    return BadInputs(message, hint="convert the base to a float type")


@pow_.refuse
def pow_refuse(
    k: KernelBuilder, dtype: DType, x: Val, y: Val
) -> tuple[Val, Val, Callable[[int], TetradError]] | None:
    if not dtype.is_signed or (y.const is not None and y.const >= 0):
        return None
    return y < 0, y, partial(_refused_exponent, dtype)


@pow_.lower
def pow_lower(k: KernelBuilder, x: Val, y: Val) -> Val:
    return km.pow(k, x, y) if x.dtype.is_float else _int_pow(k, x, y)


def _int_pow(k: KernelBuilder, x: Val, y: Val) -> Val:
    """Squares of x for the bits of y, lowest first; done when no lane has bits left."""
    result, base, bits = k.local(1, x.dtype), k.local(x), k.local(y)
    with k.loop(x.dtype.bits), k.when(k.any(bits.get().ne(0))):
        power, rest = base.get(), bits.get()
        result.set(result.get() * k.select((rest & 1).ne(0), power, k.const(1, x.dtype)))
        base.set(power * power)
        bits.set(rest >> 1)
    return result.get()


def _pow_by_base(t: Node, z: Node, x: Node, y: Node) -> Node:
    """y * x**(y - 1); where y is 0 the power is flat, even at x = 0."""
    power = pow_(x, where(run("equal", y, zeros_like(y)), 1, y - 1))
    result: Node = t * (y * power)
    return result


def _pow_by_exponent(t: Node, z: Node, x: Node, y: Node) -> Node:
    """log(x) * x**y; at x = 0 the power is 0 for every y above 0."""
    log = run("log", where(run("equal", x, zeros_like(x)), 1, x))
    result: Node = t * (log * z)
    return result


pow_.jvp(_pow_by_base, _pow_by_exponent)


# -- rounding, extremes ----------------------------------------------------------------------------


@op(
    type=same_type("floor"),
    truth="",
    cases=unary(NUMBERS),
    dtypes=NUMBERS,
    promote="numeric",
)
@ieee
def floor(x: Array) -> Array:
    """The largest whole number that is not above x; integers stay.

    >>> floor(np.array([1.5, -1.5]))
    array([ 1., -2.])
    """
    return np.floor(x) if x.dtype.kind == "f" else x


@floor.lower
def floor_lower(k: KernelBuilder, x: Val) -> Val:
    return k.floor(x) if x.dtype.is_float else x


floor.jvp(no_change)


@op(
    type=same_type("ceil"),
    truth="",
    cases=unary(NUMBERS),
    dtypes=NUMBERS,
    promote="numeric",
)
@ieee
def ceil(x: Array) -> Array:
    """The smallest whole number that is not below x; integers stay.

    >>> ceil(np.array([1.5, -1.5]))
    array([ 2., -1.])
    """
    return np.ceil(x) if x.dtype.kind == "f" else x


@ceil.lower
def ceil_lower(k: KernelBuilder, x: Val) -> Val:
    return k.unary("ceil", x) if x.dtype.is_float else x


ceil.jvp(no_change)


@op(
    type=same_type("trunc"),
    truth="",
    cases=unary(NUMBERS),
    dtypes=NUMBERS,
    promote="numeric",
)
@ieee
def trunc(x: Array) -> Array:
    """x without its fraction; integers stay.

    >>> trunc(np.array([1.5, -1.5]))
    array([ 1., -1.])
    """
    return np.trunc(x) if x.dtype.kind == "f" else x


@trunc.lower
def trunc_lower(k: KernelBuilder, x: Val) -> Val:
    return k.unary("trunc", x) if x.dtype.is_float else x


trunc.jvp(no_change)


@op(
    type=same_type("round", ANY_NUMBERS),
    cases=unary(ANY_NUMBERS),
    dtypes=ANY_NUMBERS,
    promote="numeric",
)
@ieee
def round_(x: Array) -> Array:
    """The nearest whole number, halves to the even one; integers stay. Complex numbers are rounded
    part by part.

    >>> round_(np.array([0.5, 1.5, 2.5, -2.5]))
    array([ 0.,  2.,  2., -2.])
    """
    return np.rint(x) if x.dtype.kind in "fc" else x


@round_.lower
def round_lower(k: KernelBuilder, x: Val) -> Val:
    return k.round_even(x) if x.dtype.is_float else x


round_.jvp(no_change)


@op(
    type=same_type("minimum"),
    truth="logical_and",
    cases=same_shaped(2, NUMBERS),
    dtypes=NUMBERS,
    promote="numeric",
    sign=signs.of_minimum,
)
@ieee
def minimum(x: Array, y: Array) -> Array:
    """The smaller element; NaN propagates, and -0 is below +0.

    >>> minimum(np.array([1.0, np.nan]), np.array([2.0, 0.0]))
    array([ 1., nan])
    """
    return arith.binary("min", as_dtype(x.dtype), x, y)


@minimum.lower
def minimum_lower(k: KernelBuilder, x: Val, y: Val) -> Val:
    return k.min(x, y)


@op(
    type=same_type("maximum"),
    truth="logical_or",
    cases=same_shaped(2, NUMBERS),
    dtypes=NUMBERS,
    promote="numeric",
    sign=signs.of_maximum,
)
@ieee
def maximum(x: Array, y: Array) -> Array:
    """The larger element; NaN propagates, and +0 is above -0.

    >>> maximum(np.array([1.0, np.nan]), np.array([2.0, 0.0]))
    array([ 2., nan])
    """
    return arith.binary("max", as_dtype(x.dtype), x, y)


@maximum.lower
def maximum_lower(k: KernelBuilder, x: Val, y: Val) -> Val:
    return k.max(x, y)


def _share(t: Node, z: Node, mine: Node, other: Node) -> Node:
    """All of the change for the one that wins, half for each of two that are equal."""
    wins = cast(run("equal", mine, z), z.type.dtype)
    result: Node = t * (wins / (wins + cast(run("equal", other, z), z.type.dtype)))
    return result


minimum.jvp(lambda t, z, x, y: _share(t, z, x, y), lambda t, z, x, y: _share(t, z, y, x))
maximum.jvp(lambda t, z, x, y: _share(t, z, x, y), lambda t, z, x, y: _share(t, z, y, x))
