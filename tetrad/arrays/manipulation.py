"""Arrays, manipulation: the same elements in another arrangement.

Receives arrays and static settings, returns arrays: compositions of reshape, transpose, expand,
slice, concat and pad. Names and meaning are the array API's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import index
from typing import Any, SupportsIndex

import numpy as np

from tetrad.arrays.indexing import permuted, reshaped, sliced, take_axis
from tetrad.core import lazy
from tetrad.core.dtypes import bool_
from tetrad.core.errors import ShapeError, TetradError, TraceError
from tetrad.core.sizes import Shape, Size, SizeExpr, product
from tetrad.core.types import ArrayType
from tetrad.ops.movement import shown
from tetrad.ops.rules import broadcast_shapes as common_shape
from tetrad.tracing.array import Array, TracedArray, fail, noun_of
from tetrad.tracing.operands import (
    as_array,
    axes_of,
    axis_of,
    broadcast,
    check_device,
    check_shape,
    common,
    convert,
    divide_size,
    dtype_of,
    expand,
    is_operand,
    owned,
    run,
    scalar,
    shape_of,
)  # fmt: skip


def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: str | None = None) -> Array:
    """The values in another dtype: floats truncate towards zero to integers, saturate, and NaN
    gives 0.

    >>> import tetrad as td
    >>> td.astype(td.asarray([1.7, -1.7, 1e20]), td.int32)
    Array([         1,         -1, 2147483647], int32)
    """
    check_device("astype", device)
    return convert(as_array(x), dtype_of(dtype))


def reshape(a: Any, shape: Any, order: str = "C", *, copy: bool | None = None) -> Array:
    """The elements in row-major order under another shape; one size may be -1. `order` "F": in
    column-major order.

    >>> import tetrad as td
    >>> td.reshape(td.arange(6), (2, -1)).shape
    (2, 3)
    """
    a = as_array(a)
    sizes = shape_of("reshape", shape)
    if order == "F":
        turned = permuted(a, tuple(reversed(range(a.ndim))))
        made = reshape(turned, sizes[::-1])
        return permuted(made, tuple(reversed(range(made.ndim))))
    if order not in ("C", "A", "K"):
        fail(ShapeError, f"reshape: there is no order {order!r}", "orders: 'C' and 'F'")
    if sizes.count(-1) > 1:
        fail(
            ShapeError,
            f"reshape: shape {list(sizes)} leaves more than one size open",
            "one size may be -1",
        )
    if -1 in sizes:
        sizes = _fill_in(a, sizes)
    if (total := product(check_shape("reshape", sizes))) != product(a.shape):
        message = f"reshape: {a.type} has {a.size} elements, shape {list(sizes)} has {total}"
        fail(ShapeError, message, "one size may be -1: what is left for it")
    return reshaped(a, sizes)


def _fill_in(x: Array, sizes: Shape) -> Shape:
    at = sizes.index(-1)
    rest = divide_size(product(x.shape), product(n for n in sizes if n != -1))
    if rest is None:
        shown = [n for n in sizes if n != -1]
        fail(ShapeError, f"reshape: {x.type} does not divide into {shown} and one more axis")
    return (*sizes[:at], rest, *sizes[at + 1 :])


def permute_dims(x: Any, /, axes: Sequence[int]) -> Array:
    """Axes in another order: axis i of the result is axis axes[i] of x.

    >>> import tetrad as td
    >>> td.permute_dims(td.zeros((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    x = as_array(x)
    order = [axis_of("permute_dims", axis, x.ndim) for axis in axes]
    if sorted(order) != list(range(x.ndim)):
        fail(
            ShapeError,
            f"permute_dims: {tuple(axes)} is not a permutation of the {x.ndim} axes of {x.type}",
        )
    return permuted(x, order)


def transpose(x: Any, /, *order: Any, axes: Any = None) -> Array:
    """permute_dims; without axes the order is reversed (as in NumPy)."""
    x = as_array(x)
    given = order[0] if len(order) == 1 and not isinstance(order[0], int) else order
    given = axes if axes is not None else given
    return permute_dims(
        x, tuple(reversed(range(x.ndim))) if given is None or given == () else given
    )


def matrix_transpose(x: Any, /) -> Array:
    """The last two axes swapped."""
    x = as_array(x)
    if x.ndim < 2:
        fail(ShapeError, f"matrix_transpose: needs at least two axes, got {x.type}")
    return permuted(x, [*range(x.ndim - 2), x.ndim - 1, x.ndim - 2])


def moveaxis(a: Any, source: int | Sequence[int], destination: int | Sequence[int]) -> Array:
    """Axes moved to other places, the others in their order.

    >>> import tetrad as td
    >>> td.moveaxis(td.zeros((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    a = as_array(a)
    sources = _axis_list(source, a.ndim)
    targets = _axis_list(destination, a.ndim)
    if (
        len(sources) != len(targets)
        or len(set(sources)) != len(sources)
        or len(set(targets)) != len(targets)
    ):
        fail(ShapeError, f"moveaxis: cannot move axes {source} to {destination}")
    order = [axis for axis in range(a.ndim) if axis not in sources]
    for target, axis in sorted(zip(targets, sources, strict=True)):
        order.insert(target, axis)
    return permuted(a, order)


def _axis_list(axis: int | Sequence[int], rank: int) -> list[int]:
    return [
        axis_of("moveaxis", a, rank) for a in ([axis] if isinstance(axis, SupportsIndex) else axis)
    ]


def expand_dims(a: Any, axis: int | Sequence[int] = 0) -> Array:
    """New axes of size 1 at these places of the result.

    >>> import tetrad as td
    >>> td.expand_dims(td.zeros((2, 3)), axis=1).shape
    (2, 1, 3)
    """
    a = as_array(a)
    count = len(axis) if isinstance(axis, tuple | list) else 1
    new = axes_of("expand_dims", axis, a.ndim + count)
    sizes = iter(a.shape)
    return reshaped(a, tuple(1 if i in new else next(sizes) for i in range(a.ndim + count)))


def squeeze(a: Any, axis: int | Sequence[int] | None = None) -> Array:
    """Axes of size 1 left out: those named, or all."""
    a = as_array(a)
    if axis is None:
        return reshaped(a, tuple(n for n in a.shape if n != 1))
    gone = axes_of("squeeze", axis, a.ndim)
    if any(a.shape[i] != 1 for i in gone):
        fail(ShapeError, f"squeeze: axis {axis} of {a.type} has not size 1")
    return reshaped(a, tuple(n for i, n in enumerate(a.shape) if i not in gone))


def broadcast_to(array: Any, shape: Any) -> Array:
    """x repeated along axes of size 1 and new leading axes.

    >>> import tetrad as td
    >>> td.broadcast_to(td.asarray([1, 2]), (2, 2))
    Array([[1, 2],
           [1, 2]], int32)
    """
    x, wanted = as_array(array), check_shape("broadcast_to", shape)
    pairs = zip(reversed(x.shape), reversed(wanted), strict=False)
    if x.ndim > len(wanted) or any(m not in (1, n) for m, n in pairs):
        message = f"broadcast_to: {x.type} does not broadcast to {shown(wanted)}"
        fail(ShapeError, message, "sizes must be equal, or 1, counted from the last axis")
    return expand(x, wanted)


def broadcast_arrays(*arrays: Any) -> tuple[Array, ...]:
    """All arrays with their common shape."""
    return tuple(broadcast("broadcast_arrays", [as_array(x) for x in arrays]))


def broadcast_shapes(*shapes: Any) -> Shape:
    """The shape that arrays of these shapes have when they meet; sizes may be Dims.

    >>> import tetrad as td
    >>> td.broadcast_shapes((3, 1), (2,), ())
    (3, 2)
    """
    given = [check_shape("broadcast_shapes", shape) for shape in shapes]
    try:
        return common_shape("broadcast_shapes", *(ArrayType(bool_, shape) for shape in given))
    except TetradError as error:
        fail(
            ShapeError,
            f"broadcast_shapes: {' and '.join(map(str, given))} do not broadcast",
            error.hint,
        )


def concat(arrays: Sequence[Any], axis: int | None = 0, *, dtype: Any = None) -> Array:
    """Arrays joined along an axis (None: flattened first).

    >>> import tetrad as td
    >>> td.concat([td.asarray([1, 2]), td.asarray([3.5])])
    Array([1. , 2. , 3.5], float32)
    """
    parts = common([owned(x) for x in _listed("concat", arrays, axis)])
    parts = parts if dtype is None else [convert(part, dtype_of(dtype)) for part in parts]
    if axis is None:
        parts, axis = [reshape(part, (-1,)) for part in parts], 0
    at = axis_of("concat", axis, parts[0].ndim)
    first, others = parts[0], [part.shape[:at] + part.shape[at + 1 :] for part in parts]
    for part, rest in zip(parts, others, strict=True):
        if part.ndim != first.ndim or rest != others[0]:
            message = f"concat: {first.type} and {part.type} differ beside axis {axis}"
            fail(ShapeError, message, "join them along another axis, or make all other sizes equal")
    return first if len(parts) == 1 else run("concat", *parts, axis=at)


def _listed(name: str, arrays: Any, axis: Any) -> list[Any]:
    """The arrays to join. One given where the axis belongs, or one without parts, was meant to be
    in a list."""
    is_one = not isinstance(arrays, Iterable) or getattr(arrays, "ndim", None) == 0
    if is_one or getattr(axis, "ndim", 0):
        second = f" and {noun_of(axis)}" if hasattr(axis, "ndim") else ""
        fail(
            ShapeError,
            f"{name}: expected a list of arrays, got {noun_of(arrays)}{second}",
            f"td.{name}([x, y])",
        )
    return list(arrays) or fail(ShapeError, f"{name}: needs at least one array")


def stack(arrays: Sequence[Any], axis: int = 0, out: None = None, dtype: Any = None) -> Array:
    """Arrays of one shape joined along a new axis.

    >>> import tetrad as td
    >>> td.stack([td.asarray([1, 2]), td.asarray([3, 4])], axis=1)
    Array([[1, 3],
           [2, 4]], int32)
    """
    parts = [as_array(x) for x in _listed("stack", arrays, axis)]
    if any(part.shape != parts[0].shape for part in parts):
        shown = ", ".join(str(part.type) for part in parts)
        fail(
            ShapeError,
            f"stack: shapes differ: {shown}",
            "td.pad the smaller ones, or join them with td.concat",
        )
    return concat([expand_dims(part, axis=axis) for part in parts], axis=axis, dtype=dtype)


def unstack(x: Any, /, axis: int = 0) -> tuple[Array, ...]:
    """The slices along an axis."""
    return tuple(moveaxis(x, axis, 0))


def flip(m: Any, axis: int | Sequence[int] | None = None) -> Array:
    """The order of elements reversed along axes.

    >>> import tetrad as td
    >>> td.flip(td.asarray([1, 2, 3]))
    Array([3, 2, 1], int32)
    """
    m = as_array(m)
    axes = axes_of("flip", axis, m.ndim)
    starts = tuple(n - 1 if i in axes else 0 for i, n in enumerate(m.shape))
    return sliced(m, starts, m.shape, tuple(-1 if i in axes else 1 for i in range(m.ndim)))


def roll(a: Any, shift: int | Sequence[int], axis: int | Sequence[int] | None = None) -> Array:
    """Elements moved along axes, those that leave come back at the other end.

    >>> import tetrad as td
    >>> td.roll(td.asarray([1, 2, 3, 4]), 1)
    Array([4, 1, 2, 3], int32)
    """
    a = as_array(a)
    if axis is None:
        return reshape(roll(reshape(a, (-1,)), shift, axis=0), a.shape)
    for name, given in (("shift", shift), ("axis", axis)):
        if not isinstance(given, SupportsIndex | Sequence | np.ndarray | Array):
            fail(ShapeError, f"roll: {name} is an int, or a tuple of ints, got {given!r}")
    axes = [axis] if isinstance(axis, SupportsIndex) else list(axis)
    shifts = [
        index(n) for n in ([shift] * len(axes) if isinstance(shift, SupportsIndex) else shift)
    ]
    if len(shifts) != len(axes):
        fail(ShapeError, f"roll: {len(shifts)} shifts for {len(axes)} axes")
    rolled: Array = a
    for step, one in zip(shifts, axes, strict=True):
        rolled = _roll_axis(rolled, step, axis_of("roll", one, a.ndim))
    return rolled


def _roll_axis(x: Array, shift: int, axis: int) -> Array:
    size = x.shape[axis]
    if isinstance(size, SizeExpr):
        cut: Size = size - shift if shift > 0 else -shift
    else:
        cut = -shift % size if size else 0
    if cut == 0:
        return x
    before = tuple(cut if i == axis else n for i, n in enumerate(x.shape))
    after = tuple(n - cut if i == axis else n for i, n in enumerate(x.shape))
    zeros, ones = (0,) * x.ndim, (1,) * x.ndim
    starts = tuple(cut if i == axis else 0 for i in range(x.ndim))
    return concat([sliced(x, starts, after, ones), sliced(x, zeros, before, ones)], axis=axis)


def repeat(
    a: Any, repeats: Any, axis: int | None = None, *, total_repeat_length: int | None = None
) -> Array:
    """Each element `repeats` times; an array says how often for each place along the axis.

    total_repeat_length   how many there are in all, so that repeats may be traced: cut, or the
                          last place again

    >>> import tetrad as td
    >>> td.repeat(td.asarray([1, 2]), 2)
    Array([1, 1, 2, 2], int32)
    >>> td.repeat(td.asarray([1, 2, 3]), td.asarray([2, 0, 1]))
    Array([1, 1, 3], int32)
    """
    a = as_array(a)
    if axis is None:
        a, axis = reshape(a, (-1,)), 0
    at = axis_of("repeat", axis, a.ndim)
    if total_repeat_length is not None:
        sized = lazy.module("tetrad.arrays.sized")
        total = sized.checked_size("repeat", total_repeat_length)
        return sized.repeated(a, as_array(repeats), at, total)  # type: ignore[no-any-return]
    if not isinstance(repeats, int) and is_operand(repeats) and as_array(repeats).ndim:
        return take_axis(
            a,
            as_array(np.repeat(np.arange(a.shape[at]), counts_of(as_array(repeats), a.shape[at]))),
            at,
        )
    if not isinstance(repeats, int | np.integer) or repeats < 0:
        fail(
            ShapeError,
            f"repeat: repeats must be an int of at least 0, or an array of such, got {repeats!r}",
        )
    times = int(repeats)
    wide = check_shape("repeat", (*a.shape[: at + 1], times, *a.shape[at + 1 :]))
    return reshaped(
        expand(expand_dims(a, axis=at + 1), wide),
        (*a.shape[:at], a.shape[at] * times, *a.shape[at + 1 :]),
    )


def counts_of(repeats: Array, size: Size) -> np.ndarray:
    """How often each place is repeated: known now, since the result has a shape."""
    if not repeats.dtype.is_integer or repeats.ndim != 1 or repeats.shape[0] not in (1, size):
        fail(
            ShapeError,
            f"repeat: expected integers, one for each of {size} places, got {repeats.type}",
        )
    if not isinstance(size, int):
        fail(ShapeError, f"repeat: an array of repeats needs a size that is known, got {size}")
    if isinstance(repeats, TracedArray):
        fail(
            ShapeError,
            "repeat: repeats that are traced give no shape",
            "give total_repeat_length=, or pass NumPy's integers",
        )
    if (repeats.memory < 0).any():
        fail(ShapeError, f"repeat: repeats must be at least 0, got {repeats.tolist()}")
    return np.broadcast_to(repeats.memory, (size,))


def tile(A: Any, reps: int | Sequence[int]) -> Array:
    """The whole array repeated along each axis.

    >>> import tetrad as td
    >>> td.tile(td.asarray([1, 2]), (2, 2))
    Array([[1, 2, 1, 2],
           [1, 2, 1, 2]], int32)
    """
    x = as_array(A)
    times = check_shape("tile", reps)
    rank = max(x.ndim, len(times))
    times = (*(1,) * (rank - len(times)), *times)
    shape = (*(1,) * (rank - x.ndim), *x.shape)
    apart = reshaped(x, tuple(size for n in shape for size in (1, n)))
    wide = expand(apart, tuple(size for pair in zip(times, shape, strict=True) for size in pair))
    return reshaped(wide, tuple(t * n for t, n in zip(times, shape, strict=True)))


def pad(
    array: Any,
    pad_width: Any,
    mode: str = "constant",
    *,
    value: float = 0,
    constant_values: float | None = None,
) -> Array:
    """x with a border. `pad_width`: an int, a pair for every axis, or one pair per axis.

    Of one value, or, by `mode`, of x itself: its outermost elements ("edge"), x as in a mirror that
    lies on them ("reflect") or beside them ("symmetric"), or x again ("wrap"). `constant_values` is
    NumPy's name for `value`.

    >>> import tetrad as td
    >>> td.pad(td.asarray([1, 2]), (1, 2), value=9)
    Array([9, 1, 2, 9, 9], int32)
    >>> td.pad(td.asarray([1, 2, 3]), 2, mode="reflect")
    Array([3, 2, 1, 2, 3, 2, 1], int32)
    """
    array = as_array(array)
    pairs = _pad_pairs(pad_width, array)
    if mode != "constant":
        bordered: Array = reduce(
            lambda part, axis: _bordered(part, axis, *pairs[axis], mode), range(array.ndim), array
        )
        return bordered
    low, high = tuple(a for a, _ in pairs), tuple(b for _, b in pairs)
    number = value if constant_values is None else constant_values
    if np.ndim(number):
        fail(
            ShapeError,
            f"pad: expected one number for all sides, got {number!r}",
            "pad one side after the other",
        )
    fill = scalar(number, array.dtype).item()
    return array if not any(low + high) else run("pad", array, low=low, high=high, value=fill)


BORDERS = ("constant", "edge", "reflect", "symmetric", "wrap")


def _bordered(x: Array, axis: int, low: int, high: int, mode: str) -> Array:
    """x between elements of its own. NumPy says which: it is asked for the border of the
    positions."""
    size = x.shape[axis]
    if mode not in BORDERS:
        fail(TraceError, f"pad: there is no mode {mode!r}", f"one of {', '.join(BORDERS)}")
    if not isinstance(size, int) or (size == 0 and low + high > 0):
        fail(
            ShapeError,
            f"pad: axis {axis} of {x.type} has no known elements to make a border of",
            'mode="constant"',
        )
    if low + high == 0:
        return x
    places = np.pad(np.arange(size, dtype=np.int32), (low, high), mode)  # type: ignore[call-overload]
    borders = [take_axis(x, as_array(part), axis) for part in (places[:low], places[low + size :])]
    return concat([borders[0], x, borders[1]], axis=axis)


def _pad_pairs(widths: Any, x: Array) -> list[tuple[int, int]]:
    widths = widths.tolist() if isinstance(widths, np.ndarray | np.integer) else widths
    pairs = (
        [(widths, widths)]
        if isinstance(widths, int)
        else [widths]
        if _is_pair(widths)
        else list(widths)
    )
    pairs = pairs * x.ndim if len(pairs) == 1 else pairs
    if len(pairs) != x.ndim or not all(_is_pair(pair) for pair in pairs):
        fail(
            ShapeError,
            f"pad: {widths!r} does not describe the {x.ndim} axes of {x.type}",
            "one (low, high) per axis, neither below 0; x[1:-1] is a smaller part",
        )
    return [(int(a), int(b)) for a, b in pairs]


def _is_pair(widths: Any) -> bool:
    numbers = isinstance(widths, tuple | list) and all(
        isinstance(w, int | np.integer) for w in widths
    )
    return numbers and len(widths) == 2 and min(widths) >= 0
