"""JAX's names, `jax.lax`: reductions, running totals, sorting and windows.

Receives arrays, axes, and for `reduce` and its like a function of two arrays that joins them; those
of `lax` itself have reductions of their own, any other is applied in a tree.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tetrad.core.errors import ShapeError
from tetrad.core.tree import flatten, unflatten
from tetrad.jax._shell.tables import td
from tetrad.jax.lax.structure import pad
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import as_array, convert, run

Axes = Sequence[int]
KNOWN = {  # the joining functions that have a reduction, by their names
    "add": "sum", "mul": "prod", "multiply": "prod", "max": "max", "maximum": "max",
    "min": "min", "minimum": "min",
}  # fmt: skip


def reduce_sum(operand: Any, axes: Axes) -> Any:
    given = as_array(operand)
    return convert(td.sum(given, axis=tuple(axes)), given.dtype)


def reduce_prod(operand: Any, axes: Axes) -> Any:
    given = as_array(operand)
    return convert(td.prod(given, axis=tuple(axes)), given.dtype)


def reduce_max(operand: Any, axes: Axes) -> Any:
    return td.max(operand, axis=tuple(axes))


def reduce_min(operand: Any, axes: Axes) -> Any:
    return td.min(operand, axis=tuple(axes))


def reduce_and(operand: Any, axes: Axes) -> Any:
    given = as_array(operand)
    if given.dtype.kind == "b":
        return td.all(given, axis=tuple(axes))
    return tree_reduced([given], axes, lambda a, b: (td.bitwise_and(a, b),))[0]


def reduce_or(operand: Any, axes: Axes) -> Any:
    given = as_array(operand)
    if given.dtype.kind == "b":
        return td.any(given, axis=tuple(axes))
    return tree_reduced([given], axes, lambda a, b: (td.bitwise_or(a, b),))[0]


def reduce_xor(operand: Any, axes: Axes) -> Any:
    return tree_reduced([as_array(operand)], axes, lambda a, b: (td.bitwise_xor(a, b),))[0]


def argmax(operand: Any, axis: int, index_dtype: Any) -> Any:
    return td.argmax(operand, axis=axis).astype(index_dtype)


def argmin(operand: Any, axis: int, index_dtype: Any) -> Any:
    return td.argmin(operand, axis=axis).astype(index_dtype)


def reduce(
    operands: Any, init_values: Any, computation: Callable[..., Any], dimensions: Axes, **_: Any
) -> Any:
    """Elements along axes joined by a function, which is associative; trees of arrays are joined
    together."""
    leaves, tree = flatten(operands)
    begin = zip(leaves, flatten(init_values)[0], strict=True)
    starts = [convert(value, as_array(x).dtype) for x, value in begin]
    known = known_reduction(computation)
    if len(leaves) == 1 and known:
        given = as_array(leaves[0])
        part = convert(getattr(td, known)(given, axis=tuple(dimensions)), given.dtype)
        return unflatten(tree, [computation(starts[0], part)])

    def join(*both: Array) -> list[Array]:
        half = len(both) // 2
        return flatten(computation(unflatten(tree, both[:half]), unflatten(tree, both[half:])))[0]

    parts = tree_reduced([as_array(x) for x in leaves], dimensions, join)
    begun = [td.broadcast_to(s, p.shape) for s, p in zip(starts, parts, strict=True)]
    return unflatten(tree, join(*begun, *parts))


def known_reduction(computation: Callable[..., Any]) -> str | None:
    """The reduction that joins with a function of ours."""
    is_ours = getattr(computation, "__module__", "").startswith("tetrad")
    return KNOWN.get(getattr(computation, "__name__", "")) if is_ours else None


def tree_reduced(
    arrays: Sequence[Array], axes: Axes, join: Callable[..., Sequence[Array]]
) -> list[Array]:
    """Elements along axes joined two at a time, first with second, halving what is left."""
    rows = [leading(x, axes) for x in arrays]
    while (count := rows[0].shape[0]) > 1:
        half = count // 2
        pairs = [x[: 2 * half : 2] for x in rows] + [x[1 : 2 * half : 2] for x in rows]
        joined = list(join(*pairs))
        rows = [
            td.concat([j, x[2 * half :]]) if count % 2 else j
            for j, x in zip(joined, rows, strict=True)
        ]
    if not rows[0].shape[0]:
        fail(ShapeError, f"lax.reduce: there is nothing to join in {arrays[0].type}")
    return [x[0] for x in rows]


def leading(x: Array, axes: Axes) -> Any:
    """The axes to be reduced as one, in front."""
    chosen = [a % x.ndim for a in axes]
    kept = [a for a in range(x.ndim) if a not in chosen]
    moved = td.permute_dims(x, (*chosen, *kept))
    return td.reshape(moved, (math.prod(x.shape[a] for a in chosen), *(x.shape[a] for a in kept)))


# -- running ---------------------------------------------------------------------------------------


def running(operand: Any, axis: int, reverse: bool, whole: Callable[..., Any]) -> Any:
    given = as_array(operand)
    turned = td.flip(given, axis=axis) if reverse else given
    found = convert(whole(turned, axis=axis), given.dtype)
    return td.flip(found, axis=axis) if reverse else found


def cumsum(operand: Any, axis: int = 0, reverse: bool = False) -> Any:
    return running(operand, axis, reverse, td.cumulative_sum)


def cumprod(operand: Any, axis: int = 0, reverse: bool = False) -> Any:
    return running(operand, axis, reverse, td.cumulative_prod)


def cummax(operand: Any, axis: int = 0, reverse: bool = False) -> Any:
    return td.associative_scan(td.maximum, as_array(operand), reverse=reverse, axis=axis)


def cummin(operand: Any, axis: int = 0, reverse: bool = False) -> Any:
    return td.associative_scan(td.minimum, as_array(operand), reverse=reverse, axis=axis)


def cumlogsumexp(operand: Any, axis: int = 0, reverse: bool = False) -> Any:
    return td.associative_scan(td.logaddexp, as_array(operand), reverse=reverse, axis=axis)


# -- order -----------------------------------------------------------------------------------------


def top_k(operand: Any, k: int, *, axis: int = -1, **_: Any) -> list[Array]:
    """The k greatest elements along an axis, and their places."""
    values, places = td.top_k(operand, k, axis=axis)
    return [values, places.astype("int32")]


def approx_max_k(operand: Any, k: int, reduction_dimension: int = -1, **_: Any) -> list[Array]:
    """The k greatest elements; exactly."""
    return top_k(operand, k, axis=reduction_dimension)


def approx_min_k(operand: Any, k: int, reduction_dimension: int = -1, **_: Any) -> list[Array]:
    values, places = top_k(-as_array(operand), k, axis=reduction_dimension)
    return [-values, places]


def sort(operand: Any, dimension: int = -1, is_stable: bool = True, num_keys: int = 1) -> Any:
    """Elements along an axis in order; several arrays by the first `num_keys` of them."""
    if not isinstance(operand, list | tuple):
        return td.sort(operand, axis=dimension)
    arrays = [as_array(x) for x in operand]
    for key in reversed(range(num_keys)):
        order = td.argsort(arrays[key], axis=dimension)
        arrays = [td.take_along_axis(x, order, axis=dimension) for x in arrays]
    return tuple(arrays) if isinstance(operand, tuple) else arrays


def sort_key_val(keys: Any, values: Any, dimension: int = -1, is_stable: bool = True) -> Any:
    return sort((keys, values), dimension)


# -- windows ---------------------------------------------------------------------------------------


def reduce_window(
    operand: Any,
    init_value: Any,
    computation: Callable[..., Any],
    window_dimensions: Axes,
    window_strides: Axes | None = None,
    padding: Any = "VALID",
    base_dilation: Axes | None = None,
    window_dilation: Axes | None = None,
) -> Any:
    """One element for each window: the first value, and its elements, joined by a function.

    Extremes have one gradient for each window, that of the first of equal elements; others are
    joined axis after axis.
    """
    given = as_array(operand)
    rank, start = given.ndim, convert(init_value, given.dtype)
    steps = tuple(window_strides or (1,) * rank)
    wide = tuple(window_dilation or (1,) * rank)
    spans = [(w - 1) * d + 1 for w, d in zip(window_dimensions, wide, strict=True)]
    gaps = [d - 1 for d in base_dilation or (1,) * rank]
    sizes = [(n - 1) * (g + 1) + 1 for n, g in zip(given.shape, gaps, strict=True)]
    around = padtype_to_pads(sizes, spans, steps, padding)
    given = pad(given, start, [(*p, g) for p, g in zip(around, gaps, strict=True)])
    kind = known_reduction(computation)
    if kind in ("max", "min") and given.dtype.kind != "b":
        geometry = {"window": tuple(window_dimensions), "strides": steps, "dilation": wide}
        none = ((0, 0),) * rank  # what is around is there by now
        made = run("window_extreme", given, largest=kind == "max", padding=none, **geometry)
        return computation(start, made)
    for axis in range(rank):
        count = max(0, (given.shape[axis] - spans[axis]) // steps[axis] + 1)
        window = (window_dimensions[axis], count, steps[axis], wide[axis])
        given = joined_windows(given, axis, window, computation)
    return computation(start, given)


def joined_windows(
    x: Array, axis: int, geometry: tuple[int, int, int, int], computation: Callable[..., Any]
) -> Any:
    """Windows along one axis: the first elements of all, joined with the second of all, ..."""
    window, count, step, wide = geometry
    if window == 1 and step == 1:
        return x
    front: list[Any] = [np.s_[:]] * axis
    stop = (count - 1) * step + 1
    parts = [x[(*front, np.s_[i * wide : i * wide + stop : step])] for i in range(window)]
    made = parts[0]
    for part in parts[1:]:
        made = computation(made, part)
    return made


def padtype_to_pads(
    in_shape: Axes, window_shape: Axes, window_strides: Axes, padding: Any
) -> list[tuple[int, int]]:
    """Elements before and after each axis, of "SAME", "SAME_LOWER", "VALID", or as given."""
    if not isinstance(padding, str):
        return [(int(a), int(b)) for a, b in padding]
    kind = padding.upper()
    if kind == "VALID":
        return [(0, 0)] * len(in_shape)
    if kind not in ("SAME", "SAME_LOWER"):
        fail(ShapeError, f"lax: padding is {padding!r}", "SAME, SAME_LOWER, VALID, or pairs")
    pads = []
    for size, window, step in zip(in_shape, window_shape, window_strides, strict=True):
        whole = builtins.max((-(-size // step) - 1) * step + window - size, 0)
        less, more = whole // 2, whole - whole // 2
        pads.append((less, more) if kind == "SAME" else (more, less))
    return pads


OWN = """
    approx_max_k approx_min_k argmax argmin cumlogsumexp cummax cummin cumprod cumsum
    padtype_to_pads reduce reduce_and reduce_max reduce_min reduce_or reduce_prod reduce_sum
    reduce_window reduce_xor sort sort_key_val top_k
""".split()  # noqa: SIM905
