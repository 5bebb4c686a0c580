"""Arrays, index modes: what `mode=` of `x.at[index]` makes of an index out of range, with the modes
of JAX.

Receives the items of an index; returns items that are all in range, and which of them were. An
index from the end is counted first, as everywhere. Without a mode, and with "promise_in_bounds", an
index out of range is an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tetrad.arrays.indexing import Item, are_together, as_indices, is_index, reshaped
from tetrad.core.config import takes_nearest
from tetrad.core.dtypes import bool_
from tetrad.core.errors import TraceError
from tetrad.core.record import record
from tetrad.core.sizes import Size
from tetrad.core.types import ArrayType
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import apply, as_array, scalar, size_array

MODES = (None, "promise_in_bounds", "clip", "drop", "fill")
# the last two are promises of which no use is made
SETTINGS = ("mode", "indices_are_sorted", "unique_indices")


@record(eq=False)
class Kept:
    """Items in range. `inside`: which were so before, of the shape that the indices have together;
    None: all. With `drops` they are as they came: who uses them leaves out what is out of range."""

    items: list[Item]
    inside: Array | None = None
    drops: bool = False

    def along(self, rank: int) -> Array | None:
        """`inside` for the elements that the items select, an array of this rank."""
        if self.inside is None:
            return None
        first = next(i for i, item in enumerate(self.items) if is_index(item))
        # Indices that do not stand together have their axes first, as in NumPy.
        after = rank - self.inside.ndim - (first if are_together(self.items) else 0)
        return (
            reshaped(self.inside, (*self.inside.shape, *(1,) * after))
            if self.inside.ndim
            else self.inside
        )


def mode_of(name: str, settings: Mapping[str, Any], known: Sequence[str] = SETTINGS) -> str | None:
    for key in settings:
        if key not in known:
            fail(
                TraceError,
                f"at[...].{name}: there is no setting {key!r}",
                f"it takes {', '.join(known)}",
            )
    mode: str | None = settings.get("mode")
    if mode not in MODES:
        fail(
            TraceError,
            f"at[...].{name}: mode is {mode!r}",
            f"it is one of {', '.join(map(repr, MODES))}",
        )
    if mode is None and takes_nearest():
        return "clip" if name == "get" else "drop"
    return None if mode == "promise_in_bounds" else mode


def kept_inside(x: Array, items: Sequence[Item], mode: str | None) -> Kept:
    """The items, moved into range if a mode says so."""
    if mode is None:
        return Kept(list(items))
    moved: list[Item] = []
    inside = as_array(np.True_)
    sizes = iter(x.shape)
    for item in items:
        if item is None or item is Ellipsis:
            moved.append(item)
            continue
        size = next(sizes)
        near, was_inside = nearest(item, size) if is_index(item) else (item, True)
        moved.append(near)
        inside = apply("logical_and", inside, was_inside)
    has_indices = any(is_index(item) for item in moved)
    return Kept(moved, inside if has_indices and mode != "clip" else None)


def nearest(item: int | Array, size: Size) -> tuple[int | Array, Any]:
    """The index moved into range, and whether it was there."""
    if isinstance(item, int) and isinstance(size, int):
        at = item + size if item < 0 else item
        return min(max(at, 0), size - 1), 0 <= at < size
    index = as_indices(as_array(item))
    zero, count = scalar(0, index.dtype), size_array(size, index.dtype)
    counted = apply("where", apply("less", index, zero), apply("add", index, count), index)
    last = apply("subtract", count, scalar(1, index.dtype))
    near = apply("maximum", apply("minimum", counted, last), zero)
    return near, apply("equal", near, counted)


def filling(kind: ArrayType) -> Any:
    """What stands for an element that is not there, if nothing is said: JAX's choice."""
    if kind.dtype is bool_:
        return True
    if not kind.dtype.is_integer:
        return float("nan")
    limits = np.iinfo(kind.dtype.np)
    return int(limits.min if limits.min < 0 else limits.max)
