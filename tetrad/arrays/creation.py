"""Arrays, creation: arrays from Python values, NumPy arrays, and nothing.

Receives values, shapes and settings, returns arrays. Defaults: float32 and int32; NumPy arrays keep
their dtype. While tracing, filled arrays are recorded, so a size may be symbolic and no constant is
stored.
"""

from __future__ import annotations

import math
from operator import index
from typing import Any

import numpy as np

from tetrad.arrays.manipulation import expand_dims, moveaxis, reshape, stack
from tetrad.core import lazy
from tetrad.core.dtypes import PYTHON_NUMBERS, DType, default_complex, default_float, f64, i32, i64
from tetrad.core.errors import CopyError, DtypeError, ShapeError, UnsupportedError, an
from tetrad.core.floats import guarded
from tetrad.core.owners import is_lasting, own_copy
from tetrad.core.promotion import as_float, result_dtype
from tetrad.core.sizes import SizeExpr, is_static
from tetrad.core.tree import refuse_cycle
from tetrad.tracing.array import Array, TracedArray, fail
from tetrad.tracing.context import current_trace
from tetrad.tracing.operands import (
    NIBBLE_RANGE,
    apply,
    as_array,
    check_device,
    check_shape,
    convert,
    dtype_of,
    expand,
    filled,
    is_operand,
    kind_of,
    run,
    scalar,
    told_of,
    traced,
    wrap,
)  # fmt: skip

dlpack = lazy.later("tetrad.tracing.dlpack")

FAR = 1 << 30  # more than any axis has elements
HOLDS = "it takes numbers, bools, nested lists of them, and arrays of other packages"


def array(
    object: Any,
    dtype: Any = None,
    copy: bool = True,
    order: str | None = None,
    ndmin: int = 0,
    *,
    device: str | None = None,
) -> Array:
    """`asarray`, with at least `ndmin` axes: new ones come first.

    >>> array([1, 2], ndmin=2)
    Array([[1, 2]], int32)
    """
    made = asarray(object, dtype, order, device=device)
    return reshape(made, (1,) * (ndmin - made.ndim) + made.shape) if made.ndim < ndmin else made


def asarray(
    obj: Any,
    /,
    dtype: Any = None,
    order: str | None = None,
    *,
    device: str | None = None,
    copy: bool | None = None,
) -> Array:
    """An array from numbers, nested lists, NumPy arrays or anything with `__array__` or
    `__dlpack__`.

    Python floats become float32, complex numbers complex64, ints int32 (int64 where they need it);
    arrays keep their dtype. Values never change: memory that somebody may still write to is copied.
    Only what is read-only up to its owner (`bytes`, arrays of ours, and with copy=False read-only
    mappings) is shared; other memory cannot be, and with copy=False that is an error.

    >>> asarray([[1, 2], [3, 4]])
    Array([[1, 2],
           [3, 4]], int32)
    """
    check_device("asarray", device)
    wanted = None if dtype is None else dtype_of(dtype)
    if wanted is not None and wanted.is_nibble and isinstance(obj, list | tuple | range):
        return _nibbles_from_python(obj, wanted)
    made = _as_array(obj, f64 if wanted is not None and wanted.is_float8 else wanted, copy)
    if copy is False and (
        made.dtype is not (wanted or made.dtype) or isinstance(obj, list | tuple | range)
    ):
        fail(
            CopyError, f"asarray: copy=False, but {made.type} has to be made anew", "leave copy out"
        )
    result = made if wanted is None else convert(made, wanted)
    is_there = isinstance(obj, Array) and not isinstance(obj, TracedArray)
    if copy and is_there and result.type is obj.type:
        return Array.from_bytes(own_copy(result.memory), result.type)
    return result


def _nibbles_from_python(obj: Any, dtype: DType) -> Array:
    whole = asarray(obj, dtype=None)
    low, high = NIBBLE_RANGE[dtype]
    values = whole.elements
    if values.size and not low <= values.min() <= values.max() <= high:
        fail(DtypeError, f"asarray: a number does not fit {dtype}", f"from {low} to {high}")
    return convert(whole, dtype)


