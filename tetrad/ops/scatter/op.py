"""Ops, scattered sums: rows added to zeros, where indices say, in their order. What changes an
array where it lies is in `ops.scatter.update`.
"""

from __future__ import annotations

import numpy as np

from tetrad.core.errors import ShapeError
from tetrad.core.op import Case, op
from tetrad.core.sizes import Size
from tetrad.core.types import ArrayType
from tetrad.graph.nodes import Node
from tetrad.ops.calculus import Batched, all_batched, moved, reshape, run
from tetrad.ops.cases import Rng, exact_array, pick, random_indices, random_shape
from tetrad.ops.gather import offset_indices
from tetrad.ops.rules import (
    ANY_NUMBERS,
    INDICES,
    Array,
    check_dtype,
    check_index_dtype,
    ieee,
    lowest,
    wrapped_indices,
)

# -- scattered sum ---------------------------------------------------------------------------------


def scatter_add_type(updates: ArrayType, indices: ArrayType, *, size: Size) -> ArrayType:
    check_dtype("scatter_add", updates.dtype, ANY_NUMBERS)
    check_index_dtype("scatter_add", indices)
    if indices.rank != 1 or updates.rank < 1 or updates.shape[0] != indices.shape[0]:
        raise ShapeError(
            f"scatter_add: needs one index for each row of updates, got updates {updates}, indices "
            f"{indices}",
            hint="indices are flat: reshape them, and the updates with them",
        )
    if lowest(size) < 0:
        raise ShapeError(f"scatter_add: size must not be negative, got {size}")
    if size == 0 and indices.size != 0:
        raise ShapeError(f"scatter_add: there are no rows to add {updates} to")
    return updates.with_shape((size, *updates.shape[1:]))


def _scatter_add_cases(rng: Rng) -> Case:
    shape = random_shape(rng, max_rank=2, min_rank=1)
    size = pick(rng, (1, 2, 7, 64))
    indices = random_indices(rng, pick(rng, INDICES), shape[:1], size)
    return Case((exact_array(rng, pick(rng, ANY_NUMBERS), shape), indices), {"size": size})


@op(
    type=scatter_add_type,
    kind="special",
    cases=_scatter_add_cases,
    dtypes=ANY_NUMBERS,
    public=False,
)
def scatter_add(updates: Array, indices: Array, *, size: int) -> Array:
    """Zeros with `size` rows; row i of updates is added to row indices[i], i ascending. Indices as
    in `gather`.

    >>> scatter_add(np.array([[1, 2], [3, 4], [5, 6]]), np.array([1, 0, 1]), size=3)
    array([[3, 4],
           [6, 8],
           [0, 0]])
    """
    rows = wrapped_indices("scatter_add", indices, 0, size)
    return _add_rows(updates, rows=rows, size=size)


@ieee
def _add_rows(updates: Array, *, rows: Array, size: int) -> Array:
    result = np.zeros((size, *updates.shape[1:]), updates.dtype)
    np.add.at(result, rows, updates)
    return result


scatter_add.transpose(
    lambda ct, updates, indices, *, size: run("gather", ct, indices, axis=0), None
)


@scatter_add.batch
def scatter_add_batch(batched: Batched, updates: Node, indices: Node, *, size: Size) -> Node:
    """Shared indices: the batch is a trailing axis. Else all rows together, into one table after
    the other."""
    if not batched[1]:
        rows = scatter_add(moved(updates, 0, 1), indices, size=size)
        return moved(rows, 1, 0)
    updates, indices = all_batched(batched, (updates, indices))
    batch, count, *rest = updates.type.shape
    flat = reshape(offset_indices("scatter_add", indices, 0, size), (batch * count,))
    rows = scatter_add(reshape(updates, (batch * count, *rest)), flat, size=batch * size)
    return reshape(rows, (batch, size, *rest))
