"""Arrays, parts of arrays whose place is data: the names and arguments they have in JAX.

Receives arrays, and places that may be traced; each place is clamped so that the part lies inside
the array. Writing gives a new array, which in compiled code lies where the old one lay unless
somebody still needs that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tetrad.arrays.manipulation import stack
from tetrad.core.dtypes import i32, i64
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import as_array, axis_of, convert, is_operand, run, shape_of


def dynamic_slice(operand: Any, start_indices: Any, slice_sizes: Sequence[int]) -> Array:
    """The part of these sizes that begins at `start_indices`, one index for each axis.

    >>> import tetrad as td
    >>> dynamic_slice(td.asarray([[1, 2, 3], [4, 5, 6]]), (1, 1), (1, 2))
    Array([[5, 6]], int32)
    """
    x = as_array(operand)
    return run(
        "dynamic_slice",
        x,
        places("dynamic_slice", x, start_indices),
        sizes=shape_of("dynamic_slice", slice_sizes),
    )


def dynamic_update_slice(operand: Any, update: Any, start_indices: Any) -> Array:
    """The operand with `update` in the place that begins at `start_indices`.

    >>> import tetrad as td
    >>> dynamic_update_slice(td.zeros((2, 3)), td.ones((1, 2)), (1, 0))
    Array([[0., 0., 0.],
           [1., 1., 0.]], float32)
    """
    x = as_array(operand)
    return run(
        "dynamic_update_slice",
        x,
        updating(x, update),
        places("dynamic_update_slice", x, start_indices),
    )


def dynamic_slice_in_dim(operand: Any, start_index: Any, slice_size: int, axis: int = 0) -> Array:
    """`slice_size` elements along one axis, the first at `start_index`."""
    x = as_array(operand)
    axis = axis_of("dynamic_slice_in_dim", axis, x.ndim)
    return dynamic_slice(
        x, along(x, start_index, axis), (*x.shape[:axis], slice_size, *x.shape[axis + 1 :])
    )


def dynamic_update_slice_in_dim(
    operand: Any, update: Any, start_index: Any, axis: int = 0
) -> Array:
    """The operand with `update` from `start_index` on along one axis."""
    x = as_array(operand)
    return dynamic_update_slice(
        x, update, along(x, start_index, axis_of("dynamic_update_slice_in_dim", axis, x.ndim))
    )


def dynamic_index_in_dim(operand: Any, index: Any, axis: int = 0, keepdims: bool = True) -> Array:
    """The element at `index` along one axis.

    >>> import tetrad as td
    >>> dynamic_index_in_dim(td.asarray([[1, 2], [3, 4]]), 1, keepdims=False)
    Array([3, 4], int32)
    """
    x = as_array(operand)
    axis = axis_of("dynamic_index_in_dim", axis, x.ndim)
    found = dynamic_slice_in_dim(x, index, 1, axis)
    return (
        found if keepdims else run("reshape", found, shape=(*x.shape[:axis], *x.shape[axis + 1 :]))
    )


def dynamic_update_index_in_dim(operand: Any, update: Any, index: Any, axis: int) -> Array:
    """The operand with `update` at `index` along one axis; the axis may be missing in the update.

    >>> import tetrad as td
    >>> dynamic_update_index_in_dim(td.zeros((2, 2)), td.ones((2,)), 1, 0)
    Array([[0., 0.],
           [1., 1.]], float32)
    """
    x, new = as_array(operand), as_array(update)
    axis = axis_of("dynamic_update_index_in_dim", axis, x.ndim)
    if new.ndim != x.ndim:
        new = run("reshape", new, shape=(*new.shape[:axis], 1, *new.shape[axis:]))
    return dynamic_update_slice_in_dim(x, new, index, axis)


def updating(x: Array, update: Any) -> Array:
    """A Python number takes the dtype of what it is written into."""
    return (
        convert(update, x.dtype)
        if isinstance(update, bool | int | float | complex)
        else as_array(update)
    )


def along(x: Array, index: Any, axis: int) -> list[Any]:
    """A place that is 0 along all axes but one."""
    return [index if a == axis else 0 for a in range(x.ndim)]


def places(name: str, x: Array, indices: Any) -> Array:
    """One index for each axis, as the op takes them. Negative ones count from the end, before they
    are clamped."""
    if is_operand(indices):
        given = as_array(indices)
        if given.shape != (x.ndim,) or not given.dtype.is_integer:
            fail(ShapeError, f"{name}: {x.type} needs {x.ndim} indices, got {given.type}")
        each = [given[a] for a in range(x.ndim)]
    else:
        each = [one_place(name, index) for index in indices]
    if len(each) != x.ndim:
        fail(ShapeError, f"{name}: {x.type} needs {x.ndim} indices, got {len(each)}")
    wide = i64 if any(i.dtype.bits == 64 for i in each) else i32
    counted = [from_the_end(convert(i, wide), size) for i, size in zip(each, x.shape, strict=True)]
    return stack(counted) if counted else convert(as_array(0), wide)[:0]


def one_place(name: str, index: Any) -> Array:
    found = as_array(index) if is_operand(index) else None
    if found is None or found.shape or not found.dtype.is_integer:
        came = type(index).__name__ if found is None else found.type
        fail(DtypeError, f"{name}: an index is an integer without axes, got {came}")
    return found


def from_the_end(index: Array, size: Any) -> Array:
    return run("where", index < 0, convert(index + size, index.dtype), index)