def _as_array(obj: Any, dtype: DType | None, copy: bool | None) -> Array:
    if isinstance(obj, Array | SizeExpr):
        return as_array(obj)
    if isinstance(obj, list | tuple | range) or type(obj) in PYTHON_NUMBERS:
        return _from_python(list(obj) if isinstance(obj, range) else obj, dtype)
    if not is_operand(obj) and hasattr(obj, "__dlpack__"):
        return from_dlpack(obj, copy=copy)
    if not is_operand(obj):
        fail(DtypeError, f"asarray: cannot make an array of {an(type(obj).__name__)}", HOLDS)
    if isinstance(obj, np.generic) and dtype is None:
        return as_array(obj)
    try:
        values = np.asarray(obj)
    except TypeError:  # NumPy has no such dtype; DLPack may
        if not hasattr(obj, "__dlpack__"):
            raise
        return from_dlpack(obj, copy=copy)
    if values.dtype.hasobject:
        return wrap(values)  # which says that there is no dtype for it
    if copy is not False or isinstance(obj, np.generic):
        return wrap(own_copy(values) if copy or not is_lasting(values) else values)
    if not is_lasting(values, or_mapped=True):
        message = (
            f"asarray: copy=False, but somebody may write to the memory of this {wrap(values).type}"
        )
        fail(
            CopyError,
            message,
            "leave copy out; bytes, arrays of Tetrad and read-only mappings are shared",
        )
    return wrap(values)


@guarded
def _from_python(obj: Any, dtype: DType | None) -> Array:
    try:
        kinds = _leaf_types(obj)
    except RecursionError:
        refuse_cycle(obj)
        raise
    if not kinds <= PYTHON_NUMBERS:
        return stack([asarray(part, dtype=dtype) for part in obj])  # each rounded once
    try:
        if dtype is not None:
            return Array.from_numpy(np.asarray(obj, dtype.np))
        values = np.asarray(obj)
    except (ValueError, OverflowError, TypeError) as error:
        if "inhomogeneous" in str(error):
            fail(
                ShapeError,
                "asarray: parts of a nested list differ in length",
                "pad the shorter ones",
            )
        is_shape = isinstance(error, ValueError) and "NaN" not in str(error)
        fail(
            ShapeError if is_shape else DtypeError,
            f"asarray: {error}",
            "name a dtype that holds it, or none",
        )
    default = result_dtype(kinds) if kinds else default_float()
    if default is i32 and values.size and not -(1 << 31) <= values.min() <= values.max() < 1 << 31:
        default = i64
        if values.max() >= 1 << 63 or values.min() < -1 << 63:
            fail(
                DtypeError,
                "asarray: an int does not fit int64",
                "name the dtype: td.asarray(x, dtype=td.uint64)",
            )
    return Array.from_numpy(values.astype(default.np))


def _leaf_types(obj: Any) -> set[type]:
    if not isinstance(obj, list | tuple):
        return {type(obj)}
    kinds = {type(part) for part in obj}
    return kinds if kinds <= PYTHON_NUMBERS else set().union(*map(_leaf_types, obj))


def from_dlpack(x: Any, /, *, device: str | None = None, copy: bool | None = None) -> Array:
    """An array with the values of another library's array: a copy, since that library may write to
    its memory."""
    check_device("from_dlpack", device)
    if isinstance(x, Array):
        return asarray(x, copy=copy)
    given = dlpack.read(x)
    if copy is False and not is_lasting(given):
        message = (
            "from_dlpack: copy=False, but somebody may write to the memory of this "
            f"{wrap(given).type}"
        )
        fail(CopyError, message, "leave copy out")
    return wrap(own_copy(given))


def full(shape: Any, fill_value: Any, dtype: Any = None, *, device: str | None = None) -> Array:
    """An array of one repeated value.

    >>> full((2, 2), 1.5)
    Array([[1.5, 1.5],
           [1.5, 1.5]], float32)
    """
    return _full("full", shape, fill_value, dtype, device)


def _full(name: str, shape: Any, fill_value: Any, dtype: Any, device: str | None) -> Array:
    check_device(name, device)
    if isinstance(dtype, int) and not isinstance(dtype, bool):
        hint = f"a shape is one tuple: td.{name}(({shape}, {dtype}))"
        fail(DtypeError, f"{name}: the dtype is {dtype}", hint)
    value = as_array(fill_value) if dtype is None else convert(fill_value, dtype_of(dtype))
    sizes = check_shape(name, shape)
    if value.ndim:
        fail(
            ShapeError,
            f"{name}: the value has no axes, got {value.type}",
            "td.broadcast_to repeats an array",
        )
    if current_trace() is not None:
        return filled(value, sizes)
    if not is_static(sizes):
        fail(
            ShapeError,
            f"{name}: the symbolic shape {list(sizes)} has no sizes outside a traced function",
        )
    made = Array.from_numpy(np.full(sizes, value.elements))  # type: ignore[arg-type]
    return convert(made, value.dtype)


def zeros(shape: Any, dtype: Any = None, *, device: str | None = None) -> Array:
    """An array of zeros.

    >>> zeros(3)
    Array([0., 0., 0.], float32)
    """
    return _full("zeros", shape, 0, default_float() if dtype is None else dtype, device)


def ones(shape: Any, dtype: Any = None, *, device: str | None = None) -> Array:
    """An array of ones."""
    return _full("ones", shape, 1, default_float() if dtype is None else dtype, device)


