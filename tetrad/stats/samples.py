"""Stats, samples: ranks, the most frequent value, the standard error of a mean.

Receives arrays, returns arrays. `nan_policy` is "propagate", as in JAX: a NaN among the values
makes the result NaN.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tetrad.arrays import functions as td
from tetrad.core.dtypes import f32, i32
from tetrad.core.errors import SettingError, UnsupportedError
from tetrad.core.promotion import as_float
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import as_array, axis_of, convert

METHODS = ("average", "min", "max", "dense", "ordinal")


class ModeResult(NamedTuple):
    mode: Array
    count: Array  # type: ignore[assignment]


def _check_policy(name: str, nan_policy: str) -> None:
    if nan_policy != "propagate":
        message = f"{name}: nan_policy is 'propagate', got {nan_policy!r}"
        fail(UnsupportedError, message, "take the NaN out first, or td.where them")


def _rows(name: str, a: Any, axis: int | None) -> tuple[Array, int]:
    """With the axis last; without one all values are one row."""
    given = as_array(a)
    if axis is None or not given.ndim:
        return td.reshape(given, (-1,)), -1
    at = axis_of(name, axis, given.ndim)
    return td.moveaxis(given, at, -1), at


def _runs(ordered: Array) -> tuple[Array, Array]:
    """For each position of sorted values the number of its run of equal ones, and where all runs
    start, with the size at the end."""
    size = ordered.shape[-1]
    places = td.asarray(np.arange(size, dtype=np.int32))
    before = td.concat([ordered[..., :1], ordered[..., :-1]], axis=-1)
    starts = (ordered != before) | (places == 0)
    run = convert(td.cumulative_sum(convert(starts, i32), axis=-1), i32) - 1
    first = td.sort(td.where(starts, places, size), axis=-1)
    end = td.full_like(first[..., :1], size)
    return run, td.concat([first, end], axis=-1)


def rankdata(
    a: Any, method: str = "average", *, axis: int | None = None, nan_policy: str = "propagate"
) -> Array:
    """The ranks of values from 1 on: of all, or along an axis.

    method   what equal values get: the "average", "min" or "max" of their ranks; "dense", where the
             next value has the next rank; or "ordinal", where each has its own

    >>> import tetrad as td
    >>> td.stats.rankdata(td.asarray([3.0, 1.0, 3.0]))
    Array([2.5, 1. , 2.5], float32)
    """
    _check_policy("rankdata", nan_policy)
    if method not in METHODS:
        raise SettingError("rankdata: method", ", ".join(METHODS), method)
    rows, at = _rows("rankdata", a, axis)
    if rows.size == 0:
        return td.zeros(as_array(a).shape if axis is not None else rows.shape)
    order = td.argsort(rows, axis=-1)
    back = td.argsort(order, axis=-1)
    if method == "ordinal":
        ranks: Array = convert(back, i32) + 1
    else:
        run, starts = _runs(td.take_along_axis(rows, order, axis=-1))
        ranks = td.take_along_axis(_ranks(run, starts, method), back, axis=-1)
    wanted = as_float(rows.dtype)
    ranks = convert(ranks, wanted if wanted.bits >= 32 else f32)
    if rows.dtype.is_float:
        ranks = td.where(td.any(td.isnan(rows), axis=-1, keepdims=True), math.nan, ranks)
    return ranks if axis is None or at == -1 else td.moveaxis(ranks, -1, at)


def _ranks(run: Array, starts: Array, method: str) -> Array:
    """Of sorted values."""
    if method == "dense":
        return run + 1  # type: ignore[no-any-return]
    low = td.take_along_axis(starts, run, axis=-1) + 1
    high = td.take_along_axis(starts, run + 1, axis=-1)
    if method == "average":
        return (convert(low, f32) + convert(high, f32)) * 0.5  # type: ignore[no-any-return]
    return low if method == "min" else high


def mode(
    a: Any, axis: int | None = 0, nan_policy: str = "propagate", keepdims: bool = False
) -> ModeResult:
    """The most frequent value, the least of these if there are many, and how often it is there.

    >>> import tetrad as td
    >>> td.stats.mode(td.asarray([2, 1, 2]))
    ModeResult(mode=Array(2, int32), count=Array(2, int32))
    """
    _check_policy("mode", nan_policy)
    given = as_array(a)
    rows, at = _rows("mode", given, axis)
    if rows.shape[-1] == 0:
        lead = rows.shape[:-1]
        found, count = td.full(lead, math.nan), td.zeros(lead, dtype=i32)
    else:
        ordered = td.sort(rows, axis=-1)
        run, starts = _runs(ordered)
        sizes = td.take_along_axis(starts, run + 1, axis=-1) - td.take_along_axis(
            starts, run, axis=-1
        )
        place = td.argmax(sizes, axis=-1, keepdims=True)
        found = td.take_along_axis(ordered, place, axis=-1)[..., 0]
        count = convert(td.max(sizes, axis=-1), i32)
    if keepdims:
        shape = tuple(
            1 if axis is None or i == at % given.ndim else n for i, n in enumerate(given.shape)
        )
        found, count = td.reshape(found, shape), td.reshape(count, shape)
    return ModeResult(found, count)


def sem(
    a: Any,
    axis: int | None = 0,
    ddof: int = 1,
    nan_policy: str = "propagate",
    *,
    keepdims: bool = False,
) -> Array:
    """The standard error of the mean: the deviation of the values over the root of how many there
    are.

    >>> import tetrad as td
    >>> td.stats.sem(td.asarray([1.0, 3.0]))
    Array(1., float32)
    """
    _check_policy("sem", nan_policy)
    given = as_array(a)
    given = convert(given, as_float(given.dtype))
    if not given.ndim:
        given, axis = td.reshape(given, (1,)), None
    around = None if axis is None else axis_of("sem", axis, given.ndim)
    count = math.prod(given.shape) if around is None else given.shape[around]
    spread = td.std(given, axis=around, correction=ddof, keepdims=keepdims)
    return spread / math.sqrt(count)  # type: ignore[no-any-return]
