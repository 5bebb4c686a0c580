"""Ops that put the last axis in order: sort, argsort, and the k greatest or least.

Equal elements keep their order, -0.0 and 0.0 are equal, NaN is greater than any number and equal to
itself. Other axes are moved to the end by the public functions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tetrad.core.dtypes import i64
from tetrad.core.errors import ShapeError
from tetrad.core.op import Case, op
from tetrad.core.sizes import product
from tetrad.core.types import ArrayType
from tetrad.graph.nodes import Node
from tetrad.ops.calculus import amount, batched_as_is, positions, reshape, run
from tetrad.ops.cases import Rng, pick, random_array, random_shape
from tetrad.ops.rules import ALL, HALVES_IN_F32, Array, check_axis, check_dtype, lowest


def _check(name: str, x: ArrayType) -> None:
    check_dtype(name, x.dtype, ALL)
    check_axis(name, x.rank - 1, x)


def sort_type(x: ArrayType, *, descending: bool = False) -> ArrayType:
    _check("sort", x)
    return x


def argsort_type(x: ArrayType, *, descending: bool = False) -> ArrayType:
    _check("argsort", x)
    return x.with_dtype(i64)


def topk_type(x: ArrayType, *, k: int, largest: bool = True) -> tuple[ArrayType, ArrayType]:
    _check("topk", x)
    if not 0 <= k <= lowest(x.shape[-1]):
        raise ShapeError(
            f"topk: k = {k} is out of range for the last axis of {x}", hint="0 <= k <= its size"
        )
    found = x.with_shape((*x.shape[:-1], k))
    return found, found.with_dtype(i64)


def _values(rng: Rng) -> Array:
    """Few different values, so that many are equal, or many."""
    shape = random_shape(rng, max_rank=2, min_rank=1)
    values = random_array(rng, pick(rng, ALL), shape, special=0.3)
    few = values.reshape(-1)[:3]
    return rng.choice(few, shape) if few.size and pick(rng, (0, 1)) else values


def _sort_cases(rng: Rng) -> Case:
    return Case((_values(rng),), {"descending": bool(pick(rng, (0, 1)))})


def _topk_cases(rng: Rng) -> Case:
    x = _values(rng)
    n = x.shape[-1]
    return Case(
        (x,), {"k": min(n, pick(rng, (0, 1, 2, 5, 16, 17, n))), "largest": bool(pick(rng, (0, 1)))}
    )


def order(x: Array, descending: bool) -> Array:
    """Stable positions; the greatest first is the least last of the axis read backwards."""
    if x.dtype in HALVES_IN_F32:
        x = x.astype(np.float32)
    if not descending:
        return np.argsort(x, axis=-1, kind="stable")
    return x.shape[-1] - 1 - np.argsort(x[..., ::-1], axis=-1, kind="stable")[..., ::-1]


@op(type=sort_type, kind="special", cases=_sort_cases, dtypes=ALL, public=False)
def sort(x: Array, *, descending: bool = False) -> Array:
    """The elements of the last axis in order.

    >>> sort(np.array([2.0, np.nan, 1.0]))
    array([ 1.,  2., nan])
    """
    return np.take_along_axis(x, order(x, descending), axis=-1)


@op(type=argsort_type, kind="special", cases=_sort_cases, dtypes=ALL, public=False)
def argsort(x: Array, *, descending: bool = False) -> Array:
    """Where the elements of the last axis stand, in order.

    >>> argsort(np.array([2.0, np.nan, 1.0, 2.0]), descending=True)
    array([1, 0, 3, 2])
    """
    return order(x, descending)


@op(type=topk_type, kind="special", cases=_topk_cases, dtypes=ALL, public=False)
def topk(x: Array, *, k: int, largest: bool = True) -> tuple[Array, Array]:
    """The k greatest elements of the last axis (or least), in order, and where they stand.

    >>> topk(np.array([2, 7, 1, 7]), k=2)
    (array([7, 7]), array([1, 3]))
    """
    places = order(x, largest)[..., :k]
    return np.take_along_axis(x, places, axis=-1), places


# -- derivatives and batches -----------------------------------------------------------------------


def picked(x: Node, places: Node) -> Node:
    """Elements along the last axis, at places of the same row."""
    *outer, n = x.type.shape
    rows = product(outer)
    row = positions((rows, places.type.shape[-1]), 0, i64)
    flat = reshape(places, (rows, places.type.shape[-1])) + row * amount(n, row)
    found: Node = run("gather", reshape(x, (rows * n,)), flat, axis=0)
    return reshape(found, places.type.shape)


sort.jvp(lambda t, y, x, *, descending=False: picked(t, argsort(x, descending=descending)))
argsort.not_differentiable("positions are integers")


@topk.jvp
def topk_jvp(t: Node, results: tuple[Node, Node], x: Node, **params: Any) -> tuple[Node, None]:
    return picked(t, results[1]), None


for each in (sort, argsort, topk):
    each.batch(batched_as_is(each))