def empty(shape: Any, dtype: Any = None, *, device: str | None = None) -> Array:
    """An array of this shape; its values, which the standard leaves open, are zeros."""
    return zeros(shape, dtype=dtype, device=device)


def full_like(
    a: Any, fill_value: Any, dtype: Any = None, shape: Any = None, *, device: str | None = None
) -> Array:
    """A filled array with the shape and dtype of x, or others that are named."""
    like = a if hasattr(a, "shape") and hasattr(a, "dtype") else asarray(a)
    wanted = like.dtype if dtype is None else dtype
    value = as_array(fill_value) if np.ndim(fill_value) else None
    if value is not None:  # one value for each element, as far as it broadcasts
        return expand(convert(value, dtype_of(wanted)), like.shape if shape is None else shape)
    return full(like.shape if shape is None else shape, fill_value, wanted, device=device)


def zeros_like(a: Any, dtype: Any = None, shape: Any = None, *, device: str | None = None) -> Array:
    """Zeros with the shape and dtype of x, or others that are named."""
    return full_like(a, 0, dtype, shape, device=device)


def ones_like(a: Any, dtype: Any = None, shape: Any = None, *, device: str | None = None) -> Array:
    """Ones with the shape and dtype of x, or others that are named."""
    return full_like(a, 1, dtype, shape, device=device)


def empty_like(
    prototype: Any, dtype: Any = None, shape: Any = None, *, device: str | None = None
) -> Array:
    """Zeros with the shape and dtype of x, or others that are named."""
    return zeros_like(prototype, dtype, shape, device=device)


@guarded
def arange(
    start: Any,
    stop: Any = None,
    step: Any = None,
    dtype: Any = None,
    *,
    device: str | None = None,
) -> Array:
    """start, start + step, ... below stop. A symbolic size is allowed as the only argument.

    >>> arange(2, 8, 3), arange(3, dtype=float)
    (Array([2, 5], int32), Array([0., 1., 2.], float32))
    """
    check_device("arange", device)
    step = 1 if step is None else step
    begin, end = (0, start) if stop is None else (start, stop)
    wanted = (
        result_dtype(_kind(v) for v in (begin, end, step)) if dtype is None else dtype_of(dtype)
    )
    if isinstance(end, SizeExpr) and begin == 0 and step == 1:
        return convert(positions(end), wanted)
    if any(isinstance(v, TracedArray) for v in (begin, end, step)):
        hint = "list the argument in static_argnums, or mark an axis with a td.Dim"
        fail(
            ShapeError,
            f"arange: its size must be known while tracing, got {begin!r} to {end!r} by {step!r}"
            f"{told_of(begin, end, step)}",
            hint,
        )
    if step == 0:
        fail(ShapeError, "arange: the step must not be 0")
    count = check_shape("arange", _steps(begin, end, step))
    values = np.arange(count[0]) * step + begin  # type: ignore[arg-type]
    if (
        wanted is i32
        and dtype is None
        and count[0]
        and max(abs(int(values[0])), abs(int(values[-1]))) >= 1 << 31
    ):
        wanted = i64
    if wanted.is_narrow:
        return convert(Array.from_numpy(values), wanted)
    return Array.from_numpy(values.astype(wanted.np))


