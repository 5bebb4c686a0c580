"""Transforms, collectives: what examples of a batch hand to each other, by name of the axis, as in
JAX.

Receives arrays inside `vmap(axis_name=...)`, returns what this example gets. All of it is
`all_gather`, of which every example takes its part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tetrad.arrays.indexing import permuted, reshaped
from tetrad.core.errors import ShapeError
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import apply, as_array, axis_of, scalar
from tetrad.transforms.vmap import all_gather, axis_index, over_tree, psum, size_of_axis


def ppermute(x: Any, axis_name: Any, perm: Sequence[tuple[int, int]]) -> Any:
    """What another example has: of every pair (source, destination) one gives and one takes. Others
    get zeros.

    >>> import tetrad as td
    >>> onward = td.vmap(lambda x: td.ppermute(x, "i", [(0, 1), (1, 2)]), axis_name="i")
    >>> onward(td.asarray([1.0, 3.0, 5.0]))
    Array([0., 1., 3.], float32)
    """
    size = known_size("ppermute", axis_name)
    if not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in perm):
        fail(
            ShapeError,
            f"ppermute: {list(perm)} must be pairs (source, destination)",
            "td.pshuffle takes an order",
        )
    sources, takers = [a for a, _ in perm], [b for _, b in perm]
    if (
        not all(0 <= n < size for n in (*sources, *takers))
        or len({*sources}) < len(perm)
        or len({*takers}) < len(perm)
    ):
        fail(
            ShapeError,
            f"ppermute: {list(perm)} must pair each of {size} examples with one other at most",
        )
    giver = dict(zip(takers, sources, strict=True))
    place = axis_index(axis_name)
    table = as_array(np.asarray([giver.get(i, 0) for i in range(size)], np.int32))[place]
    has_one = as_array(np.asarray([i in giver for i in range(size)]))[place]

    def taken(leaf: Any) -> Array:
        given = all_gather(leaf, axis_name)[table]
        return apply("where", has_one, given, scalar(0, given.dtype))

    return over_tree(taken, x)


def pshuffle(x: Any, axis_name: Any, perm: Sequence[int]) -> Any:
    """The examples in another order: number i gets what number perm[i] has.

    >>> import tetrad as td
    >>> shuffled = td.vmap(lambda x: td.pshuffle(x, "i", [2, 0, 1]), axis_name="i")
    >>> shuffled(td.asarray([1.0, 3.0, 5.0]))
    Array([5., 1., 3.], float32)
    """
    if sorted(perm) != list(range(known_size("pshuffle", axis_name))):
        fail(
            ShapeError,
            f"pshuffle: {list(perm)} is no order of {known_size('pshuffle', axis_name)} examples",
        )
    return ppermute(x, axis_name, [(source, taker) for taker, source in enumerate(perm)])


def psum_scatter(x: Any, axis_name: Any, *, scatter_dimension: int = 0, tiled: bool = False) -> Any:
    """Of the sum over the examples, to each its part along an axis; `tiled` keeps the axis."""
    size = known_size("psum_scatter", axis_name)

    def part(leaf: Any) -> Array:
        total = psum(leaf, axis_name)
        axis = axis_of("psum_scatter", scatter_dimension, total.ndim)
        chosen = moved(in_parts("psum_scatter", total, axis, size), axis, 0)[axis_index(axis_name)]
        return chosen if tiled else without_axis("psum_scatter", chosen, axis)

    return over_tree(part, x)


def all_to_all(
    x: Any, axis_name: Any, split_axis: int, concat_axis: int, *, tiled: bool = False
) -> Any:
    """Every example gives each its part along one axis, and puts what it gets side by side along
    another.

    Without `tiled` the axis that is split goes, and the parts lie along a new one.
    """
    size = known_size("all_to_all", axis_name)

    def exchanged(leaf: Any) -> Array:
        rows = all_gather(leaf, axis_name)  # [giver, ...]
        axis = axis_of("all_to_all", split_axis, rows.ndim - 1)
        mine = moved(in_parts("all_to_all", rows, axis + 1, size), axis + 1, 0)[
            axis_index(axis_name)
        ]
        if not tiled:
            mine = without_axis("all_to_all", mine, axis + 1)
        place = axis_of("all_to_all", concat_axis, rows.ndim - 1)
        placed = moved(mine, 0, place)
        before, after = placed.shape[:place], placed.shape[place + 2 :]
        return (
            reshaped(placed, (*before, placed.shape[place] * placed.shape[place + 1], *after))
            if tiled
            else placed
        )

    return over_tree(exchanged, x)


def known_size(what: str, axis_name: Any) -> int:
    size = size_of_axis(what, axis_name)
    if not isinstance(size, int):
        fail(
            ShapeError, f"{what}: the axis {axis_name!r} needs a size that is known, it has {size}"
        )
    return size


def moved(x: Array, source: int, target: int) -> Array:
    order = [i for i in range(x.ndim) if i != source]
    order.insert(target, source)
    return permuted(x, order)


def in_parts(what: str, x: Array, axis: int, parts: int) -> Array:
    """An axis as two: which part, and where in it."""
    size = x.shape[axis]
    if not isinstance(size, int) or size % parts:
        fail(ShapeError, f"{what}: an axis of {size} has no {parts} equal parts")
    return reshaped(x, (*x.shape[:axis], parts, size // parts, *x.shape[axis + 1 :]))


def without_axis(what: str, x: Array, axis: int) -> Array:
    if x.shape[axis] != 1:
        fail(ShapeError, f"{what}: parts of {x.shape[axis]} keep their axis", "set tiled=True")
    return reshaped(x, (*x.shape[:axis], *x.shape[axis + 1 :]))
