"""Arrays, NumPy extras: what NumPy has besides the standard: closeness, diagonals, parts,
interpolation, quantiles.

Receives arrays and settings, returns arrays: compositions of public functions, so every transform
applies to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any, SupportsIndex

import numpy as np

from tetrad.arrays.creation import zeros
from tetrad.arrays.indexing import getitem, take_axis
from tetrad.arrays.manipulation import broadcast_arrays, concat, moveaxis
from tetrad.arrays.sorting import argsort, searchsorted
from tetrad.arrays.statistics import all, diff, sum
from tetrad.core.errors import ShapeError
from tetrad.core.promotion import as_float
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import apply, as_array, axis_of, convert


def _float(x: Any) -> Array:
    x = as_array(x)
    return convert(x, as_float(x.dtype))


def isclose(
    a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Array:
    """Where |a - b| <= atol + rtol |b|; infinities are close to themselves, NaN if `equal_nan`.

    >>> import tetrad as td
    >>> td.isclose(td.asarray([1.0, 2.0]), td.asarray([1.000001, 2.1]))
    Array([ True, False], bool)
    """
    a, b = broadcast_arrays(_float(a), _float(b))
    near = apply("abs", a - b) <= atol + rtol * apply("abs", b)
    close = apply("where", apply("isfinite", a) & apply("isfinite", b), near, a == b)
    return close | (apply("isnan", a) & apply("isnan", b)) if equal_nan else close


def allclose(
    a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Array:
    """Whether all elements are close, as `isclose` says."""
    return all(isclose(a, b, rtol, atol, equal_nan))


def diag(v: Any, k: int = 0) -> Array:
    """The matrix with a vector on its diagonal (the k-th above the main one), or the diagonal of a
    matrix.

    >>> import tetrad as td
    >>> td.diag(td.asarray([1, 2]))
    Array([[1, 0],
           [0, 2]], int32)
    """
    v = as_array(v)
    if v.ndim not in (1, 2) or not isinstance(v.size, int):
        fail(
            ShapeError,
            f"diag: expected a vector or a matrix, got {v.type}",
            "td.linalg.diagonal takes batches",
        )
    rows, columns = max(-k, 0), max(k, 0)
    if v.ndim == 1:
        places = np.arange(v.shape[0])
        size = v.shape[0] + abs(k)
        return zeros((size, size), dtype=v.dtype).at[places + rows, places + columns].set(v)  # type: ignore[no-any-return]
    places = np.arange(max(min(v.shape[0] - rows, v.shape[1] - columns), 0))
    return getitem(v, (places + rows, places + columns))


def split(ary: Any, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Array]:
    """Equal parts along an axis, so many; or the parts between given places.

    >>> import tetrad as td
    >>> td.split(td.arange(5), [2, 3])
    [Array([0, 1], int32), Array([2], int32), Array([3, 4], int32)]
    """
    ary = as_array(ary)
    at = axis_of("split", axis, ary.ndim)
    size = ary.shape[at]
    if isinstance(indices_or_sections, Array) and indices_or_sections.ndim:
        indices_or_sections = [int(i) for i in indices_or_sections]
    if isinstance(indices_or_sections, SupportsIndex):
        count = index(indices_or_sections)
        if count < 1 or size % count:
            fail(
                ShapeError,
                f"split: axis {at} of {ary.type} has no {count} equal parts",
                "give the places instead",
            )
        places = [i * (size // count) for i in range(1, count)]
    else:
        places = [index(i) for i in indices_or_sections]
    ends = zip([0, *places], [*places, size], strict=True)
    return [getitem(ary, (*(slice(None),) * at, slice(start, stop))) for start, stop in ends]


def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Array:
    """The integral of y along an axis by the trapezoidal rule; `x`: where its values are, else `dx`
    apart.

    >>> import tetrad as td
    >>> td.trapezoid(td.asarray([1.0, 2.0, 3.0]), dx=0.5)
    Array(2., float32)
    """
    y = _float(y)
    last = moveaxis(y, axis_of("trapezoid", axis, y.ndim), -1)
    if x is not None:
        x = as_array(x)
        dx = diff(x) if x.ndim == 1 else moveaxis(diff(x, axis=axis), axis, -1)
    return sum(dx * (last[..., 1:] + last[..., :-1]), axis=-1) / 2  # type: ignore[no-any-return]


def _repeating(x: Array, xp: Array, fp: Array, period: Any) -> tuple[Array, Array, Array]:
    """The points of one period in order, with one more on each side."""
    x, xp = apply("remainder", x, period), apply("remainder", xp, period)
    order = argsort(xp)
    xp, fp = take_axis(xp, order, 0), take_axis(fp, order, 0)
    line = concat([apply("subtract", xp[-1:], period), xp, apply("add", xp[:1], period)])
    return x, line, concat([fp[-1:], fp, fp[:1]])


def interp(
    x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None
) -> Array:
    """Values at x of the line through the points (xp, fp), xp ascending; beyond its ends the outer
    ones, or as given. `period`: the line repeats, and its points may be in any order.

    >>> import tetrad as td
    >>> td.interp(td.asarray([0.5, 9.0]), td.asarray([0.0, 1.0]), td.asarray([10.0, 20.0]))
    Array([15., 20.], float32)
    """
    x, xp, fp = _float(x), _float(xp), _float(fp)
    if xp.ndim != 1 or xp.shape != fp.shape or xp.shape[0] == 0:
        fail(
            ShapeError,
            f"interp: xp and fp are vectors of equal size, not empty, got {xp.type} and {fp.type}",
        )
    if period is not None:
        x, xp, fp = _repeating(x, xp, fp, period)
    above = apply("minimum", searchsorted(xp, x, side="right"), xp.shape[0] - 1)
    below = apply("maximum", above - 1, 0)
    x0, x1, f0, f1 = (take_axis(a, i, 0) for a in (xp, fp) for i in (below, above))
    is_point = x1 == x0
    share = apply("where", is_point, 0, (x - x0) / apply("where", is_point, 1, x1 - x0))
    inside = f0 + share * (f1 - f0)
    inside = apply("where", x < xp[0], fp[0] if left is None else left, inside)
    return apply("where", x > xp[-1], fp[-1] if right is None else right, inside)
