"""Arrays, NumPy's names: quantiles, percentiles and medians, of all elements or of those that are
numbers.

Receives arrays, shares and axes, returns arrays. A method says which two elements of the ordered
line a share lies between, and how far it is on the way from one to the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tetrad.arrays.creation import asarray
from tetrad.arrays.functions import take_along_axis
from tetrad.arrays.indexing import permuted, reshaped, take_axis
from tetrad.arrays.manipulation import broadcast_to, moveaxis
from tetrad.arrays.numpy.common import floating_one, no_out, where
from tetrad.arrays.sorting import sort
from tetrad.arrays.statistics import Axis
from tetrad.arrays.statistics import sum as total
from tetrad.core.dtypes import i32
from tetrad.core.errors import DtypeError, SettingError, ShapeError
from tetrad.core.sizes import product
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import apply, as_array, axes_of, convert

Place = Callable[[Array, Any], Array]
# the two numbers of a continuous method: position = n q + a + q (1 - a - b) - 1
CONTINUOUS = {
    "linear": (1.0, 1.0), "interpolated_inverted_cdf": (0.0, 1.0), "hazen": (0.5, 0.5),
    "weibull": (0.0, 0.0), "median_unbiased": (1 / 3, 1 / 3), "normal_unbiased": (3 / 8, 3 / 8),
}  # fmt: skip
METHODS = (
    *CONTINUOUS, "lower", "higher", "midpoint", "nearest", "inverted_cdf",
    "averaged_inverted_cdf", "closest_observation",
)  # fmt: skip


def quantile(
    a: Any,
    q: Any,
    axis: Axis = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    interpolation: str | None = None,
) -> Array:
    """The numbers below which a share q of the elements along axes lies, between elements on a
    line, or as another of NumPy's methods says; NaN propagates.

    >>> import tetrad as td
    >>> td.quantile(td.asarray([1.0, 2.0, 4.0]), td.asarray([0.5, 0.75]))
    Array([2., 3.], float32)
    """
    no_out("quantile", out)
    return _quantile("quantile", a, q, axis, interpolation or method, keepdims, False)


def nanquantile(
    a: Any,
    q: Any,
    axis: Axis = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    interpolation: str | None = None,
) -> Array:
    """`quantile` of the elements that are not NaN; of none it is NaN.

    >>> import tetrad as td
    >>> td.nanquantile(td.asarray([1.0, float("nan"), 3.0]), 0.5)
    Array(2., float32)
    """
    no_out("nanquantile", out)
    return _quantile("nanquantile", a, q, axis, interpolation or method, keepdims, True)


def percentile(
    a: Any,
    q: Any,
    axis: Axis = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    interpolation: str | None = None,
) -> Array:
    """`quantile` with shares in hundredths.

    >>> import tetrad as td
    >>> td.percentile(td.asarray([1.0, 2.0, 4.0]), 75)
    Array(3., float32)
    """
    no_out("percentile", out)
    return _quantile("percentile", a, q, axis, interpolation or method, keepdims, False, 100.0)


def nanpercentile(
    a: Any,
    q: Any,
    axis: Axis = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    interpolation: str | None = None,
) -> Array:
    """`percentile` of the elements that are not NaN."""
    no_out("nanpercentile", out)
    return _quantile("nanpercentile", a, q, axis, interpolation or method, keepdims, True, 100.0)


def median(
    a: Any,
    axis: Axis = None,
    out: None = None,
    overwrite_input: bool = False,
    keepdims: bool = False,
) -> Array:
    """The element in the middle along axes, or the mean of both; NaN propagates."""
    no_out("median", out)
    return _quantile("median", a, 0.5, axis, "linear", keepdims, False)


def nanmedian(
    a: Any,
    axis: Axis = None,
    out: None = None,
    overwrite_input: bool = False,
    keepdims: bool = False,
) -> Array:
    """The median of the elements that are not NaN."""
    no_out("nanmedian", out)
    return _quantile("nanmedian", a, 0.5, axis, "linear", keepdims, True)


def _quantile(
    name: str,
    a: Any,
    q: Any,
    axis: Axis,
    method: str,
    keepdims: bool,
    skips_nan: bool,
    whole: float = 1.0,
) -> Array:
    if method not in METHODS:
        raise SettingError(f"{name}: method", f"one of {', '.join(METHODS)}", method)
    x = floating_one(a)
    if x.dtype.is_complex:
        fail(DtypeError, f"{name}: complex numbers have no order, got {x.type}")
    given = asarray(q, x.dtype) if isinstance(q, list | tuple) else convert(q, x.dtype)
    share = given if whole == 1.0 else apply("divide", given, whole)
    axes = axes_of(name, axis, x.ndim)
    kept = [i for i in range(x.ndim) if i not in axes]
    count = product(x.shape[i] for i in axes)
    if not isinstance(count, int) or count == 0:
        fail(
            ShapeError,
            f"{name}: needs elements, and to know how many, along axes {axes} of {x.type}",
        )
    line = sort(reshaped(permuted(x, [*kept, *axes]), (*(x.shape[i] for i in kept), count)))
    flat = reshaped(share, (product(share.shape),))
    between = _skipping(line, flat, method) if skips_nan else _between(line, flat, count, method)
    found = reshaped(moveaxis(between, -1, 0), (*share.shape, *between.shape[:-1]))
    shape = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    return reshaped(found, (*share.shape, *shape)) if keepdims else found


def _between(line: Array, q: Array, count: int, method: str) -> Array:
    """Elements of the last axis, which is in order, at shares of its length; a NaN is the last of a
    line."""
    found = _joined(
        lambda at: take_axis(line, at, line.ndim - 1), q, as_array(float(count)), method, q.dtype
    )
    last = line[..., -1:]
    return where(apply("isnan", last), last, found)


def _skipping(line: Array, q: Array, method: str) -> Array:
    """The same of each line's own elements, which come before its NaN."""
    is_number = apply("logical_not", apply("isnan", line))
    count = total(convert(is_number, line.dtype), axis=-1, keepdims=True)
    shape = (*line.shape[:-1], q.shape[0])
    found = _joined(
        lambda at: take_along_axis(line, broadcast_to(at, shape), axis=-1),
        broadcast_to(q, shape),
        apply("maximum", count, 1),
        method,
        q.dtype,
    )
    return where(apply("equal", count, 0), float("nan"), found)


