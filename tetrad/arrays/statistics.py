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
from tetrad.core.dtypes import PYTHON_NUMBERS, DType, bool_, default_int, f32, named, u8
from tetrad.core.errors import ShapeError, TraceError, UnsupportedError
from tetrad.core.promotion import as_float
from tetrad.core.sizes import Shape, product
from tetrad.tracing.array import Array, TracedArray, fail
from tetrad.tracing.operands import (
    apply,
    as_array,
    as_positions,
    axes_of,
    axis_of,
    borrowed,
    convert,
    dtype_of,
    expand,
    run,
    size_array,
)

Axis = int | Sequence[int] | None


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
    kept = apply("where", mask, x, convert(neutral, x.dtype))
    if kept.shape != x.shape:
        fail(ShapeError, f"{name}: where is {mask.type}, which does not broadcast to {x.type}")
    return kept


def _joined(op: str, result: Array, initial: Any) -> Array:
    return result if initial is None else apply(op, result, convert(initial, result.dtype))


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


def no_out(name: str, out: Any) -> None:
    """Results are new arrays: nothing is written into one that is given."""
    if out is not None:
        fail(UnsupportedError, f"{name}: out= is not supported", "the result is a new array")


def _summed_in(dtype: DType, wanted: Any, promote_integers: bool) -> DType:
    if wanted is not None:
        return dtype_of(wanted)
    return _sum_dtype(dtype) if promote_integers or dtype is bool_ else dtype


def _sum_dtype(dtype: DType) -> DType:
    """Small integers are added up in the default integer, so that a sum of bytes does not wrap at
    255."""
    integer = default_int()
    if dtype.is_float or dtype.is_complex or dtype.bits >= integer.bits:
        return dtype
    if dtype.is_float8:
        return f32
    return named(f"u{integer.bits}") if dtype.kind == "u" else integer


def sum(
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
    *,
    promote_integers: bool = True,
) -> Array:
    """The sum along axes; `where`: of these elements only, `initial` is added.

    >>> import tetrad as td
    >>> td.sum(td.asarray([[1, 2], [3, 4]]), axis=0)
    Array([4, 6], int32)
    """
    no_out("sum", out)
    a = borrowed(a)
    wide = convert(a, _summed_in(a.dtype, dtype, promote_integers))
    return _joined(
        "add", _reduce("reduce_sum", _only(wide, where, 0, "sum"), axis, keepdims, "sum"), initial
    )


def prod(
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
    *,
    promote_integers: bool = True,
) -> Array:
    """The product along axes; `where`: of these elements only, times `initial`."""
    no_out("prod", out)
    a = borrowed(a)
    wide = convert(a, _summed_in(a.dtype, dtype, promote_integers))
    return _joined(
        "multiply",
        _reduce("reduce_prod", _only(wide, where, 1, "prod"), axis, keepdims, "prod"),
        initial,
    )


