"""Neural networks, norms: arrays of channels in, arrays with mean 0 and variance 1 along some axes
out, scaled and shifted channel by channel.

`layer_norm` and `rms_norm` are in the package itself. Variances divide by the count and are made
from the distances to the mean; `eps` is added to them, under the root. Statistics of f16 and bf16
are computed in f32.
"""

from __future__ import annotations

from typing import Any

from tetrad.arrays import functions as td
from tetrad.core.dtypes import f32
from tetrad.core.errors import ShapeError
from tetrad.core.sizes import product
from tetrad.nn import Axis, _wide, layer_norm, rms_norm
from tetrad.nn._settings import refuse
from tetrad.ops.movement import stop_gradient
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import as_array, axis_of

State = tuple[Array, Array]  # the running mean and variance of each channel


def group_norm(
    x: Any,
    num_groups: int,
    weight: Any = None,
    bias: Any = None,
    *,
    channel_axis: int = 1,
    eps: float = 1e-5,
) -> Array:
    """Every example normalised over groups of neighbouring channels and all that follows the batch
    axis; `weight` and `bias` have a number for each channel.

    >>> import tetrad as td
    >>> group_norm(td.asarray([[[1.0, 3.0], [10.0, 30.0]]]), 2, eps=0.0)
    Array([[[-1.,  1.],
            [-1.,  1.]]], float32)
    """
    x, axis = _channels("group_norm", x, channel_axis)
    if axis == 0:
        refuse("group_norm", "channel_axis", "another axis than the first, the batch", channel_axis)
    channels = x.shape[axis]
    if num_groups < 1 or channels % num_groups:
        fail(
            ShapeError,
            f"group_norm: {channels} channels of {x.type} do not make {num_groups} groups",
            "num_groups divides the number of channels",
        )
    split = (*x.shape[:axis], num_groups, channels // num_groups, *x.shape[axis + 1 :])
    axes = tuple(a for a in range(1, len(split)) if a != axis)
    scale, shift = (_parameter("group_norm", v, x, axis) for v in (weight, bias))
    grouped = td.reshape(x, split)
    pair = (v if v is None else td.reshape(v, _split_shape(split, axis)) for v in (scale, shift))
    return td.reshape(layer_norm(grouped, *pair, axis=axes, eps=eps), x.shape)


def _split_shape(split: tuple[Any, ...], axis: int) -> tuple[Any, ...]:
    return tuple(n if a in (axis, axis + 1) else 1 for a, n in enumerate(split))


def instance_norm(
    x: Any, weight: Any = None, bias: Any = None, *, channel_axis: int = 1, eps: float = 1e-5
) -> Array:
    """Every channel of every example normalised over its positions.

    >>> import tetrad as td
    >>> instance_norm(td.asarray([[[1.0, 3.0], [10.0, 30.0]]]), eps=0.0)[0, 1]
    Array([-1.,  1.], float32)
    """
    x, axis = _channels("instance_norm", x, channel_axis)
    axes = tuple(a for a in range(1, x.ndim) if a != axis)
    if axis == 0 or not axes:
        fail(ShapeError, f"instance_norm: {x.type} is not [batch, channels, positions...]")
    pair = (_parameter("instance_norm", v, x, axis) for v in (weight, bias))
    return layer_norm(x, *pair, axis=axes, eps=eps)


def layer_norm2d(
    x: Any, weight: Any = None, bias: Any = None, *, channel_axis: int = 1, eps: float = 1e-6
) -> Array:
    """Every position normalised over its channels, as ConvNeXt and SAM do with [batch, channels,
    height, width].

    >>> import tetrad as td
    >>> layer_norm2d(td.reshape(td.arange(1.0, 9.0), (1, 2, 2, 2)), eps=0.0)[0, :, 0, 0]
    Array([-1.,  1.], float32)
    """
    x, axis = _channels("layer_norm2d", x, channel_axis)
    pair = (_parameter("layer_norm2d", v, x, axis) for v in (weight, bias))
    return layer_norm(x, *pair, axis=axis, eps=eps)


def batch_norm(
    x: Any,
    state: tuple[Any, Any],
    weight: Any = None,
    bias: Any = None,
    *,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    channel_axis: int = -1,
) -> Any:
    """Every channel normalised, with the mean and variance that `state` holds; in training with
    those of the batch, and (result, new state) is returned.

    The new state is (1 - momentum) times the old, plus momentum times the batch's mean and its
    variance over one less than the count, as in PyTorch. No gradient goes through the state.

    >>> import tetrad as td
    >>> x = td.asarray([[1.0, 10.0], [3.0, 30.0]])
    >>> state = td.asarray([2.0, 20.0]), td.asarray([4.0, 25.0])
    >>> batch_norm(x, state, eps=0.0)
    Array([[-0.5, -2. ],
           [ 0.5,  2. ]], float32)
    >>> y, (mean, var) = batch_norm(x, state, training=True, momentum=0.5, eps=0.0)
    >>> y[:, 0], mean, var
    (Array([-1.,  1.], float32), Array([ 2., 20.], float32), Array([  3. , 112.5], float32))
    """
    x, axis = _channels("batch_norm", x, channel_axis)
    held = [_parameter("batch_norm", v, x, axis) for v in state]
    scale, shift = (_parameter("batch_norm", v, x, axis) for v in (weight, bias))
    wide, dtype = _wide(x)
    if not training:
        mean, var = (stop_gradient(v) for v in held)
        result = _scaled(wide - mean, var, scale, shift, eps)
        return td.astype(result, dtype) if dtype.is_float else result
    axes = tuple(a for a in range(x.ndim) if a != axis)
    mean = td.mean(wide, axis=axes, keepdims=True)
    apart = wide - mean
    var = td.mean(td.square(apart), axis=axes, keepdims=True)
    result = td.astype(_scaled(apart, var, scale, shift, eps), dtype)
    count = product(tuple(x.shape[a] for a in axes))
    if count == 1:
        fail(ShapeError, f"batch_norm: a channel of {x.type} has one number, and no variance")
    fresh = (mean, var * count / (count - 1))
    return result, tuple(map(_moved_on, state, fresh, (momentum, momentum)))


def _scaled(apart: Array, var: Array, scale: Any, shift: Any, eps: float) -> Array:
    """One factor a channel. The mean is subtracted first: in a sum of products, large means would
    cancel."""
    factor = td.rsqrt(var + eps)
    result = apart * (factor if scale is None else factor * scale)
    return result if shift is None else result + shift  # type: ignore[no-any-return]


def _moved_on(old: Any, new: Array, momentum: float) -> Array:
    old = as_array(old)
    fresh = td.astype(td.reshape(stop_gradient(new), old.shape), old.dtype)
    return (1 - momentum) * stop_gradient(old) + momentum * fresh  # type: ignore[no-any-return]


def residual_layer_norm(
    x: Any,
    residual: Any,
    weight: Any = None,
    bias: Any = None,
    *,
    input_bias: Any = None,
    axis: Axis = -1,
    eps: float = 1e-5,
) -> tuple[Array, Array]:
    """`layer_norm` of the sum x + residual + input_bias, and that sum, which a next layer adds to.

    >>> import tetrad as td
    >>> y, total = residual_layer_norm(td.asarray([1.0, 2.0]), td.asarray([0.0, 1.0]), eps=0.0)
    >>> y, total
    (Array([-1.,  1.], float32), Array([1., 3.], float32))
    """
    total = _total("residual_layer_norm", x, residual, input_bias)
    return layer_norm(total, weight, bias, axis=axis, eps=eps), total


def residual_rms_norm(
    x: Any,
    residual: Any,
    weight: Any = None,
    bias: Any = None,
    *,
    input_bias: Any = None,
    axis: Axis = -1,
    eps: float = 1e-6,
) -> tuple[Array, Array]:
    """`rms_norm` of the sum x + residual + input_bias, and that sum."""
    total = _total("residual_rms_norm", x, residual, input_bias)
    return rms_norm(total, weight, bias, axis=axis, eps=eps), total


def _total(name: str, x: Any, residual: Any, bias: Any) -> Array:
    x, residual = as_array(x), as_array(residual)
    if x.shape != residual.shape:
        fail(ShapeError, f"{name}: x and residual have one shape, got {x.type}, {residual.type}")
    return x + residual if bias is None else (x + residual) + bias  # type: ignore[no-any-return]


# -- channels --------------------------------------------------------------------------------------


def _channels(name: str, x: Any, channel_axis: int) -> tuple[Array, int]:
    x = as_array(x)
    return x, axis_of(name, channel_axis, x.ndim)


def _parameter(name: str, values: Any, x: Array, axis: int) -> Any:
    """Numbers of the channels, shaped to broadcast with x; at least 32 bits."""
    if values is None:
        return None
    values = as_array(values)
    if values.shape != (x.shape[axis],):
        fail(
            ShapeError,
            f"{name}: {x.type} has {x.shape[axis]} channels along axis {axis}, got {values.type}",
            "channel_axis says where channels lie",
        )
    values = td.astype(values, f32) if values.dtype.bits < 32 else values
    return td.reshape(values, tuple(n if a == axis else 1 for a, n in enumerate(x.shape)))
