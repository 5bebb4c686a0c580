"""Tracing, indexing: `x[...]` as slice, reshape, transpose and gather.

Receives an array and a Python index (ints, slices, Ellipsis, None, integer arrays, masks); returns the selected part,
with NumPy's meaning. A mask selects a number of elements that depends on data, so it works outside jit only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tetrad.core.dtypes import bool_, i32, i64, u32, u64
from tetrad.core.errors import BoundsError, DtypeError, TraceError, UnsupportedError, an
from tetrad.core.op import REGISTRY
from tetrad.core.sizes import Shape, Size, SizeExpr, product, reach
from tetrad.tracing.array import Array, TracedArray, fail
from tetrad.tracing.operands import as_array, convert, elementwise, is_operand, run, scalar, size_array, traced

INDICES = "index: an index is an int, a slice, None, Ellipsis or an integer array"
Item = int | slice | None | Array


def getitem(x: Array, key: Any, /) -> Array:
    """x[key]

    >>> import tetrad as td
    >>> td.reshape(td.arange(6), (2, 3))[:, ::-1]
    Array([[2, 1, 0],
           [5, 4, 3]], int32)
    """
    if _is_lone_mask(key):
        return _kept_or_not(x, bool(key))
    items = _items(x, key if isinstance(key, tuple) else (key,))
    if any(isinstance(item, Array) for item in items):
        return _at_places(x, items) if is_box(x, items) else picked(x, items)
    return _basic(x, items)


def _is_lone_mask(key: Any) -> bool:
    """A truth value, or a mask without axes."""
    if isinstance(key, Array | np.ndarray):
        return not key.ndim and key.dtype in (bool_, np.bool_) and not isinstance(key, TracedArray)
    return isinstance(key, bool | np.bool_)


def _kept_or_not(x: Array, is_kept: bool) -> Array:
    """x along a new axis, once or not at all."""
    whole = reshaped(x, (1, *x.shape))
    return whole if is_kept else sliced(whole, (0,) * whole.ndim, (0, *x.shape), (1,) * whole.ndim)


def _items(x: Array, key: tuple[Any, ...]) -> list[Item]:
    """The key with one item per axis (and None for new axes): no Ellipsis, no masks, no lists."""
    items: list[Any] = []
    masks: list[tuple[int, Shape]] = []  # where one began, and its shape
    for part in key:
        if part is None or part is Ellipsis or isinstance(part, slice):
            items.append(part)
            continue
        found, mask = _index(part)
        masks += [] if mask is None else [(len(items), mask)]
        items.extend(found)
    given = sum(item is not None and item is not Ellipsis for item in items)
    if given > x.ndim:
        fail(BoundsError, f"index: {given} indices for {x.type}, which has {x.ndim} axes")
    if sum(item is Ellipsis for item in items) > 1:
        fail(BoundsError, "index: an index has at most one Ellipsis")
    at = next((i for i, item in enumerate(items) if item is Ellipsis), len(items))
    for place, mask in masks:
        before = sum(item is not None and item is not Ellipsis for item in items[:place])
        _check_mask(x, mask, before if place < at else before + x.ndim - given)
    return [*items[:at], *[slice(None)] * (x.ndim - given), *items[at + 1 :]]


def _check_mask(x: Array, mask: Shape, axis: int) -> None:
    """A mask is as large as what it selects from; one without elements selects nothing, as in NumPy."""
    sizes = x.shape[axis : axis + len(mask)]
    if any(isinstance(n, int) and m not in (n, 0) for m, n in zip(mask, sizes, strict=True)):
        message = f"index: a mask of shape {list(mask)} selects from axes of sizes {list(sizes)}, of {x.type}"
        fail(BoundsError, message, "mask and axes must be of one size")


def _index(part: Any) -> tuple[list[int | Array], Shape | None]:
    """An int or integer array; a mask becomes one integer array per axis of it, and its shape is told."""
    if isinstance(part, int | np.integer) and not isinstance(part, bool | np.bool_):
        return [int(part)], None
    if not is_operand(part) and not isinstance(part, list):
        fail(DtypeError, f"{INDICES}, got {an(type(part).__name__)}", "fields with names are entries of a dict")
    array = as_array(np.asarray(part, np.int32) if isinstance(part, list) and not part else _from_list(part))
    if array.dtype is bool_:
        if isinstance(array, TracedArray):
            message = "index: how many elements a mask selects is only known when the program runs"
            fail(TraceError, message, "use td.where(mask, x, other), which keeps the shape")
        if not array.ndim:
            fail(BoundsError, "index: a mask without axes stands alone", "x[mask], and index the result")
        return [as_array(i) for i in np.nonzero(array.view)], array.shape
    if not array.dtype.is_integer:
        fail(DtypeError, f"{INDICES}, got {array.type}", "convert it with astype")
    return [array], None


def _from_list(part: Any) -> Any:
    return np.asarray(part) if isinstance(part, list | bool | np.bool_) else part


def _basic(x: Array, items: Sequence[Item]) -> Array:
    starts: list[Size] = []
    sizes: list[Size] = []
    steps: list[int] = []
    shape: list[Size] = []
    axis = 0
    for item in items:
        if item is None:
            shape.append(1)
            continue
        start, size, step = _span(item, x.shape[axis])  # type: ignore[arg-type]
        starts.append(start)
        sizes.append(size)
        steps.append(step)
        if isinstance(item, slice):
            shape.append(size)
        axis += 1
    return reshaped(sliced(x, starts, sizes, steps), tuple(shape))


def sliced(x: Array, starts: Sequence[Size], sizes: Sequence[Size], steps: Sequence[int]) -> Array:
    if tuple(sizes) == x.shape and all(step == 1 for step in steps):
        return x
    return run("slice", x, starts=tuple(starts), sizes=tuple(sizes), steps=tuple(steps))


def reshaped(x: Array, shape: Shape) -> Array:
    return x if x.shape == shape else run("reshape", x, shape=shape)


def _span(item: int | slice, size: Size) -> tuple[Size, Size, int]:
    """Start, count and step along an axis."""
    if isinstance(item, int):
        return _position(item, size), 1, 1
    if isinstance(size, SizeExpr):
        return _symbolic_span(item, size)
    try:
        start, stop, step = item.indices(size)
    except (TypeError, ValueError) as error:
        fail(BoundsError, f"index: bad slice {item}: {error}")
    count = len(range(start, stop, step))
    return (start, count, step) if count > 1 else (start * count, count, 1)  # one spelling for what is the same


def _position(index: int, size: Size) -> Size:
    if isinstance(size, int) and not -size <= index < size:
        fail(BoundsError, f"index: {index} is out of range for an axis of size {size}", reach(size))
    return index if index >= 0 else size + index


def _symbolic_span(item: slice, size: SizeExpr) -> tuple[Size, Size, int]:
    """Slices of an axis of symbolic size: its whole, without a first or a last part of fixed length."""
    start, stop = item.start or 0, 0 if item.stop is None or item.stop == size else item.stop
    if item.step not in (None, 1) or not isinstance(start, int) or not isinstance(stop, int) or start < 0 or stop > 0:
        message = f"index: the slice {item} of an axis of symbolic size {size} has no known size"
        fail(UnsupportedError, message, "x[:], x[n:], x[:-m] and x[n:-m] with n, m >= 0 work")
    return start, size - start + stop, 1


def is_box(x: Array, items: Sequence[Item]) -> bool:
    """Numbers, some of them traced, along several axes, and slices without gaps: one part in one piece."""
    numbers = [item for item in items if item is not None and not isinstance(item, slice)]
    is_traced = any(isinstance(item, TracedArray) for item in numbers) and all(isinstance(n, int) for n in x.shape)
    plain = all(is_plain(item) for item in items)
    return plain and is_traced and len(numbers) > 1


def is_plain(item: Item) -> bool:
    """A number, known or traced, or a slice without gaps."""
    if isinstance(item, Array):
        return not item.ndim
    return item is None or isinstance(item, int) or item.step in (None, 1)


def box_of(x: Array, items: Sequence[Item]) -> tuple[list[Any], Shape, Shape]:
    """Where a part begins and its sizes along all axes, and its shape without the axes that a number selects."""
    starts: list[Any] = []
    sizes: list[Size] = []
    shape: list[Size] = []
    for item in items:
        if item is None:
            shape.append(1)
            continue
        start, size = _begin(item, x.shape[len(starts)], len(starts))
        starts.append(start)
        sizes.append(size)
        shape += [size] if isinstance(item, slice) else []
    return starts, tuple(sizes), tuple(shape)


def _begin(item: int | slice | Array, size: Size, axis: int) -> tuple[Any, Size]:
    if isinstance(item, Array):
        return checked(item, size, axis), 1
    start, count, _ = _span(item, size)
    return start if isinstance(start, int) else size_array(start, i32), count


def _at_places(x: Array, items: Sequence[Item]) -> Array:
    """Read as one part, so that a large array which a loop carries need not be rearranged for one element."""
    starts, sizes, shape = box_of(x, items)
    each = [reshaped(traced(convert(start, i32)), (1,)) for start in starts]
    return reshaped(run("dynamic_slice", x, run("concat", *each, axis=0), sizes=sizes), shape)


def picked(x: Array, items: Sequence[Item], what: str = "index") -> Array:
    """Integer arrays: slice the other axes, gather along the indexed ones (merged into one axis if several). `what` the
    user called is for errors."""
    x, plain = _with_new_axes(x, items)
    kept = _basic(x, [item if isinstance(item, slice) else slice(None) for item in plain])
    axes = [axis for axis, item in enumerate(plain) if not isinstance(item, slice)]
    together = axes[-1] - axes[0] + 1 == len(axes)
    front = axes[0] if together else 0  # NumPy: indices that stand apart put their axes first
    rest = [axis for axis in range(kept.ndim) if axis not in axes]
    moved = permuted(kept, [*rest[:front], *axes, *rest[front:]])
    sizes = moved.shape[front : front + len(axes)]
    joined = reshaped(moved, (*moved.shape[:front], product(sizes), *moved.shape[front + len(axes) :]))
    given = [sum(item is not None for item in items[:axis]) for axis in axes]  # as the user counts axes
    indices = [as_array(plain[axis]) for axis in axes]
    if given == [front] and what == "index":
        return take_axis(joined, indices[0], front)  # it names the axis itself
    inside = [checked(i, n, axis, what) for i, n, axis in zip(indices, sizes, given, strict=True)]
    return take_axis(joined, _merge(inside, sizes), front)


def _with_new_axes(x: Array, items: Sequence[Item]) -> tuple[Array, list[int | slice | Array]]:
    """The new axes made first, as axes of size 1 that are taken whole."""
    sizes = iter(x.shape)
    shape = tuple(1 if item is None else next(sizes) for item in items)
    return reshaped(x, shape), [slice(None) if item is None else item for item in items]


def permuted(x: Array, order: Sequence[int]) -> Array:
    return x if list(order) == list(range(x.ndim)) else run("transpose", x, perm=tuple(order))


def take_axis(x: Array, indices: Array, axis: int) -> Array:
    """x.shape[:axis] + indices.shape + x.shape[axis + 1:], by gather."""
    return run("gather", x, as_indices(indices), axis=axis)


def as_indices(indices: Array) -> Array:
    """Indices as i32 or i64; what no i64 holds stays out of range."""
    if not indices.dtype.is_integer:
        fail(DtypeError, f"indices are integers, got {indices.type}", "convert with astype")
    if indices.dtype is u64:
        indices = _apply("minimum", indices, scalar((1 << 63) - 1, u64))
    wide = indices.dtype.bits > 32 or indices.dtype is u32
    return convert(indices, i64 if wide else i32)


def checked(indices: Array, size: Size, axis: int, what: str = "index") -> Array:
    """Indices counted from the start of an axis; one out of range is an error that names it, and the user's axis."""
    known = indices if isinstance(size, int) else traced(indices)  # the number of a Dim is known to the program
    return run("checked_index", as_indices(known), size=size, axis=axis, what=what)


def _merge(indices: Sequence[Array], sizes: Sequence[Size]) -> Array:
    """One index into merged axes, from indices that were checked."""
    count = product(sizes)
    dtype = i32 if (count if isinstance(count, int) else count.max) < 1 << 31 else i64
    total = convert(indices[0], dtype)
    for at, size in zip(indices[1:], sizes[1:], strict=True):
        total = _apply("add", _apply("multiply", total, size_array(size, dtype)), convert(at, dtype))
    return total


def _apply(name: str, *args: Array) -> Array:
    return elementwise(REGISTRY[name], args, {})