def _steps(begin: Any, end: Any, step: Any) -> int:
    if isinstance(begin, int) and isinstance(end, int) and isinstance(step, int):
        return max(0, -((begin - end) // step))
    try:
        count: int = math.ceil((end - begin) / step)
        return max(0, count)
    except (TypeError, ValueError, OverflowError) as error:
        fail(
            ShapeError,
            f"arange: no steps from {begin!r} to {end!r} by {step!r}: {error}",
            "it takes finite numbers",
        )


def _kind(number: Any) -> type:
    return float if isinstance(number, float | np.floating) else int


def positions(size: Any) -> Array:
    """0, 1, ... size - 1 as int32, recorded while tracing."""
    if isinstance(size, int):
        return traced(Array.from_numpy(np.arange(size, dtype=np.int32)))
    return run("cumsum", filled(scalar(1, i32), (size,)), axis=0, exclusive=True)


@guarded
def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
    *,
    device: str | None = None,
) -> Any:
    """`num` evenly spaced numbers, which may be complex; between arrays along a new axis.
    `retstep`: and the distance of neighbours.

    >>> linspace(0, 1, 3)
    Array([0. , 0.5, 1. ], float32)
    >>> linspace(0, asarray([1.0, 2.0]), 2)
    Array([[0., 0.],
           [1., 2.]], float32)
    """
    check_device("linspace", device)
    (count,) = check_shape("linspace", num)
    if not isinstance(count, int):
        fail(
            UnsupportedError,
            f"linspace: how many numbers must be known, got {count}",
            "start + step * td.arange(n)",
        )
    start, stop = (v.item() if isinstance(v, np.generic) else v for v in (start, stop))
    if not all(type(v) in PYTHON_NUMBERS for v in (start, stop)):
        made, step = _between_arrays(start, stop, count, endpoint, dtype, axis)
        return (made, step) if retstep else made
    is_complex = isinstance(start, complex) or isinstance(stop, complex)
    default = default_complex() if is_complex else default_float()
    wanted = default if dtype is None else dtype_of(dtype)
    values, step = np.linspace(start, stop, count, endpoint=endpoint, retstep=True)
    if wanted.is_integer:
        values = np.floor(values)
    if not wanted.is_narrow:
        values = values.astype(wanted.np)
    made = convert(Array.from_numpy(values), wanted)
    return (made, as_array(np.asarray(step).item())) if retstep else made


def _between_arrays(
    start: Any, stop: Any, count: int, endpoint: bool, dtype: Any, axis: int
) -> tuple[Array, Array]:
    """Evenly spaced between each pair of elements, the ends exact; and the distances."""
    kind = as_float(result_dtype([kind_of(start), kind_of(stop)]))
    first, last = (asarray(v, kind) for v in (start, stop))
    steps = count - 1 if endpoint else count
    apart = apply("subtract", last, first)
    step = apply("divide", apart, float(steps) if steps > 0 else math.nan)
    shape = (count, *(1,) * step.ndim)
    places = reshape(convert(positions(count), kind.real), shape)
    # the share of the way, not so many steps: the middle between -a and a is 0
    share = apply("divide", places, float(max(steps, 1)))
    way = apply("multiply", apart, share)
    made = apply("add", way, first)
    if endpoint and count > 1:
        is_last = apply("equal", places, float(steps))
        made = apply("where", is_last, last, made)
    wanted = kind if dtype is None else dtype_of(dtype)
    if wanted.is_integer:
        made = apply("floor", made)
    return moveaxis(convert(made, wanted), 0, axis), step


def eye(
    N: Any, M: Any = None, k: int = 0, dtype: Any = None, *, device: str | None = None
) -> Array:
    """Ones on the k-th diagonal, zeros elsewhere.

    >>> eye(2, 3, k=1)
    Array([[0., 1., 0.],
           [0., 0., 1.]], float32)
    """
    check_device("eye", device)
    wanted = default_float() if dtype is None else dtype_of(dtype)
    rows, columns = check_shape("eye", (N, N if M is None else M))
    return convert(_compare("equal", rows, columns, k), wanted)


def _compare(how: str, rows: Any, columns: Any, k: int) -> Array:
    """Which elements of a matrix have row + k (less, equal, ...) column."""
    if not isinstance(k, Array):  # all diagonals outside of the matrix are alike
        low, high = (n if isinstance(n, int) else FAR for n in (rows, columns))
        k = max(-low, min(index(k), high))
    row = apply("add", expand_dims(positions(rows), axis=1), k)
    return apply(how, row, expand_dims(positions(columns), axis=0))


def tril(m: Any, k: int = 0) -> Array:
    """The lower triangle of each matrix (up to the k-th diagonal), zeros above.

    >>> tril(ones((2, 2)))
    Array([[1., 0.],
           [1., 1.]], float32)
    """
    return _triangle("tril", "greater_equal", asarray(m), k)


def triu(m: Any, k: int = 0) -> Array:
    """The upper triangle of each matrix (from the k-th diagonal), zeros below."""
    return _triangle("triu", "less_equal", asarray(m), k)


def _triangle(name: str, how: str, x: Array, k: int) -> Array:
    if x.ndim < 2:
        fail(ShapeError, f"{name}: needs at least two axes, got {x.type}")
    mask = _compare(how, x.shape[-2], x.shape[-1], k)
    return apply("where", mask, x, scalar(0, x.dtype))


def meshgrid(
    *arrays: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy"
) -> tuple[Array, ...]:
    """Coordinate arrays of a grid; `sparse`: with size 1 along the axes they do not depend on.

    >>> [x.shape for x in meshgrid(arange(2), arange(3))]
    [(3, 2), (3, 2)]
    """
    axes = [asarray(x) for x in arrays]
    if indexing not in ("xy", "ij") or any(x.ndim > 1 for x in axes):
        fail(
            ShapeError,
            f"meshgrid: takes arrays with one axis and indexing 'xy' or 'ij', got {indexing!r}",
        )
    order = list(range(len(axes)))
    if indexing == "xy" and len(axes) > 1:
        order[:2] = [1, 0]
    sizes = [x.size for x in axes]
    shape = tuple(sizes[i] for i in order)
    flat = [
        reshape(x, tuple(n if order[i] == j else 1 for i, n in enumerate(shape)))
        for j, x in enumerate(axes)
    ]
    return tuple(flat) if sparse else tuple(expand(x, shape) for x in flat)
