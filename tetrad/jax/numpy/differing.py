"""JAX's names, `jax.numpy`: the few functions whose conventions differ from those of `td`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tetrad.core.dtypes import DType
from tetrad.jax._shell.tables import td
from tetrad.tracing.array import Array
from tetrad.tracing.operands import as_array, convert, dtype_of

PYTHON = (bool, int, float, complex)


def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Any:
    """The sum of a diagonal; in `td`, `trace` shows the graph of a function."""
    return td.sum(td.diagonal(a, offset, axis1, axis2), axis=-1, dtype=dtype)


def take(
    a: Any, indices: Any, axis: int | None = None, out: None = None, mode: str | None = None,
    unique_indices: bool = False, indices_are_sorted: bool = False, fill_value: Any = None,
) -> Any:  # fmt: skip
    """Elements (or slices) along an axis; for an index out of range NaN, or what else fills."""
    return td.take(a, indices, axis, out, mode or "fill", fill_value=fill_value)


def take_along_axis(
    arr: Any, indices: Any, axis: int | None = -1, mode: Any = None, fill_value: Any = None
) -> Any:
    """One element per index along an axis; for an index out of range NaN, or what else fills."""
    if mode not in (None, "fill"):
        return td.take_along_axis(arr, indices, axis)
    given, at = as_array(arr), as_array(indices)
    size = given.size if axis is None else given.shape[axis]
    inside = td.logical_and(at >= -size, at < size)
    found: Any = td.take_along_axis(given, td.where(inside, at, 0), axis)
    return td.where(inside, found, filling(given.dtype) if fill_value is None else fill_value)


def filling(dtype: DType) -> Any:
    """What stands for no element: NaN, the least integer, the greatest unsigned one, True."""
    if not dtype.is_integer:
        return True if dtype.kind == "b" else np.nan
    info = np.iinfo(dtype.np)
    return info.min if dtype.is_signed else info.max


def histogram(
    a: Any, bins: Any = 10, range: Any = None, weights: Any = None, density: bool | None = None
) -> tuple[Array, Array]:
    """How many elements are in each interval, as floats, and its edges."""
    counts, edges = td.histogram(a, bins, range, density, weights)
    return (convert(counts, edges.dtype) if weights is None else counts), edges


def promote_types(a: Any, b: Any) -> DType:
    """The dtype that holds what two dtypes hold; Python's types give way."""
    if a in PYTHON or b in PYTHON:
        found: DType = td.result_type(*(x if x in PYTHON else dtype_of(x) for x in (a, b)))
        return found
    return td.promote_types(a, b)  # type: ignore[no-any-return]


DIFFERING: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (histogram, promote_types, take, take_along_axis, trace)
}
