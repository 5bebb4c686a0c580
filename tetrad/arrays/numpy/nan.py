"""Arrays, NumPy's names: sums, extremes and searches of the elements that are not NaN.

Receives arrays and axes, returns arrays: the functions of `arrays.statistics`, with a neutral
element in place of every NaN.
"""

from __future__ import annotations

from typing import Any

from tetrad.arrays.numpy import running
from tetrad.arrays.numpy.common import no_out, where
from tetrad.arrays.statistics import (
    Axis,
    all,
    argmax,
    argmin,
    count_nonzero,
    max,
    mean,
    min,
    prod,
    std,
    sum,
    var,
)
from tetrad.core.dtypes import bool_
from tetrad.tracing.array import Array
from tetrad.tracing.operands import apply, as_array, convert


def is_number(x: Array) -> Array:
    """Where elements are not NaN."""
    return apply("logical_not", apply("isnan", x))


def may_be_nan(x: Array) -> bool:
    return x.dtype.is_float or x.dtype.is_complex


def without_nan(a: Any, neutral: float) -> Array:
    """The array with a number in place of every NaN."""
    x = as_array(a)
    return where(is_number(x), x, neutral) if may_be_nan(x) else x


def _chosen(x: Array, which: Any) -> Any:
    """The elements that are numbers, of those a mask leaves."""
    if not may_be_nan(x):
        return which
    given = is_number(x)
    return given if which is None else apply("logical_and", given, convert(which, bool_))


def nansum(
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Array:
    """The sum of the elements that are not NaN.

    >>> import tetrad as td
    >>> td.nansum(td.asarray([1.0, float("nan"), 2.0]))
    Array(3., float32)
    """
    return sum(without_nan(a, 0), axis, dtype, out, keepdims, initial, where)


def nanprod(
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Array:
    """The product of the elements that are not NaN."""
    return prod(without_nan(a, 1), axis, dtype, out, keepdims, initial, where)


def nancumsum(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Array:
    """Running sums, in which NaN counts as 0."""
    return running.cumsum(without_nan(a, 0), axis, dtype, out)


def nancumprod(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Array:
    """Running products, in which NaN counts as 1."""
    return running.cumprod(without_nan(a, 1), axis, dtype, out)


def nanmax(
    a: Any,
    axis: Axis = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Array:
    """The largest of the elements that are not NaN; of none NaN.

    >>> import tetrad as td
    >>> td.nanmax(td.asarray([1.0, float("nan"), 2.0]))
    Array(2., float32)
    """
    no_out("nanmax", out)
    return _extreme(max, float("-inf"), as_array(a), axis, keepdims, initial, where)


def nanmin(
    a: Any,
    axis: Axis = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Array:
    """The smallest of the elements that are not NaN; of none NaN."""
    no_out("nanmin", out)
    return _extreme(min, float("inf"), as_array(a), axis, keepdims, initial, where)


def _extreme(
    function: Any, least: float, x: Array, axis: Axis, keepdims: bool, initial: Any, which: Any
) -> Array:
    if not may_be_nan(x):
        found: Array = function(x, axis, None, keepdims, initial, which)
        return found
    found = function(without_nan(x, least), axis, None, keepdims, initial, which)
    if initial is not None:
        return found
    return where(all(apply("isnan", x), axis, None, keepdims), float("nan"), found)


def nanmean(
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    where: Any = None,
) -> Array:
    """The mean of the elements that are not NaN; of none NaN.

    >>> import tetrad as td
    >>> td.nanmean(td.asarray([1.0, float("nan"), 2.0]))
    Array(1.5, float32)
    """
    x = as_array(a)
    return mean(x, axis, dtype, out, keepdims, where=_chosen(x, where))


def nanvar(
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: None = None,
    ddof: float = 0,
    keepdims: bool = False,
    where: Any = None,
) -> Array:
    """The variance of the elements that are not NaN; of too few NaN."""
    return _spread(var, a, axis, dtype, out, ddof, keepdims, where)


def nanstd(
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: None = None,
    ddof: float = 0,
    keepdims: bool = False,
    where: Any = None,
) -> Array:
    """The standard deviation of the elements that are not NaN."""
    return _spread(std, a, axis, dtype, out, ddof, keepdims, where)


def _spread(
    function: Any, a: Any, axis: Axis, dtype: Any, out: Any, ddof: float, keepdims: bool, which: Any
) -> Array:
    x = as_array(a)
    chosen = _chosen(x, which)
    found: Array = function(x, axis, dtype, out, ddof, keepdims, where=chosen)
    if chosen is None:
        return found
    count = count_nonzero(apply("logical_and", chosen, is_number(x)), axis, keepdims)
    return where(apply("less_equal", count, ddof), float("nan"), found)


def nanargmax(a: Any, axis: int | None = None, out: None = None, keepdims: bool = False) -> Array:
    """The index of the first largest element that is not NaN; -1 where all are, as in JAX.

    >>> import tetrad as td
    >>> int(td.nanargmax(td.asarray([1.0, float("nan"), 2.0])))
    2
    """
    no_out("nanargmax", out)
    return _search(argmax, float("-inf"), as_array(a), axis, keepdims)


def nanargmin(a: Any, axis: int | None = None, out: None = None, keepdims: bool = False) -> Array:
    """The index of the first smallest element that is not NaN; -1 where all are, as in JAX."""
    no_out("nanargmin", out)
    return _search(argmin, float("inf"), as_array(a), axis, keepdims)


def _search(function: Any, least: float, x: Array, axis: int | None, keepdims: bool) -> Array:
    if not may_be_nan(x):
        found: Array = function(x, axis, None, keepdims)
        return found
    # NaN is what searches find first: a number that is as far away is found after those that are
    first = argmax(is_number(x), axis, None, keepdims)
    found = function(without_nan(x, least), axis, None, keepdims)
    extreme = (max if least < 0 else min)(without_nan(x, least), axis, None, keepdims)
    is_far = apply("equal", extreme, least)
    none = all(apply("isnan", x), axis, None, keepdims)
    return where(none, -1, where(is_far, first, found))


def nan_to_num(
    x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None
) -> Array:
    """Numbers in place of NaN and of infinities: by default 0, and the largest and least there are.

    >>> import tetrad as td
    >>> td.nan_to_num(td.asarray([1.0, float("nan"), float("inf")]), posinf=9)
    Array([1., 0., 9.], float32)
    """
    given = as_array(x)
    if given.dtype.is_complex:
        parts = (nan_to_num(part, copy, nan, posinf, neginf) for part in (given.real, given.imag))
        return apply("complex", *parts)
    if not given.dtype.is_float:
        return given
    largest = _largest(given)
    found = where(apply("isnan", given), nan, given)
    high = apply("equal", given, float("inf"))
    low = apply("equal", given, float("-inf"))
    found = where(high, largest if posinf is None else posinf, found)
    return where(low, -largest if neginf is None else neginf, found)


def _largest(x: Array) -> float:
    from_bits = {"f16": 65504.0, "bf16": (2 - 2.0**-7) * 2.0**127}
    by_name = {"f32": (2 - 2.0**-23) * 2.0**127, "f64": (2 - 2.0**-52) * 2.0**1023}
    return (from_bits | by_name)[x.dtype.short_name]
