"""Neural networks, activations: those beyond the common ones of the package, and gated units.

Receives an array, returns one of its shape; gated units halve an axis. Derivatives at kinks are
those of PyTorch: 0 on the side where nothing passes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tetrad.arrays import functions as td
from tetrad.core.dtypes import as_dtype
from tetrad.core.errors import ShapeError
from tetrad.nn import Axis, _wide, gelu, hard_silu, logsumexp, relu, silu, softmax
from tetrad.nn._settings import refuse
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import as_array, axis_of


def identity(x: Any) -> Array:
    """x as it is."""
    return as_array(x)


def tanh(x: Any) -> Array:
    """The hyperbolic tangent."""
    return td.tanh(x)


def swish(x: Any) -> Array:
    """`silu` by its other name."""
    return silu(x)


def hard_swish(x: Any) -> Array:
    """`hard_silu` by its other name."""
    return hard_silu(x)


def prelu(x: Any, weight: Any, *, channel_axis: int = 1) -> Array:
    """x where it is positive, weight times x elsewhere; one number, or one for each channel.

    >>> import tetrad as td
    >>> prelu(td.asarray([[-1.0, -1.0], [2.0, 2.0]]), td.asarray([0.25, 0.5]))
    Array([[-0.25, -0.5 ],
           [ 2.  ,  2.  ]], float32)
    """
    x = as_array(x)
    return td.where(x > 0, x, _slopes(weight, x, channel_axis) * x)  # type: ignore[no-any-return]


def _slopes(weight: Any, x: Array, channel_axis: int) -> Any:
    """The weight, shaped to broadcast with x."""
    if isinstance(weight, int | float):
        return weight
    weight = as_array(weight)
    if weight.size == 1:
        return td.reshape(weight, ())
    axis = axis_of("prelu", channel_axis, x.ndim)
    if weight.shape != (x.shape[axis],):
        fail(
            ShapeError,
            f"prelu: the weight has one number, or one for each of {x.shape[axis]} channels "
            f"along axis {axis} of {x.type}, got {weight.type}",
        )
    return td.reshape(weight, tuple(n if a == axis else 1 for a, n in enumerate(x.shape)))


def hard_shrink(x: Any, lambd: float = 0.5) -> Array:
    """x beyond `lambd` on either side, 0 between."""
    x = as_array(x)
    return td.where(td.abs(x) <= lambd, 0, x)  # type: ignore[no-any-return]


def soft_shrink(x: Any, lambd: float = 0.5) -> Array:
    """x moved towards 0 by `lambd`, 0 if it is nearer.

    >>> import tetrad as td
    >>> soft_shrink(td.asarray([-2.0, 0.25, 1.0]))
    Array([-1.5,  0. ,  0.5], float32)
    """
    if lambd < 0:
        refuse("soft_shrink", "lambd", "0 or more", lambd)
    x = as_array(x)
    return td.where(x > lambd, x - lambd, td.where(x < -lambd, x + lambd, td.where(x == x, 0, x)))  # type: ignore[no-any-return]


def tanh_shrink(x: Any) -> Array:
    """x - tanh(x)"""
    x = as_array(x)
    return x - td.tanh(x)  # type: ignore[no-any-return]


def threshold(x: Any, threshold: float, value: float) -> Array:
    """x above the threshold, `value` elsewhere.

    >>> import tetrad as td
    >>> threshold(td.asarray([0.5, 2.0]), 1.0, -3.0)
    Array([-3.,  2.], float32)
    """
    x = as_array(x)
    return td.where(x <= threshold, value, x)  # type: ignore[no-any-return]


def softmin(x: Any, axis: Axis = -1) -> Array:
    """`softmax` of -x."""
    return softmax(-as_array(x), axis)


def sparse_plus(x: Any) -> Array:
    """0 below -1, x above 1, (x + 1)**2 / 4 between."""
    x = as_array(x)
    between = td.square(td.where(td.abs(x) >= 1, 0, x) + 1) / 4
    return td.where(x <= -1, 0, td.where(x >= 1, x, between))  # type: ignore[no-any-return]


def sparse_sigmoid(x: Any) -> Array:
    """0 below -1, 1 above 1, a straight line between: the derivative of `sparse_plus`."""
    x = as_array(x)
    return td.where(x <= -1, 0, td.where(x >= 1, 1, (x + 1) / 2))  # type: ignore[no-any-return]


def log1mexp(x: Any) -> Array:
    """log(1 - exp(-x)) for positive x, accurate near 0 and far away (Maechler 2012).

    >>> import tetrad as td
    >>> log1mexp(td.asarray([1e-10, 50.0]))
    Array([-2.3025850e+01, -1.9287499e-22], float32)
    """
    x = as_array(x)
    near = x < math.log(2)
    small, large = td.where(near, x, 1), td.where(near, 1, x)
    return td.where(near, td.log(-td.expm1(-small)), td.log1p(-td.exp(-large)))  # type: ignore[no-any-return]


def logmeanexp(
    x: Any, axis: Axis | None = None, *, keepdims: bool = False, where: Any = None
) -> Array:
    """The logarithm of the mean of exp(x), without overflow."""
    x = as_array(x)
    total = logsumexp(x, axis, keepdims=keepdims, where=where)
    ones = td.ones_like(total if where is None else x, dtype=total.dtype)
    if where is not None:
        count = td.sum(td.where(where, ones, 0), axis=axis, keepdims=keepdims)
    else:
        axes = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
        count = ones * math.prod(x.shape[a] for a in axes)
    return total - td.log(count)  # type: ignore[no-any-return]


def standardize(x: Any, axis: Axis = -1, *, eps: float = 1e-5) -> Array:
    """x with mean 0 and variance 1 along an axis."""
    wide, dtype = _wide(x)
    apart = wide - td.mean(wide, axis=axis, keepdims=True)
    result = apart * td.rsqrt(td.mean(td.square(apart), axis=axis, keepdims=True) + eps)
    return td.astype(result, dtype) if dtype.is_float else result


# -- gated units -----------------------------------------------------------------------------------


def swiglu(x: Any, *, axis: int = -1, gate_first: bool = False, dtype: Any = None) -> Array:
    """up silu(gate), where up is the first half of an axis and gate the second, or the other way
    round.

    >>> import tetrad as td
    >>> x = td.asarray([1.0, 2.0, 0.5, -1.0])
    >>> swiglu(x), swiglu(x, gate_first=True)
    (Array([ 0.31122968, -0.53788286], float32), Array([ 0.3655293, -1.7615942], float32))
    """
    return _gated_unit("swiglu", x, silu, axis, gate_first, dtype)


def geglu(
    x: Any,
    *,
    axis: int = -1,
    gate_first: bool = False,
    approximate: bool = True,
    dtype: Any = None,
) -> Array:
    """up gelu(gate), of the halves of an axis."""
    gate = lambda half: gelu(half, approximate=approximate)  # noqa: E731
    return _gated_unit("geglu", x, gate, axis, gate_first, dtype)


def reglu(x: Any, *, axis: int = -1, gate_first: bool = False, dtype: Any = None) -> Array:
    """up relu(gate), of the halves of an axis."""
    return _gated_unit("reglu", x, relu, axis, gate_first, dtype)


def _gated_unit(
    name: str, x: Any, act: Callable[[Array], Array], axis: int, gate_first: bool, dtype: Any
) -> Array:
    x = as_array(x)
    axis = axis_of(name, axis, x.ndim)
    size = x.shape[axis]
    if not isinstance(size, int) or size % 2:
        fail(ShapeError, f"{name}: axis {axis} of {x.type} has no halves")
    before = (slice(None),) * axis
    low, high = x[(*before, slice(size // 2))], x[(*before, slice(size // 2, None))]
    up, gate = (high, low) if gate_first else (low, high)
    result = up * act(gate)
    return result if dtype is None else td.astype(result, as_dtype(dtype))
