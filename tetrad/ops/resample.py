"""Ops, resample: weighted sums of a few elements along an axis, at places that a table gives.

Resizing is such sums. Both directions are operands, so the transpose is the same op with the tables
exchanged: what an element gave to others comes back to it in one sum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tetrad.core.dtypes import i32, index
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.core.op import Case, op
from tetrad.core.types import ArrayType
from tetrad.graph.nodes import Node
from tetrad.ops.calculus import Batched
from tetrad.ops.cases import Rng, exact_array, pick
from tetrad.ops.movement import At, Reader
from tetrad.ops.rules import FLOATS, Array, check_axis, check_dtype, ieee

if TYPE_CHECKING:
    from tetrad.kernel.build import KernelBuilder, Val

UNROLLED = 8  # terms of a sum that are written out


def resample_type(
    x: ArrayType,
    places: ArrayType,
    weights: ArrayType,
    back_places: ArrayType,
    back_weights: ArrayType,
    *,
    axis: int,
) -> ArrayType:
    check_dtype("resample", x.dtype, FLOATS)
    check_axis("resample", axis, x)
    for table, factors in ((places, weights), (back_places, back_weights)):
        if table.dtype is not i32 or factors.dtype is not x.dtype.computing:
            raise DtypeError(f"resample: {x} takes i32 places and weights like it, got {factors}")
        if table.rank != 2 or table.shape != factors.shape or table.shape[0] == 0:
            raise ShapeError(f"resample: tables are [terms, size], got {table} and {factors}")
    if back_places.shape[1] != x.shape[axis]:
        raise ShapeError(f"resample: axis {axis} of {x} has another size than {back_places}")
    return x.with_shape((*x.shape[:axis], places.shape[1], *x.shape[axis + 1 :]))


def tables(matrix: Array) -> tuple[Array, Array]:
    """Places and weights of the elements of each row that are not 0; 0 fills up.

    >>> places, weights = tables(np.array([[0.0, 0.5, 0.5], [1.0, 0.0, 0.0]]))
    >>> places.tolist(), weights.tolist()
    ([[1, 0], [2, 0]], [[0.5, 1.0], [0.5, 0.0]])
    """
    count = max(1, int((matrix != 0).sum(1).max(initial=0)))
    order = np.argsort(matrix == 0, axis=1, kind="stable")[:, :count]
    weights = np.take_along_axis(matrix, order, axis=1)
    return np.where(weights == 0, 0, order).T.astype(np.int32), np.ascontiguousarray(weights.T)


def _resample_cases(rng: Rng) -> Case:
    dtype, rank = pick(rng, FLOATS), int(rng.integers(1, 4))
    shape = tuple(int(n) for n in rng.integers(1, 20, rank))
    axis = int(rng.integers(rank))
    matrix = rng.integers(-8, 9, (int(rng.integers(1, 20)), shape[axis])) / 8
    matrix *= rng.random(matrix.shape) < rng.random()
    wide = dtype.computing.np
    given = [(p, w.astype(wide)) for p, w in (tables(matrix), tables(matrix.T))]
    return Case((exact_array(rng, dtype, shape), *given[0], *given[1]), {"axis": axis})


@op(
    type=resample_type,
    kind="movement",
    cases=_resample_cases,
    dtypes=FLOATS,
    public=False,
    in_memory=(0, 1, 2),
    cost=6,
)
@ieee
def resample(
    x: Array,
    places: Array,
    weights: Array,
    back_places: Array,
    back_weights: Array,
    *,
    axis: int,
) -> Array:
    """Element i of the result is the sum of weights[j, i] x[places[j, i]] over j, in order; what
    has weight 0 takes no part, whatever it is.

    >>> matrix = np.array([[0.5, 0.5], [0.0, 1.0]])
    >>> resample(np.array([1.0, 3.0]), *tables(matrix), *tables(matrix.T), axis=0)
    array([2., 3.])
    """
    shape = [1] * x.ndim
    shape[axis] = -1
    total = None
    for place, weight in zip(places, weights, strict=True):
        factor = weight.reshape(shape).astype(x.dtype)
        term = np.where(factor == 0, x.dtype.type(0), np.take(x, place, axis) * factor)
        total = term if total is None else total + term
    return np.asarray(total)


@resample.read
def resample_read(
    k: KernelBuilder,
    at: At,
    x: Reader,
    places: Reader,
    weights: Reader,
    back_places: Reader,
    back_weights: Reader,
    *,
    axis: int,
) -> Val:
    wide = x.dtype.computing

    def term(j: Val) -> Val:
        weight = weights((j, at[axis]))
        place = k.cast(places((j, at[axis])), index)
        value = k.cast(x((*at[:axis], place, *at[axis + 1 :])), wide)
        return k.select(weight.eq(0.0), k.const(0.0, wide), value * weight)

    total = k.local(term(k.index(0)))
    count = places.shape[0]
    if isinstance(count, int) and count <= UNROLLED:
        for j in range(1, count):
            total.set(total.get() + term(k.index(j)))
    else:
        with k.loop(places.size(0), 1) as row:
            total.set(total.get() + term(row))
    return k.cast(total.get(), x.dtype)


def _resample_back(
    ct: Node,
    x: Node,
    places: Node,
    weights: Node,
    back_places: Node,
    back_weights: Node,
    *,
    axis: int,
) -> Node:
    result: Node = resample(ct, back_places, back_weights, places, weights, axis=axis)
    return result


resample.transpose(_resample_back, None, None, None, None)


@resample.batch
def resample_batch(batched: Batched, x: Node, *given: Node, axis: int) -> Node:
    """Tables are constants, the same for every row."""
    result: Node = resample(x, *given, axis=axis + 1)
    return result
