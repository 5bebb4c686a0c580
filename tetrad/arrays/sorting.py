"""Arrays, sorting: elements in order, where they stand, the greatest few, where one would belong,
which are among others.

Receives an array and an axis, returns arrays: the ops sort the last axis, so others are moved there
and back.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tetrad.arrays.indexing import take_axis
from tetrad.arrays.manipulation import broadcast_to, moveaxis, reshape
from tetrad.arrays.statistics import any
from tetrad.core.dtypes import bool_, i32, i64, u8
from tetrad.core.errors import ShapeError
from tetrad.core.op import REGISTRY
from tetrad.core.promotion import result_dtype
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import (
    apply,
    as_array,
    as_positions,
    axis_of,
    common,
    convert,
    kind_of,
    run,
    scalar,
)

FEW = 16  # elements that `isin` looks through one by one


def sort(
    a: Any,
    axis: int | None = -1,
    kind: str | None = None,
    order: None = None,
    *,
    descending: bool = False,
    stable: bool | None = True,
) -> Array:
    """The elements along an axis in order; NaN is the greatest. It is always stable.

    >>> import tetrad as td
    >>> td.sort(td.asarray([3.0, 1.0, 2.0]), descending=True)
    Array([3., 2., 1.], float32)
    """
    moved, at = _last("sort", a, axis)
    is_truth = moved.dtype is bool_
    found = run("sort", convert(moved, u8) if is_truth else moved, descending=bool(descending))
    return moveaxis(convert(found, bool_) if is_truth else found, -1, at)


def argsort(
    a: Any,
    axis: int | None = -1,
    kind: str | None = None,
    order: None = None,
    *,
    descending: bool = False,
    stable: bool | None = True,
) -> Array:
    """The indices that put the elements along an axis in order; equal elements keep theirs.

    >>> import tetrad as td
    >>> td.argsort(td.asarray([3, 1, 3, 2]))
    Array([1, 3, 0, 2], int32)
    """
    moved, at = _last("argsort", a, axis)
    moved = convert(moved, u8) if moved.dtype is bool_ else moved
    found = run("argsort", moved, descending=bool(descending))
    return moveaxis(as_positions(found, moved.shape[-1]), -1, at)


def _last(name: str, x: Any, axis: int | None) -> tuple[Array, int]:
    """The array with the axis at the end, and where it was; without one it is made one line."""
    given = as_array(x)
    if axis is None:
        return reshape(given, (-1,)), -1
    if not given.ndim:
        fail(ShapeError, f"{name}: an array without axes has no order", "reshape it to (1,)")
    at = axis_of(name, axis, given.ndim)
    return moveaxis(given, at, -1), at


def topk(
    x: Any, k: int, /, axis: int = -1, *, largest: bool = True, sorted: bool = True
) -> tuple[Array, Array]:
    """The k greatest elements along an axis (or least), in order, and their indices; the first of
    equals comes first.

    >>> import tetrad as td
    >>> td.topk(td.asarray([1.0, 7.0, 3.0]), 2)
    (Array([7., 3.], float32), Array([1, 2], int32))
    """
    moved, at = _last("topk", x, axis)
    if not isinstance(k, int | np.integer):
        fail(ShapeError, f"topk: k must be an int, got {k!r}", "a traced value cannot be a size")
    values, places = REGISTRY["topk"](moved, k=int(k), largest=bool(largest))
    return moveaxis(values, -1, at), moveaxis(as_positions(places, moved.shape[-1]), -1, at)


def top_k(operand: Any, k: int, /, axis: int = -1) -> tuple[Array, Array]:
    """`topk` under the name it has in JAX."""
    return topk(operand, k, axis=axis)


def searchsorted(
    a: Any, v: Any, side: str = "left", sorter: Any = None, *, method: str = "scan"
) -> Array:
    """Where each element of v would belong in a, which is in order: before its equals, or behind
    them (right).

    >>> import tetrad as td
    >>> td.searchsorted(td.asarray([1, 3, 5]), td.asarray([3, 4]))
    Array([1, 2], int32)
    """
    if side not in ("left", "right"):
        fail(ShapeError, f"searchsorted: side is 'left' or 'right', got {side!r}")
    dtype = result_dtype([kind_of(a), kind_of(v)])
    line, wanted = convert(a, dtype), convert(v, dtype)
    if line.ndim != 1 or not isinstance(line.shape[0], int):
        fail(ShapeError, f"searchsorted: x1 has one axis of known size, got {line.type}")
    if sorter is not None:
        line = take_axis(line, as_array(sorter), 0)
    return as_positions(_searched(line, line.shape[0], wanted, side), line.shape[0])


def _searched(line: Array, size: int, wanted: Array, side: str) -> Array:
    """By halving: found is always right if the element at found - 1 comes before."""
    # twice the size must fit
    found = broadcast_to(scalar(0, i32 if size < 1 << 30 else i64), wanted.shape)
    step = 1 << size.bit_length()
    while size and (step := step >> 1):
        trial = found + step
        inside = trial <= size
        here = take_axis(line, apply("minimum", trial, size) - 1, 0)
        before = _comes_before(here, wanted) if side == "left" else ~_comes_before(wanted, here)
        found = apply("where", inside & before, trial, found)
    return found


def _comes_before(x: Array, y: Array) -> Array:
    less: Array = x < y
    if x.dtype.is_float:
        less = less | ((x == x) & (y != y))  # NaN comes last
    return less


# -- sets ------------------------------------------------------------------------------------------


def isin(
    element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False
) -> Array:
    """Whether each element equals one of the others (with `invert`: none of them). NaN equals
    nothing.

    >>> import tetrad as td
    >>> td.isin(td.asarray([1, 2, 3, 4]), td.asarray([4, 2]))
    Array([False,  True, False,  True], bool)
    """
    wanted, known = common((element, test_elements))
    known = reshape(known, (-1,))
    size = known.shape[0]
    # complex numbers have no order
    few = not isinstance(size, int) or size <= FEW or known.dtype.is_complex
    found = _equal_to_any(wanted, known) if few else _among(wanted, known)
    return ~found if invert else found


def _equal_to_any(wanted: Array, known: Array) -> Array:
    return any(reshape(wanted, (*wanted.shape, 1)) == known, axis=-1)


def _among(wanted: Array, known: Array) -> Array:
    line = sort(known)
    size = line.shape[0]
    at = apply("minimum", searchsorted(line, wanted), size - 1)
    is_there: Array = take_axis(line, at, 0) == wanted
    return is_there
