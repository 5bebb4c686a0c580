"""Neural-network functions: compositions of the public functions, so every transform and fusion rule applies to them.

Receives arrays (activations, weights) and settings, returns arrays. Statistics of f16 and bf16 are computed in f32.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from typing import Any

from tetrad import functions as td
from tetrad.core.dtypes import DType, as_dtype, f32
from tetrad.core.errors import DtypeError
from tetrad.core.op import REGISTRY
from tetrad.ops.movement import stop_gradient
from tetrad.tracing.array import Array, fail
from tetrad.tracing.creation import positions
from tetrad.tracing.operands import as_array, elementwise

Axis = int | Sequence[int]


def relu(x: Any) -> Array:
    """max(x, 0); NaN propagates.

    >>> import tetrad as td
    >>> relu(td.asarray([-1.0, 2.0]))
    Array([0., 2.], float32)
    """
    x = as_array(x)
    return td.where(x <= 0, 0, x)  # type: ignore[no-any-return]  # not maximum: at 0 its derivative is 0


def leaky_relu(x: Any, negative_slope: float = 0.01) -> Array:
    """x where it is positive, a small multiple of x elsewhere."""
    x = as_array(x)
    return td.where(x >= 0, x, negative_slope * x)  # type: ignore[no-any-return]


def elu(x: Any, alpha: float = 1.0) -> Array:
    """x where it is positive, alpha * (exp(x) - 1) elsewhere."""
    x = as_array(x)
    return td.where(x > 0, x, alpha * td.expm1(td.minimum(x, 0)))  # type: ignore[no-any-return]


def sigmoid(x: Any) -> Array:
    """1 / (1 + exp(-x))"""
    return td.sigmoid(x)  # type: ignore[no-any-return]


def silu(x: Any) -> Array:
    """x * sigmoid(x), also called swish."""
    return as_array(x) * sigmoid(x)  # type: ignore[no-any-return]


def softplus(x: Any) -> Array:
    """log(1 + exp(x)), without overflow.

    >>> import tetrad as td
    >>> softplus(td.asarray([-1000.0, 1000.0]))
    Array([   0., 1000.], float32)
    """
    return elementwise(REGISTRY["softplus"], (x,), {})


def gelu(x: Any, *, approximate: bool = True) -> Array:
    """x times the normal distribution function of x; `approximate` takes the formula with tanh.

    >>> import tetrad as td
    >>> gelu(td.asarray([0.0, 100.0]), approximate=False)
    Array([  0., 100.], float32)
    """
    x = as_array(x)
    if approximate:
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))
        return 0.5 * x * (1 + td.tanh(inner))  # type: ignore[no-any-return]
    return 0.5 * x * (1 + td.erf(x * math.sqrt(0.5)))  # type: ignore[no-any-return]


def _wide(x: Any) -> tuple[Array, DType]:
    """The array in at least 32 bits, and the dtype to return."""
    x = as_array(x)
    return (td.astype(x, f32), x.dtype) if x.dtype.is_float and x.dtype.bits < 32 else (x, x.dtype)


def _largest(x: Array, axis: Axis) -> Array:
    """The largest element, as a number to subtract: the result does not depend on it, so no derivative follows it."""
    return stop_gradient(td.max(x, axis=axis, keepdims=True))  # type: ignore[no-any-return]


def softmax(x: Any, axis: Axis = -1, *, where: Any = None) -> Array:
    """exp(x) over its sum along an axis; `where`: of these elements only, the others are 0.

    >>> import tetrad as td
    >>> softmax(td.asarray([0.0, 0.0]))
    Array([0.5, 0.5], float32)
    """
    wide, dtype = _wide(x)
    wide = wide if wide.dtype.is_float or wide.dtype.is_complex else td.astype(wide, f32)
    if where is not None:  # not -inf, which would make derivatives NaN where nothing is left
        wide = td.where(where, wide, float(td.finfo(wide.dtype).min))
    axes = axis if isinstance(axis, int) else tuple(axis)
    result = importlib.import_module("tetrad.softmax").softmax(wide, axes)
    result = result if where is None else td.where(where, result, 0)
    return td.astype(result, dtype) if dtype.is_float else result


def log_softmax(x: Any, axis: Axis = -1, *, where: Any = None) -> Array:
    """The logarithm of softmax, accurate where softmax underflows; `where`: of these elements, the others are -inf."""
    wide, dtype = _wide(x)
    wide = wide if where is None else td.where(where, wide, float(td.finfo(wide.dtype).min))
    apart = wide - _largest(wide, axis)
    result = apart - td.log(td.sum(td.exp(apart), axis=axis, keepdims=True))
    result = result if where is None else td.where(where, result, -math.inf)
    return td.astype(result, dtype) if dtype.is_float else result


def logsumexp(
    x: Any, axis: Axis | None = None, *, b: Any = None, keepdims: bool = False, where: Any = None
) -> Array:
    """The logarithm of the sum of b exp(x), without overflow; `where`: of these elements only.

    >>> import tetrad as td
    >>> round(float(logsumexp(td.asarray([1000.0, 1000.0]))), 3)
    1000.693
    """
    wide, dtype = _wide(x)
    wide = wide if b is None else td.where(td.equal(b, 0), -math.inf, wide)  # not 0 times infinity
    wide = wide if where is None else td.where(where, wide, -math.inf)
    axes = tuple(range(wide.ndim)) if axis is None else axis
    top = _largest(wide, axes)
    finite = td.where(top == -math.inf, 0, top)  # infinities must not meet; +inf is the result where it is the largest
    parts = td.exp(wide - finite)
    result = td.log(td.sum(parts if b is None else parts * b, axis=axes, keepdims=True)) + finite
    result = td.where(top == math.inf, top, result)
    result = result if keepdims else td.squeeze(result, axes)
    return td.astype(result, dtype) if dtype.is_float else result


def layer_norm(x: Any, weight: Any = None, bias: Any = None, *, axis: Axis = -1, eps: float = 1e-5) -> Array:
    """x with mean 0 and variance 1 along an axis, then scaled and shifted.

    >>> import tetrad as td
    >>> layer_norm(td.asarray([1.0, 3.0]), eps=0.0)
    Array([-1.,  1.], float32)
    """
    wide, dtype = _wide(x)
    apart = wide - td.mean(wide, axis=axis, keepdims=True)
    scale = td.rsqrt(td.mean(td.square(apart), axis=axis, keepdims=True) + eps)
    return _affine(apart * scale, weight, bias, dtype)


def rms_norm(x: Any, weight: Any = None, *, axis: Axis = -1, eps: float = 1e-6) -> Array:
    """x over its root mean square along an axis, then scaled."""
    wide, dtype = _wide(x)
    scale = td.rsqrt(td.mean(td.square(wide), axis=axis, keepdims=True) + eps)
    return _affine(wide * scale, weight, None, dtype)


def _affine(x: Array, weight: Any, bias: Any, dtype: DType) -> Array:
    scaled = x if weight is None else x * weight
    shifted = scaled if bias is None else scaled + bias
    return td.astype(shifted, dtype) if dtype.is_float else shifted


def linear(x: Any, weight: Any, bias: Any = None) -> Array:
    """x @ weight.T + bias, with weight [outputs, inputs] as model files store it.

    >>> import tetrad as td
    >>> linear(td.ones((2, 3)), td.ones((4, 3)), td.zeros(4)).shape
    (2, 4)
    """
    result = td.matmul(x, td.matrix_transpose(weight))
    return result if bias is None else result + bias


def one_hot(x: Any, num_classes: int, *, dtype: Any = f32, axis: int = -1) -> Array:
    """A new axis with 1 at the class and 0 elsewhere; a class out of range gives zeros.

    >>> import tetrad as td
    >>> one_hot(td.asarray([0, 2]), 3)
    Array([[1., 0., 0.],
           [0., 0., 1.]], float32)
    """
    x = as_array(x)
    if not x.dtype.is_integer:
        fail(DtypeError, f"one_hot: classes are integers, got {x.type}")
    hit = td.equal(td.expand_dims(x, axis=-1), positions(num_classes))
    return td.moveaxis(td.astype(hit, as_dtype(dtype)), -1, axis)


__all__ = [
    "elu", "gelu", "layer_norm", "leaky_relu", "linear", "log_softmax", "logsumexp", "one_hot", "relu", "rms_norm",
    "sigmoid", "silu", "softmax", "softplus",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__
