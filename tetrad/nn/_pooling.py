"""Neural networks, pooling: an array of channels in, one number for each window of each channel
out.

Settings are those of PyTorch; all kinds and ranks go through `pool`, which works out the geometry
and calls the ops of `ops/pool`. Padding takes no part in extremes; of equal largest elements the
first has the gradient; NaN stays NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product as every
from typing import Any, Protocol, TypeVar

import numpy as np

from tetrad.arrays import functions as td
from tetrad.arrays.creation import positions
from tetrad.core.dtypes import DType, f32
from tetrad.core.errors import ShapeError
from tetrad.nn import _wide
from tetrad.nn._settings import check_choice, is_whole, listed, refuse
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import as_array, run
from tetrad.transforms.custom import custom_jvp

Setting = int | Sequence[int]
Padding = int | str | Sequence[int] | Sequence[tuple[int, int]]
KINDS = ("max", "min", "mean", "sum", "prod")
SPATIAL = "DHW"
AXES = {1: "width", 2: "height, width", 3: "depth, height, width"}  # of each rank
SHORT = {"max": "max", "mean": "avg"}  # kinds as names of functions have them
Function = TypeVar("Function", bound=Callable[..., Any])


def pool(
    x: Any,
    kernel_size: Setting,
    stride: Setting | None = None,
    padding: Padding = 0,
    *,
    kind: str = "max",
    dilation: Setting = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    layout: str | None = None,
) -> Array:
    """One number for each window: the largest element, the smallest, the mean, the sum or the
    product.

    Settings are numbers, or lists with one for all axes or one for each; the stride is the kernel
    size if it is not given. `padding` is a number for both ends of an axis, pairs (before, after),
    "VALID" (none) or "SAME" (there are size / stride windows, rounded up). With `ceil_mode` a last
    window may reach beyond the end. A mean divides by the size of the window, padding included; or
    by what is there, without `count_include_pad`. `layout` says where channels lie: NCHW, NHWC and
    their like for other ranks; the batch may be left out.

    >>> import tetrad as td
    >>> x = td.reshape(td.arange(1.0, 17.0), (1, 1, 4, 4))
    >>> pool(x, 2, kind="sum")[0, 0]
    Array([[14., 22.],
           [46., 54.]], float32)
    >>> max_pool2d(x, 2)[0, 0]
    Array([[ 6.,  8.],
           [14., 16.]], float32)
    >>> avg_pool2d(x, 4)
    Array([[[[8.5]]]], float32)
    """
    check_choice("pool", "kind", KINDS, kind)
    x, axes = _spatial("pool", as_array(x), kernel_size, layout)
    names = ("kernel_size", "stride", "dilation")
    given = (kernel_size, kernel_size if stride is None else stride, dilation)
    each = [_each("pool", n, v, len(axes)) for n, v in zip(names, given, strict=True)]
    sizes = [x.shape[a] for a in axes]
    around = _padding("pool", padding, sizes, *each)
    ends = (
        [_ceiling(*one) for one in zip(sizes, *each, around, strict=True)] if ceil_mode else around
    )
    settings = _settings(x.ndim, axes, each, ends)
    if kind in ("max", "min"):
        return run("window_extreme", x, largest=kind == "max", **settings)
    if kind == "prod":
        return _products(x, settings)
    if kind == "sum":
        return run("window_sum", x, **settings)
    counts = _counts(x.ndim, axes, sizes, each, ends, around if count_include_pad else None)
    return _means(x, settings, counts)


def _means(x: Array, settings: dict[str, Any], counts: np.ndarray) -> Array:
    """In f32 at least: a sum of halves could be infinite."""
    wide, dtype = _wide(x)
    wide = wide if wide.dtype.is_float else td.astype(wide, f32)
    total = run("window_sum", wide, **settings)
    if (counts == counts.flat[0]).all():
        mean = total / float(counts.flat[0])
    else:
        mean = total / td.astype(counts, wide.dtype)
    return td.astype(mean, dtype) if dtype.is_float else mean


def _products(x: Array, settings: dict[str, Any]) -> Array:
    """Tap by tap, of an array with ones around."""
    low, high = zip(*settings["padding"], strict=True)
    around = run("pad", x, low=tuple(low), high=tuple(high), value=1)
    shape = tuple(
        (n - d * (k - 1) - 1) // s + 1
        for n, k, s, d in zip(
            around.shape, settings["window"], settings["strides"], settings["dilation"], strict=True
        )
    )
    found = None
    for taps in every(*map(range, settings["window"])):
        starts = tuple(t * d for t, d in zip(taps, settings["dilation"], strict=True))
        part = run("slice", around, starts=starts, sizes=shape, steps=settings["strides"])
        found = part if found is None else found * part
    return found  # type: ignore[return-value]


class WindowPool(Protocol):
    """Pooling of some rank: numbers are for each of its axes."""

    def __call__(
        self,
        x: Any,
        kernel_size: Setting,
        stride: Setting | None = None,
        padding: Padding = 0,
        *,
        layout: str = ...,
        **settings: Any,
    ) -> Array: ...


def _window_pool(kind: str, rank: int) -> WindowPool:
    def pooled(
        x: Any,
        kernel_size: Setting,
        stride: Setting | None = None,
        padding: Padding = 0,
        *,
        layout: str = f"NC{SPATIAL[-rank:]}",
        **settings: Any,
    ) -> Array:
        _check_rank(pooled.__name__, x, rank)
        kernel = _of(kernel_size, rank)
        return pool(x, kernel, stride, padding, kind=kind, layout=layout, **settings)

    what = {"max": "largest element", "mean": "mean"}[kind]
    doc = (
        f"The {what} of each window of x [batch, channels, {AXES[rank]}]; `pool` has the settings."
    )
    return _named(pooled, f"{SHORT[kind]}_pool{rank}d", doc)


def _named(function: Function, name: str, doc: str) -> Function:
    """As if it had been written out: in errors, in `help` and in the reference."""
    for key, value in {"__name__": name, "__qualname__": name, "__doc__": doc}.items():
        setattr(function, key, value)
    return function


max_pool1d, max_pool2d, max_pool3d = (_window_pool("max", rank) for rank in AXES)
avg_pool1d, avg_pool2d, avg_pool3d = (_window_pool("mean", rank) for rank in AXES)


# -- adaptive and global pooling -------------------------------------------------------------------


def adaptive_pool(
    x: Any, output_size: Setting, *, kind: str = "mean", layout: str | None = None
) -> Array:
    """As many windows along each axis as asked for: window i of n spans from floor(i size / n) to
    ceil((i + 1) size / n).

    >>> import tetrad as td
    >>> adaptive_pool(td.asarray([[[1.0, 2.0, 3.0, 4.0, 5.0]]]), [2])
    Array([[[2., 4.]]], float32)
    """
    check_choice("adaptive_pool", "kind", ("mean", "max"), kind)
    x, axes = _spatial("adaptive_pool", as_array(x), output_size, layout)
    sizes = _each("adaptive_pool", "output_size", output_size, len(axes))
    if all(n == 1 for n in sizes):
        return _over_all(x, axes, kind)
    spans = [_spans(x, axis, n) for axis, n in zip(axes, sizes, strict=True)]
    if all(map(_is_even, spans)):
        window = [int(span[0, 1]) for span in spans]
        return _run_kind(x, axes, window, kind)
    return _uneven(x, axes, spans, kind)


def _is_even(span: np.ndarray) -> bool:
    """Windows of one length that follow each other."""
    starts, ends = span[:, 0], span[:, 1]
    return bool((starts[1:] == ends[:-1]).all() and len(set(ends - starts)) == 1)


def _spans(x: Array, axis: int, count: int) -> np.ndarray:
    """The begin and end of each window."""
    size = x.shape[axis]
    if not isinstance(size, int) or size < 1:
        fail(ShapeError, f"adaptive_pool: axis {axis} of {x.type} has no windows")
    i = np.arange(count)
    return np.stack([i * size // count, -(-(i + 1) * size // count)], axis=1)


def _run_kind(x: Array, axes: Sequence[int], window: Sequence[int], kind: str) -> Array:
    none = [(0, 0)] * len(axes)
    settings = _settings(x.ndim, axes, [window, window, [1] * len(axes)], none)
    if kind == "max":
        return run("window_extreme", x, largest=True, **settings)
    return _means(x, settings, np.array([math.prod(window)]))


def _uneven(x: Array, axes: Sequence[int], spans: Sequence[np.ndarray], kind: str) -> Array:
    """Windows laid one after the other, each as long as the longest; what is too much is left
    out."""
    wide, dtype = (x, x.dtype) if kind == "max" else _wide(x)
    wide = wide if wide.dtype.is_float or kind == "max" else td.astype(wide, f32)
    fill = _least(wide.dtype) if kind == "max" else 0
    counts = np.ones([1] * x.ndim)
    lengths = []
    for axis, span in zip(axes, spans, strict=True):
        length = int((span[:, 1] - span[:, 0]).max())
        places = span[:, :1] + np.arange(length)
        shape = [-1 if a == axis else 1 for a in range(x.ndim)]
        there = (places < span[:, 1:]).reshape(shape)
        wide = td.take(wide, np.minimum(places, span[:, 1:] - 1).reshape(-1), axis=axis)
        wide = wide if there.all() else td.where(there, wide, fill)
        counts = counts * (span[:, 1] - span[:, 0]).reshape(shape)
        lengths.append(length)
    if kind == "max":
        return _run_kind(wide, axes, lengths, kind)
    settings = _settings(x.ndim, axes, [lengths, lengths, [1] * len(axes)], [(0, 0)] * len(axes))
    mean = run("window_sum", wide, **settings) / td.astype(counts, wide.dtype)
    return td.astype(mean, dtype) if dtype.is_float else mean


def _least(dtype: DType) -> float | int:
    return -math.inf if dtype.is_float else int(np.iinfo(dtype.np).min)


class AdaptivePool(Protocol):
    """Adaptive pooling of some rank."""

    def __call__(self, x: Any, output_size: Setting, *, layout: str = ...) -> Array: ...


def _adaptive_pool(kind: str, rank: int) -> AdaptivePool:
    def pooled(x: Any, output_size: Setting, *, layout: str = f"NC{SPATIAL[-rank:]}") -> Array:
        _check_rank(pooled.__name__, x, rank)
        return adaptive_pool(x, _of(output_size, rank), kind=kind, layout=layout)

    what = {"max": "largest elements", "mean": "means"}[kind]
    doc = f"The {what} of as many windows as asked for; see `adaptive_pool`."
    return _named(pooled, f"adaptive_{SHORT[kind]}_pool{rank}d", doc)


adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = (
    _adaptive_pool("max", rank) for rank in AXES
)
adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = (
    _adaptive_pool("mean", rank) for rank in AXES
)


def global_max_pool(x: Any, *, layout: str | None = None) -> Array:
    """The largest element of each channel; its axes stay, with size 1."""
    x = as_array(x)
    return adaptive_pool(x, [1] * _count_spatial("global_max_pool", x), kind="max", layout=layout)


def global_avg_pool(x: Any, *, layout: str | None = None) -> Array:
    """The mean of each channel; its axes stay, with size 1.

    >>> import tetrad as td
    >>> global_avg_pool(td.reshape(td.arange(8.0), (1, 2, 2, 2))).shape
    (1, 2, 1, 1)
    """
    x = as_array(x)
    return adaptive_pool(x, [1] * _count_spatial("global_avg_pool", x), layout=layout)


def _over_all(x: Array, axes: Sequence[int], kind: str) -> Array:
    if kind == "max":
        return _first_largest(x, tuple(axes))  # type: ignore[no-any-return]
    wide, dtype = _wide(x)
    mean = td.mean(wide, axis=tuple(axes), keepdims=True)
    return td.astype(mean, dtype) if dtype.is_float else mean


@partial(custom_jvp, nondiff_argnums=(1,))
def _first_largest(x: Array, axes: tuple[int, ...]) -> Array:
    return td.max(x, axis=axes, keepdims=True)


@_first_largest.defjvp
def _first_largest_jvp(axes: Any, primals: Any, tangents: Any) -> tuple[Array, Array]:
    """That of the first element that is the largest, not shared by all that are."""
    (x,), (t,) = primals, tangents
    y = _first_largest(x, axes)
    sizes = tuple(n if a in axes else 1 for a, n in enumerate(x.shape))
    place = td.reshape(positions(math.prod(sizes)), sizes)
    hit = td.logical_or(x == y, td.logical_and(x != x, y != y))
    first = td.min(td.where(hit, place, math.prod(sizes)), axis=axes, keepdims=True)
    return y, td.sum(td.where(place == first, t, 0), axis=axes, keepdims=True)


# -- settings --------------------------------------------------------------------------------------


def _of(setting: Setting, rank: int) -> Sequence[int]:
    """One for each axis, so that the rank is known."""
    entries = listed(setting)
    return entries * rank if len(entries) == 1 else entries


def _check_rank(name: str, x: Any, rank: int) -> None:
    kind = as_array(x).type
    if kind.rank not in (rank + 1, rank + 2):
        fail(ShapeError, f"{name}: x has {rank} axes beside channels and batch, got {kind}")


def _count_spatial(name: str, x: Array) -> int:
    if x.ndim < 3:
        fail(ShapeError, f"{name}: x is [batch, channels, positions...], got {x.type}")
    return x.ndim - 2


def _spatial(
    name: str, x: Array, setting: Setting, layout: str | None
) -> tuple[Array, tuple[int, ...]]:
    """The axes along which windows move: after the channels, or before them."""
    count = max(x.ndim - 2, 1)
    if layout is not None:
        count = len(layout) - 2
    elif (given := len(listed(setting))) > 1:
        count = given
    if x.ndim not in (count + 1, count + 2):
        fail(ShapeError, f"{name}: windows move along {count} axes of {x.type} beside the channels")
    first = x.ndim - count
    if layout in (None, "NC" + SPATIAL[-count:]):
        return x, tuple(range(first, x.ndim))
    if layout != "N" + SPATIAL[-count:] + "C":
        known = f"NC{SPATIAL[-count:]} or N{SPATIAL[-count:]}C"
        refuse(name, "layout", known, layout)
    return x, tuple(range(first - 1, x.ndim - 1))


def _each(name: str, setting: str, given: Any, count: int) -> list[int]:
    """One number for each axis: of one number, or of a list with one or as many."""
    values = listed(given)
    if len(values) not in (1, count):
        refuse(name, setting, f"1 or {count} numbers", given)
    if any(not is_whole(v) or v < 1 for v in values):
        refuse(name, setting, "positive integers", given)
    return values * count if len(values) == 1 else values


def _padding(
    name: str, given: Any, sizes: list[Any], window: list[int], strides: list[int], apart: list[int]
) -> list[tuple[int, int]]:
    count = len(sizes)
    if isinstance(given, str):
        check_choice(name, "padding", ("SAME", "VALID"), given)
        same = zip(sizes, window, strides, apart, strict=True)
        return [_same(*one) for one in same] if given == "SAME" else [(0, 0)] * count
    pairs = [(v, v) if is_whole(v) else tuple(listed(v)) for v in listed(given)]
    fits = all(len(p) == 2 and all(is_whole(n) and n >= 0 for n in p) for p in pairs)
    if len(pairs) not in (1, count) or not fits:
        refuse(name, "padding", f"1 or {count} numbers or pairs, none negative", given)
    return pairs * count if len(pairs) == 1 else pairs


def _same(size: int, taps: int, stride: int, apart: int) -> tuple[int, int]:
    missing = max((-(-size // stride) - 1) * stride + apart * (taps - 1) + 1 - size, 0)
    return missing // 2, missing - missing // 2


def _ceiling(
    size: int, taps: int, stride: int, apart: int, around: tuple[int, int]
) -> tuple[int, int]:
    """Padding with which a last window that begins inside is whole."""
    low, high = around
    room = size + low + high - apart * (taps - 1) - 1
    count = -(-room // stride) + 1
    if (count - 1) * stride >= size + low:  # it would begin beyond the end
        count -= 1
    return low, max(high, (count - 1) * stride + apart * (taps - 1) + 1 - size - low)


def _settings(
    rank: int, axes: Sequence[int], each: Sequence[Sequence[int]], around: Sequence[tuple[int, int]]
) -> dict[str, Any]:
    """The settings of the ops: an entry for each axis of the array."""
    names, rest = ("window", "strides", "dilation"), range(rank)
    settings: dict[str, Any] = {}
    for name, values in zip(names, each, strict=True):
        known = dict(zip(axes, values, strict=True))
        settings[name] = tuple(known.get(a, 1) for a in rest)
    pairs = dict(zip(axes, around, strict=True))
    settings["padding"] = tuple(tuple(pairs.get(a, (0, 0))) for a in rest)
    return settings


def _counts(
    rank: int,
    axes: Sequence[int],
    sizes: Sequence[Any],
    each: Sequence[Sequence[int]],
    ends: Sequence[tuple[int, int]],
    counted: Sequence[tuple[int, int]] | None,
) -> np.ndarray:
    """By how much each window divides: its taps inside the array, and inside `counted` padding."""
    result = np.ones([1] * rank)
    for number, (axis, size) in enumerate(zip(axes, sizes, strict=True)):
        taps, stride, apart = (values[number] for values in each)
        low, high = ends[number]
        before, after = counted[number] if counted else (0, 0)
        count = (size + low + high - apart * (taps - 1) - 1) // stride + 1
        place = np.arange(count)[:, None] * stride - low + np.arange(taps) * apart
        inside = ((place >= -before) & (place < size + after)).sum(1)
        shape = [-1 if a == axis else 1 for a in range(rank)]
        result = result * np.maximum(inside, 1).reshape(shape)
    return result
