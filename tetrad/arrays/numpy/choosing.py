"""Arrays, NumPy's names: elements chosen by indices and conditions.

Receives arrays, indices and conditions, returns arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tetrad.arrays.creation import asarray, positions
from tetrad.arrays.functions import take_along_axis
from tetrad.arrays.indexing import take_axis
from tetrad.arrays.manipulation import broadcast_arrays, reshape, stack
from tetrad.arrays.numpy.common import no_out, where
from tetrad.arrays.statistics import cumulative_sum
from tetrad.core.dtypes import bool_, i32, i64
from tetrad.core.errors import DtypeError, ShapeError, TraceError
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import apply, as_array, axis_of, convert, expand, size_array

MODES = ("raise", "clip", "wrap", "fill")


def taken(x: Array, indices: Array, axis: int, mode: str, fill_value: Any) -> Array:
    """Elements along an axis; of an index out of range the mode says what it means."""
    if mode not in MODES:
        fail(TraceError, f"take: there is no mode {mode!r}", f"modes: {', '.join(MODES)}")
    size = size_array(x.shape[axis], i64)
    at = convert(indices, i64)
    if mode == "wrap":
        return take_axis(x, apply("remainder", at, size), axis)
    last = apply("subtract", size, 1)
    if mode == "clip":  # as in NumPy, negative ones are below the range
        return take_axis(x, apply("minimum", apply("maximum", at, 0), last), axis)
    at = where(apply("less", at, 0), apply("add", at, size), at)
    inside = apply("logical_and", apply("greater_equal", at, 0), apply("less", at, size))
    found = take_axis(x, apply("minimum", apply("maximum", at, 0), last), axis)
    shape = (*(1,) * axis, *at.shape, *(1,) * (x.ndim - axis - 1))
    return where(reshape(inside, shape), found, _filling(x) if fill_value is None else fill_value)


def _filling(x: Array) -> Any:
    """What stands for no element, as in JAX: NaN, the least integer, the greatest unsigned."""
    if x.dtype.is_float or x.dtype.is_complex:
        return float("nan")
    if x.dtype.is_integer:
        bits = x.dtype.bits
        return -(1 << (bits - 1)) if x.dtype.is_signed else (1 << bits) - 1
    return True


def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Array:
    """Of each place the choice whose condition holds first, or the default.

    >>> import tetrad as td
    >>> x = td.arange(4)
    >>> td.select([x < 1, x > 2], [x - 10, x + 10])
    Array([-10,   0,   0,  13], int32)
    """
    if len(condlist) != len(choicelist) or not len(condlist):
        fail(ShapeError, f"select: {len(condlist)} conditions for {len(choicelist)} choices")
    found: Any = default
    for condition, choice in zip(reversed(condlist), reversed(choicelist), strict=True):
        if as_array(condition).dtype is not bool_:
            fail(DtypeError, f"select: conditions are bools, got {as_array(condition).type}")
        found = where(condition, choice, found)
    return as_array(found)


def piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Array:
    """At each place what the function of the last condition that holds gives (or the number in its
    place); a function more than conditions is for the rest, which is 0 without one.

    >>> import tetrad as td
    >>> x = td.asarray([-2.0, 3.0])
    >>> td.piecewise(x, [x < 0, x >= 0], [lambda x: -x, 1.0])
    Array([2., 1.], float32)
    """
    given = as_array(x)
    conditions = list(condlist) if isinstance(condlist, tuple | list) else _rows(condlist, given)
    functions = list(funclist)
    if len(functions) not in (len(conditions), len(conditions) + 1):
        fail(ShapeError, f"piecewise: {len(functions)} functions for {len(conditions)} conditions")
    made = [f(given, *args, **kw) if callable(f) else f for f in functions]
    rest = made.pop() if len(made) > len(conditions) else 0
    found: Any = expand(convert(rest, given.dtype), given.shape)
    for condition, value in zip(conditions, made, strict=True):
        found = where(condition, convert(value, given.dtype), found)
    return as_array(found)


def _rows(conditions: Any, x: Array) -> list[Array]:
    """One condition, or one for each row."""
    found = asarray(conditions)
    return list(found) if found.ndim == x.ndim + 1 else [found]


def choose(a: Any, choices: Any, out: None = None, mode: str = "raise") -> Array:
    """At each place the element of the choice that the index there names.

    >>> import tetrad as td
    >>> td.choose(td.asarray([1, 0]), [td.asarray([10, 20]), td.asarray([30, 40])])
    Array([30, 20], int32)
    """
    no_out("choose", out)
    listed = [as_array(np.asarray(c) if isinstance(c, list) else c) for c in choices]
    at, *parts = broadcast_arrays(as_array(a), *listed)
    line = stack(parts)
    index = reshape(at, (1, *at.shape))
    if mode == "clip":
        index = apply("minimum", apply("maximum", index, 0), len(parts) - 1)
    elif mode == "wrap":
        index = apply("remainder", index, len(parts))
    elif mode != "raise":
        fail(TraceError, f"choose: there is no mode {mode!r}", "modes: raise, clip, wrap")
    return reshape(take_along_axis(line, index, axis=0), at.shape)


def _along(axis: int, rank: int) -> tuple[int, ...]:
    return tuple(-1 if i == axis else 1 for i in range(rank))


def place(arr: Any, mask: Any, vals: Any, *, inplace: bool = True) -> Array:
    """The array with values where a mask holds, one after the other and again from the first.
    Arrays never change, so `inplace=False` has to be said, as in JAX.

    >>> import tetrad as td
    >>> td.place(td.arange(4), td.asarray([True, False, True, True]), [7, 8], inplace=False)
    Array([7, 1, 8, 7], int32)
    """
    _other_array("place", inplace)
    x, marked = asarray(arr), reshape(convert(asarray(mask), bool_), (-1,))
    values = reshape(asarray(vals, x.dtype), (-1,))
    if marked.shape[0] != x.size:
        fail(ShapeError, f"place: a mask of {marked.type} for {x.type}")
    if values.size == 0:
        fail(ShapeError, "place: needs at least one value")
    number = apply("subtract", cumulative_sum(convert(marked, i32)), 1)
    new = take_axis(values, apply("remainder", number, values.shape[0]), 0)
    return reshape(where(marked, new, reshape(x, (-1,))), x.shape)


def put(a: Any, ind: Any, v: Any, mode: str | None = None, *, inplace: bool = True) -> Array:
    """The array with values at places of the flattened array. Arrays never change, so
    `inplace=False` has to be said, as in JAX.

    >>> import tetrad as td
    >>> td.put(td.zeros(3), [0, 2], [1.0, 5.0], inplace=False)
    Array([1., 0., 5.], float32)
    """
    _other_array("put", inplace)
    x, at = asarray(a), reshape(asarray(ind), (-1,))
    values = reshape(asarray(v, x.dtype), (-1,))
    if at.size == 0:
        return x
    if mode == "wrap":
        at = apply("remainder", at, x.size)
    elif mode == "clip":
        at = apply("minimum", apply("maximum", at, 0), x.size - 1)
    elif mode not in (None, "raise"):
        fail(TraceError, f"put: there is no mode {mode!r}", "modes: raise, clip, wrap")
    rows = take_axis(values, as_array(np.arange(at.shape[0]) % values.shape[0]), 0)
    made: Array = reshape(x, (-1,)).at[at].set(rows)
    return reshape(made, x.shape)


def put_along_axis(
    arr: Any, indices: Any, values: Any, axis: int | None = -1, *, inplace: bool = True,
    mode: str | None = None,
) -> Array:  # fmt: skip
    """The array with a value at each index along an axis, as `take_along_axis` reads them. Arrays
    never change, so `inplace=False` has to be said, as in JAX.

    >>> import tetrad as td
    >>> td.put_along_axis(td.zeros((2, 2)), td.asarray([[1], [0]]), 5.0, 1, inplace=False)
    Array([[0., 5.],
           [5., 0.]], float32)
    """
    _other_array("put_along_axis", inplace)
    x, at = asarray(arr), asarray(indices)
    if axis is None:
        made = put_along_axis(reshape(x, (-1,)), at, values, 0, inplace=False, mode=mode)
        return reshape(made, x.shape)
    along = axis_of("put_along_axis", axis, x.ndim)
    if x.ndim != at.ndim:
        fail(ShapeError, f"put_along_axis: {x.type} and indices {at.type} differ in rank")
    grid = tuple(
        at if i == along else reshape(positions(n), _along(i, x.ndim))
        for i, n in enumerate(x.shape)
    )
    settings = {} if mode is None else {"mode": mode}
    changed: Array = x.at[grid].set(convert(asarray(values), x.dtype), **settings)
    return changed


def _other_array(name: str, inplace: bool) -> None:
    if inplace:
        fail(
            TraceError,
            f"{name}: arrays do not change in place",
            f"x = td.{name}(x, ..., inplace=False), or x.at[index].set(values)",
        )