def _joined(element: Any, q: Array, count: Array, method: str, dtype: Any) -> Array:
    """The elements on both sides of each place, the second as far as the place lies beyond the
    first."""
    n = convert(count, dtype)
    last = apply("subtract", n, 1)
    low, weight = _place(apply("minimum", apply("maximum", q, 0), 1), n, last, method)
    first, second = (
        element(convert(apply("minimum", apply("maximum", low + step, 0), last), i32))
        for step in (0, 1)
    )
    if weight is None:
        return first  # type: ignore[no-any-return]
    # at the ends both elements are one, which may be infinite
    way = where(apply("equal", first, second), 0, apply("subtract", second, first))
    return apply("add", first, apply("multiply", weight, way))


def _place(q: Array, n: Array, last: Array, method: str) -> tuple[Any, Any]:
    """The index of the element before each share, and the share of the way to the next."""
    if method in CONTINUOUS:
        a, b = CONTINUOUS[method]
        place = n * q + (a + q * (1 - a - b)) - 1 if method != "linear" else q * last
        low = apply("floor", place)
        return low, place - low
    if method in ("lower", "higher", "midpoint", "nearest"):
        place = apply("multiply", q, last)
        how = {"lower": "floor", "higher": "ceil", "midpoint": "floor", "nearest": "round"}
        low = apply(how[method], place)
        is_between = convert(apply("not_equal", place, low), q.dtype)
        return low, is_between * 0.5 if method == "midpoint" else None
    place = n * q
    if method == "closest_observation":
        place = place - 1.5
        low = apply("floor", place)
        is_odd = apply("not_equal", apply("remainder", low, 2), 0)  # counted from 0
        stays = apply("logical_and", apply("equal", place, low), is_odd)
        return where(stays, low, low + 1), None
    low = apply("ceil", place) - 1
    if method == "inverted_cdf":
        return low, None
    is_whole = convert(apply("equal", place, low + 1), q.dtype)
    return low, is_whole * 0.5
