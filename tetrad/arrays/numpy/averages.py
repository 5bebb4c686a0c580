"""Arrays, NumPy's names: weighted means, covariances, ranges.

Receives arrays and axes, returns arrays: compositions of sums and products.
"""

from __future__ import annotations

import warnings
from typing import Any

from tetrad.arrays.linear import matmul
from tetrad.arrays.manipulation import broadcast_to, concat, expand_dims, moveaxis, reshape
from tetrad.arrays.numpy.common import floats, no_out, where
from tetrad.arrays.numpy.products import diagonal
from tetrad.arrays.statistics import Axis, max, mean, min
from tetrad.arrays.statistics import sum as total
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.core.sizes import product
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import apply, as_array, axes_of, convert, dtype_of


def ptp(a: Any, axis: Axis = None, out: None = None, keepdims: bool = False) -> Array:
    """How far the largest element along axes is from the smallest.

    >>> import tetrad as td
    >>> td.ptp(td.asarray([3.0, 1.0, 7.0]))
    Array(6., float32)
    """
    no_out("ptp", out)
    x = as_array(a)
    return apply("subtract", max(x, axis, None, keepdims), min(x, axis, None, keepdims))


def average(
    a: Any, axis: Axis = None, weights: Any = None, returned: bool = False, keepdims: bool = False
) -> Any:
    """The mean along axes, of elements that count as much as their weights say. `returned`: and the
    sum of the weights.

    >>> import tetrad as td
    >>> td.average(td.asarray([1.0, 4.0]), weights=td.asarray([2.0, 1.0]))
    Array(2., float32)
    """
    if weights is None:
        (x,) = floats(a)
        found = mean(x, axis, None, None, keepdims)
        count = product(x.shape[i] for i in axes_of("average", axis, x.ndim))
        whole = apply("add", apply("multiply", found, 0), float(count))  # type: ignore[arg-type]
        return (found, whole) if returned else found
    x, w = floats(a, weights)
    w = _beside(x, w, axis)
    whole = total(broadcast_to(w, x.shape), axis, None, None, keepdims)
    found = apply("divide", total(apply("multiply", x, w), axis, None, None, keepdims), whole)
    return (found, whole) if returned else found


def _beside(x: Array, w: Array, axis: Axis) -> Array:
    """Weights with the axes of x: of its shape, or along the axes that are averaged."""
    if w.shape == x.shape:
        return w
    axes = axes_of("average", axis, x.ndim)
    if axis is None or w.shape != tuple(x.shape[i] for i in axes):
        fail(
            ShapeError,
            f"average: weights {w.type} have neither the shape of {x.type} nor that of axis {axis}",
        )
    return reshape(w, tuple(n if i in axes else 1 for i, n in enumerate(x.shape)))


def cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: Any = None,
    aweights: Any = None,
    *,
    dtype: Any = None,
) -> Array:
    """The covariances of variables, which are rows (columns if not `rowvar`), over observations.

    >>> import tetrad as td
    >>> td.cov(td.asarray([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
    Array([[ 1., -1.],
           [-1.,  1.]], float32)
    """
    if ddof is not None and ddof != int(ddof):
        fail(DtypeError, f"cov: ddof is an int, got {ddof!r}")
    x = _variables(m, y, rowvar, dtype)
    free = (0 if bias else 1) if ddof is None else ddof
    weights = _weights(x, fweights, aweights)
    if weights is None:
        count: Any = float(x.shape[1])
        middle = mean(x, 1, None, None, True)
        factor: Any = count - free
    else:
        middle, count = average(x, 1, weights, True)
        middle, count = expand_dims(middle, 1), count[0]
        factor = count - free if aweights is None else count - free * _spare(weights, aweights)
    if isinstance(factor, float) and factor <= 0:
        warnings.warn("cov: fewer observations than ddof takes", RuntimeWarning, stacklevel=2)
        factor = 0.0
    apart = apply("subtract", x, middle)
    other = apart if weights is None else apply("multiply", apart, weights)
    found = apply("divide", matmul(apart, apply("conj", moveaxis(other, 0, 1))), factor)
    return reshape(found, ()) if found.size == 1 else found


def _spare(weights: Array, aweights: Any) -> Array:
    """What an observation takes away, of all, on the average."""
    squares = total(apply("multiply", weights, convert(aweights, weights.dtype)))
    return apply("divide", squares, total(weights))


def _variables(m: Any, y: Any, rowvar: bool, dtype: Any) -> Array:
    """Rows of observations."""
    parts = floats(m) if y is None else floats(m, y)
    if any(part.ndim > 2 for part in parts):
        fail(ShapeError, "cov: variables are the rows of arrays with at most two axes")
    rows = [reshape(part, (1, -1)) if part.ndim < 2 else part for part in parts]
    if not rowvar:
        rows = [
            moveaxis(row, 0, 1) if part.ndim == 2 and row.shape[0] != 1 else row
            for row, part in zip(rows, parts, strict=True)
        ]
    joined = rows[0] if len(rows) == 1 else concat(rows, axis=0)
    return joined if dtype is None else convert(joined, dtype_of(dtype))


def _weights(x: Array, fweights: Any, aweights: Any) -> Array | None:
    given = [as_array(w) for w in (fweights, aweights) if w is not None]
    if not given:
        return None
    for w in given:
        if w.shape != (x.shape[1],):
            fail(ShapeError, f"cov: weights are one for each observation, got {w.type}")
    found = convert(given[0], x.dtype.real)
    return found if len(given) == 1 else apply("multiply", found, convert(given[1], found.dtype))


def corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> Array:
    """The correlations of variables: their covariances over both standard deviations.

    >>> import tetrad as td
    >>> td.corrcoef(td.asarray([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
    Array([[ 1., -1.],
           [-1.,  1.]], float32)
    """
    c = cov(x, y, rowvar, dtype=dtype)
    if c.ndim == 0:
        return apply("divide", c, c)
    spread = apply("sqrt", diagonal(c).real)
    found = apply("divide", apply("divide", c, spread[:, None]), spread[None, :])
    if not found.dtype.is_complex:
        return _in_range(found)
    return apply("complex", _in_range(found.real), _in_range(found.imag))


def _in_range(x: Array) -> Array:
    """Between -1 and 1, which rounding may leave; NaN stays."""
    return where(apply("greater", x, 1), 1, where(apply("less", x, -1), -1, x))
