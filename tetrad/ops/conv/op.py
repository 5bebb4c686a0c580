"""The ops `conv` and `conv_weight`: convolutions of one, two or three axes, and what a weight is
made of.

    conv         y[n, o, p] = sum over c, k of x[n, c, at(p, k)] * w[o, c, k]
    conv_weight  w[o, c, k] = sum over n, p of x[n, c, at(p, k)] * y[n, o, p]

`ops.conv.geometry` says where at(p, k) is; around x there are zeros, and where x has holes there is
nothing. Both are linear in each operand, and the derivatives of one are the other and itself, from
the result back to x. The order of a sum is part of its meaning (docs/numerics.md):

    conv         taps ascend row by row, within a tap channels; one fma chain from zero
    conv_weight  images ascend, each one fma chain from zero over the places, row by row; sums of
                 images are added in order
    depthwise    of conv_weight, with channels second, no holes, up to two axes and 64 taps: along a
                 row of places sixteen such chains, place p in chain p % 16; joined by halving in
                 the end

Here they have their meaning, types, derivatives and test cases.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from tetrad.core.dtypes import as_dtype
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.core.op import Case, op
from tetrad.core.sizes import Shape, Size
from tetrad.core.types import ArrayType
from tetrad.graph.nodes import Node
from tetrad.ops.calculus import Batched, all_batched, moved, reshape, zeros
from tetrad.ops.cases import Rng, exact_array, pick
from tetrad.ops.conv.geometry import (
    WEIGHTS,
    ConvAxis,
    ConvGeometry,
    Ints,
    channels_of,
    geometry_of,
    sizes_of,
    taps_of,
)
from tetrad.ops.rules import FLOATS, Array, check_dtype, check_same, ieee

Settings = dict[str, Any]
Slices = tuple[slice, ...]
RANKS = (1, 2, 3)


# -- types -----------------------------------------------------------------------------------------


def conv_type(x: ArrayType, w: ArrayType, **settings: Any) -> ArrayType:
    """The type of y."""
    check_operands("conv", x, w, settings)
    last, weight, groups = settings["last"], settings["weight"], settings["groups"]
    taps = taps_of(weight, w.shape)
    outputs, inputs = weight_channels(weight, w.shape, groups)
    check_channels("conv", x, groups, last)
    if inputs != channels_of(last, x.shape) // groups:
        raise ShapeError(
            f"conv: x {x} has {channels_of(last, x.shape)} channels in {groups} groups, weight {w} "
            f"takes {inputs} in each"
        )
    made = geometry_of(x, outputs * groups, taps, **settings)
    return x.with_shape(made.y_shape)


def conv_weight_type(x: ArrayType, y: ArrayType, *, taps: Ints, **settings: Any) -> ArrayType:
    """The type of w."""
    check_operands("conv_weight", x, y, settings)
    last, groups = settings["last"], settings["groups"]
    for operand in (x, y):
        check_channels("conv_weight", operand, groups, last)
    if x.shape[0] != y.shape[0] or sizes_of(last, y.shape) != settings["size"]:
        raise ShapeError(f"conv_weight: x {x} and y {y} do not fit, sizes {settings['size']}")
    made = geometry_of(x, channels_of(last, y.shape), taps, **settings)
    return x.with_shape(made.w_shape)


def check_operands(name: str, x: ArrayType, other: ArrayType, settings: Settings) -> None:
    check_same(name, (x, other.with_shape(x.shape)))
    check_dtype(name, x.dtype, FLOATS)
    count = len(settings["size"])
    if count not in RANKS or x.rank != count + 2 or other.rank != count + 2:
        raise ShapeError(
            f"{name}: {count} spatial axes need operands of rank {count + 2}, got {x} and {other}",
            hint="one, two and three spatial axes are supported",
        )
    numbers = [settings[key] for key in ("stride", "low", "dilation", "holes")]
    if any(len(each) != count for each in numbers):
        raise ShapeError(f"{name}: settings are for {count} axes, got {settings}")
    if settings["weight"] not in WEIGHTS:
        raise DtypeError(f"{name}: a weight is one of {WEIGHTS}, not {settings['weight']!r}")
    if not all(isinstance(n, int) for n in (*x.shape[1:], *other.shape[1:])):
        raise ShapeError(f"{name}: only the batch may be a Dim, got {x} and {other}")


def check_channels(name: str, x: ArrayType, groups: int, last: bool) -> None:
    channels = channels_of(last, x.shape)
    if groups < 1 or channels % groups:
        raise ShapeError(f"{name}: {channels} channels of {x} are not {groups} equal groups")


def weight_channels(weight: str, shape: Shape, groups: int) -> tuple[int, int]:
    """Outputs and inputs of a group."""
    outer, inner = (shape[-1], shape[-2]) if weight[0] == "k" else (shape[0], shape[1])
    if outer % groups:
        raise ShapeError(f"conv: {outer} channels of a weight are not {groups} equal groups")
    each = outer // groups
    return (inner, each) if weight in ("iok", "koi") else (each, inner)  # type: ignore[return-value]


def form_of(x: Node, w: Node, **settings: Any) -> ConvGeometry:
    """Of a node of `conv`, by its operands and settings."""
    outputs, _ = weight_channels(settings["weight"], w.type.shape, settings["groups"])
    taps = taps_of(settings["weight"], w.type.shape)
    return geometry_of(x.type, outputs * settings["groups"], taps, **settings)


def weight_form_of(x: Node, y: Node, *, taps: Ints, **settings: Any) -> ConvGeometry:
    """Of a node of `conv_weight`."""
    outputs = channels_of(settings["last"], y.type.shape)
    return geometry_of(x.type, outputs, taps, **settings)


# -- meaning ---------------------------------------------------------------------------------------


def _type_of(x: Array) -> ArrayType:
    return ArrayType(as_dtype(x.dtype), x.shape)


def channels_first(x: Array, form: ConvGeometry) -> Array:
    """[batch, groups, channels, places...]"""
    x = np.moveaxis(x, -1, 1) if form.last else x
    return x.reshape(x.shape[0], form.groups, -1 if x.size else x.shape[1] // form.groups,
                     *x.shape[2:])  # fmt: skip


def weight_first(w: Array, form: ConvGeometry) -> Array:
    """[groups, outputs, inputs, taps...], taps in the order in which x meets them."""
    count = len(form.axes)
    if form.weight[0] == "k":
        w = w.transpose(count + 1, count, *range(count))  # the channels of all groups first
    inner = w.shape[1]
    w = w.reshape(form.groups, w.shape[0] // form.groups, inner, *w.shape[2:])
    w = w.swapaxes(1, 2) if form.weight in ("iok", "koi") else w
    return w[(..., *(slice(None, None, -1),) * count)] if form.flip else w


def weight_back(w: Array, form: ConvGeometry) -> Array:
    """The inverse of `weight_first`."""
    count = len(form.axes)
    w = w[(..., *(slice(None, None, -1),) * count)] if form.flip else w
    w = w.swapaxes(1, 2) if form.weight in ("iok", "koi") else w
    w = w.reshape(w.shape[0] * w.shape[1], *w.shape[2:])
    return w.transpose(*range(2, count + 2), 1, 0) if form.weight[0] == "k" else w


def surrounded(x: Array, form: ConvGeometry) -> tuple[Array, Ints]:
    """x [batch, groups, channels, places...] between zeros, as many as any tap meets, and how many
    stand before it along each axis."""
    widths = [around(axis) for axis in form.axes]
    return np.pad(x, ((0, 0), (0, 0), (0, 0), *widths)), tuple(low for low, _ in widths)


def around(axis: ConvAxis) -> tuple[int, int]:
    first = (-axis.low) // axis.holes
    last = ((axis.y - 1) * axis.stride + (axis.taps - 1) * axis.dilation - axis.low) // axis.holes
    return max(0, -first), max(0, last - axis.x + 1)


def meetings(
    form: ConvGeometry, low: Ints
) -> Iterator[tuple[Ints, tuple[Any, ...], tuple[Any, ...]]]:
    """For every tap: its index, the places of the result where it meets x, and the elements of the
    surrounded x that it meets there."""
    for tap in product(*(range(axis.taps) for axis in form.axes)):
        pairs = [met(*each) for each in zip(form.axes, tap, low, strict=True)]
        yield tap, tuple(p for p, _ in pairs), tuple(x for _, x in pairs)


def met(axis: ConvAxis, tap: int, low: int) -> tuple[slice, slice]:
    """Places, and elements of x behind `low` zeros."""
    for phase in axis.phases():
        number, rest = divmod(tap - phase.tap, phase.step)
        count = -(-(axis.y - phase.first) // phase.period)
        if rest == 0 and 0 <= number < phase.count and count > 0:
            start = phase.base + number * phase.reach + low
            stop = start + (count - 1) * phase.stride + 1
            return slice(phase.first, None, phase.period), slice(start, stop, phase.stride)
    return slice(0, 0), slice(0, 0)


def _numbers(rng: Rng, dtype: Any, groups: int) -> tuple[Any, ...]:
    """Sizes of channels, the orders of axes, and settings of each axis."""
    count = pick(rng, (1, 2, 2, 2, 3))
    most = {1: 37, 2: 11, 3: 5}[count]
    axes = []
    for _ in range(count):
        taps, dilation = pick(rng, (1, 2, 3, 3)), pick(rng, (1, 1, 2))
        stride, holes = pick(rng, ((1, 1), (1, 1), (2, 1), (3, 1), (1, 2), (1, 3), (2, 3), (2, 2)))
        low, size = int(rng.integers(-1, 4)), pick(rng, (1, 2, 3, 7, most))
        y = ((size - 1) * holes + 2 * max(low, 0) - (taps - 1) * dilation) // stride + 1
        axes.append(ConvAxis(size, taps, max(y, 0), stride, low, dilation, holes))
    return tuple(axes), bool(rng.integers(2)), pick(rng, WEIGHTS), bool(rng.integers(2))


def random_form(rng: Rng) -> ConvGeometry:
    """Small, of any kind; now and then depthwise, or with an axis of no element."""
    is_depthwise, groups = rng.random() < 0.25, pick(rng, (1, 1, 2, 3))
    axes, last, weight, flip = _numbers(rng, None, groups)
    batch = pick(rng, (0, 1, 2, 3))
    if is_depthwise:
        return ConvGeometry(batch, pick(rng, (2, 5, 19)), 1, 1, axes, last, weight, flip)
    inputs, outputs = pick(rng, (0, 1, 2, 3, 5, 9, 17)), pick(rng, (0, 1, 2, 3, 8, 18))
    return ConvGeometry(batch, groups, inputs, outputs, axes, last, weight, flip)


def _conv_cases(rng: Rng) -> Case:
    form, dtype = random_form(rng), pick(rng, FLOATS)
    x, w = (exact_array(rng, dtype, shape) for shape in (form.x_shape, form.w_shape))  # type: ignore[arg-type]
    return Case((x, w), form.params())


@op(
    type=conv_type,
    kind="special",
    epilogue=True,
    may_fail=False,
    cases=_conv_cases,
    dtypes=FLOATS,
    public=False,
)
@ieee
def conv(
    x: Array, w: Array, *, stride: Ints, low: Ints, dilation: Ints, holes: Ints, size: Ints,
    groups: int, last: bool, weight: str, flip: bool,
) -> Array:  # fmt: skip
    """Windows of x times a weight. Taps are not reversed, unless `flip` says so. Halves accumulate
    in f32 and round once.

    >>> conv(
    ...     np.float32([[[1, 2, 3, 4]]]), np.float32([[[1, 10]]]), stride=(1,), low=(1,),
    ...     dilation=(1,), holes=(1,), size=(5,), groups=1, last=False, weight="oik", flip=False
    ... )
    array([[[10., 21., 32., 43.,  4.]]], dtype=float32)
    """
    settings: Settings = {
        "stride": stride, "low": low, "dilation": dilation, "holes": holes, "size": size,
        "groups": groups, "last": last, "weight": weight, "flip": flip,
    }  # fmt: skip
    outputs, _ = weight_channels(weight, w.shape, groups)
    form = geometry_of(_type_of(x), outputs * groups, taps_of(weight, w.shape), **settings)
    taps = weight_first(w, form)
    wide, before = surrounded(channels_first(x, form), form)
    found = np.zeros((x.shape[0], groups, outputs, *size), x.dtype)
    for tap, places, elements in meetings(form, before):
        part = wide[(..., *elements)]
        flat = part.reshape(*part.shape[:3], int(np.prod(part.shape[3:])))
        product_ = np.matmul(taps[(..., *tap)], flat)
        found[(..., *places)] += product_.reshape(*product_.shape[:3], *part.shape[3:])
    joined = found.reshape(x.shape[0], groups * outputs, *size)
    return np.ascontiguousarray(np.moveaxis(joined, 1, -1)) if last else joined


def _conv_weight_cases(rng: Rng) -> Case:
    form, dtype = random_form(rng), pick(rng, FLOATS)
    x, y = (exact_array(rng, dtype, shape) for shape in (form.x_shape, form.y_shape))  # type: ignore[arg-type]
    return Case((x, y), {**form.params(), "taps": tuple(axis.taps for axis in form.axes)})


@op(
    type=conv_weight_type,
    kind="special",
    may_fail=False,
    cases=_conv_weight_cases,
    dtypes=FLOATS,
    public=False,
)
@ieee
def conv_weight(
    x: Array, y: Array, *, taps: Ints, stride: Ints, low: Ints, dilation: Ints, holes: Ints,
    size: Ints, groups: int, last: bool, weight: str, flip: bool,
) -> Array:  # fmt: skip
    """What each tap of a weight meets: x times the results, summed over batch and places.

    >>> conv_weight(
    ...     np.float32([[[1, 2, 3]]]), np.float32([[[1, 10]]]), taps=(2,), stride=(1,), low=(0,),
    ...     dilation=(1,), holes=(1,), size=(2,), groups=1, last=False, weight="oik", flip=False
    ... )
    array([[[21., 32.]]], dtype=float32)
    """
    settings: Settings = {
        "stride": stride, "low": low, "dilation": dilation, "holes": holes, "size": size,
        "groups": groups, "last": last, "weight": weight, "flip": flip,
    }  # fmt: skip
    form = geometry_of(_type_of(x), channels_of(last, y.shape), taps, **settings)
    wide, before = surrounded(channels_first(x, form), form)
    results = channels_first(y, form)
    found = np.zeros((groups, form.outputs, form.inputs, *taps), x.dtype)
    for tap, places, elements in meetings(form, before):
        left, right = results[(..., *places)], wide[(..., *elements)]
        sides = (side.reshape(*side.shape[:3], int(np.prod(side.shape[3:]))) for side in
                 (left, right))  # fmt: skip
        index: Any = (..., *tap)
        found[index] += np.einsum("ngop,ngcp->goc", *sides, optimize=True)
    return np.ascontiguousarray(weight_back(found, form))


# -- derivatives -----------------------------------------------------------------------------------


def _back_to_x(ct: Node, x: Node, w: Node, **settings: Any) -> Node:
    made: Node = conv(ct, w, **form_of(x, w, **settings).turned().params())
    return made


def _back_to_w(ct: Node, x: Node, w: Node, **settings: Any) -> Node:
    taps = taps_of(settings["weight"], w.type.shape)
    made: Node = conv_weight(x, ct, taps=taps, **settings)
    return made


conv.transpose(_back_to_x, _back_to_w)


def _weight_back_to_x(ct: Node, x: Node, y: Node, *, taps: Ints, **settings: Any) -> Node:
    form = weight_form_of(x, y, taps=taps, **settings)
    made: Node = conv(y, ct, **form.turned().params())
    return made


def _weight_back_to_y(ct: Node, x: Node, y: Node, *, taps: Ints, **settings: Any) -> Node:
    made: Node = conv(x, ct, **settings)
    return made


conv_weight.transpose(_weight_back_to_x, _weight_back_to_y)


# -- batching --------------------------------------------------------------------------------------


@conv.batch
def conv_batch(batched: Batched, x: Node, w: Node, **settings: Any) -> Node:
    """Images of a shared weight are one batch; weights of their own are groups."""
    last, weight, groups = settings["last"], settings["weight"], settings["groups"]
    if batched == (True, False):
        size, count, *rest = x.type.shape
        made = conv(reshape(x, (size * count, *rest)), w, **settings)
        return reshape(made, (size, count, *made.type.shape[1:]))
    x, w = all_batched(batched, (x, w))
    size = number(x.type.shape[0])
    if size == 0:
        return no_rows(conv_type(row_type(x), row_type(w), **settings))
    wide = {**settings, "groups": size * groups}
    made = conv(channels_joined(x, last), weights_joined(w, weight), **wide)
    return channels_parted(made, last, size)


@conv_weight.batch
def conv_weight_batch(batched: Batched, x: Node, y: Node, **settings: Any) -> Node:
    """Pairs of arrays are groups."""
    x, y = all_batched(batched, (x, y))
    size, last, weight = number(x.type.shape[0]), settings["last"], settings["weight"]
    if size == 0:
        return no_rows(conv_weight_type(row_type(x), row_type(y), **settings))
    wide = {**settings, "groups": size * settings["groups"]}
    made = conv_weight(channels_joined(x, last), channels_joined(y, last), **wide)
    return weights_parted(made, weight, size)


def row_type(x: Node) -> ArrayType:
    return x.type.with_shape(x.type.shape[1:])


def no_rows(kind: ArrayType) -> Node:
    """A batch of nothing has no groups to be made of."""
    return zeros(kind, (0, *kind.shape))


def number(size: Size) -> int:
    if not isinstance(size, int):
        raise ShapeError(f"conv: weights of {size} rows of a batch: their number must be known")
    return size


def channels_joined(x: Node, last: bool) -> Node:
    """[rows, n, ..., c] or [rows, n, c, ...] with channels of all rows, one row after the other."""
    inner = moved(x, 0, x.type.rank - 2 if last else 1)
    shape = inner.type.shape
    if last:
        return reshape(inner, (*shape[:-2], shape[-2] * shape[-1]))
    return reshape(inner, (shape[0], shape[1] * shape[2], *shape[3:]))


def channels_parted(y: Node, last: bool, size: int) -> Node:
    shape = y.type.shape
    if last:
        parted = reshape(y, (*shape[:-1], size, shape[-1] // size))
        return moved(parted, parted.type.rank - 2, 0)
    return moved(reshape(y, (shape[0], size, shape[1] // size, *shape[2:])), 1, 0)


def weights_joined(w: Node, weight: str) -> Node:
    """[rows, ...] with the outer channels of all rows, one row after the other."""
    if weight[0] != "k":
        shape = w.type.shape
        return reshape(w, (shape[0] * shape[1], *shape[2:]))
    inner = moved(w, 0, w.type.rank - 2)
    shape = inner.type.shape
    return reshape(inner, (*shape[:-2], shape[-2] * shape[-1]))


def weights_parted(w: Node, weight: str, size: int) -> Node:
    shape = w.type.shape
    if weight[0] != "k":
        return reshape(w, (size, shape[0] // size, *shape[1:]))
    parted = reshape(w, (*shape[:-1], size, shape[-1] // size))
    return moved(parted, parted.type.rank - 2, 0)
