"""Arrays, NumPy's names: functions that points on a line stand for: their integral, and values in
between.

Receives places and values, returns arrays: compositions of public functions.
"""

from __future__ import annotations

from typing import Any

from tetrad.arrays.indexing import take_axis
from tetrad.arrays.manipulation import concat, moveaxis
from tetrad.arrays.sorting import argsort, searchsorted
from tetrad.arrays.statistics import diff, sum
from tetrad.core.errors import ShapeError
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import apply, as_array, as_floats, axis_of


def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Array:
    """The integral of y along an axis by the trapezoidal rule; `x`: where its values are, else `dx`
    apart.

    >>> import tetrad as td
    >>> td.trapezoid(td.asarray([1.0, 2.0, 3.0]), dx=0.5)
    Array(2., float32)
    """
    y = as_floats(y)
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
    x, xp, fp = as_floats(x), as_floats(xp), as_floats(fp)
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
