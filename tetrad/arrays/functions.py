"""The public namespace: `tetrad.<name>` for every function of the array API that the ops allow.

Receives nothing; gathers the functions of `tracing` and makes one function for every public
elementwise op of the registry, with promotion and broadcasting, so an op defined in `ops/` is
public at once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from tetrad.arrays.creation import (
    arange,
    asarray,
    empty,
    empty_like,
    eye,
    from_dlpack,
    full,
    full_like,
    linspace,
    meshgrid,
    ones,
    ones_like,
    positions,
    tril,
    triu,
    zeros,
    zeros_like,
)  # fmt: skip
from tetrad.arrays.dynamic import (
    dynamic_index_in_dim,
    dynamic_slice,
    dynamic_slice_in_dim,
    dynamic_update_index_in_dim,
    dynamic_update_slice,
    dynamic_update_slice_in_dim,
)  # fmt: skip
from tetrad.arrays.einsum import einsum
from tetrad.arrays.indexing import as_indices, getitem, picked, take_axis  # noqa: F401  (getitem: operators ask for it here)
from tetrad.arrays.linear import matmul, tensordot, vecdot
from tetrad.arrays.manipulation import (
    astype,
    broadcast_arrays,
    broadcast_shapes,
    broadcast_to,
    concat,
    expand_dims,
    flip,
    matrix_transpose,
    moveaxis,
    pad,
    permute_dims,
    repeat,
    reshape,
    roll,
    squeeze,
    stack,
    tile,
    transpose,
    unstack,
)  # fmt: skip
from tetrad.arrays.sorting import (
    argsort,
    isin,
    searchsorted,
    sort,
    top_k,
    topk,
    unique_all,
    unique_counts,
    unique_inverse,
    unique_values,
)  # fmt: skip
from tetrad.arrays.statistics import (
    all,
    any,
    argmax,
    argmin,
    count_nonzero,
    cumulative_prod,
    cumulative_sum,
    diff,
    max,
    mean,
    min,
    nonzero,
    prod,
    std,
    sum,
    var,
)  # fmt: skip
from tetrad.core.dtypes import (
    DType,
    bool_,
    c64,
    c128,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
)
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.core.op import REGISTRY, Op
from tetrad.core.promotion import can_cast as can_cast_dtype
from tetrad.core.record import record
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import (
    NIBBLE_RANGE,
    as_array,
    axis_of,
    check_device,
    check_shape,
    common_dtype,
    dtype_of,
    elementwise,
    run,
)  # fmt: skip
from tetrad.tracing.operands import is_operand as is_operand  # the operators ask for it here


def __getattr__(name: str) -> Any:
    op = REGISTRY.get(name)
    if op is None or not op.public or op.kind != "elementwise":
        raise AttributeError(f"tetrad has no function {name!r}")
    globals()[name] = made = public(op)
    return made


def public(op: Op) -> Callable[..., Array]:
    """The function users call: promotes and broadcasts, then applies the op."""
    signature = inspect.signature(op.reference)
    count = len([p for p in signature.parameters.values() if p.kind is not p.KEYWORD_ONLY])

    def function(*args: Any, **settings: Any) -> Array:
        if len(args) != count or settings:
            args, settings = called(op.name, signature, args, settings)
        return elementwise(op, args, settings)

    function.__name__ = function.__qualname__ = op.name
    function.__signature__ = signature  # type: ignore[attr-defined]
    # the example is of the op, on NumPy arrays
    function.__doc__ = (op.__doc__ or "").partition(">>>")[0].rstrip()
    return function


def called(
    name: str, signature: inspect.Signature, args: tuple[Any, ...], settings: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Operands by place, settings by name, whichever way they were given."""
    try:
        found = signature.bind(*args, **settings)
    except TypeError as error:
        shown = ", ".join(signature.parameters)
        raise TypeError(f"{name}: {error}; it is called {name}({shown})") from None
    return found.args, found.kwargs


def elementwise_names() -> list[str]:
    return sorted(op.name for op in REGISTRY.values() if op.public and op.kind == "elementwise")


def __dir__() -> list[str]:
    return sorted({*__all__, *elementwise_names()})


# elementwise, composed


