"""Ops: gather, the movement whose places are data: elements picked along an axis by an array of
indices.

`checked_index` is for indices that are computed with before they are used: it names the user's own
where one is out of range. `offset_indices` serves every op that is batched by laying its tables one
after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tetrad.core.dtypes import i32, i64, index
from tetrad.core.errors import ShapeError
from tetrad.core.op import Case, op
from tetrad.core.sizes import Size
from tetrad.core.types import ArrayType
from tetrad.graph.nodes import Node
from tetrad.ops.calculus import Batched, amount, batched_as_is, moved, positions, run
from tetrad.ops.calculus import reshape as reshaped
from tetrad.ops.calculus import transpose as transposed
from tetrad.ops.cases import Rng, pick, random_array, random_indices, random_shape
from tetrad.ops.movement import At, Reader
from tetrad.ops.rules import (
    EVERY,
    INDICES,
    Array,
    check_axis,
    check_dtype,
    check_index_dtype,
    wrapped_index,
    wrapped_indices,
)

if TYPE_CHECKING:
    from tetrad.kernel.build import KernelBuilder, Val


def gather_type(table: ArrayType, indices: ArrayType, *, axis: int) -> ArrayType:
    check_dtype("gather", table.dtype, EVERY)
    check_index_dtype("gather", indices)
    check_axis("gather", axis, table)
    if table.shape[axis] == 0 and indices.size != 0:
        raise ShapeError(
            f"gather: axis {axis} of {table} is empty, there is nothing to take for {indices}"
        )
    return table.with_shape((*table.shape[:axis], *indices.shape, *table.shape[axis + 1 :]))


def _gather_cases(rng: Rng) -> Case:
    shape = tuple(max(n, 1) for n in random_shape(rng, min_rank=1))
    axis = int(rng.integers(len(shape)))
    chosen = pick(rng, ((), (0,), (1,), (7,), (16,), (2, 3), (5, 1)))
    indices = random_indices(rng, pick(rng, INDICES), chosen, shape[axis])
    return Case((random_array(rng, pick(rng, EVERY), shape), indices), {"axis": axis})


@op(
    type=gather_type,
    kind="movement",
    cases=_gather_cases,
    dtypes=EVERY,
    public=False,
    in_memory=(0,),
    may_fail=True,
)
def gather(table: Array, indices: Array, *, axis: int) -> Array:
    """Elements of the table picked along an axis; negative indices count from the end, others out
    of range are errors.

    >>> gather(np.array([[1, 2], [3, 4], [5, 6]]), np.array([2, 0, -1]), axis=0)
    array([[5, 6],
           [1, 2],
           [5, 6]])
    """
    if np.size(table) == 0:  # of rows without elements none is read, and no index is looked at
        return np.take(table, np.zeros(np.shape(indices), np.int64), axis=axis)
    return np.take(
        table, wrapped_indices("gather", indices, axis, np.shape(table)[axis]), axis=axis
    )


@gather.read
def gather_read(k: KernelBuilder, at: At, table: Reader, indices: Reader, *, axis: int) -> Val:
    """The trap may come after the load it guards when the load leaves a loop: the address is made
    safe by itself."""
    after = axis + len(indices.shape)
    given = k.cast(indices(at[axis:after]), index)
    row, bad = wrapped_index(k, given, table.size(axis))
    table.check(bad, given)
    return table((*at[:axis], row, *at[after:]))


def _gather_back(ct: Node, table: Node, indices: Node, *, axis: int) -> Node:
    """Every element back to the row it was taken from; rows taken twice get both."""
    shape, count = table.type.shape, indices.type.rank
    order = (*range(axis, axis + count), *range(axis), *range(axis + count, ct.type.rank))
    rows = reshaped(transposed(ct, order), (indices.type.size, *shape[:axis], *shape[axis + 1 :]))
    flat = reshaped(indices, (indices.type.size,))
    return moved(run("scatter_add", rows, flat, size=shape[axis]), 0, axis)


gather.transpose(_gather_back, None)


@gather.batch
def gather_batch(batched: Batched, table: Node, indices: Node, *, axis: int) -> Node:
    """Indices of one row of the batch count within its own table."""
    if not batched[1]:
        result: Node = gather(table, indices, axis=axis + 1)
        return result
    if not batched[0]:
        result = gather(table, indices, axis=axis)
        return moved(result, axis, 0)
    lines = moved(table, axis + 1, 1)
    batch, size, *rest = lines.type.shape
    flat = reshaped(lines, (batch * size, *rest))
    picked = gather(flat, offset_indices("gather", indices, axis, size), axis=0)
    # [batch, *chosen, *rest], where the chosen axes belong after the first `axis` of the rest
    chosen = indices.type.rank - 1
    before, after = range(1 + chosen, 1 + chosen + axis), range(1 + chosen + axis, picked.type.rank)
    return transposed(picked, (0, *before, *range(1, 1 + chosen), *after))


def offset_indices(what: str, indices: Node, axis: int, size: Size) -> Node:
    """Indices [batch, ...] into tables of `size` rows as indices into all tables, one after the
    other.

    What is out of range in its own table must not reach into the next one: the user is told, with
    the user's axis.
    """
    wide = run("cast", indices, dtype=i64)
    within = checked_index(wide, size=size, axis=axis, what=what)
    return within + positions(wide.type.shape, 0, i64) * amount(size, wide)  # type: ignore[no-any-return]


# -- indices that are computed with ----------------------------------------------------------------


def checked_index_type(indices: ArrayType, *, size: Size, axis: int, what: str) -> ArrayType:
    check_index_dtype(what, indices)
    return indices


def _checked_index_cases(rng: Rng) -> Case:
    size = pick(rng, (1, 2, 7, 100))
    indices = random_indices(rng, pick(rng, INDICES), random_shape(rng), size)
    return Case((indices,), {"size": size, "axis": int(rng.integers(3)), "what": "index"})


@op(
    type=checked_index_type,
    kind="movement",
    cases=_checked_index_cases,
    dtypes=INDICES,
    public=False,
)
def checked_index(indices: Array, *, size: int, axis: int, what: str) -> Array:
    """Indices into an axis, counted from its start. One out of range is an error: `what` the user
    called, and the axis as the user counts them.

    >>> checked_index(np.array([2, 0, -1]), size=3, axis=1, what="index")
    array([2, 0, 2])
    """
    return wrapped_indices(what, indices, axis, size).astype(np.asarray(indices).dtype)


@checked_index.read
def checked_index_read(
    k: KernelBuilder, at: At, indices: Reader, *, size: Size, axis: int, what: str
) -> Val:
    given = indices(at)
    found, bad = narrow_index(k, given, size, indices.value_of)
    indices.check(bad, k.cast(given, index))
    return k.cast(found, indices.dtype)


def narrow_index(
    k: KernelBuilder, given: Val, size: Size, value_of: Callable[[Size], Val]
) -> tuple[Val, Val]:
    """`wrapped_index` in 32 bits where they hold the index and the size."""
    if given.dtype is i32 and isinstance(size, int) and size < 1 << 31:
        return wrapped_index(k, given, k.const(size, i32))
    return wrapped_index(k, k.cast(given, index), value_of(size))


checked_index.not_differentiable("indices are integers")
checked_index.batch(batched_as_is(checked_index))
