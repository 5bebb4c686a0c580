"""JAX's names, `jax.lax`: gather and scatter with XLA's dimension numbers, as indexing of all axes.

Receives start indices and how their columns, the windows and the batch map to axes; returns
elements picked by one index for each axis of the operand.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tetrad.core.errors import SettingError
from tetrad.jax._shell.tables import td
from tetrad.tracing.array import Array
from tetrad.tracing.operands import as_array, convert


class GatherScatterMode(enum.Enum):
    """What happens to a window that is out of range."""

    CLIP = 0
    FILL_OR_DROP = 1
    PROMISE_IN_BOUNDS = 2
    ONE_HOT = 3


class GatherDimensionNumbers(NamedTuple):
    offset_dims: Sequence[int]
    collapsed_slice_dims: Sequence[int]
    start_index_map: Sequence[int]
    operand_batching_dims: Sequence[int] = ()
    start_indices_batching_dims: Sequence[int] = ()


class ScatterDimensionNumbers(NamedTuple):
    update_window_dims: Sequence[int]
    inserted_window_dims: Sequence[int]
    scatter_dims_to_operand_dims: Sequence[int]
    operand_batching_dims: Sequence[int] = ()
    scatter_indices_batching_dims: Sequence[int] = ()


class Windows(NamedTuple):
    """One index for each axis of the operand, which broadcast to [batch..., window...]; and which
    windows are in range."""

    places: list[Array]
    inside: Array


def mode_named(mode: Any) -> str:
    """The mode as one word: clip, fill or promise."""
    if mode is None or mode is GatherScatterMode.FILL_OR_DROP or mode in ("fill", "drop"):
        return "fill"
    if mode is GatherScatterMode.CLIP or mode == "clip":
        return "clip"
    if mode == "promise_in_bounds" or isinstance(mode, GatherScatterMode):
        return "fill"
    raise SettingError("mode", "a GatherScatterMode, or its name", mode)


def windows(
    operand: Array, indices: Array, sizes: Sequence[int], index_map: Sequence[int],
    batching: Sequence[int], indices_batching: Sequence[int], clip: bool,
) -> Windows:  # fmt: skip
    """Where each element of each window lies."""
    batch, rank = indices.shape[:-1], operand.ndim
    total = len(batch) + rank
    places: list[Array] = []
    inside: Any = td.ones(batch, dtype=bool)
    for axis in range(rank):
        place: Any = along(td.arange(sizes[axis]), len(batch) + axis, total)
        if axis in index_map:
            start = indices[..., list(index_map).index(axis)].astype("int32")
            last = operand.shape[axis] - sizes[axis]
            inside = inside & (start >= 0) & (start <= last)
            start = td.clip(start, 0, last) if clip else start
            place = place + td.reshape(start, (*batch, *(1,) * rank))
        if axis in batching:
            of = indices_batching[list(batching).index(axis)]
            place = place + along(td.arange(batch[of]), of, total)
        places.append(place)
    return Windows(places, td.reshape(inside, (*batch, *(1,) * rank)))


def along(line: Array, axis: int, rank: int) -> Any:
    return td.reshape(line, tuple(line.shape[0] if i == axis else 1 for i in range(rank)))


def gather(
    operand: Any,
    start_indices: Any,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Sequence[int],
    *,
    mode: Any = None,
    fill_value: Any = None,
    **_: Any,
) -> Any:
    """Windows of the operand that begin at the start indices."""
    x, at, numbers = as_array(operand), as_array(start_indices), dimension_numbers
    word, batch = mode_named(mode), as_array(start_indices).ndim - 1
    found = windows(
        x, at, slice_sizes, numbers.start_index_map, numbers.operand_batching_dims,
        numbers.start_indices_batching_dims, word == "clip",
    )  # fmt: skip
    picked = x.at[tuple(found.places)].get(mode="clip")
    if word == "fill":
        fill = filling(x) if fill_value is None else convert(fill_value, x.dtype)
        picked = td.where(found.inside, picked, fill)
    gone = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    if gone:
        picked = td.squeeze(picked, axis=tuple(batch + a for a in gone))
    return ordered(picked, batch, numbers.offset_dims)


def filling(x: Array) -> Any:
    """What stands for an element that is not there."""
    if x.dtype.kind == "b":
        return True
    if not x.dtype.is_integer:
        return float("nan")
    limits = np.iinfo(x.dtype.np)
    return convert(int(limits.min if x.dtype.is_signed else limits.max), x.dtype)


def ordered(picked: Array, batch: int, offset_dims: Sequence[int]) -> Any:
    """The axes of windows at their places among those of the batch."""
    fronts, windowed = iter(range(batch)), iter(range(batch, picked.ndim))
    order = [next(windowed) if i in offset_dims else next(fronts) for i in range(picked.ndim)]
    return td.permute_dims(picked, tuple(order))


def scatter_with(method: str) -> Callable[..., Any]:
    """A scatter that joins updates with what is there by a method of `x.at[...]`."""

    def scatter(
        operand: Any, scatter_indices: Any, updates: Any,
        dimension_numbers: ScatterDimensionNumbers, *, mode: Any = None, **_: Any,
    ) -> Any:  # fmt: skip
        x, at, numbers = as_array(operand), as_array(scatter_indices), dimension_numbers
        new, word = as_array(updates), mode_named(mode)
        fronts = [i for i in range(new.ndim) if i not in numbers.update_window_dims]
        gone = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
        moved = td.permute_dims(new, (*fronts, *numbers.update_window_dims))
        kept = iter(moved.shape[len(fronts) :])
        sizes = [1 if a in gone else next(kept) for a in range(x.ndim)]
        found = windows(
            x, at, sizes, numbers.scatter_dims_to_operand_dims, numbers.operand_batching_dims,
            numbers.scatter_indices_batching_dims, word == "clip",
        )  # fmt: skip
        values = td.reshape(moved, (*moved.shape[: len(fronts)], *sizes))
        places = [td.where(found.inside, found.places[0], x.shape[0]), *found.places[1:]]
        return getattr(x.at[tuple(places)], method)(values, mode="drop")

    return scatter


def scatter_apply(
    operand: Any, scatter_indices: Any, func: Callable[[Any], Any],
    dimension_numbers: ScatterDimensionNumbers, *, update_shape: Sequence[int] = (),
    mode: Any = None, **_: Any,
) -> Any:  # fmt: skip
    """Elements replaced by a function of them."""
    where = scatter_with("set")(
        td.zeros(as_array(operand).shape, dtype=bool), scatter_indices,
        td.ones(tuple(update_shape), dtype=bool), dimension_numbers, mode=mode,
    )  # fmt: skip
    return td.where(where, func(operand), operand)


def index_take(src: Any, idxs: Sequence[Any], axes: Sequence[int]) -> Any:
    """Elements at these indices along some axes."""
    x = as_array(src)
    key: list[Any] = [np.s_[:]] * x.ndim
    for axis, index in zip(axes, idxs, strict=True):
        key[axis] = index
    return x[tuple(key)]


SCATTERS = {
    "scatter": "set", "scatter_add": "add", "scatter_sub": "subtract", "scatter_mul": "multiply",
    "scatter_min": "min", "scatter_max": "max",
}  # fmt: skip
OWN = """
    GatherDimensionNumbers GatherScatterMode ScatterDimensionNumbers gather index_take
    scatter_apply
""".split()  # noqa: SIM905
