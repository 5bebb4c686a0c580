"""Ops: transcendental functions, element by element. Types, errors and kernels come from
`kernel.math.exponential`.

The references compute in f64 and round once; compiled code is within `ulps` of them. Special values
follow C99.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from operator import mul
from typing import TYPE_CHECKING

import numpy as np

from tetrad.core import lazy
from tetrad.core.dtypes import bf16, f16, f32, f64
from tetrad.core.op import Op, op
from tetrad.graph.nodes import Node
from tetrad.ops import signs
from tetrad.ops.calculus import run, times, where, zeros_like
from tetrad.ops.cases import same_shaped
from tetrad.ops.parts import is_complex, less_one, log_of_one_more
from tetrad.ops.rules import (
    FLOATS,
    Array,
    Reference,
    precise,
    same_type,
    transcendental_dtypes,
    transcendental_ulps,
)

if TYPE_CHECKING:
    from tetrad.kernel.build import KernelBuilder, Val
    from tetrad.kernel.math import complex as kc
    from tetrad.kernel.math import exponential as km
else:
    kc = lazy.later("tetrad.kernel.math.complex")
    km = lazy.later("tetrad.kernel.math.exponential")


def transcendental(
    operands: int = 1, cost: int = 20, sign: Callable[..., int] | None = None
) -> Callable[[Reference], Op]:
    """The fields all these ops share, found by the name of the function in
    `kernel.math.exponential`."""

    def define(function: Reference) -> Op:
        name = function.__name__
        dtypes = transcendental_dtypes(name)
        return op(
            type=same_type(name, dtypes),
            cases=same_shaped(operands, dtypes),
            dtypes=dtypes,
            promote="float",
            ulps=transcendental_ulps(name),
            cost=cost,
            sign=sign,
        )(precise(function))

    return define


# -- exponentials and logarithms -------------------------------------------------------------------


@transcendental(sign=signs.never_negative)
def exp(x: Array) -> Array:
    """e**x.

    >>> exp(np.array([0.0, -np.inf]))
    array([1., 0.])
    """
    return np.exp(x)


@exp.lower
def exp_lower(k: KernelBuilder, x: Val) -> Val:
    return km.exp(k, x)


@exp.lower_nonpositive
def exp_lower_nonpositive(k: KernelBuilder, x: Val) -> Val:
    return km.exp_nonpositive(k, x)


exp.jvp(times(lambda y, x: y))


@transcendental(sign=signs.never_negative)
def exp2(x: Array) -> Array:
    """2**x.

    >>> exp2(np.array([3.0, -1.0]))
    array([8. , 0.5])
    """
    return np.exp2(x)


@exp2.lower
def exp2_lower(k: KernelBuilder, x: Val) -> Val:
    return km.exp2(k, x)


exp2.jvp(times(lambda y, x: math.log(2) * y))


@transcendental()
def expm1(x: Array) -> Array:
    """e**x - 1, without the loss near 0.

    >>> expm1(np.array([0.0, 1e-12]))
    array([0.e+00, 1.e-12])
    """
    return less_one(x) if is_complex(x) else np.expm1(x)


@expm1.lower
def expm1_lower(k: KernelBuilder, x: Val) -> Val:
    return km.expm1(k, x)


expm1.jvp(times(lambda y, x: y + 1))


@transcendental()
def log(x: Array) -> Array:
    """Natural logarithm; -inf at 0, NaN below.

    >>> log(np.array([1.0, 0.0, -1.0]))
    array([  0., -inf,  nan])
    """
    return np.log(x)


@log.lower
def log_lower(k: KernelBuilder, x: Val) -> Val:
    return km.log(k, x)


log.jvp(lambda t, y, x: t / x)


@transcendental()
def log2(x: Array) -> Array:
    """Logarithm to base 2.

    >>> log2(np.array([8.0, 0.5]))
    array([ 3., -1.])
    """
    return np.log2(x)


@log2.lower
def log2_lower(k: KernelBuilder, x: Val) -> Val:
    return km.log2(k, x)


log2.jvp(lambda t, y, x: t / (math.log(2) * x))


@transcendental()
def log10(x: Array) -> Array:
    """Logarithm to base 10.

    >>> log10(np.array([1000.0]))
    array([3.])
    """
    return np.log10(x)


@log10.lower
def log10_lower(k: KernelBuilder, x: Val) -> Val:
    return km.log10(k, x)


log10.jvp(lambda t, y, x: t / (math.log(10) * x))


@transcendental()
def log1p(x: Array) -> Array:
    """log(1 + x), without the loss near 0.

    >>> log1p(np.array([0.0, 1e-12]))
    array([0.e+00, 1.e-12])
    """
    return log_of_one_more(x) if is_complex(x) else np.log1p(x)


@log1p.lower
def log1p_lower(k: KernelBuilder, x: Val) -> Val:
    return km.log1p(k, x)


log1p.jvp(lambda t, y, x: t / (x + 1))


@op(
    type=same_type("logaddexp", FLOATS),
    cases=same_shaped(2, FLOATS),
    dtypes=FLOATS,
    promote="float",
    ulps={f32: 1, f64: math.inf, f16: 1, bf16: 1},
    cost=40,
)
@precise
def logaddexp(x: Array, y: Array) -> Array:
    """log(exp(x) + exp(y)), without overflow. In f64 within 4 units of the larger of operand and
    result: where the terms cancel, NumPy's and ours have lost the same digits.

    >>> logaddexp(np.array([1000.0, -np.inf]), np.array([1000.0, 1.5]))
    array([1000.69314718,    1.5       ])
    """
    return np.logaddexp(x, y)


@logaddexp.lower
def logaddexp_lower(k: KernelBuilder, x: Val, y: Val) -> Val:
    """f32 by f64: the larger operand may take away all digits that f32 has of the logarithm."""
    a, b = k.cast(x, f64), k.cast(y, f64)
    # equal infinities have no difference
    distance = k.select(a.eq(b), k.const(0.0, f64), -k.abs(a - b))
    return k.cast(k.max(a, b) + km.log1p(k, km.exp_nonpositive(k, distance)), x.dtype)


def _share_of_sum(x: Node, y: Node) -> Node:
    """exp(x) / (exp(x) + exp(y)); equal infinities, which have no difference, share."""
    is_same_infinity = run("logical_and", run("equal", x, y), run("isinf", x))
    result: Node = run("sigmoid", where(is_same_infinity, 0.0, x - y))
    return result


logaddexp.jvp(
    lambda t, z, x, y: t * _share_of_sum(x, y), lambda t, z, x, y: t * _share_of_sum(y, x)
)


# -- circular functions ----------------------------------------------------------------------------


@transcendental(cost=60)
def sin(x: Array) -> Array:
    """Sine of an angle in radians.

    >>> sin(np.array([0.0, np.inf]))
    array([ 0., nan])
    """
    return np.sin(x)


@sin.lower
def sin_lower(k: KernelBuilder, x: Val) -> Val:
    return km.sin(k, x)


sin.jvp(times(lambda y, x: run("cos", x)))


@transcendental(cost=60)
def cos(x: Array) -> Array:
    """Cosine of an angle in radians.

    >>> cos(np.array([0.0, np.inf]))
    array([ 1., nan])
    """
    return np.cos(x)


@cos.lower
def cos_lower(k: KernelBuilder, x: Val) -> Val:
    return km.cos(k, x)


cos.jvp(times(lambda y, x: -sin(x)))


@transcendental(cost=60)
def tan(x: Array) -> Array:
    """Tangent of an angle in radians.

    >>> tan(np.array([0.0, np.inf]))
    array([ 0., nan])
    """
    return np.tan(x)


@tan.lower
def tan_lower(k: KernelBuilder, x: Val) -> Val:
    return km.tan(k, x)


tan.jvp(times(lambda y, x: 1 + y * y))


def one_over_roots(*factors: Node) -> Node:
    """1 / sqrt of the product. Of complex factors each has its own root: that of the product may be
    its negative."""
    if factors[0].type.dtype.is_complex:
        return 1 / reduce(mul, (run("sqrt", x) for x in factors))  # type: ignore[no-any-return]
    return run("rsqrt", reduce(mul, factors))  # type: ignore[no-any-return]


@transcendental()
def asin(x: Array) -> Array:
    """Angle in [-pi/2, pi/2] whose sine is x; NaN outside [-1, 1].

    >>> asin(np.array([0.0, 2.0]))
    array([ 0., nan])
    """
    return np.arcsin(x)


@asin.lower
def asin_lower(k: KernelBuilder, x: Val) -> Val:
    return km.asin(k, x)


asin.jvp(times(lambda y, x: one_over_roots(1 - x, 1 + x)))


@transcendental()
def acos(x: Array) -> Array:
    """Angle in [0, pi] whose cosine is x; NaN outside [-1, 1].

    >>> acos(np.array([1.0, 2.0]))
    array([ 0., nan])
    """
    return np.arccos(x)


@acos.lower
def acos_lower(k: KernelBuilder, x: Val) -> Val:
    return km.acos(k, x)


acos.jvp(times(lambda y, x: -one_over_roots(1 - x, 1 + x)))


@transcendental()
def atan(x: Array) -> Array:
    """Angle in [-pi/2, pi/2] whose tangent is x.

    >>> atan(np.array([0.0, np.inf]))
    array([0.        , 1.57079633])
    """
    return np.arctan(x)


@atan.lower
def atan_lower(k: KernelBuilder, x: Val) -> Val:
    return km.atan(k, x)


atan.jvp(lambda t, y, x: t / (1 + x * x))


@transcendental(operands=2)
def atan2(y: Array, x: Array) -> Array:
    """Angle in [-pi, pi] of the point (x, y); the signs of zeros choose the side.

    >>> atan2(np.array([0.0, -0.0]), np.array([-1.0, -1.0]))
    array([ 3.14159265, -3.14159265])
    """
    return np.arctan2(y, x)


@atan2.lower
def atan2_lower(k: KernelBuilder, y: Val, x: Val) -> Val:
    return km.atan2(k, y, x)


atan2.jvp(
    lambda t, z, y, x: t * (x / (x * x + y * y)), lambda t, z, y, x: -(t * (y / (x * x + y * y)))
)


@op(
    type=same_type("hypot", FLOATS),
    cases=same_shaped(2, FLOATS),
    dtypes=FLOATS,
    promote="float",
    ulps={f32: 1, f64: 2, f16: 1, bf16: 1},
    cost=12,
)
@precise
def hypot(x: Array, y: Array) -> Array:
    """The square root of x*x + y*y; only the result overflows. Infinite if one operand is, whatever
    the other.

    >>> hypot(np.array([3.0, np.nan]), np.array([4.0, -np.inf]))
    array([ 5., inf])
    """
    return np.hypot(x, y)


@hypot.lower
def hypot_lower(k: KernelBuilder, x: Val, y: Val) -> Val:
    return kc.hypot(k, x, y)


def _side(z: Node, x: Node) -> Node:
    """How fast the length grows with one side; 0 at the origin, where there is a kink."""
    result: Node = x / where(run("equal", z, zeros_like(z)), 1.0, z)
    return result


hypot.jvp(lambda t, z, x, y: t * _side(z, x), lambda t, z, x, y: t * _side(z, y))


# -- hyperbolic functions --------------------------------------------------------------------------


@transcendental()
def sinh(x: Array) -> Array:
    """Hyperbolic sine.

    >>> sinh(np.array([0.0, -np.inf]))
    array([  0., -inf])
    """
    return np.sinh(x)


@sinh.lower
def sinh_lower(k: KernelBuilder, x: Val) -> Val:
    return km.sinh(k, x)


sinh.jvp(times(lambda y, x: run("cosh", x)))


@transcendental()
def cosh(x: Array) -> Array:
    """Hyperbolic cosine.

    >>> cosh(np.array([0.0, -np.inf]))
    array([ 1., inf])
    """
    return np.cosh(x)


@cosh.lower
def cosh_lower(k: KernelBuilder, x: Val) -> Val:
    return km.cosh(k, x)


cosh.jvp(times(lambda y, x: sinh(x)))


@transcendental()
def tanh(x: Array) -> Array:
    """Hyperbolic tangent.

    >>> tanh(np.array([-1.0, 0.0, np.inf]))
    array([-0.76159416,  0.        ,  1.        ])
    """
    return np.tanh(x)


@tanh.lower
def tanh_lower(k: KernelBuilder, x: Val) -> Val:
    return km.tanh(k, x)


tanh.jvp(times(lambda y, x: 1 - y * y))


@transcendental()
def asinh(x: Array) -> Array:
    """The number whose hyperbolic sine is x.

    >>> asinh(np.array([0.0, -np.inf]))
    array([  0., -inf])
    """
    return np.arcsinh(x)


@asinh.lower
def asinh_lower(k: KernelBuilder, x: Val) -> Val:
    return km.asinh(k, x)


asinh.jvp(times(lambda y, x: one_over_roots(x * x + 1)))


@transcendental()
def acosh(x: Array) -> Array:
    """The number at least 0 whose hyperbolic cosine is x; NaN below 1.

    >>> acosh(np.array([1.0, 0.5]))
    array([ 0., nan])
    """
    return np.arccosh(x)


@acosh.lower
def acosh_lower(k: KernelBuilder, x: Val) -> Val:
    return km.acosh(k, x)


acosh.jvp(times(lambda y, x: one_over_roots(x - 1, x + 1)))


@transcendental()
def atanh(x: Array) -> Array:
    """The number whose hyperbolic tangent is x; NaN outside [-1, 1].

    >>> atanh(np.array([1.0, 2.0]))
    array([inf, nan])
    """
    return np.arctanh(x)


@atanh.lower
def atanh_lower(k: KernelBuilder, x: Val) -> Val:
    return km.atanh(k, x)


atanh.jvp(lambda t, y, x: t / ((1 - x) * (1 + x)))


# -- sigmoid and error function --------------------------------------------------------------------


@transcendental(sign=signs.never_negative)
def sigmoid(x: Array) -> Array:
    """1 / (1 + e**-x).

    >>> sigmoid(np.array([0.0, -np.inf, np.inf]))
    array([0.5, 0. , 1. ])
    """
    e = np.exp(-np.abs(x))  # never overflows, and keeps the far left tail
    return np.where(x < 0, e, np.ones_like(e)) / (1 + e)


@sigmoid.lower
def sigmoid_lower(k: KernelBuilder, x: Val) -> Val:
    return km.sigmoid(k, x)


sigmoid.jvp(times(lambda y, x: y * (1 - y)))


@op(
    type=same_type("softplus", FLOATS),
    cases=same_shaped(1, FLOATS),
    dtypes=FLOATS,
    promote="float",
    ulps={f32: 4, f64: 5, f16: 1, bf16: 1},
    cost=40,
    public=False,
)
@precise
def softplus(x: Array) -> Array:
    """log(1 + exp(x)), without overflow: the integral of the sigmoid.

    >>> softplus(np.array([0.0, 1000.0, -np.inf]))
    array([6.93147181e-01, 1.00000000e+03, 0.00000000e+00])
    """
    return np.logaddexp(x, 0)


@softplus.lower
def softplus_lower(k: KernelBuilder, x: Val) -> Val:
    return k.max(x, k.const(0.0, x.dtype)) + km.log1p(k, km.exp_nonpositive(k, -k.abs(x)))


softplus.jvp(times(lambda y, x: sigmoid(x)))


@transcendental()
def erf(x: Array) -> Array:
    """The error function, 2/sqrt(pi) times the integral of e**(-t*t) from 0 to x.

    >>> erf(np.array([0.0, 0.5, np.inf]))
    array([0.        , 0.52049988, 1.        ])
    """
    return np.asarray(_erf(x), np.float64)


_erf = np.frompyfunc(math.erf, 1, 1)  # NumPy has none


@erf.lower
def erf_lower(k: KernelBuilder, x: Val) -> Val:
    return km.erf(k, x)


erf.jvp(times(lambda y, x: 2 / math.sqrt(math.pi) * exp(-(x * x))))


@transcendental(sign=signs.never_negative)
def erfc(x: Array) -> Array:
    """1 - erf(x), without the loss where erf is nearly 1.

    >>> erfc(np.array([0.0, 10.0]))
    array([1.00000000e+00, 2.08848758e-45])
    """
    return np.asarray(_erfc(x), np.float64)


_erfc = np.frompyfunc(math.erfc, 1, 1)


@erfc.lower
def erfc_lower(k: KernelBuilder, x: Val) -> Val:
    return km.erfc(k, x)


erfc.jvp(times(lambda y, x: -2 / math.sqrt(math.pi) * exp(-(x * x))))
