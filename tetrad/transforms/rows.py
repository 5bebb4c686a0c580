"""Transforms, rows: `map` applies a function to one row after the other, `associative_scan` joins
rows in pairs.

Receives Python functions and trees of arrays, with the arguments they have in JAX. Both are
composed of what there is: `scan` and `vmap`, slices and joins; so they have derivatives and
batches, and run at once or inside a trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tetrad.arrays.indexing import getitem
from tetrad.arrays.manipulation import concat, flip, reshape, stack
from tetrad.core.errors import DtypeError, ShapeError, TraceError, an
from tetrad.core.tree import TreeDef, flatten, unflatten
from tetrad.tracing.array import Array, fail
from tetrad.tracing.loops import checked_column, named_like, scan, steps_of
from tetrad.tracing.operands import as_array, axis_of, is_operand
from tetrad.tracing.signature import check_function
from tetrad.transforms.vmap import vmap

# -- one row after the other -----------------------------------------------------------------------


def map(f: Callable[[Any], Any], xs: Any, *, batch_size: int | None = None) -> Any:
    """`f` of every row of xs, one after the other, stacked: less memory than `vmap`, which takes
    all rows at once.

    xs          a tree of arrays with one leading axis
    batch_size  so many rows at a time, by `vmap`

    >>> import tetrad as td
    >>> td.map(lambda x: x * x, td.asarray([1.0, 2.0, 3.0]))
    Array([1., 4., 9.], float32)
    """
    check_function("map: f", f, "td.map(f, xs)")
    if batch_size is not None:
        return map_in_batches(f, xs, batch_size)
    return scan(named_like(f, lambda _, x: (None, f(x))), None, xs)[1]


def map_in_batches(f: Callable[[Any], Any], xs: Any, size: int) -> Any:
    """All whole batches in a loop, then the rest."""
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
        fail(ShapeError, f"map: batch_size is {size!r}, it must be an int of at least 1")
    leaves, tree = flatten(xs)
    names = list(tree.leaf_names("xs"))
    arrays = [as_array(checked_column(x, name)) for x, name in zip(leaves, names, strict=True)]
    count = steps_of(arrays, names, None)
    if not isinstance(count, int):
        fail(
            ShapeError, f"map: {count} rows cannot be divided into batches", "leave batch_size out"
        )
    whole = count - count % int(size)
    batches = [reshape(x[:whole], (whole // size, size, *x.shape[1:])) for x in arrays]
    found, result = flatten(map(vmap(f), unflatten(tree, batches)))
    joined = [reshape(y, (whole, *y.shape[2:])) for y in found]
    if whole < count:
        left, _ = flatten(vmap(f)(unflatten(tree, [x[whole:] for x in arrays])))
        joined = [concat([a, b]) for a, b in zip(joined, left, strict=True)]
    return unflatten(result, joined)


# -- joined in pairs -------------------------------------------------------------------------------


def associative_scan(
    fn: Callable[[Any, Any], Any], elems: Any, reverse: bool = False, axis: int = 0
) -> Any:
    """Row i becomes `fn` of all rows up to i: about 2 n joins, in 2 log n rounds, where `scan`
    takes n steps.

    fn       joins two trees of rows, first those that come first; it must be associative, and is
             given many at once
    elems    a tree of arrays with one axis in common
    reverse  the last row comes first
    axis     which axis the rows are along

    >>> import tetrad as td
    >>> td.associative_scan(td.maximum, td.asarray([1.0, 3.0, 2.0, 5.0]))
    Array([1., 3., 3., 5.], float32)
    """
    check_function("associative_scan: fn", fn, "td.associative_scan(fn, elems)")
    leaves, tree = flatten(elems)
    names = list(tree.leaf_names("elems"))
    arrays = [as_array(checked_rows(x, name)) for x, name in zip(leaves, names, strict=True)]
    axes = [axis_of("associative_scan", axis, x.ndim) for x in arrays]
    sizes = {x.type.shape[a] for x, a in zip(arrays, axes, strict=True)}
    if len(sizes) > 1:
        shown = ", ".join(
            f"{n} has {x.type.shape[a]}" for n, x, a in zip(names, arrays, axes, strict=True)
        )
        fail(ShapeError, f"associative_scan: sizes along axis {axis} differ: {shown}")
    if not all(isinstance(n, int) for n in sizes):
        fail(
            ShapeError,
            f"associative_scan: the size along axis {axis} must be known, got {sizes.pop()}",
            "td.scan",
        )

    def join(a: list[Array], b: list[Array]) -> list[Array]:
        return joined(fn, a, b, tree, names)

    turned = [flip(x, axis=a) if reverse else x for x, a in zip(arrays, axes, strict=True)]
    found = running(join, turned, axes) if arrays else []
    return unflatten(
        tree, [flip(x, axis=a) if reverse else x for x, a in zip(found, axes, strict=True)]
    )


def checked_rows(x: Any, name: str) -> Any:
    if not is_operand(x):
        fail(TraceError, f"associative_scan: {name} is {an(type(x).__name__)}, not an array")
    return x


def joined(
    fn: Callable[[Any, Any], Any],
    a: Sequence[Array],
    b: Sequence[Array],
    tree: TreeDef,
    names: Sequence[str],
) -> list[Array]:
    """fn of two trees of rows, which must give such a tree."""
    made, found = flatten(fn(unflatten(tree, a), unflatten(tree, b)))
    called = getattr(fn, "__name__", "fn")
    if found != tree:
        wanted, came = (", ".join(t.leaf_names("elems")) or "nothing" for t in (tree, found))
        fail(
            TraceError,
            f"associative_scan: {called} is given {wanted} and returns {came}",
            "return the same tree",
        )
    results = [as_array(x) for x in made]
    for name, x, y in zip(names, a, results, strict=True):
        if x.type != y.type:
            error = DtypeError if x.type.shape == y.type.shape else ShapeError
            hint = "rows are joined along the axis, many at once: every one must keep its type"
            fail(
                error,
                f"associative_scan: {called} is given {name} as {x.type} and returns {y.type}",
                hint,
            )
    return results


def running(
    join: Callable[[list[Array], list[Array]], list[Array]], rows: list[Array], axes: Sequence[int]
) -> list[Array]:
    """Neighbours joined, the running joins of those, and the rows between them from the one
    before."""
    count = rows[0].shape[axes[0]]
    if count < 2:
        return rows

    def part(arrays: Sequence[Array], *bounds: int | None) -> list[Array]:
        return [
            getitem(x, (*[slice(None)] * a, slice(*bounds)))
            for x, a in zip(arrays, axes, strict=True)
        ]

    odd = running(join, join(part(rows, 0, -1, 2), part(rows, 1, None, 2)), axes)
    before = odd if count % 2 else part(odd, 0, -1)
    between = join(before, part(rows, 2, None, 2)) if count > 2 else None
    even = part(rows, 0, 1)
    if between is not None:
        even = [concat([x, y], axis=a) for x, y, a in zip(even, between, axes, strict=True)]
    return [interleaved(x, y, a) for x, y, a in zip(even, odd, axes, strict=True)]


def interleaved(even: Array, odd: Array, axis: int) -> Array:
    """even[0], odd[0], even[1], ..."""
    pairs, front = odd.shape[axis], [slice(None)] * axis
    shape = (*odd.shape[:axis], 2 * pairs, *odd.shape[axis + 1 :])
    both = reshape(stack([getitem(even, (*front, slice(0, pairs))), odd], axis=axis + 1), shape)
    last = getitem(even, (*front, slice(pairs, None)))
    return concat([both, last], axis=axis) if even.shape[axis] > pairs else both
