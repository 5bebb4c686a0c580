"""Arrays, indexed updates: `x.at[index].set(value)` and its like: a new array with some elements
changed, as in JAX.

Receives an array, an index as in `x[index]`, and values that broadcast to `x[index]`. A box of
elements (ints, also traced ones, and slices) is a `dynamic_update_slice`, which compiled code does
in place; a mask is a `where`; anything else goes row by row, or by the flat positions that the
index selects. An index out of range is an error, as everywhere, unless `mode=` says what else it is
(`arrays.index_modes`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from tetrad.arrays.dynamic import dynamic_slice, dynamic_update_slice
from tetrad.arrays.index_modes import Kept, filling, kept_inside, mode_of
from tetrad.arrays.indexing import (
    Item,
    axis_of,
    box_of,
    checked,
    getitem,
    is_index,
    is_one_piece,
    items_of,
    permuted,
    reshaped,
    take_axis,
)
from tetrad.arrays.manipulation import concat
from tetrad.arrays.sorting import argsort
from tetrad.core import lazy
from tetrad.core.dtypes import DType, bool_, i32, i64
from tetrad.core.errors import BoundsError, DtypeError, ShapeError, UnsupportedError, an
from tetrad.core.op import REGISTRY
from tetrad.core.promotion import result_dtype
from tetrad.core.record import record
from tetrad.core.sizes import Shape, product
from tetrad.tracing.array import Array, TracedArray, fail
from tetrad.tracing.array import kept as own
from tetrad.tracing.loops import scan
from tetrad.tracing.operands import (
    as_array,
    convert,
    elementwise,
    expand,
    is_operand,
    kind_of,
    run,
    scalar,
)

# An op on an element and its value, a function of the element, or the value alone.
Change = str | Callable[[Array], Array] | None


@record(eq=False)
class UpdateIndexer:
    """`x.at`: an index makes it a place to change."""

    x: Array

    def __getitem__(self, key: Any) -> IndexedUpdate:
        return IndexedUpdate(self.x, key)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            told = f"; an index comes first: x.at[index].{name}" if name in changes() else ""
            raise AttributeError(f"x.at has no attribute {name!r}{told}", name=name, obj=self)


@record(eq=False)
class IndexedUpdate:
    """`x.at[key]`. Every method gives a new array.

    `mode=` says what an index out of range does: nothing said, it is an error; "drop" leaves it
    out, "clip" takes the nearest in range, "fill" gives NaN (`get`, or its `fill_value=`),
    "promise_in_bounds" is an error too. `indices_are_sorted=` and `unique_indices=` are JAX's, and
    without effect.
    """

    x: Array
    key: Any

    def get(self, *, fill_value: Any = None, **settings: Any) -> Array:
        mode = mode_of("get", settings)
        return (
            getitem(self.x, self.key)
            if mode is None
            else looked_up(self.x, self.key, mode, fill_value)
        )

    def set(self, values: Any, **settings: Any) -> Array:
        """The elements replaced; of several values for one element the last remains."""
        return changed(self.x, self.key, values, "set", None, settings)

    def add(self, values: Any, **settings: Any) -> Array:
        """Values added to the elements; of several for one element, one after the other."""
        return changed(self.x, self.key, values, "add", "add", settings)

    def subtract(self, values: Any, **settings: Any) -> Array:
        taken = elementwise(REGISTRY["negative"], (written(self.x, values, "subtract"),), {})
        return changed(self.x, self.key, taken, "subtract", "add", settings)

    def multiply(self, values: Any, **settings: Any) -> Array:
        return changed(self.x, self.key, values, "multiply", "multiply", settings)

    mul = multiply

    def divide(self, values: Any, **settings: Any) -> Array:
        return changed(self.x, self.key, values, "divide", "divide", settings)

    def power(self, values: Any, **settings: Any) -> Array:
        return changed(self.x, self.key, values, "power", "pow", settings)

    def min(self, values: Any, **settings: Any) -> Array:
        return changed(self.x, self.key, values, "min", "minimum", settings)

    def max(self, values: Any, **settings: Any) -> Array:
        return changed(self.x, self.key, values, "max", "maximum", settings)

    def apply(self, function: Callable[[Array], Array], **settings: Any) -> Array:
        """Each element replaced by a function of it; one that is named several times, as often."""
        mode = mode_of("apply", settings)
        if may_repeat(self.x, self.key, mode):
            return changed(self.x, self.key, scalar(0, self.x.dtype), "apply", function, settings)
        return self.set(function(self.get(mode="clip" if mode else None)), **settings)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            elsewhere = lazy.module("tetrad.arrays.suggestions")
            told = "" if name.startswith("_") else elsewhere.instead_of_change(name, changes())
            raise AttributeError(f"x.at[index] has no method {name!r}{told}", name=name, obj=self)


def changes() -> list[str]:
    """The methods of a place, each by one name."""
    named = [
        name
        for name, method in vars(IndexedUpdate).items()
        if callable(method) and method.__name__ == name
    ]
    return [name for name in named if not name.startswith("_")]


def looked_up(x: Array, key: Any, mode: str, fill_value: Any) -> Array:
    """x[key] with a mode for what is out of range."""
    x, items = items_of(x, key)
    kept = kept_inside(x, items, mode)
    found = getitem(x, tuple(kept.items))
    inside = kept.along(found.ndim)
    if inside is None:
        return found
    fill = written(x, filling(x.type) if fill_value is None else fill_value, "get")
    return elementwise(REGISTRY["where"], (inside, found, fill), {})


def may_repeat(x: Array, key: Any, mode: str | None) -> bool:
    """May an index name one element several times? Slices do not."""
    x, items = items_of(x, key)
    kept = kept_inside(x, items, mode).items
    taking = zip(
        (item for item in kept if item is not None and item is not Ellipsis), x.shape, strict=True
    )
    indices = [(item, size) for item, size in taking if is_index(item)]
    if all(isinstance(item, int) or not item.ndim for item, _ in indices):
        return False
    if any(isinstance(item, TracedArray) or not isinstance(size, int) for item, size in indices):
        return True
    try:
        places = np.broadcast_arrays(
            *(as_array(item).view % max(size, 1) for item, size in indices)
        )
    except ValueError as error:
        fail(BoundsError, f"index: {error}")
    return bool(
        np.unique(np.stack([place.ravel() for place in places]), axis=1).shape[1] != places[0].size
    )


def changed(
    x: Array, key: Any, values: Any, name: str, op: Change, settings: Mapping[str, Any]
) -> Array:
    mode = mode_of(name, settings)
    mask = None if callable(op) else mask_of(key)
    if mask is not None and as_array(values).ndim <= x.ndim - mask.ndim:
        return own(masked(x, mask, written(x, values, name), op))
    wide, items = items_of(x, key)
    kept, new = kept_inside(wide, items, mode), written(x, values, name)
    change = in_box if is_one_piece(wide, kept.items) else scattered
    return own(reshaped(change(wide, kept, new, name, op), x.shape))


def written(x: Array, values: Any, name: str) -> Array:
    """The values in the dtype of the array, if that can hold them."""
    kind = kind_of(values) if is_operand(values) else None
    if kind is None or result_dtype([x.dtype, kind]) is not x.dtype:
        came = as_array(values).type if isinstance(kind, DType) else an(type(values).__name__)
        fail(
            DtypeError,
            f"at[...].{name}: {came} does not fit into {x.type}",
            "convert it with astype",
        )
    return convert(values, x.dtype)


def spread(values: Array, shape: Shape, name: str) -> Array:
    pairs = zip(reversed(values.shape), reversed(shape), strict=False)
    if values.ndim > len(shape) or any(n not in (1, size) for n, size in pairs):
        message = f"at[...].{name}: values {values.type} for a part of shape {list(shape)}"
        fail(ShapeError, message, "values must broadcast to x[index]")
    return expand(values, shape)


def joined(op: Change, before: Array, values: Array) -> Array:
    if callable(op):
        return spread(written(before, op(before), "apply"), before.shape, "apply")
    return (
        values
        if op is None
        else convert(elementwise(REGISTRY[op], (before, values), {}), before.dtype)
    )


# -- masks -----------------------------------------------------------------------------------------


def mask_of(key: Any) -> Array | None:
    """The key, if it is one mask."""
    part = key[0] if isinstance(key, tuple) and len(key) == 1 else key
    is_one = (
        isinstance(part, Array | np.ndarray | bool | np.bool_) and as_array(part).dtype is bool_
    )
    return as_array(part) if is_one else None


def masked(x: Array, mask: Array, values: Array, op: Change) -> Array:
    if mask.shape != x.shape[: mask.ndim]:
        fail(
            ShapeError,
            f"at: a mask {mask.type} for {x.type}",
            "a mask has the leading axes of the array",
        )
    wide = reshaped(mask, (*mask.shape, *(1,) * (x.ndim - mask.ndim)))
    return elementwise(REGISTRY["where"], (wide, joined(op, x, values), x), {})


# -- boxes -----------------------------------------------------------------------------------------


def in_box(x: Array, kept: Kept, values: Array, name: str, op: Change) -> Array:
    starts, sizes, shape = box_of(x, kept.items)
    new = reshaped(spread(values, shape, name), sizes)
    if op is not None or kept.inside is not None:
        before = dynamic_slice(x, starts, sizes) if starts else x  # type: ignore[arg-type]
        new = joined(op, before, new)
        new = (
            new
            if kept.inside is None
            else elementwise(REGISTRY["where"], (kept.inside, new, before), {})
        )
    return dynamic_update_slice(x, new, starts) if starts else new


# -- anywhere --------------------------------------------------------------------------------------


def scattered(x: Array, kept: Kept, values: Array, name: str, op: Change) -> Array:
    """Whole rows where one array names them, else single elements by their flat positions."""
    items = kept.items
    listed = [axis for axis, item in enumerate(items) if not is_whole(item)]
    if None not in items and len(listed) == 1 and isinstance(items[listed[0]], Array):
        return rows_along(x, listed[0], kept, values, name, op)
    total = x.type.size
    if not isinstance(total, int):
        fail(
            UnsupportedError,
            f"at[...].{name}: {x.type} has a symbolic size",
            "ints, slices and masks work",
        )
    picked = picked_places(x, [in_range(x, items, i, name) for i in range(len(items))], total)
    new, count, inside = spread(values, picked.shape, name), picked.size, kept.along(picked.ndim)
    flat = None if inside is None else reshaped(expand(inside, picked.shape), (count,))
    places, updates = reshaped(picked, (count,)), reshaped(new, (count,))
    return reshaped(put_inside(reshaped(x, (total,)), places, updates, name, op, flat), x.shape)


def is_whole(item: Item) -> bool:
    return isinstance(item, slice) and item == slice(None)


def rows_along(x: Array, axis: int, kept: Kept, values: Array, name: str, op: Change) -> Array:
    index: Array = kept.items[axis]  # type: ignore[assignment]
    before, after, size = x.shape[:axis], x.shape[axis + 1 :], x.shape[axis]
    if not isinstance(size, int):
        fail(
            UnsupportedError,
            f"at[...].{name}: axis {axis} of {x.type} is symbolic",
            "ints, slices and masks work",
        )
    index = checked(index, size, axis, f"at[...].{name}")
    new = spread(values, (*before, *index.shape, *after), name)
    count, rest = product(index.shape), range(axis + 1, axis + 1 + len(after))
    updates = permuted(reshaped(new, (*before, count, *after)), [axis, *range(axis), *rest])
    inside = None if kept.inside is None else reshaped(kept.inside, (count,))
    rows = permuted(x, [axis, *range(axis), *rest])
    found = put_inside(rows, reshaped(index, (count,)), updates, name, op, inside)
    return permuted(found, [*range(1, axis + 1), 0, *rest])


def put_inside(
    rows: Array, places: Array, updates: Array, name: str, op: Change, inside: Array | None
) -> Array:
    """Rows with updates in their places; those that are not inside go to a spare row, which is cut
    off again."""
    if inside is None:
        return put(rows, places, updates, name, op)
    size = rows.shape[0]
    spare = expand(scalar(0, rows.dtype), (1, *rows.shape[1:]))
    places = elementwise(REGISTRY["where"], (inside, places, scalar(size, places.dtype)), {})
    return put(concat([rows, spare]), places, updates, name, op)[:size]


def put(rows: Array, places: Array, updates: Array, name: str, op: Change) -> Array:
    """Rows with updates in their places."""
    size = rows.shape[0]
    if updates.shape[0] == 0:
        return rows
    if op == "add":
        return run("add_at", rows, updates, places)
    if op is not None:
        if not are_apart(places, size):
            return one_by_one(rows, places, updates, op)
        updates = joined(op, take_axis(rows, places, 0), updates)
    owner = owners(places, size)  # of each row: which update it takes, counted from 1, or none
    taken = take_axis(updates, elementwise(REGISTRY["maximum"], (owner - 1, 0), {}), 0)
    has_one = reshaped(owner > 0, (size, *(1,) * (rows.ndim - 1)))
    return elementwise(REGISTRY["where"], (has_one, taken, rows), {})


def in_range(x: Array, items: Sequence[Item], i: int, name: str) -> Item:
    """An item whose indices are in range, or the error that names one, with the user's axis."""
    item, axis = items[i], axis_of(items, i)
    return (
        checked(item, x.shape[axis], axis, f"at[...].{name}") if isinstance(item, Array) else item
    )