def pow(x1: Any, x2: Any, /) -> Array:
    """x1 to the power x2; a square is one multiplication.

    >>> pow(asarray([1.0, 2.0, 3.0]), 2)
    Array([1., 4., 9.], float32)
    """
    if type(x2) is int and x2 == 2:
        return elementwise(REGISTRY["square"], (x1,), {})
    return elementwise(REGISTRY["pow"], (x1, x2), {})


def clip(x: Any, /, min: Any = None, max: Any = None) -> Array:
    """x held between two bounds; NaN propagates.

    >>> clip(asarray([-1.0, 0.5, 2.0]), 0, 1)
    Array([0. , 0.5, 1. ], float32)
    """
    result = as_array(x)
    if min is not None:
        result = elementwise(REGISTRY["maximum"], (result, min), {})
    return result if max is None else elementwise(REGISTRY["minimum"], (result, max), {})


def positive(x: Any, /) -> Array:
    """The numbers as they are: `+x`.

    >>> positive(asarray([1.0, -2.0]))
    Array([ 1., -2.], float32)
    """
    found = as_array(x)
    if found.dtype.kind not in KINDS["numeric"]:
        fail(DtypeError, f"positive: takes numbers, got {found.type}", "convert with astype")
    return found


# gathering and scattering


def take(x: Any, indices: Any, /, axis: int | None = None) -> Array:
    """Elements (or slices) along an axis at these indices; negative ones count from the end.

    >>> take(asarray([10, 20, 30]), asarray([2, 0, -1]))
    Array([30, 10, 30], int32)
    """
    x, at = as_array(x), as_array(np.asarray(indices) if isinstance(indices, list) else indices)
    if axis is None:
        x, axis = reshape(x, (-1,)), 0
    if not at.dtype.is_integer:
        fail(DtypeError, f"take: indices are integers, got {at.type}")
    return take_axis(x, at, axis_of("take", axis, x.ndim))


def take_along_axis(x: Any, indices: Any, /, axis: int = -1) -> Array:
    """One element per index along an axis, at the index's own place on the other axes.

    >>> take_along_axis(asarray([[1, 2], [3, 4]]), asarray([[1], [0]]))
    Array([[2],
           [3]], int32)
    """
    x, at = as_array(x), as_array(indices)
    if x.ndim != at.ndim:
        fail(ShapeError, f"take_along_axis: {x.type} and indices {at.type} differ in rank")
    along = axis_of("take_along_axis", axis, x.ndim)
    others = [
        reshape(positions(n), tuple(-1 if j == i else 1 for j in range(x.ndim)))
        for i, n in enumerate(x.shape)
    ]
    return picked(
        x, [at if i == along else other for i, other in enumerate(others)], "take_along_axis"
    )


def scatter_add(updates: Any, indices: Any, size: Any) -> Array:
    """Zeros of `size` rows, each update added to the row its index names.

    >>> scatter_add(asarray([1.0, 2.0, 3.0]), asarray([0, 2, 0]), 3)
    Array([4., 0., 2.], float32)
    """
    (rows,) = check_shape("scatter_add", size)
    return run("scatter_add", as_array(updates), as_indices(as_array(indices)), size=rows)


# dtypes


def result_type(*args: Any) -> DType:
    """The dtype of what comes out when arrays, dtypes and Python numbers meet.

    >>> result_type(asarray([1]), 2.0), result_type("uint8", "int8")
    (f32, i16)
    """
    return common_dtype(args)


