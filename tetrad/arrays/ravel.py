"""Arrays, ravel: a tree of arrays as one array with one axis, and the way back.

Receives a tree; returns an array and a function that makes a tree of the same structure, shapes and
dtypes from such an array. For solvers and optimisers that think in vectors.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from tetrad.arrays.manipulation import concat, reshape
from tetrad.core.dtypes import DType, default_float
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.core.promotion import result_dtype
from tetrad.core.record import record
from tetrad.core.sizes import product
from tetrad.core.tree import TreeDef, flatten, unflatten
from tetrad.core.types import ArrayType
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import as_array, convert, run


@record
class Unravel:
    """From one array with one axis back to a tree. Equal for equal structures, shapes and dtypes,
    and hashable: it may be a static argument."""

    tree: TreeDef
    kinds: tuple[ArrayType, ...]
    dtype: DType  # of the flat array

    def __call__(self, flat: Any) -> Any:
        x = as_array(flat)
        sizes = [product(kind.shape) for kind in self.kinds]
        if x.type.shape != (sum(sizes),):
            fail(ShapeError, f"unravel: expected {sum(sizes)} elements on one axis, got {x.type}")
        is_mixed = any(kind.dtype is not self.dtype for kind in self.kinds)
        if is_mixed and x.dtype is not self.dtype:
            message = f"unravel: expected {self.dtype}, got {x.type}"
            fail(DtypeError, message, "leaves have several dtypes, so the array must keep its own")
        return unflatten(self.tree, list(self._leaves(x, sizes, is_mixed)))

    def _leaves(self, x: Array, sizes: list[Any], is_mixed: bool) -> Iterator[Array]:
        for kind, start, size in zip(self.kinds, accumulate([0, *sizes]), sizes, strict=False):
            part = reshape(x[start : start + size], kind.shape)
            yield narrowed(part, kind.dtype) if is_mixed else part

    def __repr__(self) -> str:
        return f"<unravel to {self.tree!r}>"


def narrowed(x: Array, dtype: DType) -> Array:
    """Of a complex number the real part, where a real one is wanted."""
    if x.dtype.is_complex and not dtype.is_complex:
        x = run("real", x)
    return convert(x, dtype)


def ravel_pytree(pytree: Any) -> tuple[Array, Unravel]:
    """All leaves of a tree in one array with one axis, and the function that makes the tree again.

    Leaves of several dtypes meet in the one that promotion gives; the function converts them back.

    >>> import tetrad as td
    >>> flat, unravel = td.ravel_pytree({"w": td.ones((2, 2)), "b": td.asarray([1, 2])})
    >>> flat
    Array([1., 2., 1., 1., 1., 1.], float32)
    >>> unravel(2 * flat)["b"]
    Array([2, 4], int32)
    """
    leaves, tree = flatten(pytree)
    arrays = [as_array(leaf) for leaf in leaves]
    dtype = result_dtype([x.dtype for x in arrays]) if arrays else default_float()
    flat = [reshape(convert(x, dtype), (-1,)) for x in arrays]
    joined = concat(flat) if flat else convert(as_array(0.0), dtype)[None][:0]
    return joined, Unravel(tree, tuple([x.type for x in arrays]), dtype)