def picked_places(x: Array, items: Sequence[Item], total: int) -> Array:
    """The flat positions of x[items]; known now if the items are."""
    numbers = np.arange(total, dtype=np.int32 if total < 1 << 31 else np.int64).reshape(x.shape)
    if any(isinstance(item, TracedArray) for item in items):
        return getitem(as_array(numbers), tuple(items))
    return as_array(
        np.asarray(numbers[tuple(i.view if isinstance(i, Array) else i for i in items)])
    )


def are_apart(places: Array, size: int) -> bool:
    """Is every row named at most once, as far as is known?"""
    return not isinstance(places, TracedArray) and len(np.unique(places.view % size)) == places.size


def one_by_one(rows: Array, places: Array, updates: Array, op: Change) -> Array:
    """Rows that take their updates one after the other: a row may be named by several."""
    # A gather finds what is out of range, which a slice would move inside.
    starts = take_axis(as_array(np.arange(rows.shape[0], dtype=np.int32)), places, 0)

    def step(rows: Array, update: tuple[Array, Array]) -> tuple[Array, None]:
        start, new = update[0], reshaped(update[1], (1, *rows.shape[1:]))
        at, sizes = (start, *(0,) * (rows.ndim - 1)), (1, *rows.shape[1:])
        return dynamic_update_slice(rows, joined(op, dynamic_slice(rows, at, sizes), new), at), None

    found: Array = scan(step, rows, (starts, updates))[0]
    return found


def owners(places: Array, size: int) -> Array:
    if not isinstance(places, TracedArray):
        found = np.zeros(size, np.int32)
        found[places.view] = np.arange(1, len(places) + 1)
        return as_array(found)
    given = convert(places, i64 if places.dtype.bits > 32 else i32)
    # what is out of range stays so, for the scattered sum to find
    is_from_end = (given < 0) & (given >= -size)
    given = elementwise(REGISTRY["where"], (is_from_end, given + size, given), {})
    order = convert(argsort(given, stable=True), i32)
    at = take_axis(given, order, 0)
    is_last = concat([at[1:] != at[:-1], as_array(np.array([True]))])
    kept = elementwise(REGISTRY["where"], (is_last, order + 1, scalar(0, i32)), {})
    return run("scatter_add", kept, at, size=size)
