"""Neural-network functions: compositions of the public functions, so every transform and fusion
rule applies to them.

Receives arrays (activations, weights) and settings, returns arrays. Statistics of f16 and bf16 are
computed in f32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from tetrad.arrays import functions as td
from tetrad.arrays import namespaces
from tetrad.arrays.creation import positions
from tetrad.core import lazy
from tetrad.core.dtypes import DType, as_dtype, f32
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.ops.movement import stop_gradient
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import apply, as_array, axes_of, axis_of

Axis = int | Sequence[int]
LATER = {  # in further files, which are loaded when one of them is used
    "_activations": (
        "geglu", "hard_shrink", "hard_swish", "identity", "log1mexp", "logmeanexp", "prelu",
        "reglu", "soft_shrink", "softmin", "sparse_plus", "sparse_sigmoid", "standardize", "swiglu",
        "swish", "tanh", "tanh_shrink", "threshold",
    ),
    "_attention": ("dot_product_attention",),
    "_experts": ("grouped_matmul", "load_balance_loss", "top_k_experts"),
    "_module": ("Module", "static_field"),
    "_recurrent": ("gru", "gru_init", "lstm", "lstm_init"),
    "_transformer": (
        "gated_feed_forward", "gated_feed_forward_init", "multi_head_attention",
        "multi_head_attention_init", "transformer_decoder_layer", "transformer_decoder_layer_init",
        "transformer_encoder_layer", "transformer_encoder_layer_init",
    ),
    "_convolution": (
        "conv1d", "conv2d", "conv3d", "conv_general_dilated", "conv_transpose1d",
        "conv_transpose2d", "conv_transpose3d", "im2col",
    ),
    "_dropout": ("dropout",),
    "_embedding": ("embedding",),
    "_linear_4bit": ("linear_4bit", "linear_4bit_affine_grouped"),
    "_linear_4bit_typed": ("linear_4bit_affine_grouped_typed",),
    "_losses": (
        "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_embedding_loss",
        "cosine_similarity", "cross_entropy", "hinge_embedding_loss", "hinge_loss", "huber_loss",
        "kl_div", "l1_loss", "mse_loss", "smooth_l1_loss",
    ),
    "_norms": (
        "batch_norm", "group_norm", "instance_norm", "layer_norm2d", "residual_layer_norm",
        "residual_rms_norm",
    ),
    "_pooling": (
        "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
        "adaptive_max_pool2d", "adaptive_max_pool3d", "adaptive_pool", "avg_pool1d", "avg_pool2d",
        "avg_pool3d", "global_avg_pool", "global_max_pool", "max_pool1d", "max_pool2d",
        "max_pool3d", "pool",
    ),
    "_resize": ("resize",),
    "_rope": ("axial_rope2d", "rope", "rope_tables"),
}  # fmt: skip
MODULES = ("initializers",)

if TYPE_CHECKING:
    from tetrad.nn.later import *  # noqa: F403


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
    return td.where(x > 0, x, alpha * td.expm1(td.where(x > 0, 0, x)))  # type: ignore[no-any-return]


def sigmoid(x: Any) -> Array:
    """1 / (1 + exp(-x))"""
    return td.sigmoid(x)


def silu(x: Any) -> Array:
    """x * sigmoid(x), also called swish."""
    return apply("silu", x)


def softplus(x: Any) -> Array:
    """log(1 + exp(x)), without overflow.

    >>> import tetrad as td
    >>> softplus(td.asarray([-1000.0, 1000.0]))
    Array([   0., 1000.], float32)
    """
    return apply("softplus", x)


def gelu(x: Any, approximate: bool = True) -> Array:
    """x times the normal distribution function of x; `approximate` takes the formula with tanh.

    >>> import tetrad as td
    >>> gelu(td.asarray([0.0, 100.0]), approximate=False)
    Array([  0., 100.], float32)
    """
    return apply("gelu_tanh" if approximate else "gelu", x)


def _gated(x: Any, gate: Callable[[Array], Array], far: float) -> Array:
    """x * gate(x), for a gate that is 0 or 1 beyond `far`: 0 * inf must not be met there, nor in a
    derivative."""
    wide, dtype = _wide(x)
    wide = wide if wide.dtype.is_float else td.astype(wide, f32)
    beyond = td.abs(wide) > far
    near = td.where(beyond, 0, wide)
    result = td.where(beyond, td.maximum(wide, 0), near * gate(near))
    return td.astype(result, dtype) if dtype.is_float else result


def relu6(x: Any) -> Array:
    """x held between 0 and 6; the derivative at the ends is 0."""
    x = as_array(x)
    return td.where(x <= 0, 0, td.where(x >= 6, 6, x))  # type: ignore[no-any-return]


def celu(x: Any, alpha: float = 1.0) -> Array:
    """x where it is positive, alpha * (exp(x / alpha) - 1) elsewhere."""
    x = as_array(x)
    return td.where(x > 0, x, alpha * td.expm1(td.where(x > 0, 0, x) / alpha))  # type: ignore[no-any-return]


def selu(x: Any) -> Array:
    """`elu` with the numbers that keep mean 0 and variance 1 from layer to layer (Klambauer et al.
    2017)."""
    return 1.0507009873554804934193349852946 * elu(x, 1.6732632423543772848170429916717)  # type: ignore[no-any-return]


def glu(x: Any, axis: int = -1) -> Array:
    """The first half along an axis, times the sigmoid of the second.

    >>> import tetrad as td
    >>> glu(td.asarray([3.0, 0.0]))
    Array([1.5], float32)
    """
    x = as_array(x)
    size = x.shape[axis_of("glu", axis, x.ndim)]
    if isinstance(size, int) and size % 2:
        fail(ShapeError, f"glu: axis {axis} of {x.type} has no halves")
    moved = td.moveaxis(x, axis, -1)
    pairs = td.reshape(moved, (*moved.shape[:-1], 2, -1))
    return td.moveaxis(pairs[..., 0, :] * sigmoid(pairs[..., 1, :]), -1, axis)


def hard_sigmoid(x: Any) -> Array:
    """A straight line in place of the sigmoid, from 0 at -3 to 1 at 3."""
    return relu6(as_array(x) + 3.0) / 6.0  # type: ignore[no-any-return]


def hard_silu(x: Any) -> Array:
    """x * hard_sigmoid(x), also called hard swish."""
    x = as_array(x)
    beyond = td.logical_or(x <= -3, x >= 3)
    near = td.where(beyond, 0, x)  # 0 * inf must not be met, nor in a derivative
    return td.where(beyond, td.maximum(x, 0), near * hard_sigmoid(near))  # type: ignore[no-any-return]


def hard_tanh(x: Any) -> Array:
    """x held between -1 and 1; the derivative at the ends is 1."""
    x = as_array(x)
    return td.where(x > 1, 1, td.where(x < -1, -1, x))  # type: ignore[no-any-return]


def log_sigmoid(x: Any) -> Array:
    """The logarithm of the sigmoid, accurate where that underflows.

    >>> import tetrad as td
    >>> log_sigmoid(td.asarray([-1000.0, 1000.0]))
    Array([-1000.,    -0.], float32)
    """
    return -softplus(-as_array(x))


def mish(x: Any) -> Array:
    """x * tanh(softplus(x))"""
    return _gated(x, lambda near: td.tanh(softplus(near)), 800.0)


def soft_sign(x: Any) -> Array:
    """x / (1 + |x|)"""
    x = as_array(x)
    beyond = td.abs(x) > 1
    # of infinity the inverse is 0
    near, inverse = td.where(beyond, 0, x), 1 / td.where(beyond, x, 1)
    return td.where(beyond, td.sign(x) / (td.abs(inverse) + 1), near / (td.abs(near) + 1))  # type: ignore[no-any-return]


def squareplus(x: Any, b: float = 4) -> Array:
    """(x + sqrt(x**2 + b)) / 2: like softplus, from a square root."""
    x = as_array(x)
    beyond = td.abs(x) > 1
    near, inverse = td.where(beyond, 0, x), 1 / td.where(beyond, td.abs(x), 1)
    # Far from 0 it is max(x, 0) and a rest, in which neither squares overflow nor equal numbers
    # cancel.
    rest = 0.5 * b * inverse / (1 + td.sqrt(1 + b * td.square(inverse)))
    return td.where(beyond, td.maximum(x, 0) + rest, (near + td.sqrt(td.square(near) + b)) / 2)  # type: ignore[no-any-return]


def _wide(x: Any) -> tuple[Array, DType]:
    """The array in at least 32 bits, and the dtype to return."""
    x = as_array(x)
    return (td.astype(x, f32), x.dtype) if x.dtype.is_float and x.dtype.bits < 32 else (x, x.dtype)


def _largest(x: Array, axis: Axis) -> Array:
    """The largest element, as a number to subtract: the result does not depend on it, so no
    derivative follows it."""
    return stop_gradient(td.max(x, axis=axis, keepdims=True))  # type: ignore[no-any-return]


def softmax(x: Any, axis: Axis | None = -1, where: Any = None) -> Array:
    """exp(x) over its sum along an axis; `where`: of these elements only, the others are 0.

    >>> import tetrad as td
    >>> softmax(td.asarray([0.0, 0.0]))
    Array([0.5, 0.5], float32)
    """
    wide, dtype = _wide(x)
    wide = wide if wide.dtype.is_float or wide.dtype.is_complex else td.astype(wide, f32)
    if where is not None:  # not -inf, which would make derivatives NaN where nothing is left
        wide = td.where(where, wide, float(td.finfo(wide.dtype).min))
    axes = axes_of("softmax", axis, wide.ndim)
    along = axes[0] if len(axes) == 1 else axes
    result = lazy.module("tetrad.nn._softmax").softmax(wide, along)
    result = result if where is None else td.where(where, result, 0)
    return td.astype(result, dtype) if dtype.is_float else result


def log_softmax(x: Any, axis: Axis | None = -1, where: Any = None) -> Array:
    """The logarithm of softmax, accurate where softmax underflows; `where`: of these elements, the
    others are -inf."""
    wide, dtype = _wide(x)
    axes = axes_of("log_softmax", axis, wide.ndim)
    axis = axes[0] if len(axes) == 1 else axes
    wide = wide if where is None else td.where(where, wide, float(td.finfo(wide.dtype).min))
    apart = wide - _largest(wide, axis)
    result = apart - td.log(td.sum(td.exp(apart), axis=axis, keepdims=True))
    result = result if where is None else td.where(where, result, -math.inf)
    return td.astype(result, dtype) if dtype.is_float else result


@overload
def logsumexp(
    x: Any, axis: Axis | None = None, *, b: Any = None, keepdims: bool = False, where: Any = None,
    return_sign: Literal[False] = False,
) -> Array: ...  # fmt: skip
@overload
def logsumexp(
    x: Any, axis: Axis | None = None, *, b: Any = None, keepdims: bool = False, where: Any = None,
    return_sign: Literal[True],
) -> tuple[Array, Array]: ...  # fmt: skip


def logsumexp(
    x: Any, axis: Axis | None = None, *, b: Any = None, keepdims: bool = False, where: Any = None,
    return_sign: bool = False,
) -> Any:  # fmt: skip
    """The logarithm of the sum of b exp(x), without overflow; `where`: of these elements only.

    return_sign   the logarithm of the size of the sum, and its sign beside

    >>> import tetrad as td
    >>> round(float(logsumexp(td.asarray([1000.0, 1000.0]))), 3)
    1000.693
    """
    wide, dtype = _wide(x)
    wide = wide if b is None else td.where(td.equal(b, 0), -math.inf, wide)  # not 0 times infinity
    wide = wide if where is None else td.where(where, wide, -math.inf)
    axes = tuple(range(wide.ndim)) if axis is None else axis
    top = _largest(wide, axes)
    # infinities must not meet; +inf is the result where it is the largest
    finite = td.where(top == -math.inf, 0, top)
    parts = td.exp(wide - finite)
    sums = td.sum(parts if b is None else parts * b, axis=axes, keepdims=True)
    result = td.log(td.abs(sums) if return_sign else sums) + finite
    result = td.where(top == math.inf, top, result)
    both = (result, td.where(top == math.inf, 1, td.sign(sums))) if return_sign else (result,)
    kept = [one if keepdims else td.squeeze(one, axes) for one in both]
    found = tuple(td.astype(one, dtype) if dtype.is_float else one for one in kept)
    return found if return_sign else found[0]


def layer_norm(
    x: Any, weight: Any = None, bias: Any = None, *, axis: Axis = -1, eps: float = 1e-5
) -> Array:
    """x with mean 0 and variance 1 along one axis or several, then scaled and shifted.

    `weight` and `bias` lie along these axes, in the order of the array; of as many axes as x, they
    broadcast.

    >>> import tetrad as td
    >>> layer_norm(td.asarray([1.0, 3.0]), eps=0.0)
    Array([-1.,  1.], float32)
    >>> x, weight = td.asarray([[1.0, 5.0], [3.0, 5.0]]), td.asarray([1.0, 2.0])
    >>> layer_norm(x, weight, axis=0, eps=0.0, bias=td.ones(2))[:, 0]
    Array([0., 3.], float32)
    """
    wide, dtype = _wide(x)
    apart = wide - td.mean(wide, axis=axis, keepdims=True)
    scale = td.rsqrt(td.mean(td.square(apart), axis=axis, keepdims=True) + eps)
    return _affine(apart * scale, weight, bias, dtype, axis)


def rms_norm(
    x: Any, weight: Any = None, bias: Any = None, *, axis: Axis = -1, eps: float = 1e-6
) -> Array:
    """x over its root mean square along one axis or several, then scaled and shifted by a weight
    and a bias that lie along them."""
    wide, dtype = _wide(x)
    scale = td.rsqrt(td.mean(td.square(wide), axis=axis, keepdims=True) + eps)
    return _affine(wide * scale, weight, bias, dtype, axis)


def _affine(x: Array, weight: Any, bias: Any, dtype: DType, axis: Axis) -> Array:
    scaled = x if weight is None else x * _along(weight, x, axis)
    shifted = scaled if bias is None else scaled + _along(bias, x, axis)
    return td.astype(shifted, dtype) if dtype.is_float else shifted


def _along(values: Any, x: Array, axis: Axis) -> Any:
    """Values of the normalised axes (of the last of them, if they have fewer axes), shaped to
    broadcast along these."""
    if isinstance(values, bool | int | float | complex):
        return values
    axes = sorted(
        axis_of("norm", one, x.ndim) for one in ((axis,) if isinstance(axis, int) else axis)
    )
    array = as_array(values)
    if not array.ndim or array.ndim > len(axes):
        return array
    sizes = dict(zip(axes[-array.ndim :], array.shape, strict=True))
    if any(n != 1 and isinstance(n, int) and n != x.shape[i] for i, n in sizes.items()):
        message = f"norm: weight and bias lie along axes {axes} of {x.type}, got {array.type}"
        fail(ShapeError, message, "axis= says what is normalised")
    return td.reshape(array, tuple(sizes.get(i, 1) for i in range(min(sizes), x.ndim)))


def linear(x: Any, weight: Any, bias: Any = None) -> Array:
    """x @ weight.T + bias, with weight [outputs, inputs] as model files store it.

    >>> import tetrad as td
    >>> linear(td.ones((2, 3)), td.ones((4, 3)), td.zeros(4)).shape
    (2, 4)
    """
    result = td.matmul(x, td.matrix_transpose(weight))
    return result if bias is None else result + bias


def one_hot(x: Any, num_classes: int, *, dtype: Any = float, axis: int = -1) -> Array:
    """A new axis with 1 at the class and 0 elsewhere; a class out of range gives zeros.

    >>> import tetrad as td
    >>> one_hot(td.asarray([0, 2]), 3)
    Array([[1., 0., 0.],
           [0., 0., 1.]], float32)
    """
    x = as_array(x)
    if not x.dtype.is_integer:
        fail(DtypeError, f"one_hot: classes are integers, got {x.type}", "convert them with astype")
    hit = td.equal(td.expand_dims(x, axis=-1), positions(num_classes))
    return td.moveaxis(td.astype(hit, as_dtype(dtype)), -1, axis)


__all__ = [
    "celu", "elu", "gelu", "glu", "hard_sigmoid", "hard_silu", "hard_tanh", "layer_norm",
    "leaky_relu",
    "linear", "log_sigmoid", "log_softmax", "logsumexp", "mish", "one_hot", "relu", "relu6",
    "rms_norm", "selu",
    "sigmoid", "silu", "soft_sign", "softmax", "softplus", "squareplus", *MODULES,
    *(name for names in LATER.values() for name in names),
]  # fmt: skip


if not TYPE_CHECKING:  # which would take any name for one of ours
    __getattr__, __dir__ = namespaces.offers(globals(), LATER, MODULES)