def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether promotion may turn a dtype (or an array's) into another."""
    return can_cast_dtype(
        from_.dtype if isinstance(from_, Array) else dtype_of(from_), dtype_of(to)
    )


KINDS = {
    "bool": "b", "signed integer": "i", "unsigned integer": "u", "integral": "iu",
    "real floating": "f", "complex floating": "c", "numeric": "iufc",
}  # fmt: skip


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind: a dtype, the name of a kind, or a tuple of them.

    >>> isdtype("uint8", "integral"), isdtype("float16", ("bool", "integral"))
    (True, False)
    """
    if isinstance(kind, tuple):
        return bool(np.any([isdtype(dtype, one) for one in kind]))
    if isinstance(kind, str) and kind in KINDS:
        return dtype_of(dtype).kind in KINDS[kind]
    if isinstance(kind, str):
        fail(DtypeError, f"isdtype: unknown kind {kind!r}", f"kinds: {', '.join(KINDS)}")
    return dtype_of(dtype) is dtype_of(kind)


@record
class finfo_object:
    """The limits of a float dtype."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@record
class iinfo_object:
    """The limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: DType


def finfo(type: Any, /) -> finfo_object:
    """The limits of a float dtype (or of an array's); of a complex dtype those of its parts.

    >>> finfo("float32").eps
    1.1920928955078125e-07
    """
    dtype = (type.dtype if isinstance(type, Array) else dtype_of(type)).real
    if not dtype.is_float:
        fail(DtypeError, f"finfo: {dtype} is not a float dtype")
    info: Any = ml_dtypes.finfo(dtype.np)  # type: ignore[no-untyped-call]  # NumPy's own knows no bf16
    eps, high, low, normal = (
        float(v) for v in (info.eps, info.max, info.min, info.smallest_normal)
    )
    return finfo_object(dtype.bits, eps, high, low, normal, dtype)


def iinfo(type: Any, /) -> iinfo_object:
    """The limits of an integer dtype (or of an array's)."""
    dtype = type.dtype if isinstance(type, Array) else dtype_of(type)
    if dtype.is_nibble:
        low, high = NIBBLE_RANGE[dtype]
        return iinfo_object(dtype.bits, high, low, dtype)
    if not dtype.is_integer:
        fail(DtypeError, f"iinfo: {dtype} is not an integer dtype")
    info = np.iinfo(dtype.np)
    return iinfo_object(dtype.bits, int(info.max), int(info.min), dtype)


DTYPES = {
    "bool": bool_, "int8": i8, "int16": i16, "int32": i32, "int64": i64, "uint8": u8, "uint16": u16,
    "uint32": u32,
    "uint64": u64, "float32": f32, "float64": f64, "complex64": c64, "complex128": c128,
}  # fmt: skip


class NamespaceInfo:
    """What the array API asks a namespace about itself."""

    def capabilities(self) -> dict[str, Any]:
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": None}

    def default_device(self) -> str:
        return "cpu"

    def devices(self) -> tuple[str, ...]:
        return ("cpu",)

    def default_dtypes(self, *, device: str | None = None) -> dict[str, DType]:
        check_device("__array_namespace_info__", device)
        return {"real floating": f32, "complex floating": c64, "integral": i32, "indexing": i64}

    def dtypes(self, *, device: str | None = None, kind: Any = None) -> dict[str, DType]:
        check_device("__array_namespace_info__", device)
        return {
            name: dtype for name, dtype in DTYPES.items() if kind is None or isdtype(dtype, kind)
        }


def __array_namespace_info__() -> NamespaceInfo:
    """Devices, dtypes and capabilities, as the array API standard asks for them.

    >>> __array_namespace_info__().dtypes(kind="real floating")
    {'float32': f32, 'float64': f64}
    """
    return NamespaceInfo()


__all__ = [
    # creation
    "arange", "asarray", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like",
    "linspace", "meshgrid",
    "ones", "ones_like", "tril", "triu", "zeros", "zeros_like",
    # manipulation
    "astype", "broadcast_arrays", "broadcast_shapes", "broadcast_to", "concat", "expand_dims",
    "flip",
    "matrix_transpose", "moveaxis", "pad", "permute_dims", "repeat", "reshape", "roll", "squeeze",
    "stack", "tile",
    "transpose", "unstack",
    # indexing
    "take", "take_along_axis", "scatter_add",
    "dynamic_index_in_dim", "dynamic_slice", "dynamic_slice_in_dim", "dynamic_update_index_in_dim",
    "dynamic_update_slice", "dynamic_update_slice_in_dim",
    # elementwise beside the ops
    "clip", "positive", "pow",
    # statistics, searching
    "all", "any", "argmax", "argmin", "count_nonzero", "cumulative_prod", "cumulative_sum", "diff",
    "max", "mean",
    "min", "nonzero", "prod", "std", "sum", "var",
    # sorting, sets
    "argsort", "isin", "searchsorted", "sort", "top_k", "topk", "unique_all", "unique_counts",
    "unique_inverse",
    "unique_values",
    # linear algebra
    "einsum", "matmul", "tensordot", "vecdot",
    # dtypes
    "__array_namespace_info__", "can_cast", "finfo", "iinfo", "isdtype", "result_type",
]  # fmt: skip
