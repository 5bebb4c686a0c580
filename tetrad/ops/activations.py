"""Ops: activations x * g(x) whose gate g falls to 0 on the left and rises to 1 on the right.

As products of other ops they would be 0 * inf = NaN at the ends, and so would their derivatives.
Here x is held beyond a distance at which the gate is 0 or 1 in every type: g, g' and all that
follow are taken there, and are right.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tetrad.core import lazy
from tetrad.core.dtypes import bf16, f16, f32, f64
from tetrad.core.op import op
from tetrad.graph.nodes import Node
from tetrad.ops.calculus import cast, run, where
from tetrad.ops.cases import same_shaped
from tetrad.ops.rules import FLOATS, Array, precise, same_type

if TYPE_CHECKING:
    from tetrad.kernel.build import KernelBuilder, Val
    from tetrad.kernel.math import exponential as km
else:
    km = lazy.later("tetrad.kernel.math.exponential")

# x e**x at -1000 and erfc(40 / sqrt 2) are 0 in f64
FAR = {"silu": 1000.0, "gelu": 40.0, "gelu_tanh": 40.0}
HIGH = math.sqrt(0.5)
LOW = -4.833646656726457e-17  # sqrt(0.5) - HIGH
SPLIT = 2.0**27 + 1  # Dekker: halves of f64 numbers whose products are exact


def held(name: str, x: Node) -> Node:
    """x, but no further from 0 than where the gate does not change any more."""
    far = FAR[name]
    return where(run("greater", x, far), far, where(run("less", x, -far), -far, x))


# -- silu ------------------------------------------------------------------------------------------


@op(
    type=same_type("silu", FLOATS),
    cases=same_shaped(1, FLOATS),
    dtypes=FLOATS,
    promote="float",
    ulps={f32: 6, f64: 7, f16: 1, bf16: 1},
    cost=22,
    public=False,
)
@precise
def silu(x: Array) -> Array:
    """x / (1 + e**-x).

    >>> silu(np.array([0.0, -np.inf, np.inf]))
    array([ 0., -0., inf])
    """
    # twice a factor, so that no product is subnormal
    half = np.exp(-0.5 * np.minimum(np.abs(x), FAR["silu"]))
    return np.where(x < 0, np.maximum(x, -FAR["silu"]) * half * half, x) / (1 + half * half)


@silu.lower
def silu_lower(k: KernelBuilder, x: Val) -> Val:
    return km.silu(k, x)


@silu.jvp
def silu_jvp(t: Node, y: Node, x: Node) -> Node:
    """g (1 + x (1 - g)), in f32 at least."""
    near = held("silu", cast(x, x.type.dtype.computing))
    gate = run("sigmoid", near)
    slope: Node = cast(gate * (1 + near * (1 - gate)), t.type.dtype)
    return t * slope  # type: ignore[no-any-return]


# -- gelu ------------------------------------------------------------------------------------------


@op(
    type=same_type("gelu", FLOATS),
    cases=same_shaped(1, FLOATS),
    dtypes=FLOATS,
    promote="float",
    ulps={f32: 8, f64: 12, f16: 1, bf16: 1},
    cost=50,
    public=False,
)
@precise
def gelu(x: Array) -> Array:
    """x times the normal distribution function of x, erfc(-x / sqrt 2) / 2.

    >>> gelu(np.array([0.0, -np.inf, np.inf, -10.0]))
    array([ 0.00000000e+00, -0.00000000e+00,             inf, -7.61985302e-23])
    """
    z, rest = _over_root_of_two(-np.clip(np.asarray(x, np.float64), -FAR["gelu"], FAR["gelu"]))
    tail = np.asarray(_erfc(z), np.float64)
    tail = tail - tail * (2 * np.maximum(z, 0) * rest)
    return 0.5 * np.maximum(x, -FAR["gelu"]) * tail


_erfc = np.frompyfunc(math.erfc, 1, 1)  # NumPy has none


def _over_root_of_two(x: Array) -> tuple[Array, Array]:
    """x / sqrt(2) as the sum of two f64: where erfc falls steeply, one alone would lose its last
    digits."""
    product = x * HIGH
    (a, b), (c, d) = _halves(x), _halves(np.float64(HIGH))
    return product, ((a * c - product) + a * d + b * c) + b * d + x * LOW


def _halves(x: Array) -> tuple[Array, Array]:
    large = SPLIT * x
    high = large - (large - x)
    return high, x - high


@gelu.lower
def gelu_lower(k: KernelBuilder, x: Val) -> Val:
    """erfc(z + rest) is erfc(z) (1 - 2 z rest) in the tail, and erfc(z) where it is not steep."""
    if x.dtype is f32:
        return km.gelu_32(k, x)
    far, high = k.const(FAR["gelu"], x.dtype), float(np.asarray(HIGH, x.dtype.np))
    near = k.max(x, -far)
    w = -k.min(near, far)
    z = w * high
    rest = k.fma(w, k.const(high, x.dtype), -z) + w * (LOW + (HIGH - high))
    tail = km.erfc(k, z)
    tail = k.fma(-tail, k.max(z, k.const(0.0, x.dtype)) * rest * 2.0, tail)
    return near * 0.5 * tail


@gelu.jvp
def gelu_jvp(t: Node, y: Node, x: Node) -> Node:
    """The distribution function, plus x times its density, in f32 at least."""
    near = held("gelu", cast(x, x.type.dtype.computing))
    density = run("exp", -0.5 * (near * near)) * (1 / math.sqrt(2 * math.pi))
    slope: Node = cast(0.5 * run("erfc", -HIGH * near) + near * density, t.type.dtype)
    return t * slope  # type: ignore[no-any-return]


# -- gelu with tanh --------------------------------------------------------------------------------

# sqrt(8 / pi), not computed: the host may round otherwise
STEEP, BEND = 1.5957691216057308, 0.044715


@op(
    type=same_type("gelu_tanh", FLOATS),
    cases=same_shaped(1, FLOATS),
    dtypes=FLOATS,
    promote="float",
    # of f32 far left, where e**z makes |z| roundings of one of z
    ulps={f32: 256, f64: 8, f16: 1, bf16: 1},
    cost=30,
    public=False,
)
@precise
def gelu_tanh(x: Array) -> Array:
    """x (1 + tanh(z / 2)) / 2 for z = sqrt(8 / pi) (x + 0.044715 x**3): near gelu.

    The gate is the sigmoid of z, which keeps its digits where tanh is nearly -1.

    >>> gelu_tanh(np.array([0.0, -np.inf, np.inf, -1.0])).round(6)
    array([ 0.      , -0.      ,       inf, -0.158808])
    """
    near = np.maximum(x, -FAR["gelu_tanh"])  # on the right infinity does no harm
    z = STEEP * (near + BEND * (near * near * near))
    e = np.exp(-np.abs(z))
    return near * (np.where(z < 0, e, np.ones_like(e)) / (1 + e))


@gelu_tanh.lower
def gelu_tanh_lower(k: KernelBuilder, x: Val) -> Val:
    near = k.max(x, k.const(-FAR["gelu_tanh"], x.dtype))
    return near * km.sigmoid(k, (near + near * near * near * BEND) * STEEP)


@gelu_tanh.jvp
def gelu_tanh_jvp(t: Node, y: Node, x: Node) -> Node:
    """g + x g (1 - g) z', in f32 at least."""
    near = held("gelu_tanh", cast(x, x.type.dtype.computing))
    square = near * near
    gate = run("sigmoid", STEEP * (near + BEND * (square * near)))
    slope: Node = cast(
        gate * (1 + near * (1 - gate) * (STEEP + (3 * STEEP * BEND) * square)), t.type.dtype
    )
    return t * slope  # type: ignore[no-any-return]
