"""Arrays, indexing: `x[...]` as slice, reshape, transpose and gather.

Receives an array and a Python index (ints, slices, Ellipsis, None, integer arrays, masks); returns
the selected part, with NumPy's meaning. A mask selects a number of elements that depends on data,
so it works outside jit only.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType
from typing import Any, TypeGuard

import numpy as np

from tetrad.core import lazy
from tetrad.core.config import takes_nearest
from tetrad.core.dtypes import bool_, i32, i64, u32, u64
from tetrad.core.errors import BoundsError, DtypeError, TraceError, UnsupportedError, an
from tetrad.core.record import record
from tetrad.core.sizes import Shape, Size, SizeExpr, product, reach
from tetrad.tracing.array import Array, TracedArray, alias, fail
from tetrad.tracing.operands import (
    apply,
    as_array,
    broadcast,
    convert,
    is_operand,
    run,
    scalar,
    size_array,
    told_of,
    traced,
)

HOW_MANY = (
    "td.where(mask, x, other) keeps the shape; "
    "td.nonzero(mask, size=n, fill_value=...) gives n places"
)
modes = lazy.later("tetrad.arrays.index_modes")  # it stands on this module
INDICES = "index: an index is an int, a slice, None, Ellipsis or an integer array"
# Ellipsis of no width, between indices, sets them apart
Item = int | slice | None | Array | EllipsisType


def getitem(x: Array, key: Any, /) -> Array:
    """x[key]

    >>> import tetrad as td
    >>> td.reshape(td.arange(6), (2, 3))[:, ::-1]
    Array([[2, 1, 0],
           [5, 4, 3]], int32)
    """
    x, items = items_of(x, key)
    if takes_nearest() and any(is_index(item) for item in items):
        items = modes.kept_inside(x, items, "clip").items
    if any(isinstance(item, Array) for item in items):
        return _at_places(x, items) if is_box(x, items) else picked(x, items)
    return alias(_basic(x, items))


@record(eq=False)
class ScalarMask:
    """A mask without axes, known now: it takes an axis of size 1, once or not at all."""

    chosen: bool


def items_of(x: Array, key: Any) -> tuple[Array, list[Item]]:
    """One item per axis (and None for new axes): no masks, no lists. A mask without axes makes an
    axis, which the array that is returned has."""
    parts, masks = _parts(key if isinstance(key, tuple) else (key,))
    given = sum(_takes_axis(part) for part in parts)
    if given > x.ndim:
        fail(BoundsError, f"index: {given} indices for {x.type}, which has {x.ndim} axes")
    if sum(part is Ellipsis for part in parts) > 1:
        fail(BoundsError, "index: an index has at most one Ellipsis")
    at = next((i for i, part in enumerate(parts) if part is Ellipsis), len(parts))
    for place, mask in masks:
        before = sum(_takes_axis(part) for part in parts[:place])
        _check_mask(x, mask, before if place < at else before + x.ndim - given)
    between = [slice(None)] * (x.ndim - given) or _apart(parts, at)
    return _with_flags(x, [*parts[:at], *between, *parts[at + 1 :]])


def _parts(key: tuple[Any, ...]) -> tuple[list[Any], list[tuple[int, Shape]]]:
    """The key with masks as integer arrays or flags; and where each mask began, with its shape."""
    parts: list[Any] = []
    masks: list[tuple[int, Shape]] = []
    for part in key:
        if part is None or part is Ellipsis or isinstance(part, slice):
            parts.append(part)
            continue
        found, mask = _index(part)
        masks += [] if mask is None else [(len(parts), mask)]
        parts.extend(found)
    return parts, masks


def _takes_axis(part: Any) -> bool:
    return part is not None and part is not Ellipsis and not isinstance(part, ScalarMask)


def _apart(parts: Sequence[Any], at: int) -> list[EllipsisType]:
    """An Ellipsis of no width: it says nothing, unless it stands between indices."""
    sides = (parts[:at], parts[at + 1 :])
    is_between = all(
        any(isinstance(part, int | Array | ScalarMask) for part in side) for side in sides
    )
    return [Ellipsis] if is_between else []


def _with_flags(x: Array, parts: list[Any]) -> tuple[Array, list[Item]]:
    if not any(isinstance(part, ScalarMask) for part in parts):
        return x, parts
    sizes = iter(x.shape)
    shape = [
        1 if isinstance(p, ScalarMask) else next(sizes)
        for p in parts
        if isinstance(p, ScalarMask) or _takes_axis(p)
    ]
    places = [
        as_array(np.zeros(int(p.chosen), np.int32)) if isinstance(p, ScalarMask) else p
        for p in parts
    ]
    return reshaped(x, tuple(shape)), places


def is_index(item: Item) -> TypeGuard[int | Array]:
    """Does it select by position?"""
    return isinstance(item, int | Array)


def _check_mask(x: Array, mask: Shape, axis: int) -> None:
    """A mask is as large as what it selects from; one without elements selects nothing, as in
    NumPy."""
    sizes = x.shape[axis : axis + len(mask)]
    if any(isinstance(n, int) and m not in (n, 0) for m, n in zip(mask, sizes, strict=True)):
        message = (
            f"index: a mask of shape {list(mask)} selects from axes of sizes {list(sizes)}, of "
            f"{x.type}"
        )
        fail(BoundsError, message, "mask and axes must be of one size")


def _index(part: Any) -> tuple[list[int | Array | ScalarMask], Shape | None]:
    """An int or integer array; a mask becomes one integer array per axis of it, and its shape is
    told."""
    if isinstance(part, int | np.integer) and not isinstance(part, bool | np.bool_):
        return [int(part)], None
    if not is_operand(part) and not isinstance(part, list):
        fail(
            DtypeError,
            f"{INDICES}, got {an(type(part).__name__)}",
            "fields with names are entries of a dict",
        )
    array = as_array(
        np.asarray(part, np.int32) if isinstance(part, list) and not part else _from_list(part)
    )
    if array.dtype is bool_:
        if isinstance(array, TracedArray):
            message = (
                f"index: how many elements a mask {array.type} selects is only known when the "
                f"program runs{told_of(array)}"
            )
            fail(TraceError, message, HOW_MANY)
        if not array.ndim:
            return [ScalarMask(bool(array.memory))], None
        return [as_array(i) for i in np.nonzero(array.memory)], array.shape
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
        if item is Ellipsis:
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
        if isinstance(error, TraceError):
            hint = "td.dynamic_slice has a start that is traced and a size that is not"
            raise TraceError(
                f"index: a slice with a traced end: {error.message}", source=error.source,
                hint=f"{hint}; {error.hint}",
            ) from None  # fmt: skip
        fail(BoundsError, f"index: bad slice {item}: {error}")
    count = len(range(start, stop, step))
    # one spelling for what is the same
    return (start, count, step) if count > 1 else (start * count, count, 1)


def _position(index: int, size: Size) -> Size:
    if isinstance(size, int) and not -size <= index < size:
        fail(BoundsError, f"index: {index} is out of range for an axis of size {size}", reach(size))
    return index if index >= 0 else size + index


def _symbolic_span(item: slice, size: SizeExpr) -> tuple[Size, Size, int]:
    """Slices of an axis of symbolic size: its whole, without a first or a last part of fixed
    length."""
    start, stop = item.start or 0, 0 if item.stop is None or item.stop == size else item.stop
    if (
        item.step not in (None, 1)
        or not isinstance(start, int)
        or not isinstance(stop, int)
        or start < 0
        or stop > 0
    ):
        message = f"index: the slice {item} of an axis of symbolic size {size} has no known size"
        fail(UnsupportedError, message, "x[:], x[n:], x[:-m] and x[n:-m] with n, m >= 0 work")
    return start, size - start + stop, 1


def is_box(x: Array, items: Sequence[Item]) -> bool:
    """Numbers, some of them traced, along several axes, and slices without gaps: one part in one
    piece."""
    numbers = [item for item in items if is_index(item)]
    is_traced = any(isinstance(item, TracedArray) for item in numbers) and all(
        isinstance(n, int) for n in x.shape
    )
    return len(numbers) > 1 and is_traced and is_one_piece(x, items)


def is_one_piece(x: Array, items: Sequence[Item]) -> bool:
    """Numbers, known or traced, and slices without gaps."""
    taking = (item for item in items if item is not None and item is not Ellipsis)
    return all(_is_span(item, size) for item, size in zip(taking, x.shape, strict=True))


def _is_span(item: int | slice | Array, size: Size) -> bool:
    if isinstance(item, Array):
        # along an axis of size 1 nobody would look at the number and find it wrong
        return not item.ndim and size != 1
    return isinstance(item, int) or item.step in (None, 1)


def box_of(x: Array, items: Sequence[Item]) -> tuple[list[Any], Shape, Shape]:
    """Where a part begins and its sizes along all axes, and its shape without the axes that a
    number selects."""
    starts: list[Any] = []
    sizes: list[Size] = []
    shape: list[Size] = []
    for item in items:
        if item is None:
            shape.append(1)
            continue
        if item is Ellipsis:
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
    """Read as one part, so that a large array which a loop carries need not be rearranged for one
    element."""
    starts, sizes, shape = box_of(x, items)
    each = [reshaped(traced(convert(start, i32)), (1,)) for start in starts]
    return reshaped(run("dynamic_slice", x, run("concat", *each, axis=0), sizes=sizes), shape)


def picked(x: Array, items: Sequence[Item], what: str = "index") -> Array:
    """Integer arrays: slice the other axes, gather along the indexed ones (merged into one axis if
    several). `what` the user called is for errors."""
    together = are_together(items)
    x, plain = with_new_axes(x, items)
    kept = _basic(x, [item if isinstance(item, slice) else slice(None) for item in plain])
    axes = [axis for axis, item in enumerate(plain) if not isinstance(item, slice)]
    front = axes[0] if together else 0  # NumPy: indices that stand apart put their axes first
    rest = [axis for axis in range(kept.ndim) if axis not in axes]
    moved = permuted(kept, [*rest[:front], *axes, *rest[front:]])
    sizes = moved.shape[front : front + len(axes)]
    joined = reshaped(
        moved, (*moved.shape[:front], product(sizes), *moved.shape[front + len(axes) :])
    )
    given = [axis_of(items, i) for i, item in enumerate(items) if is_index(item)]
    indices = [as_array(plain[axis]) for axis in axes]
    if given == [front] and what == "index":
        return take_axis(joined, indices[0], front)  # it names the axis itself
    inside = [checked(i, n, axis, what) for i, n, axis in zip(indices, sizes, given, strict=True)]
    return take_axis(joined, merged(inside, sizes), front)


def axis_of(items: Sequence[Item], i: int) -> int:
    """The axis of x that item i takes, as the user counts them."""
    return sum(item is not None and item is not Ellipsis for item in items[:i])


def are_together(items: Sequence[Item]) -> bool:
    """Do all indices stand side by side?"""
    places = [i for i, item in enumerate(items) if is_index(item)]
    return places[-1] - places[0] + 1 == len(places)


def with_new_axes(x: Array, items: Sequence[Item]) -> tuple[Array, list[int | slice | Array]]:
    """The new axes made first, as axes of size 1 that are taken whole."""
    sizes = iter(x.shape)
    wide = [item for item in items if item is not Ellipsis]
    shape = tuple(1 if item is None else next(sizes) for item in wide)
    return reshaped(x, shape), [slice(None) if item is None else item for item in wide]


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
        indices = apply("minimum", indices, scalar((1 << 63) - 1, u64))
    wide = indices.dtype.bits > 32 or indices.dtype is u32
    return convert(indices, i64 if wide else i32)


def checked(indices: Array, size: Size, axis: int, what: str = "index") -> Array:
    """Indices counted from the start of an axis; one out of range is an error that names it, and
    the user's axis."""
    # the number of a Dim is known to the program
    known = indices if isinstance(size, int) else traced(indices)
    return run("checked_index", as_indices(known), size=size, axis=axis, what=what)


def merged(indices: Sequence[Array], sizes: Sequence[Size]) -> Array:
    """One index into merged axes, from indices that were checked."""
    count = product(sizes)
    indices = broadcast("index", indices)
    dtype = i32 if (count if isinstance(count, int) else count.max) < 1 << 31 else i64
    total = convert(indices[0], dtype)
    for at, size in zip(indices[1:], sizes[1:], strict=True):
        total = apply("add", apply("multiply", total, size_array(size, dtype)), convert(at, dtype))
    return total
