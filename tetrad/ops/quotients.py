"""Ops: quotients and remainders, element by element, of floats (true and floored) and of integers
(floored).

As in `ops.arithmetic`, operands arrive with one shape and dtype, and the Python body is the
meaning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tetrad.core.dtypes import f32
from tetrad.core.op import op
from tetrad.ops import signs
from tetrad.ops.calculus import no_change
from tetrad.ops.cases import same_shaped, unary
from tetrad.ops.parts import divided, inverted, is_complex
from tetrad.ops.rules import ANY_FLOATS, NUMBERS, Array, complex_ulps, ieee, same_type

if TYPE_CHECKING:
    from tetrad.kernel.build import KernelBuilder, Val


@op(
    type=same_type("divide", ANY_FLOATS),
    cases=same_shaped(2, ANY_FLOATS),
    dtypes=ANY_FLOATS,
    promote="float",
    ulps=complex_ulps("divide"),
    cost=4,
    sign=signs.of_quotient,
)
@ieee
def divide(x: Array, y: Array) -> Array:
    """Quotient of floats, IEEE: x/0 is infinite, 0/0 is NaN. Complex numbers are scaled, so only
    the result overflows.

    >>> divide(np.array([1.0, 0.0]), np.array([0.0, 0.0]))
    array([inf, nan])
    """
    return divided(x, y) if is_complex(x) else np.divide(x, y)


@divide.lower
def divide_lower(k: KernelBuilder, x: Val, y: Val) -> Val:
    return x / y


divide.jvp(lambda t, z, x, y: t / y, lambda t, z, x, y: -(t * (z / y)))
divide.transpose(lambda ct, x, y: ct / y)


@op(
    type=same_type("reciprocal", ANY_FLOATS),
    cases=unary(ANY_FLOATS),
    dtypes=ANY_FLOATS,
    promote="float",
    ulps=complex_ulps("reciprocal"),
    cost=4,
)
@ieee
def reciprocal(x: Array) -> Array:
    """1/x.

    >>> reciprocal(np.array([4.0, -0.0]))
    array([0.25, -inf])
    """
    return inverted(x) if is_complex(x) else np.reciprocal(x)


@reciprocal.lower
def reciprocal_lower(k: KernelBuilder, x: Val) -> Val:
    return 1.0 / x


reciprocal.jvp(lambda t, y, x: -(t * (y * y)))


@op(
    type=same_type("floor_divide"),
    cases=same_shaped(2, NUMBERS),
    dtypes=NUMBERS,
    promote="numeric",
    cost=20,
)
@ieee
def floor_divide(x: Array, y: Array) -> Array:
    """Quotient rounded down; of and by infinity it is the quotient itself, as the array API has it.
    Integers: x//0 is 0 (with NumPy's warning when eager), MIN//-1 wraps to MIN.

    >>> floor_divide(np.array([7, -7, 5]), np.array([2, 2, -3]))
    array([ 3, -4, -2])
    >>> floor_divide(np.array([np.inf, -1.0]), np.array([-2.0, np.inf]))
    array([-inf,  -0.])
    """
    with np.errstate(over="ignore"):
        down = np.floor_divide(x, y)
    return (
        np.where(np.isinf(x) | np.isinf(y), x / y, down)
        if np.asarray(x).dtype.kind == "f"
        else down
    )


@floor_divide.lower
def floor_divide_lower(k: KernelBuilder, x: Val, y: Val) -> Val:
    if x.dtype.is_float:
        return _float_floor_divide(k, x, y)
    if y.const == 0:  # the kernel language divides by no literal zero
        return k.const(0, x.dtype)
    quotient = x / y
    if not x.dtype.is_signed:
        return quotient
    return k.select(_rounds_up(k, x % y, y), quotient - 1, quotient)


floor_divide.jvp(no_change, no_change)


@op(
    type=same_type("remainder"),
    cases=same_shaped(2, NUMBERS),
    dtypes=NUMBERS,
    promote="numeric",
    cost=20,
)
@ieee
def remainder(x: Array, y: Array) -> Array:
    """x - floor(x/y)*y: has the sign of y. Integers: x%0 is 0 (with NumPy's warning when eager).

    >>> remainder(np.array([7, -7, 5]), np.array([2, 2, -3]))
    array([ 1,  1, -1])
    """
    return np.remainder(x, y)


@remainder.lower
def remainder_lower(k: KernelBuilder, x: Val, y: Val) -> Val:
    if y.const == 0 and not x.dtype.is_float:
        return k.const(0, x.dtype)
    rest = _fmod(k, x, y) if x.dtype.is_float else x % y
    if not x.dtype.is_signed and not x.dtype.is_float:
        return rest
    rounded = k.select(_rounds_up(k, rest, y), rest + y, rest)
    return (
        k.select(rest.eq(0), k.copysign(k.const(0.0, x.dtype), y), rounded)
        if x.dtype.is_float
        else rounded
    )


# x - y * floor(x / y): the quotient is flat where it has a derivative.
remainder.jvp(lambda t, z, x, y: t, lambda t, z, x, y: -(t * floor_divide(x, y)))


def _rounds_up(k: KernelBuilder, rest: Val, y: Val) -> Val:
    """Truncation gave a quotient above the floor: there is a remainder, of the sign that y has
    not."""
    return k.binary("and", rest.ne(0), k.binary("xor", rest < 0, y < 0))


def _float_floor_divide(k: KernelBuilder, x: Val, y: Val) -> Val:
    """The steps of CPython's float division, which NumPy follows too: (x - fmod(x, y)) / y is
    nearly whole.

    Of and by infinity, and by zero, there is nothing to round down.
    """
    rest = _fmod(k, x, y)
    whole = (x - rest) / y
    whole = k.select(_rounds_up(k, rest, y), whole - 1.0, whole)
    down = k.floor(whole)
    down = k.select(whole - down > 0.5, down + 1.0, down)
    exact = k.select(whole.eq(0), k.copysign(k.const(0.0, x.dtype), x / y), down)
    infinite = k.binary("or", k.abs(x).eq(np.inf), k.abs(y).eq(np.inf))
    return k.select(k.binary("or", infinite, y.eq(0)), x / y, exact)


def _fmod(k: KernelBuilder, x: Val, y: Val) -> Val:
    """x - trunc(x/y)*y, exactly, with the sign of x.

    With q the rounded quotient, x - q*y is a float (Dekker), so one fma finds it; a quotient too
    large to be exact is taken off by its leading bits, again and again, in a branch that is skipped
    when no lane needs it.
    """
    wide = 2.0**24 if x.dtype is f32 else 2.0**53
    rest = k.local(x)
    with k.when(k.any(_is_far(k, x, y, wide))), k.loop(13 if x.dtype is f32 else 42):
        now = rest.get()
        rest.set(k.select(_is_far(k, now, y, wide), _take_off(k, now, y), now))
    near = rest.get()
    near = k.fma(-k.unary("trunc", near / y), y, near)
    # the quotient had been rounded up
    wrong = k.binary("and", near.ne(0), k.binary("xor", near < 0, x < 0))
    exact = k.select(wrong, near + k.copysign(k.abs(y), x), near)
    inside = k.binary("and", k.abs(y).eq(np.inf), k.abs(x) < np.inf)
    return k.select(inside, x, k.copysign(k.abs(exact), x))


def _is_far(k: KernelBuilder, x: Val, y: Val, wide: float) -> Val:
    finite = k.binary("and", k.abs(x) < np.inf, y.ne(0))
    return k.binary("and", finite, k.abs(x / y) >= wide)


def _take_off(k: KernelBuilder, x: Val, y: Val) -> Val:
    """x minus the multiple of y nearest to it that the bits of a quotient can say; y is scaled to
    keep that finite."""
    step = y
    for _ in range(2):
        step = k.select(
            k.abs(x / step) < np.inf, step, step * (2.0**126 if x.dtype is f32 else 2.0**1022)
        )
    return k.fma(-(x / step), step, x)
