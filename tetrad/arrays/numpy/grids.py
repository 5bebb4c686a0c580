"""Arrays, NumPy's names: coordinates, triangles, diagonals, and places counted along one line.

Receives sizes, which are known, and arrays, returns arrays of indices and of coordinates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index
from typing import Any

import numpy as np

from tetrad.arrays.creation import arange, asarray, linspace, meshgrid, tril, zeros
from tetrad.arrays.manipulation import broadcast_arrays, concat, moveaxis, reshape, stack
from tetrad.arrays.numpy.common import floats, where
from tetrad.arrays.numpy.products import diagonal
from tetrad.arrays.statistics import all as every
from tetrad.core.dtypes import default_float, default_int
from tetrad.core.errors import BoundsError, DtypeError, ShapeError, TraceError
from tetrad.core.sizes import product
from tetrad.tracing.array import Array, TracedArray, fail
from tetrad.tracing.operands import apply, as_array, check_shape, convert, dtype_of, expand


def tri(N: Any, M: Any = None, k: int = 0, dtype: Any = None) -> Array:
    """Ones on and below the k-th diagonal, zeros above.

    >>> import tetrad as td
    >>> td.tri(2, 3, dtype=td.int32)
    Array([[1, 0, 0],
           [1, 1, 0]], int32)
    """
    rows, columns = check_shape("tri", (N, N if M is None else M))
    ones = expand(
        convert(1, default_float() if dtype is None else dtype_of(dtype)), (rows, columns)
    )
    return tril(ones, k)


def _places(found: Sequence[np.ndarray]) -> tuple[Array, ...]:
    return tuple(as_array(part.astype(default_int().np)) for part in found)


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, Array]:
    """The indices of the lower triangle of a matrix with n rows.

    >>> import tetrad as td
    >>> td.tril_indices(2)
    (Array([0, 1, 1], int32), Array([0, 0, 1], int32))
    """
    rows, columns = _places(np.tril_indices(index(n), index(k), m))
    return rows, columns


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, Array]:
    """The indices of the upper triangle of a matrix with n rows."""
    rows, columns = _places(np.triu_indices(index(n), index(k), m))
    return rows, columns


def tril_indices_from(arr: Any, k: int = 0) -> tuple[Array, Array]:
    """The indices of the lower triangle of this matrix."""
    x = _matrix("tril_indices_from", arr)
    return tril_indices(x.shape[0], k, x.shape[1])


def triu_indices_from(arr: Any, k: int = 0) -> tuple[Array, Array]:
    """The indices of the upper triangle of this matrix."""
    x = _matrix("triu_indices_from", arr)
    return triu_indices(x.shape[0], k, x.shape[1])


def _matrix(name: str, arr: Any) -> Array:
    x = asarray(arr)
    if x.ndim != 2:
        fail(ShapeError, f"{name}: expected a matrix, got {x.type}")
    return x


def diag_indices(n: int, ndim: int = 2) -> tuple[Array, ...]:
    """The indices of the main diagonal of an array with n elements along each axis."""
    return (arange(n),) * ndim


def diag_indices_from(arr: Any) -> tuple[Array, ...]:
    """The indices of the main diagonal of this array."""
    x = asarray(arr)
    if x.ndim < 2 or len(set(x.shape)) != 1:
        fail(ShapeError, f"diag_indices_from: needs equal sizes along two axes or more: {x.type}")
    return diag_indices(x.shape[0], x.ndim)


def mask_indices(n: int, mask_func: Callable[..., Any], k: Any = 0) -> tuple[Array, ...]:
    """The indices that a function such as `td.tril` leaves of an (n, n) matrix of ones."""
    kept = asarray(mask_func(np.ones((n, n), np.int32), k))
    return _places(np.nonzero(kept.memory))


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
    if v.ndim == 2:
        return diagonal(v, k)
    places, size = np.arange(v.shape[0]), v.shape[0] + abs(k)
    empty = zeros((size, size), dtype=v.dtype)
    return empty.at[places + max(-k, 0), places + max(k, 0)].set(v)  # type: ignore[no-any-return]


def diagflat(v: Any, k: int = 0) -> Array:
    """The matrix with all elements of v on its k-th diagonal."""
    return diag(reshape(asarray(v), (-1,)), k)


def fill_diagonal(a: Any, val: Any, wrap: bool = False, *, inplace: bool = True) -> Array:
    """The array with values on its main diagonal. Arrays never change: the result is another one,
    so `inplace=False` has to be said, as in JAX.

    >>> import tetrad as td
    >>> td.fill_diagonal(td.zeros((2, 2)), 5.0, inplace=False)
    Array([[5., 0.],
           [0., 5.]], float32)
    """
    if inplace:
        fail(
            TraceError,
            "fill_diagonal: arrays do not change in place",
            "x = td.fill_diagonal(x, value, inplace=False)",
        )
    x = asarray(a)
    if x.ndim < 2 or (x.ndim > 2 and len(set(x.shape)) != 1):
        fail(ShapeError, f"fill_diagonal: needs two axes, or equal sizes, got {x.type}")
    strides = [product(x.shape[i + 1 :]) for i in range(x.ndim)]
    stop = x.size if wrap or x.ndim > 2 else int(np.min([x.shape[1] ** 2, x.size]))
    places = np.arange(0, stop, sum(strides))  # type: ignore[arg-type]
    values = reshape(asarray(val, x.dtype), (-1,))
    if values.size != 1:
        values = values[np.arange(len(places)) % values.shape[0]]
    made: Array = reshape(x, (-1,)).at[places].set(values if values.size != 1 else values[0])
    return reshape(made, x.shape)


def vander(x: Any, N: int | None = None, increasing: bool = False) -> Array:
    """The matrix of powers of a vector, the highest first, or last if `increasing`.

    >>> import tetrad as td
    >>> td.vander(td.asarray([2, 3]), 3)
    Array([[4, 2, 1],
           [9, 3, 1]], int32)
    """
    line = asarray(x)
    if line.ndim != 1:
        fail(ShapeError, f"vander: expected a vector, got {line.type}")
    count = line.shape[0] if N is None else index(N)
    if count < 0:
        fail(ShapeError, f"vander: the number of columns is at least 0, got {count}")
    powers = [convert(1, line.dtype)]
    for _ in range(count - 1):
        powers.append(apply("multiply", powers[-1], line))
    columns = [expand(power, line.shape) for power in powers[:count]]
    if not columns:
        return reshape(line[:0], (line.shape[0], 0)) if line.shape[0] == 0 else line[:, None][:, :0]
    return stack(columns if increasing else columns[::-1], axis=1)


# -- coordinates -----------------------------------------------------------------------------------


def logspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    base: Any = 10.0,
    dtype: Any = None,
    axis: int = 0,
) -> Array:
    """base to the powers of evenly spaced numbers.

    >>> import tetrad as td
    >>> td.logspace(0, 2, 3)
    Array([  1.,  10., 100.], float32)
    """
    powers = linspace(start, stop, num, endpoint, axis=axis)
    found = apply("pow", base, powers)
    return found if dtype is None else convert(found, dtype_of(dtype))


def geomspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0
) -> Array:
    """Numbers with equal ratios from one to the next; the ends are exact.

    >>> import tetrad as td
    >>> td.geomspace(1, 8, 4)
    Array([1., 2., 4., 8.], float32)
    """
    first, last = broadcast_arrays(*floats(start, stop))
    ratio = apply("divide", last, first)
    spread = linspace(apply("multiply", ratio, 0), apply("log", ratio), num, endpoint, axis=0)
    made = apply("multiply", first, apply("exp", spread))
    if num > 0:
        ends = [reshape(first, (1, *first.shape))]
        ends += (
            [made[1:-1], reshape(last, (1, *last.shape))] if endpoint and num > 1 else [made[1:]]
        )
        made = concat(ends, axis=0)
    found = moveaxis(made, 0, axis)
    return found if dtype is None else convert(found, dtype_of(dtype))


def indices(dimensions: Any, dtype: Any = None, sparse: bool = False) -> Any:
    """The index along each axis of every element of an array with this shape.

    >>> import tetrad as td
    >>> td.indices((2, 2))
    Array([[[0, 0],
            [1, 1]],
    <BLANKLINE>
           [[0, 1],
            [0, 1]]], int32)
    """
    lines = [arange(n, dtype=dtype or default_int()) for n in dimensions]
    grid = meshgrid(*lines, sparse=sparse, indexing="ij")
    if sparse:
        return grid
    return stack(list(grid)) if grid else reshape(arange(0), (0,))


def fromfunction(
    function: Callable[..., Any], shape: Any, *, dtype: Any = None, **kwargs: Any
) -> Any:
    """What a function makes of the index along each axis, given as arrays."""
    wanted = default_float() if dtype is None else dtype
    return function(*indices(check_shape("fromfunction", shape), wanted), **kwargs)


def ix_(*args: Any) -> tuple[Array, ...]:
    """Vectors along axes of their own, so that indexing with them selects their outer product; a
    mask is the places it marks.

    >>> import tetrad as td
    >>> td.reshape(td.arange(6), (2, 3))[td.ix_([0, 1], [0, 2])]
    Array([[0, 2],
           [3, 5]], int32)
    """
    found = []
    for i, arg in enumerate(args):
        x = asarray(np.zeros(0, np.int32)) if np.ndim(arg) and not len(arg) else asarray(arg)
        if x.ndim != 1:
            fail(ShapeError, f"ix_: expected vectors, got {x.type}")
        if x.dtype.kind == "b":
            if isinstance(x, TracedArray):
                fail(TraceError, "ix_: how many places a mask marks is only known at run time")
            (x,) = _places(np.nonzero(x.memory))
        found.append(reshape(x, tuple(-1 if j == i else 1 for j in range(len(args)))))
    return tuple(found)


class Grid:
    """`td.mgrid[a:b, c:d]` and `td.ogrid`: coordinates by slices; a complex step is a number of
    points."""

    def __init__(self, name: str, sparse: bool) -> None:
        self.name, self.sparse = name, sparse

    def __getitem__(self, key: Any) -> Any:
        parts = key if isinstance(key, tuple) else (key,)
        lines = [_line(self.name, part) for part in parts]
        if not isinstance(key, tuple):
            return lines[0]
        promoted = floats(*lines) if any(x.dtype.is_float for x in lines) else lines
        grid = meshgrid(*promoted, sparse=self.sparse, indexing="ij")
        return list(grid) if self.sparse else stack(list(grid))

    def __repr__(self) -> str:
        return f"td.{self.name}"


def _line(name: str, part: Any) -> Array:
    if not isinstance(part, slice):
        fail(ShapeError, f"{name}: takes slices, got {part!r}", f"td.{name}[0:3, 0:4]")
    start, step = part.start or 0, 1 if part.step is None else part.step
    if isinstance(step, complex):
        made: Array = linspace(start, part.stop, int(abs(step)))
        return made
    return arange(start, part.stop, step)


mgrid, ogrid = Grid("mgrid", False), Grid("ogrid", True)


class Slices:
    """`td.s_[1:, ::2]`: the index itself, to be used later."""

    def __init__(self, name: str, always_tuple: bool) -> None:
        self.name, self.always_tuple = name, always_tuple

    def __getitem__(self, key: Any) -> Any:
        return (key,) if self.always_tuple and not isinstance(key, tuple) else key

    def __repr__(self) -> str:
        return f"td.{self.name}"


s_, index_exp = Slices("s_", False), Slices("index_exp", True)


class Joined:
    """`td.r_[...]` and `td.c_[...]`: slices, numbers and arrays joined, along the first axis or as
    columns."""

    def __init__(self, name: str, axis: int, ndmin: int, trans1d: int) -> None:
        self.name, self.axis, self.ndmin, self.trans1d = name, axis, ndmin, trans1d

    def __getitem__(self, key: Any) -> Array:
        parts = list(key) if isinstance(key, tuple) else [key]
        axis, ndmin, trans1d = self.axis, self.ndmin, self.trans1d
        if parts and isinstance(parts[0], str):
            axis, ndmin, trans1d = _directive(self.name, parts.pop(0), axis)
        made = [_placed(_part(self.name, part), ndmin, trans1d) for part in parts]
        return concat(made, axis=axis)

    def __repr__(self) -> str:
        return f"td.{self.name}"


def _directive(name: str, text: str, axis: int) -> tuple[int, int, int]:
    """ "axis,ndmin,trans1d" as in NumPy; "r" and "c" are matrices there, which are not here."""
    numbers = text.split(",")
    if not 1 <= len(numbers) <= 3 or not all(n.strip().lstrip("-").isdigit() for n in numbers):
        fail(ShapeError, f"{name}: unknown directive {text!r}", "'axis', 'axis,ndmin', ...")
    found = [int(n) for n in numbers]
    return found[0], (found[1] if len(found) > 1 else 1), (found[2] if len(found) > 2 else -1)


def _part(name: str, part: Any) -> Array:
    return _line(name, part) if isinstance(part, slice) else asarray(part)


def _placed(x: Array, ndmin: int, trans1d: int) -> Array:
    """With as many axes as are wanted; those there are begin at `trans1d`."""
    if x.ndim >= ndmin:
        return x if x.ndim else reshape(x, (1,) * ndmin)
    start = trans1d if trans1d >= 0 else ndmin - x.ndim + 1 + trans1d
    return reshape(x, (1,) * start + x.shape + (1,) * (ndmin - x.ndim - start))


r_, c_ = Joined("r_", 0, 1, -1), Joined("c_", -1, 2, 0)


# -- places along one line -------------------------------------------------------------------------


def unravel_index(indices: Any, shape: Any) -> tuple[Array, ...]:
    """The index along each axis of elements counted row by row; one out of range is the nearest.

    >>> import tetrad as td
    >>> td.unravel_index(td.asarray([0, 5]), (2, 3))
    (Array([0, 1], int32), Array([0, 2], int32))
    """
    at = asarray(indices)
    if not at.dtype.is_integer:
        fail(DtypeError, f"unravel_index: indices are integers, got {at.type}")
    sizes = check_shape("unravel_index", shape)
    total = product(sizes)
    at = where(apply("less", at, 0), apply("add", at, total), at)
    at = apply("minimum", apply("maximum", at, 0), total - 1)
    found = []
    for size in reversed(sizes):
        found.append(apply("remainder", at, size))
        at = apply("floor_divide", at, size)
    return tuple(reversed(found))


def ravel_multi_index(
    multi_index: Sequence[Any], dims: Any, mode: Any = "raise", order: str = "C"
) -> Array:
    """Where elements with these indices are, counted row by row. One out of range is an error
    (outside of compiled code), or by `mode` "clip" the nearest, "wrap" around the end.

    >>> import tetrad as td
    >>> td.ravel_multi_index((td.asarray([0, 1]), td.asarray([0, 2])), (2, 3))
    Array([0, 5], int32)
    """
    sizes = check_shape("ravel_multi_index", dims)
    given = [asarray(at) for at in multi_index]
    modes = [mode] * len(sizes) if isinstance(mode, str) else list(mode)
    if len(given) != len(sizes) or len(modes) != len(sizes):
        fail(ShapeError, f"ravel_multi_index: {len(given)} indices for {len(sizes)} axes")
    inside = [_bounded(at, size, how) for at, size, how in zip(given, sizes, modes, strict=True)]
    pairs = list(zip(inside, sizes, strict=True))
    found: Any = 0
    for at, size in pairs if order == "C" else reversed(pairs):
        found = apply("add", apply("multiply", found, size), at)
    return as_array(found)


def _bounded(at: Array, size: Any, mode: str) -> Array:
    if mode not in ("raise", "clip", "wrap"):
        fail(TraceError, f"ravel_multi_index: there is no mode {mode!r}", "raise, clip or wrap")
    if mode == "wrap":
        return apply("remainder", at, size)
    if mode == "clip":
        return apply("minimum", apply("maximum", at, 0), size - 1)
    if isinstance(at, TracedArray):
        fail(
            TraceError,
            "ravel_multi_index: whether an index is in range is only known when the program runs",
            'mode="clip" or mode="wrap"',
        )
    is_in = every(apply("logical_and", apply("greater_equal", at, 0), apply("less", at, size)))
    if not is_in:
        fail(BoundsError, f"ravel_multi_index: an index is out of range for an axis of size {size}")
    return at
