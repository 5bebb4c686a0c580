"""The public namespace: `tetrad.<name>` for every function of the array API that the ops allow.

Receives nothing; gathers the functions of this folder, most of them when they are first used, and
makes one function for every public elementwise op of the registry, with promotion and broadcasting,
so an op defined in `ops/` is public at once.
"""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tetrad.arrays.creation import (
    arange,
    array,
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
from tetrad.arrays.numpy import ALIASES
from tetrad.arrays.numpy import HOMES as NUMPY_HOMES
from tetrad.core import lazy
from tetrad.core.dtypes import DType, bool_, default_int
from tetrad.core.errors import DtypeError, ShapeError, UnsupportedError
from tetrad.core.op import REGISTRY, Op
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import apply, as_array, axis_of, check_shape, convert, elementwise, run
from tetrad.tracing.operands import is_operand as is_operand  # the operators ask for it here

if TYPE_CHECKING:
    from tetrad.arrays.dynamic import *  # noqa: F403
    from tetrad.arrays.einsum import *  # noqa: F403
    from tetrad.arrays.elementwise import *  # noqa: F403
    from tetrad.arrays.numpy.arranging import *  # noqa: F403
    from tetrad.arrays.numpy.averages import *  # noqa: F403
    from tetrad.arrays.numpy.bits import *  # noqa: F403
    from tetrad.arrays.numpy.calling import *  # noqa: F403
    from tetrad.arrays.numpy.choosing import *  # noqa: F403
    from tetrad.arrays.numpy.comparing import *  # noqa: F403
    from tetrad.arrays.numpy.devices import *  # noqa: F403
    from tetrad.arrays.numpy.dtypes import *  # noqa: F403
    from tetrad.arrays.numpy.elementwise import *  # noqa: F403
    from tetrad.arrays.numpy.grids import *  # noqa: F403
    from tetrad.arrays.numpy.histograms import *  # noqa: F403
    from tetrad.arrays.numpy.joining import *  # noqa: F403
    from tetrad.arrays.numpy.lines import *  # noqa: F403
    from tetrad.arrays.numpy.nan import *  # noqa: F403
    from tetrad.arrays.numpy.ordering import *  # noqa: F403
    from tetrad.arrays.numpy.polynomials import *  # noqa: F403
    from tetrad.arrays.numpy.products import *  # noqa: F403
    from tetrad.arrays.numpy.quantiles import *  # noqa: F403
    from tetrad.arrays.numpy.running import *  # noqa: F403
    from tetrad.arrays.numpy.signals import *  # noqa: F403
    from tetrad.arrays.numpy.text import *  # noqa: F403
    from tetrad.arrays.numpy.windows import *  # noqa: F403
    from tetrad.arrays.sets import *  # noqa: F403
    from tetrad.arrays.sized import *  # noqa: F403
    from tetrad.arrays.sorting import *  # noqa: F403
    from tetrad.arrays.statistics import *  # noqa: F403
    from tetrad.arrays.type_info import *  # noqa: F403

HOMES = {  # file of this folder -> names of it, loaded when first used
    "dynamic": (
        "dynamic_index_in_dim", "dynamic_slice", "dynamic_slice_in_dim",
        "dynamic_update_index_in_dim", "dynamic_update_slice", "dynamic_update_slice_in_dim",
    ),
    "einsum": ("einsum",),
    "sets": (
        "intersect1d", "setdiff1d", "setxor1d", "union1d", "unique", "unique_all", "unique_counts",
        "unique_inverse", "unique_values",
    ),
    "sized": (
        "argwhere", "compress", "extract", "flatnonzero", "nonzero", "where",
    ),
    "sorting": (
        "argsort", "isin", "searchsorted", "sort", "top_k", "topk",
    ),
    "statistics": (
        "all", "any", "argmax", "argmin", "count_nonzero", "cumulative_prod", "cumulative_sum",
        "diff", "max", "mean", "min", "prod", "std", "sum", "var",
    ),
    "type_info": (
        "__array_namespace_info__", "can_cast", "finfo", "iinfo", "isdtype", "result_type",
    ),
    **{f"numpy.{home}": names for home, names in NUMPY_HOMES.items()},
}  # fmt: skip
HOME = {name: home for home, names in HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in ALIASES:
        made = getattr(lazy.module("tetrad.arrays.functions"), ALIASES[name])
    elif name in HOME:
        made = getattr(lazy.module(f"tetrad.arrays.{HOME[name]}"), name)
    else:
        if not is_elementwise(name):
            raise AttributeError(f"tetrad has no function {name!r}")
        made = public(REGISTRY[name])
    globals()[name] = made
    return made


def is_elementwise(name: str) -> bool:
    """Is it the name of a public elementwise op?"""
    op = None if name.startswith("_") else REGISTRY.get(name)
    return op is not None and op.public and op.kind == "elementwise"


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
        return square(x1)
    return apply("pow", x1, x2)


def square(x: Any, /) -> Array:
    """x times x; of booleans, integers, as of other powers.

    >>> square(asarray([-3, 4])), square(asarray([True, False]))
    (Array([ 9, 16], int32), Array([1, 0], int32))
    """
    given = as_array(x)
    if given.dtype is bool_:
        given = convert(given, default_int())
    return apply("square", given)


def clip(
    x: Any, /, min: Any = None, max: Any = None, out: None = None, *, a_min: Any = None,
    a_max: Any = None,
) -> Array:  # fmt: skip
    """x held between two bounds, which NumPy also calls `a_min` and `a_max`; NaN propagates.

    >>> clip(asarray([-1.0, 0.5, 2.0]), 0, 1)
    Array([0. , 0.5, 1. ], float32)
    """
    if out is not None:
        fail(UnsupportedError, "clip: out= is not supported", "the result is a new array")
    result = as_array(x)
    min = _reached(a_min if min is None else min, result.dtype)
    max = _reached(a_max if max is None else max, result.dtype)
    if min is not None:
        result = apply("maximum", result, min)
    return result if max is None else apply("minimum", result, max)


def _reached(bound: Any, dtype: DType) -> Any:
    """A bound that integers of this dtype reach: -1 holds unsigned ones at 0."""
    if type(bound) is not int or not dtype.is_integer:
        return bound
    info = np.iinfo(dtype.np)
    return builtins.min(builtins.max(bound, int(info.min)), int(info.max))


def positive(x: Any, /) -> Array:
    """The numbers as they are: `+x`.

    >>> positive(asarray([1.0, -2.0]))
    Array([ 1., -2.], float32)
    """
    found = as_array(x)
    if found.dtype.kind not in "iufc":
        fail(DtypeError, f"positive: takes numbers, got {found.type}", "convert with astype")
    return found


# gathering and scattering


def take(
    a: Any, indices: Any, axis: int | None = None, out: None = None, mode: str | None = None,
    *, fill_value: Any = None, unique_indices: bool = False, indices_are_sorted: bool = False,
) -> Array:  # fmt: skip
    """Elements (or slices) along an axis at these indices; negative ones count from the end.

    One out of range is an error, unless `mode` is "clip" (the nearest in range), "wrap" (around
    the end) or "fill" (NaN, or `fill_value`).

    >>> take(asarray([10, 20, 30]), asarray([2, 0, -1]))
    Array([30, 10, 30], int32)
    """
    if out is not None:
        fail(UnsupportedError, "take: out= is not supported", "the result is a new array")
    a, at = as_array(a), as_array(np.asarray(indices) if isinstance(indices, list) else indices)
    if isinstance(indices, list | tuple) and not at.size:
        at = as_array(np.zeros(at.shape, np.int32))
    if axis is None:
        a, axis = reshape(a, (-1,)), 0
    if not at.dtype.is_integer:
        fail(DtypeError, f"take: indices are integers, got {at.type}")
    along = axis_of("take", axis, a.ndim)
    if mode in (None, "raise", "promise_in_bounds"):
        return take_axis(a, at, along)
    return lazy.module("tetrad.arrays.numpy.choosing").taken(a, at, along, mode, fill_value)  # type: ignore[no-any-return]


def take_along_axis(arr: Any, indices: Any, axis: int | None = -1) -> Array:
    """One element per index along an axis, at the index's own place on the other axes.

    >>> take_along_axis(asarray([[1, 2], [3, 4]]), asarray([[1], [0]]))
    Array([[2],
           [3]], int32)
    """
    arr, at = as_array(arr), as_array(indices)
    if axis is None:
        arr, axis = reshape(arr, (-1,)), 0
    if arr.ndim != at.ndim:
        fail(ShapeError, f"take_along_axis: {arr.type} and indices {at.type} differ in rank")
    along = axis_of("take_along_axis", axis, arr.ndim)
    others = [
        reshape(positions(n), tuple(-1 if j == i else 1 for j in range(arr.ndim)))
        for i, n in enumerate(arr.shape)
    ]
    return picked(
        arr, [at if i == along else other for i, other in enumerate(others)], "take_along_axis"
    )


def scatter_add(updates: Any, indices: Any, size: Any) -> Array:
    """Zeros of `size` rows, each update added to the row its index names.

    >>> scatter_add(asarray([1.0, 2.0, 3.0]), asarray([0, 2, 0]), 3)
    Array([4., 0., 2.], float32)
    """
    (rows,) = check_shape("scatter_add", size)
    return run("scatter_add", as_array(updates), as_indices(as_array(indices)), size=rows)


__all__ = [
    # creation
    "arange", "array", "asarray", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like",
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
    # elementwise beside the ops
    "clip", "positive", "pow", "square",
    # products
    "matmul", "tensordot", "vecdot",
    *HOME,
    *ALIASES,
]  # fmt: skip