def max(
    a: Any,
    axis: Axis = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Array:
    """The largest element along axes, or `initial`; NaN propagates. `where`: of these elements
    only.

    >>> import tetrad as td
    >>> td.max(td.asarray([3.0, 5.0, 4.0]))
    Array(5., float32)
    """
    no_out("max", out)
    return _extreme("max", borrowed(a), axis, keepdims, initial, where)


def min(
    a: Any,
    axis: Axis = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Array:
    """The smallest element along axes, or `initial`; NaN propagates. `where`: of these elements
    only."""
    no_out("min", out)
    return _extreme("min", borrowed(a), axis, keepdims, initial, where)


def _extreme(name: str, x: Array, axis: Axis, keepdims: bool, initial: Any, where: Any) -> Array:
    if x.dtype is bool_:  # of truth values the largest is whether any is, the smallest whether all
        neutral = name == "min" if initial is None else bool(initial)
        joined = _reduce(
            {"max": "reduce_any", "min": "reduce_all"}[name],
            _only(x, where, neutral, name),
            axis,
            keepdims,
            name,
        )
        how = {"max": "logical_or", "min": "logical_and"}[name]
        return joined if initial is None else apply(how, joined, bool(initial))
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


def any(
    a: Any,
    axis: Axis = None,
    out: None = None,
    keepdims: bool = False,
    *,
    where: Any = None,
) -> Array:
    """Whether some element along axes is not zero."""
    no_out("any", out)
    return _reduce(
        "reduce_any", _only(convert(borrowed(a), bool_), where, False, "any"), axis, keepdims, "any"
    )


def all(
    a: Any,
    axis: Axis = None,
    out: None = None,
    keepdims: bool = False,
    *,
    where: Any = None,
) -> Array:
    """Whether every element along axes is not zero."""
    no_out("all", out)
    return _reduce(
        "reduce_all", _only(convert(borrowed(a), bool_), where, True, "all"), axis, keepdims, "all"
    )


def _wide(x: Any, dtype: Any = None) -> tuple[Array, DType]:
    """x as a float of at least 32 bits, and the dtype the result has in the end: the one named."""
    x = borrowed(x)
    kind = as_float(x.dtype) if dtype is None else dtype_of(dtype)
    wide = as_float(kind) if kind.is_float or kind.is_complex else as_float(x.dtype)
    return convert(x, f32 if wide.bits < 32 else wide), kind


def mean(
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    *,
    where: Any = None,
) -> Array:
    """The arithmetic mean along axes; of no elements it is NaN. `where`: of these elements only.
    `dtype`: computed in this one.

    >>> import tetrad as td
    >>> td.mean(td.asarray([[1.0, 2.0], [3.0, 6.0]]), axis=1)
    Array([1.5, 4.5], float32)
    """
    no_out("mean", out)
    wide, kind = _wide(a, dtype)
    return convert(_mean(wide, axis, keepdims, "mean", where), kind)


def _mean(x: Array, axis: Axis, keepdims: bool, name: str, where: Any) -> Array:
    if x.dtype.is_complex:
        return run(
            "complex",
            *(_mean(run(part, x), axis, keepdims, name, where) for part in ("real", "imag")),
        )
    total = _reduce("reduce_sum", _only(x, where, 0, name), axis, keepdims, name)
    return apply("divide", total, _shaped(_count(x, axis, where, name), total))


def var(
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: None = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    where: Any = None,
    correction: float | None = None,
    mean: Any = None,
) -> Array:
    """The variance along axes: the sum of squared distances from the mean over (count -
    ddof), which the standard calls `correction`; it is real. `mean`: the one to take, with axes of
    size 1.

    >>> import tetrad as td
    >>> td.var(td.asarray([1.0, 2.0, 3.0]), correction=1)
    Array(1., float32)
    """
    no_out("var", out)
    wide, kind = _wide(a, dtype)
    free = _correction("var", ddof, correction)
    return convert(_var(wide, axis, free, keepdims, "var", where, mean), kind.real)


def _correction(name: str, ddof: float, correction: float | None) -> float:
    if ddof and correction is not None:
        fail(TraceError, f"{name}: ddof and correction are two names of one number", "give one")
    return float(ddof if correction is None else correction)


def _var(
    x: Array,
    axis: Axis,
    correction: float,
    keepdims: bool,
    name: str,
    where: Any,
    mean: Any = None,
) -> Array:
    if x.dtype.is_complex:
        parts = (
            _var(run(part, x), axis, correction, keepdims, name, where, part_of(part, mean))
            for part in ("real", "imag")
        )
        return apply("add", *parts)
    middle = _mean(x, axis, True, name, where) if mean is None else convert(mean, x.dtype)
    apart = apply("subtract", x, middle)
    total = _reduce(
        "reduce_sum", apply("square", _only(apart, where, 0, name)), axis, keepdims, name
    )
    left = apply("maximum", apply("subtract", _count(x, axis, where, name), correction), 0)
    return apply("divide", total, _shaped(left, total))


def std(
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: None = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    where: Any = None,
    correction: float | None = None,
    mean: Any = None,
) -> Array:
    """The standard deviation along axes: the square root of `var`."""
    no_out("std", out)
    wide, kind = _wide(a, dtype)
    free = _correction("std", ddof, correction)
    spread = _var(wide, axis, free, keepdims, "std", where, mean)
    return convert(apply("sqrt", spread), kind.real)


def part_of(part: str, value: Any) -> Any:
    return None if value is None else run(part, as_array(value))


def cumulative_sum(
    x: Any, /, axis: int | None = None, dtype: Any = None, *, include_initial: bool = False
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
    x: Any, /, axis: int | None = None, dtype: Any = None, *, include_initial: bool = False
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


def argmax(a: Any, axis: int | None = None, out: None = None, keepdims: bool = False) -> Array:
    """The index of the first largest element along an axis (None: of the flattened array).

    >>> import tetrad as td
    >>> td.argmax(td.asarray([3.0, 5.0, 5.0]))
    Array(1, int32)
    """
    no_out("argmax", out)
    return _search("argmax", borrowed(a), axis, keepdims)


def argmin(a: Any, axis: int | None = None, out: None = None, keepdims: bool = False) -> Array:
    """The index of the first smallest element along an axis (None: of the flattened array)."""
    no_out("argmin", out)
    return _search("argmin", borrowed(a), axis, keepdims)


def _search(name: str, x: Array, axis: int | None, keepdims: bool) -> Array:
    x = convert(x, u8) if x.dtype is bool_ else x
    if axis is None:
        found = as_positions(run(name, reshape(x, (-1,)), axis=0), x.size)
        return reshaped(found, (1,) * x.ndim) if keepdims else found
    at = axis_of(name, axis, x.ndim)
    found = as_positions(run(name, x, axis=at), x.shape[at])
    return reshaped(found, _kept(x.shape, (at,))) if keepdims else found


def count_nonzero(a: Any, axis: Axis = None, keepdims: bool = False) -> Array:
    """How many elements along axes are not zero."""
    return sum(convert(borrowed(a), bool_), axis=axis, keepdims=keepdims)


def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Array:
    """Differences of neighbours along an axis, n times over; of what is put before and after as
    well.

    >>> import tetrad as td
    >>> td.diff(td.asarray([1, 4, 9]))
    Array([3, 5], int32)
    """
    result = as_array(a)
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
        result = apply(
            "not_equal" if result.dtype is bool_ else "subtract",
            sliced(result, one, sizes, step),
            sliced(result, zero, sizes, step),
        )
    return result


def _beside(part: Any, x: Array, axis: int) -> Array:
    """What stands beside x along an axis; a number is one for each line."""
    given = convert(part, x.dtype) if type(part) in PYTHON_NUMBERS else as_array(part)
    if given.ndim:
        return given
    return expand(given, tuple(1 if i == axis else n for i, n in enumerate(x.shape)))
