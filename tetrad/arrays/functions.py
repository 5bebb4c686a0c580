"""The public namespace: `tetrad.<name>` for every function of the array API that the ops allow.

Receives nothing; gathers the functions of this folder, most of them when they are first used, and
makes one function for every public elementwise op of the registry, with promotion and broadcasting,
so an op defined in `ops/` is public at once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

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
from tetrad.core import lazy
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.core.op import REGISTRY, Op
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import as_array, axis_of, check_shape, elementwise, run
from tetrad.tracing.operands import is_operand as is_operand  # the operators ask for it here

if TYPE_CHECKING:
    from tetrad.arrays.dynamic import *  # noqa: F403
    from tetrad.arrays.einsum import *  # noqa: F403
    from tetrad.arrays.sorting import *  # noqa: F403
    from tetrad.arrays.statistics import *  # noqa: F403
    from tetrad.arrays.type_info import *  # noqa: F403

HOMES = {  # file of this folder -> names of it, loaded when first used
    "dynamic": (
        "dynamic_index_in_dim", "dynamic_slice", "dynamic_slice_in_dim",
        "dynamic_update_index_in_dim", "dynamic_update_slice", "dynamic_update_slice_in_dim",
    ),
    "einsum": ("einsum",),
    "sorting": (
        "argsort", "isin", "searchsorted", "sort", "top_k", "topk", "unique_all", "unique_counts",
        "unique_inverse", "unique_values",
    ),
    "statistics": (
        "all", "any", "argmax", "argmin", "count_nonzero", "cumulative_prod", "cumulative_sum",
        "diff", "max", "mean", "min", "nonzero", "prod", "std", "sum", "var",
    ),
    "type_info": (
        "__array_namespace_info__", "can_cast", "finfo", "iinfo", "isdtype", "result_type",
    ),
}  # fmt: skip
HOME = {name: home for home, names in HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in HOME:
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
    if found.dtype.kind not in "iufc":
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
    # elementwise beside the ops
    "clip", "positive", "pow",
    # products
    "matmul", "tensordot", "vecdot",
    *HOME,
]  # fmt: skip
