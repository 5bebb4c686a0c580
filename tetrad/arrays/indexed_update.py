"""Arrays, indexed updates: `x.at[index].set(value)` and its like: a new array with some elements
changed, as in JAX.

Receives an array, an index as in `x[index]`, and values that broadcast to `x[index]`. A box of
elements (ints, also traced ones, and slices) is a `dynamic_update_slice`, which compiled code does
in place; a mask is a `where`; anything else names rows, once the indexed axes stand in front as one
(`ops.scatter.update`). An index out of range is an error, as everywhere, unless `mode=` says what
else it is (`arrays.index_modes`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from tetrad.arrays.creation import asarray
from tetrad.arrays.dynamic import dynamic_slice, dynamic_update_slice
from tetrad.arrays.index_modes import Kept, filling, kept_inside, mode_of
from tetrad.arrays.indexing import (
    Item,
    are_together,
    as_indices,
    axis_of,
    box_of,
    checked,
    getitem,
    is_index,
    is_one_piece,
    items_of,
    merged,
    permuted,
    reshaped,
    take_axis,
    with_new_axes,
)
from tetrad.arrays.manipulation import concat
from tetrad.core import lazy
from tetrad.core.dtypes import DType, bool_
from tetrad.core.errors import (
    BoundsError,
    DtypeError,
    ShapeError,
    TetradError,
    TraceError,
    UnsupportedError,
    an,
)
from tetrad.core.op import REGISTRY
from tetrad.core.promotion import Kind, result_dtype
from tetrad.core.record import record
from tetrad.core.sizes import Shape, product
from tetrad.tracing.array import Array, TracedArray, fail
from tetrad.tracing.array import kept as own
from tetrad.tracing.fail import warn
from tetrad.tracing.loops import scan
from tetrad.tracing.operands import (
    apply,
    as_array,
    convert,
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

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        message = f"x.at[index] = value: x.at of {self.x.type} makes new arrays, it changes none"
        fail(TraceError, message, "x = x.at[index].set(value), or x[index] = value outside of jit")

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
        taken = apply("negative", written(self.x, values, "subtract"))
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
    return apply("where", inside, found, fill)


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
            *(as_array(item).memory % max(size, 1) for item, size in indices)
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
    new = written(x, values, name)
    is_left = mode in ("drop", "fill") and names_rows(wide, items, op)
    kept = Kept(list(items), drops=True) if is_left else kept_inside(wide, items, mode)
    change = in_box if is_one_piece(wide, kept.items) else scattered
    return own(reshaped(change(wide, kept, new, name, op), x.shape))


def written(x: Array, values: Any, name: str) -> Array:
    """The values in the dtype of the array, with a warning where promotion would not give it."""
    values = asarray(values) if isinstance(values, list | tuple | range) else values
    if not is_operand(values):
        fail(
            DtypeError,
            f"at[...].{name}: {an(type(values).__name__)} is no value for {x.type}",
            "values are arrays and numbers",
        )
    if not keeps(x.dtype, kind_of(values)):
        came = values.dtype if isinstance(values, Array) else an(type(values).__name__)
        warn(f"at[...].{name}: {came!s} is converted to {x.dtype!s}, which may change values")
    return convert(values, x.dtype)


def keeps(dtype: DType, kind: Kind) -> bool:
    """Does an array of this dtype keep it where it meets that one?"""
    try:
        return result_dtype([dtype, kind]) is dtype
    except TetradError:  # no dtype holds both
        return False


def spread(values: Array, shape: Shape, name: str) -> Array:
    pairs = zip(reversed(values.shape), reversed(shape), strict=False)
    if values.ndim > len(shape) or any(n not in (1, size) for n, size in pairs):
        message = f"at[...].{name}: values {values.type} for a part of shape {list(shape)}"
        fail(ShapeError, message, "values must broadcast to x[index]")
    return expand(values, shape)


def joined(op: Change, before: Array, values: Array) -> Array:
    if callable(op):
        return spread(written(before, op(before), "apply"), before.shape, "apply")
    return values if op is None else convert(apply(op, before, values), before.dtype)


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
    return apply("where", wide, joined(op, x, values), x)


# -- boxes -----------------------------------------------------------------------------------------


def in_box(x: Array, kept: Kept, values: Array, name: str, op: Change) -> Array:
    starts, sizes, shape = box_of(x, kept.items)
    new = reshaped(spread(values, shape, name), sizes)
    if op is not None or kept.inside is not None:
        before = dynamic_slice(x, starts, sizes) if starts else x  # type: ignore[arg-type]
        new = joined(op, before, new)
        new = new if kept.inside is None else apply("where", kept.inside, new, before)
    return dynamic_update_slice(x, new, starts) if starts else new


# -- anywhere --------------------------------------------------------------------------------------

# the op that changes rows where they lie, for each op on an element and its value
ROWS = {
    None: "set_at", "add": "add_at", "multiply": "multiply_at", "divide": "divide_at",
    "minimum": "minimum_at", "maximum": "maximum_at",
}  # fmt: skip


def scattered(x: Array, kept: Kept, values: Array, name: str, op: Change) -> Array:
    """Rows that indices name, in the part that slices leave; slices with gaps by flat positions."""
    if not any(isinstance(item, Array) for item in kept.items):
        return by_position(x, kept.items, values, name, op)
    wide, plain = with_new_axes(x, kept.items)
    slices = [item if isinstance(item, slice) else slice(None) for item in plain]
    if all(is_whole(item) for item in slices):
        return reshaped(in_rows(wide, kept, plain, values, name, op), x.shape)
    part = getitem(wide, tuple(slices))
    inner: list[Any] = [slice(None) if isinstance(item, slice) else item for item in plain]
    new = in_rows(part, kept, inner, values, name, op)
    change = in_box if is_one_piece(wide, slices) else scattered
    return reshaped(change(wide, Kept(list(slices)), new, name, None), x.shape)


def names_rows(x: Array, items: Sequence[Item], op: Change) -> bool:
    """Does one array name rows, of an axis of known size, that an op changes where they lie?"""
    axes = [item for item in items if item is not None and item is not Ellipsis]
    given = [i for i, item in enumerate(axes) if is_index(item)]
    return (
        len(given) == 1
        and isinstance(item := axes[given[0]], Array)
        and item.ndim > 0
        and isinstance(x.shape[given[0]], int)
        and changes_rows(op, x.dtype)
    )


def is_whole(item: Item) -> bool:
    return isinstance(item, slice) and item == slice(None)


def in_rows(
    x: Array, kept: Kept, items: Sequence[Any], values: Array, name: str, op: Change
) -> Array:
    """The indexed axes in front, as one: the places are rows of what follows."""
    axes = [axis for axis, item in enumerate(items) if is_index(item)]
    rest = [axis for axis in range(x.ndim) if axis not in axes]
    sizes = [x.shape[axis] for axis in axes]
    for axis, size in zip(axes, sizes, strict=True):
        if not isinstance(size, int):
            hint = "ints, slices and masks work"
            fail(UnsupportedError, f"at[...].{name}: axis {axis} of {x.type} is symbolic", hint)
    given = [i for i, item in enumerate(kept.items) if is_index(item)]
    indices = [
        as_indices(as_array(items[axis]))
        if kept.drops
        else checked(as_array(items[axis]), size, axis_of(kept.items, i), f"at[...].{name}")
        for axis, size, i in zip(axes, sizes, given, strict=True)
    ]
    places = merged(indices, sizes)
    if len(sizes) > 1:  # in range, which it says here to the kernels
        places = checked(places, product(sizes), axes[0], f"at[...].{name}")
    shape, count = places.shape, product(places.shape)
    front = axes[0] if are_together(kept.items) else 0  # as in NumPy
    picked = (*(x.shape[a] for a in rest[:front]), *shape, *(x.shape[a] for a in rest[front:]))
    chosen = range(front, front + len(shape))
    order = [*chosen, *(a for a in range(len(picked)) if a not in chosen)]
    others = tuple(x.shape[a] for a in rest)
    updates = reshaped(permuted(spread(values, picked, name), order), (count, *others))
    rows = reshaped(permuted(x, [*axes, *rest]), (product(sizes), *others))
    flat = reshaped(places, (count,))
    if kept.drops:
        found = put(rows, flat, updates, name, op, drop=True)
    else:
        inside = None if kept.inside is None else reshaped(expand(kept.inside, shape), (count,))
        found = put_inside(rows, flat, updates, name, op, inside)
    back = [(*axes, *rest).index(axis) for axis in range(x.ndim)]
    return permuted(reshaped(found, (*sizes, *others)), back)


def by_position(x: Array, items: Sequence[Item], values: Array, name: str, op: Change) -> Array:
    """Single elements by their flat positions, which are known now."""
    total = x.type.size
    if not isinstance(total, int):
        hint = "ints, slices and masks work"
        fail(UnsupportedError, f"at[...].{name}: {x.type} has a symbolic size", hint)
    numbers = np.arange(total, dtype=np.int32 if total < 1 << 31 else np.int64).reshape(x.shape)
    picked = numbers[tuple(items)]
    updates = reshaped(spread(values, picked.shape, name), (picked.size,))
    places = as_array(picked.reshape(-1))
    return reshaped(put(reshaped(x, (total,)), places, updates, name, op), x.shape)


def put_inside(
    rows: Array, places: Array, updates: Array, name: str, op: Change, inside: Array | None
) -> Array:
    """Rows with updates in their places; those that are not inside are left out."""
    if inside is None:
        return put(rows, places, updates, name, op)
    size = rows.shape[0]
    places = apply("where", inside, places, scalar(size, places.dtype))
    if changes_rows(op, rows.dtype):
        return put(rows, places, updates, name, op, drop=True)
    # one after the other: a spare row takes them, and is cut off again
    spare = expand(scalar(0, rows.dtype), (1, *rows.shape[1:]))
    return put(concat([rows, spare]), places, updates, name, op)[:size]


def changes_rows(op: Change, dtype: DType) -> bool:
    """Is there an op that joins rows where they lie?"""
    return not callable(op) and op in ROWS and dtype in REGISTRY[ROWS[op]].dtypes


def put(
    rows: Array, places: Array, updates: Array, name: str, op: Change, drop: bool = False
) -> Array:
    """Rows with updates in their places."""
    if updates.shape[0] == 0:
        return rows
    if changes_rows(op, rows.dtype):
        settings = {"drop": True} if drop else {}
        return run(ROWS[op], rows, updates, places, **settings)  # type: ignore[index]
    if not are_apart(places, rows.shape[0]):
        return one_by_one(rows, places, updates, op)
    return run("set_at", rows, joined(op, take_axis(rows, places, 0), updates), places)


def are_apart(places: Array, size: int) -> bool:
    """Is every row named at most once, as far as is known?"""
    return (
        not isinstance(places, TracedArray) and len(np.unique(places.memory % size)) == places.size
    )


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
