"""Arrays, statistics: sums, means, extremes and searches along axes.

Receives an array, axes and settings, returns an array: compositions of the reduce ops. Integers are
summed in at least 32 bits; means and variances of f16 and bf16 are computed in f32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tetrad.arrays.creation import full
from tetrad.arrays.indexing import reshaped, sliced
from tetrad.arrays.manipulation import concat, reshape
from tetrad.core.dtypes import DType, bool_, f32, i32, u32
from tetrad.core.errors import ShapeError, TraceError
from tetrad.core.op import REGISTRY
from tetrad.core.promotion import WEAK, as_float
from tetrad.core.sizes import Shape, product
from tetrad.tracing.array import Array, TracedArray, fail
from tetrad.tracing.operands import (
    as_array,
    axes_of,
    axis_of,
    borrowed,
    convert,
    dtype_of,
    elementwise,
    expand,
    run,
    size_array,
)

Axis = int | Sequence[int] | None


def _apply(name: str, *args: Any) -> Array:
    return elementwise(REGISTRY[name], args, {})


def _reduce(op: str, x: Array, axis: Axis, keepdims: bool, name: str) -> Array:
    axes = axes_of(name, axis, x.ndim)
    result = run(op, x, axes=axes) if axes else as_result(x)
    return reshaped(result, _kept(x.shape, axes)) if keepdims else result


def as_result(x: Array) -> Array:
    """x itself is the result: as an array of its own."""
    return x if isinstance(x, TracedArray) else as_array(x.elements)


def _only(x: Array, where: Any, neutral: Any, name: str) -> Array:
    """x, with what changes nothing in place of elements that a mask leaves out."""
    if where is None:
        return x
    mask = convert(borrowed(where), bool_)
    kept = _apply("where", mask, x, convert(neutral, x.dtype))
    if kept.shape != x.shape:
        fail(ShapeError, f"{name}: where is {mask.type}, which does not broadcast to {x.type}")
    return kept


def _joined(op: str, result: Array, initial: Any) -> Array:
    return result if initial is None else _apply(op, result, convert(initial, result.dtype))


def _count(x: Array, axis: Axis, where: Any, name: str) -> Array:
    """How many elements along axes a mask leaves, one axis of size 1 for each; without a mask a
    number."""
    if where is None:
        return size_array(product(x.shape[i] for i in axes_of(name, axis, x.ndim)), x.dtype)
    ones = full(x.shape, 1, dtype=x.dtype)
    return _reduce("reduce_sum", _only(ones, where, 0, name), axis, True, name)


def _shaped(count: Array, like: Array) -> Array:
    return count if count.ndim == 0 else reshaped(count, like.shape)


def _kept(shape: Shape, axes: tuple[int, ...]) -> Shape:
    return tuple(1 if i in axes else n for i, n in enumerate(shape))


def _sum_dtype(dtype: DType) -> DType:
    """Small integers are added up in the default integer, so that a sum of bytes does not wrap at
    255."""
    if dtype.is_float or dtype.bits >= 32:
        return dtype
    if dtype.is_float8:
        return f32
    return u32 if dtype.kind == "u" else i32


def sum(
    x: Any,
    /,
    axis: Axis = None,
    *,
    dtype: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Array:
    """The sum along axes; `where`: of these elements only, `initial` is added.

    >>> import tetrad as td
    >>> td.sum(td.asarray([[1, 2], [3, 4]]), axis=0)
    Array([4, 6], int32)
    """
    x = borrowed(x)
    wide = convert(x, _sum_dtype(x.dtype) if dtype is None else dtype_of(dtype))
    return _joined(
        "add", _reduce("reduce_sum", _only(wide, where, 0, "sum"), axis, keepdims, "sum"), initial
    )


def prod(
    x: Any,
    /,
    axis: Axis = None,
    *,
    dtype: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Array:
    """The product along axes; `where`: of these elements only, times `initial`."""
    x = borrowed(x)
    wide = convert(x, _sum_dtype(x.dtype) if dtype is None else dtype_of(dtype))
    return _joined(
        "multiply",
        _reduce("reduce_prod", _only(wide, where, 1, "prod"), axis, keepdims, "prod"),
        initial,
    )


def max(
    x: Any, /, axis: Axis = None, *, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Array:
    """The largest element along axes, or `initial`; NaN propagates. `where`: of these elements
    only.

    >>> import tetrad as td
    >>> td.max(td.asarray([3.0, 5.0, 4.0]))
    Array(5., float32)
    """
    return _extreme("max", borrowed(x), axis, keepdims, initial, where)


def min(
    x: Any, /, axis: Axis = None, *, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Array:
    """The smallest element along axes, or `initial`; NaN propagates. `where`: of these elements
    only."""
    return _extreme("min", borrowed(x), axis, keepdims, initial, where)


def _extreme(name: str, x: Array, axis: Axis, keepdims: bool, initial: Any, where: Any) -> Array:
    if where is not None and initial is None:
        fail(
            TraceError,
            f"{name}: where may leave no element",
            "initial= says what the result is then",
        )
    if initial is not None and product(x.shape[i] for i in axes_of(name, axis, x.ndim)) == 0:
        return expand(convert(initial, x.dtype), sum(x, axis=axis, keepdims=keepdims).shape)
    found = _reduce(f"reduce_{name}", _only(x, where, initial, name), axis, keepdims, name)
    return _joined(f"{name}imum", found, initial)


def any(x: Any, /, axis: Axis = None, *, keepdims: bool = False, where: Any = None) -> Array:
    """Whether some element along axes is not zero."""
    return _reduce(
        "reduce_any", _only(convert(borrowed(x), bool_), where, False, "any"), axis, keepdims, "any"
    )


def all(x: Any, /, axis: Axis = None, *, keepdims: bool = False, where: Any = None) -> Array:
    """Whether every element along axes is not zero."""
    return _reduce(
        "reduce_all", _only(convert(borrowed(x), bool_), where, True, "all"), axis, keepdims, "all"
    )


def _wide(x: Any) -> tuple[Array, DType]:
    """x as a float of at least 32 bits, and the dtype the result has in the end."""
    x = borrowed(x)
    dtype = as_float(x.dtype)
    return convert(x, f32 if dtype.bits < 32 else dtype), dtype


def mean(x: Any, /, axis: Axis = None, *, keepdims: bool = False, where: Any = None) -> Array:
    """The arithmetic mean along axes; of no elements it is NaN. `where`: of these elements only.

    >>> import tetrad as td
    >>> td.mean(td.asarray([[1.0, 2.0], [3.0, 6.0]]), axis=1)
    Array([1.5, 4.5], float32)
    """
    wide, dtype = _wide(x)
    return convert(_mean(wide, axis, keepdims, "mean", where), dtype)


def _mean(x: Array, axis: Axis, keepdims: bool, name: str, where: Any) -> Array:
    if x.dtype.is_complex:
        return run(
            "complex",
            *(_mean(run(part, x), axis, keepdims, name, where) for part in ("real", "imag")),
        )
    total = _reduce("reduce_sum", _only(x, where, 0, name), axis, keepdims, name)
    return _apply("divide", total, _shaped(_count(x, axis, where, name), total))


def var(
    x: Any,
    /,
    axis: Axis = None,
    *,
    correction: float = 0.0,
    keepdims: bool = False,
    where: Any = None,
) -> Array:
    """The variance along axes: the sum of squared distances from the mean over (count -
    correction); it is real.

    >>> import tetrad as td
    >>> td.var(td.asarray([1.0, 2.0, 3.0]), correction=1)
    Array(1., float32)
    """
    wide, dtype = _wide(x)
    return convert(_var(wide, axis, correction, keepdims, "var", where), dtype.real)


def _var(x: Array, axis: Axis, correction: float, keepdims: bool, name: str, where: Any) -> Array:
    if x.dtype.is_complex:
        parts = (
            _var(run(part, x), axis, correction, keepdims, name, where) for part in ("real", "imag")
        )
        return _apply("add", *parts)
    apart = _apply("subtract", x, _mean(x, axis, True, name, where))
    total = _reduce(
        "reduce_sum", _apply("square", _only(apart, where, 0, name)), axis, keepdims, name
    )
    left = _apply("maximum", _apply("subtract", _count(x, axis, where, name), correction), 0)
    return _apply("divide", total, _shaped(left, total))


def std(
    x: Any,
    /,
    axis: Axis = None,
    *,
    correction: float = 0.0,
    keepdims: bool = False,
    where: Any = None,
) -> Array:
    """The standard deviation along axes: the square root of `var`."""
    wide, dtype = _wide(x)
    return convert(_apply("sqrt", _var(wide, axis, correction, keepdims, "std", where)), dtype.real)


def cumulative_sum(
    x: Any, /, axis: int | None = None, *, dtype: Any = None, include_initial: bool = False
) -> Array:
    """Sums of the first 1, 2, ... elements along an axis; `include_initial` puts a 0 in front.

    >>> import tetrad as td
    >>> td.cumulative_sum(td.asarray([1, 2, 3]), include_initial=True)
    Array([0, 1, 3, 6], int32)
    """
    return _running(
        "cumulative_sum", "cumsum", x, axis, dtype, 0 if include_initial else None, exclusive=False
    )


def cumulative_prod(
    x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Array:
    """Products of the first 1, 2, ... elements along an axis; `include_initial` puts a 1 in front.

    >>> import tetrad as td
    >>> td.cumulative_prod(td.asarray([2, 3, 4]), include_initial=True)
    Array([ 1,  2,  6, 24], int32)
    """
    return _running("cumulative_prod", "cumprod", x, axis, dtype, 1 if include_initial else None)


def _running(
    name: str, op: str, x: Any, axis: int | None, dtype: Any, initial: int | None, **settings: Any
) -> Array:
    x = borrowed(x)
    if axis is None and x.ndim != 1:
        fail(ShapeError, f"{name}: axis is needed for {x.type}")
    at = axis_of(name, 0 if axis is None else axis, x.ndim)
    wide = convert(x, _sum_dtype(x.dtype) if dtype is None else dtype_of(dtype))
    found = run(op, wide, axis=at, **settings)
    if initial is None:
        return found
    first = full(
        tuple(1 if i == at else n for i, n in enumerate(x.shape)), initial, dtype=wide.dtype
    )
    return concat([first, found], axis=at)


def argmax(x: Any, /, axis: int | None = None, *, keepdims: bool = False) -> Array:
    """The index of the first largest element along an axis (None: of the flattened array).

    >>> import tetrad as td
    >>> td.argmax(td.asarray([3.0, 5.0, 5.0]))
    Array(1, int64)
    """
    return _search("argmax", borrowed(x), axis, keepdims)


def argmin(x: Any, /, axis: int | None = None, *, keepdims: bool = False) -> Array:
    """The index of the first smallest element along an axis (None: of the flattened array)."""
    return _search("argmin", borrowed(x), axis, keepdims)


def _search(name: str, x: Array, axis: int | None, keepdims: bool) -> Array:
    if axis is None:
        found = run(name, reshape(x, (-1,)), axis=0)
        return reshaped(found, (1,) * x.ndim) if keepdims else found
    at = axis_of(name, axis, x.ndim)
    found = run(name, x, axis=at)
    return reshaped(found, _kept(x.shape, (at,))) if keepdims else found


def count_nonzero(x: Any, /, axis: Axis = None, *, keepdims: bool = False) -> Array:
    """How many elements along axes are not zero."""
    return sum(convert(borrowed(x), bool_), axis=axis, keepdims=keepdims)


def nonzero(x: Any, /) -> tuple[Array, ...]:
    """The indices of elements that are not zero, one array per axis. Outside jit only.

    >>> import tetrad as td
    >>> td.nonzero(td.asarray([0, 7, 0, 8]))
    (Array([1, 3], int64),)
    """
    x = borrowed(x)
    if isinstance(x, TracedArray):
        message = "nonzero: how many elements are not zero is only known when the program runs"
        fail(
            TraceError, message, "use td.where(mask, x, other), or count them with td.count_nonzero"
        )
    return tuple(Array.from_numpy(i.astype(np.int64)) for i in np.nonzero(x.elements))


def diff(
    x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None
) -> Array:
    """Differences of neighbours along an axis, n times over; of what is put before and after as
    well.

    >>> import tetrad as td
    >>> td.diff(td.asarray([1, 4, 9]))
    Array([3, 5], int32)
    """
    result = as_array(x)
    at = axis_of("diff", axis, result.ndim)
    if not isinstance(n, int | np.integer) or n < 0:
        fail(ShapeError, f"diff: n is how often, an int of at least 0, got {n!r}")
    if n and not (prepend is None and append is None):
        result = concat(
            [_beside(part, result, at) for part in (prepend, result, append) if part is not None],
            axis=at,
        )
    zero, step = (0,) * result.ndim, (1,) * result.ndim
    for _ in range(n):
        if result.shape[at] == 0:
            return result
        sizes = tuple(m - 1 if i == at else m for i, m in enumerate(result.shape))
        one = tuple(int(i == at) for i in range(result.ndim))
        result = _apply(
            "subtract", sliced(result, one, sizes, step), sliced(result, zero, sizes, step)
        )
    return result


def _beside(part: Any, x: Array, axis: int) -> Array:
    """What stands beside x along an axis; a number is one for each line."""
    given = convert(part, x.dtype) if type(part) in WEAK else as_array(part)
    if given.ndim:
        return given
    return expand(given, tuple(1 if i == axis else n for i, n in enumerate(x.shape)))
