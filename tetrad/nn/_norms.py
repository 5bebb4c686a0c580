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
    scale, shift = (_parameter("group_norm", v, x, axis) for v in (weight, bias))
    wide, dtype = _wide(x)
    normalise = _groups_first if axis == 1 and x.ndim > 2 else _groups_anywhere
    result = normalise(wide, num_groups, axis, scale, shift, eps)
    return td.astype(result, dtype) if dtype.is_float else result


def _groups_first(x: Array, groups: int, axis: int, scale: Any, shift: Any, eps: float) -> Array:
    """[batch, channels, positions...]: statistics of a group are those of a stretch of memory, and
    a channel is scaled by one number."""
    batch, channels = x.shape[:2]
    rows = td.reshape(x, (batch, groups, channels // groups * product(x.shape[2:])))
    mean = td.mean(rows, axis=-1, keepdims=True)
    var = td.mean(td.square(rows - mean), axis=-1, keepdims=True)
    flat = _flat(x)
    by_channel = [_of_channels(v, batch, groups, channels) for v in (mean, td.rsqrt(var + eps))]
    result = _shifted(flat - by_channel[0], by_channel[1], scale, shift, axis)
    return td.reshape(result, x.shape)


def _of_channels(values: Array, batch: Any, groups: int, channels: Any) -> Array:
    """A number for each group [batch, groups, 1] as one for each channel [batch, channels, 1]."""
    wide = td.broadcast_to(values, (batch, groups, channels // groups))
    return td.reshape(wide, (batch, channels, 1))


def _groups_anywhere(x: Array, groups: int, axis: int, scale: Any, shift: Any, eps: float) -> Array:
    split = (*x.shape[:axis], groups, x.shape[axis] // groups, *x.shape[axis + 1 :])
    axes = tuple(a for a in range(1, len(split)) if a != axis)
    normal = td.reshape(layer_norm(td.reshape(x, split), axis=axes, eps=eps), x.shape)
    return _shifted(normal, None, scale, shift, axis)


def _shifted(x: Array, factor: Any, scale: Any, shift: Any, axis: int) -> Array:
    """x times one number a channel, plus another. Parameters are spread over the batch, then over
    positions: so are their gradients summed, first along memory."""
    if x.ndim == 3 and axis == 1:
        scale, shift = (_over_batch(v, x) for v in (scale, shift))
    if factor is None or scale is None:
        factor = scale if factor is None else factor
    else:
        factor = factor * scale
    result = x if factor is None else x * factor
    return result if shift is None else result + shift


def _flat(x: Array) -> Array:
    """[batch, channels, positions]"""
    return td.reshape(x, (*x.shape[:2], product(x.shape[2:])))


def _over_batch(values: Any, x: Array) -> Any:
    """Numbers of channels, the second axis, as [batch, channels, 1]."""
    if values is None:
        return None
    return td.broadcast_to(td.reshape(values, (1, -1, 1)), (*x.shape[:2], 1))


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
    pair = [_parameter("instance_norm", v, x, axis) for v in (weight, bias)]
    if axis != 1:
        return layer_norm(x, *pair, axis=axes, eps=eps)
    wide, dtype = _wide(x)
    flat = _flat(wide)
    result = td.reshape(_shifted(layer_norm(flat, eps=eps), None, pair[0], pair[1], axis), x.shape)
    return td.astype(result, dtype) if dtype.is_float else result


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
    pair = [_parameter("layer_norm2d", v, x, axis) for v in (weight, bias)]
    if axis != 1 or x.ndim < 3:
        return layer_norm(x, *pair, axis=axis, eps=eps)
    wide, dtype = _wide(x)
    flat = _flat(wide)
    result = td.reshape(
        _shifted(layer_norm(flat, axis=1, eps=eps), None, pair[0], pair[1], axis), x.shape
    )
    return td.astype(result, dtype) if dtype.is_float else result


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
        # the mean is subtracted first: in a sum of products, large means would cancel
        factor = td.rsqrt(var + eps) if scale is None else td.rsqrt(var + eps) * scale
        result = (wide - mean) * factor if shift is None else (wide - mean) * factor + shift
        return td.astype(result, dtype) if dtype.is_float else result
    count = product(tuple(n for a, n in enumerate(x.shape) if a != axis))
    if count == 1:
        fail(ShapeError, f"batch_norm: a channel of {x.type} has one number, and no variance")
    flat = _flat(wide) if axis == 1 and x.ndim > 2 else wide
    mean = _mean_of_channels(flat, axis)
    apart = flat - mean
    var = _mean_of_channels(td.square(apart), axis)
    result = td.reshape(_shifted(apart, td.rsqrt(var + eps), scale, shift, axis), x.shape)
    fresh = (mean, var * count / (count - 1))
    return td.astype(result, dtype), tuple(map(_moved_on, state, fresh, (momentum, momentum)))


def _mean_of_channels(x: Array, axis: int) -> Array:
    """First along memory, then over the batch."""
    if x.ndim == 3 and axis == 1:
        return td.mean(td.mean(x, axis=2, keepdims=True), axis=0, keepdims=True)
    axes = tuple(a for a in range(x.ndim) if a != axis)
    return td.mean(x, axis=axes, keepdims=True)


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
