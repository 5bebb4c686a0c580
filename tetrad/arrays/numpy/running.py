"""Arrays, NumPy's names: sums, products and differences from one element to the next.

Receives arrays and an axis, returns arrays: compositions of `arrays.statistics`.
"""

from __future__ import annotations

from typing import Any

from tetrad.arrays.creation import asarray
from tetrad.arrays.manipulation import concat, moveaxis, reshape
from tetrad.arrays.numpy.common import floating_one, floats, no_out, where
from tetrad.arrays.statistics import cumulative_prod, cumulative_sum, diff
from tetrad.core.errors import SettingError, ShapeError
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import apply, as_array, axes_of, axis_of, convert, expand


def cumsum(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Array:
    """Sums of the first 1, 2, ... elements along an axis, or of all elements.

    >>> import tetrad as td
    >>> td.cumsum(td.asarray([[1, 2], [3, 4]]))
    Array([ 1,  3,  6, 10], int32)
    """
    x, axis = _line("cumsum", a, axis, out)
    return cumulative_sum(x, axis=axis, dtype=dtype)


def cumprod(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Array:
    """Products of the first 1, 2, ... elements along an axis, or of all elements."""
    x, axis = _line("cumprod", a, axis, out)
    return cumulative_prod(x, axis=axis, dtype=dtype)


def _line(name: str, a: Any, axis: int | None, out: Any) -> tuple[Array, int]:
    no_out(name, out)
    x = asarray(a)
    return (reshape(x, (-1,)), 0) if axis is None else (x, axis)


def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Array:
    """Differences of neighbours of the flattened array, with numbers put before and behind them.

    >>> import tetrad as td
    >>> td.ediff1d(td.asarray([1, 4, 9]), to_end=-1)
    Array([ 3,  5, -1], int32)
    """
    x = reshape(asarray(ary), (-1,))
    parts = [diff(x)]
    if to_begin is not None:
        parts.insert(0, reshape(asarray(to_begin, x.dtype), (-1,)))
    if to_end is not None:
        parts.append(reshape(asarray(to_end, x.dtype), (-1,)))
    return concat(parts, axis=0)


def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """Slopes along axes, from the neighbours on both sides, at the ends from the nearest two (or
    three: `edge_order` 2). `varargs`: the distance of neighbours, or where elements are, for all
    axes or for each. One array for each axis; a number as `axis`, or a vector, gives one alone.

    >>> import tetrad as td
    >>> td.gradient(td.asarray([1.0, 2.0, 4.0, 7.0]))
    Array([1. , 1.5, 2.5, 3. ], float32)
    """
    x = floating_one(f)
    axes = axes_of("gradient", axis, x.ndim) if axis is None else _listed_axes(axis, x.ndim)
    if edge_order not in (1, 2):
        raise SettingError("gradient: edge_order", "1 or 2", edge_order)
    if len(varargs) not in (0, 1, len(axes)):
        fail(ShapeError, f"gradient: {len(varargs)} distances for {len(axes)} axes")
    apart = list(varargs) * len(axes) if len(varargs) == 1 else list(varargs) or [1.0] * len(axes)
    found = [
        moveaxis(_slopes(moveaxis(x, at, -1), h, edge_order), -1, at)
        for at, h in zip(axes, apart, strict=True)
    ]
    is_one = isinstance(axis, int) or (axis is None and x.ndim == 1)
    return found[0] if is_one else tuple(found)


def _listed_axes(axis: Any, rank: int) -> tuple[int, ...]:
    given = axis if isinstance(axis, tuple | list) else (axis,)
    return tuple(axis_of("gradient", one, rank) for one in given)


def _slopes(x: Array, h: Any, edge_order: int) -> Array:
    """Along the last axis."""
    size = x.shape[-1]
    if size < edge_order + 1:
        fail(ShapeError, f"gradient: needs {edge_order + 1} elements along an axis of {x.type}")
    spots = convert(asarray(h), x.dtype)
    if spots.ndim == 0:
        low = high = expand(spots, (size - 1,))
    elif spots.shape == (size,):
        low = high = diff(spots)
    else:
        fail(ShapeError, f"gradient: places {spots.type} for an axis of {size} elements")
    before, after = low[:-1], high[1:]
    weights = (
        -after / (before * (before + after)),
        (after - before) / (before * after),
        before / (after * (before + after)),
    )
    left, here, right = x[..., :-2], x[..., 1:-1], x[..., 2:]
    middle = weights[0] * left + weights[1] * here + weights[2] * right
    if spots.ndim == 0:  # even distances, as in NumPy: one difference, one division
        middle = (right - left) / (2 * spots)
    first, last = (_end(x, low, at, edge_order) for at in (0, -1))
    return concat([first, as_array(middle), last], axis=-1)


def _end(x: Array, apart: Array, at: int, edge_order: int) -> Array:
    """The slope at the first element or the last."""
    sign = 1 if at == 0 else -1
    near, next_, far = (x[..., at + sign * i, None] for i in (0, 1, 2 if edge_order == 2 else 1))
    a = apart[at]
    if edge_order == 1:
        found: Array = sign * (next_ - near) / a
        return found
    b = apart[at + sign]
    slope: Array = sign * (
        -(2 * a + b) / (a * (a + b)) * near + (a + b) / (a * b) * next_ - a / (b * (a + b)) * far
    )
    return slope


def unwrap(p: Any, discont: Any = None, axis: int = -1, period: Any = 6.283185307179586) -> Array:
    """Angles along an axis without jumps: by whole periods, so that neighbours are near.

    >>> import tetrad as td
    >>> td.unwrap(td.asarray([0, 3, -3, 0]), period=6)
    Array([0, 3, 3, 6], int32)
    """
    x = as_array(p)
    if not (x.dtype.is_float or (x.dtype.is_integer and isinstance(period, int))):
        (x,) = floats(x)
    at = axis_of("unwrap", axis, x.ndim)
    line = moveaxis(x, at, -1)
    step = diff(line)
    is_whole = x.dtype.is_integer
    half = period // 2 if is_whole else period / 2
    near = apply("subtract", apply("remainder", apply("add", step, half), period), half)
    if not is_whole or period % 2 == 0:  # both ends are the same: upwards stays upwards
        is_up = apply("logical_and", apply("equal", near, -half), apply("greater", step, 0))
        near = where(is_up, half, near)
    limit = (period - half) if discont is None else discont
    change = where(apply("less", apply("abs", step), limit), 0, apply("subtract", near, step))
    moved = apply("add", line[..., 1:], cumulative_sum(change, axis=-1, dtype=x.dtype))
    return moveaxis(concat([line[..., :1], moved], axis=-1), -1, at)
