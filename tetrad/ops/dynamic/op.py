"""Ops on a part of an array whose place is data: read it, or write it where the array lies.

The place is clamped so that the part lies inside, as in JAX; so nothing here can be out of range.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tetrad.core.dtypes import i32, i64, index
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.core.op import Case, op
from tetrad.core.sizes import Shape
from tetrad.core.types import ArrayType
from tetrad.graph.build import filled
from tetrad.graph.nodes import Node
from tetrad.ops.calculus import Batched, all_batched, run
from tetrad.ops.cases import Rng, pick, random_array, random_shape
from tetrad.ops.movement import At, Ints, Reader
from tetrad.ops.rules import EVERY, Array, check_dtype, lowest

if TYPE_CHECKING:
    from tetrad.kernel.build import KernelBuilder, Val

PLACES = (i32, i64)


def check_starts(name: str, x: ArrayType, starts: ArrayType) -> None:
    if starts.dtype not in PLACES or starts.shape != (x.rank,):
        message = f"{name}: {x} needs its starts as i32[{x.rank}] or i64[{x.rank}], got {starts}"
        raise (DtypeError if starts.shape == (x.rank,) else ShapeError)(message)


def check_fits(name: str, x: ArrayType, sizes: Shape) -> None:
    pairs = zip(sizes, x.shape, strict=False)
    if len(sizes) != x.rank or any(
        lowest(size) < 0 or lowest(total - size) < 0 for size, total in pairs
    ):
        raise ShapeError(f"{name}: a part of {list(sizes)} does not fit into {x}")


def clamped(starts: Array, shape: Ints, sizes: Ints) -> list[slice]:
    low = [min(max(int(s), 0), n - size) for s, n, size in zip(starts, shape, sizes, strict=True)]
    return [slice(s, s + size) for s, size in zip(low, sizes, strict=True)]


def starts_of(x: Node | ArrayType, first: Node) -> Node:
    """A place in an array that differs along its first axis only."""
    rank = (x.type if isinstance(x, Node) else x).rank
    head = run("reshape", first, shape=(1,))
    return run("pad", head, low=(0,), high=(rank - 1,), value=0) if rank > 1 else head  # type: ignore[no-any-return]


# -- reading ---------------------------------------------------------------------------------------


def dynamic_slice_type(x: ArrayType, starts: ArrayType, *, sizes: Shape) -> ArrayType:
    check_dtype("dynamic_slice", x.dtype, EVERY)
    check_starts("dynamic_slice", x, starts)
    check_fits("dynamic_slice", x, sizes)
    return x.with_shape(sizes)


def _random_part(rng: Rng) -> tuple[Array, Array, Ints]:
    x = random_array(rng, pick(rng, EVERY), random_shape(rng, min_rank=1))
    sizes = tuple(int(rng.integers(0, n + 1)) for n in x.shape)
    return x, rng.integers(-3, 9, x.ndim).astype(pick(rng, PLACES).np), sizes


def _slice_cases(rng: Rng) -> Case:
    x, starts, sizes = _random_part(rng)
    return Case((x, starts), {"sizes": sizes})


@op(type=dynamic_slice_type, kind="movement", cases=_slice_cases, dtypes=EVERY, public=False)
def dynamic_slice(x: Array, starts: Array, *, sizes: Ints) -> Array:
    """The part of these sizes that begins at `starts`.

    >>> dynamic_slice(np.array([10, 20, 30, 40]), np.array([9]), sizes=(2,))
    array([30, 40])
    """
    return np.asarray(x)[tuple(clamped(starts, np.shape(x), sizes))]


@dynamic_slice.read
def dynamic_slice_read(k: KernelBuilder, at: At, x: Reader, starts: Reader, *, sizes: Shape) -> Val:
    places = []
    for axis, (i, size) in enumerate(zip(at, sizes, strict=True)):
        if size == x.shape[axis]:
            places.append(i)
            continue
        start = k.max(k.cast(starts((k.index(axis),)), index), k.index(0))
        places.append(k.min(start, x.size(axis) - x.value_of(size)) + i)
    return x(tuple(places))


def _slice_back(ct: Node, x: Node, starts: Node, *, sizes: Shape) -> Node:
    result: Node = dynamic_update_slice(filled(0, x.type), ct, starts)
    return result


dynamic_slice.transpose(_slice_back, None)


@dynamic_slice.batch
def dynamic_slice_batch(batched: Batched, x: Node, starts: Node, *, sizes: Shape) -> Node | None:
    """One place for all rows: the batch is one more whole axis."""
    if batched[1]:
        return None
    result: Node = dynamic_slice(x, after_batch(starts), sizes=(x.type.shape[0], *sizes))
    return result


def after_batch(starts: Node) -> Node:
    return run("pad", starts, low=(1,), high=(0,), value=0)  # type: ignore[no-any-return]


# -- writing ---------------------------------------------------------------------------------------


def dynamic_update_slice_type(x: ArrayType, update: ArrayType, starts: ArrayType) -> ArrayType:
    check_dtype("dynamic_update_slice", x.dtype, EVERY)
    if update.dtype is not x.dtype:
        raise DtypeError(
            f"dynamic_update_slice: {x} cannot take {update}", hint="convert it with astype"
        )
    check_starts("dynamic_update_slice", x, starts)
    check_fits("dynamic_update_slice", x, update.shape)
    return x


def _update_cases(rng: Rng) -> Case:
    x, starts, sizes = _random_part(rng)
    return Case(
        (x, random_array(rng, pick(rng, [d for d in EVERY if d.np == x.dtype]), sizes), starts)
    )


@op(
    type=dynamic_update_slice_type,
    kind="special",
    in_place=True,
    cases=_update_cases,
    dtypes=EVERY,
    public=False,
    in_memory=(0,),
)
def dynamic_update_slice(x: Array, update: Array, starts: Array) -> Array:
    """x with `update` in the place that begins at `starts`.

    >>> dynamic_update_slice(np.array([10, 20, 30, 40]), np.array([7]), np.array([1]))
    array([10,  7, 30, 40])
    """
    result = np.array(x)
    result[tuple(clamped(starts, result.shape, np.shape(update)))] = update
    return result


dynamic_update_slice.transpose(
    lambda ct, x, update, starts: dynamic_update_slice(ct, filled(0, update.type), starts),
    lambda ct, x, update, starts: dynamic_slice(ct, starts, sizes=update.type.shape),
    None,
)


@dynamic_update_slice.jvp_of_all
def dynamic_update_slice_jvp(
    tangents: tuple[Node | None, ...], y: Node, x: Node, update: Node, starts: Node
) -> Node | None:
    pairs = zip(tangents[:2], (x, update), strict=True)
    dx, du = (filled(0, v.type) if t is None else t for t, v in pairs)
    result: Node = dynamic_update_slice(dx, du, starts)
    return result


@dynamic_update_slice.batch
def dynamic_update_slice_batch(
    batched: Batched, x: Node, update: Node, starts: Node
) -> Node | None:
    if batched[2]:
        return None
    result: Node = dynamic_update_slice(*all_batched(batched[:2], (x, update)), after_batch(starts))
    return result
