"""Ops with a generator of their own in lowering: matrix product, running sum and product, scattered
sum.

Here they have their meaning, types and test cases; the order in which a compiled matrix product
adds is in docs/numerics.md.
"""

from __future__ import annotations

import numpy as np

from tetrad.core.dtypes import f32, f64, i8, i32
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.core.op import Case, op
from tetrad.core.sizes import Size
from tetrad.core.types import ArrayType
from tetrad.graph.build import filled, make_graph, make_parameter
from tetrad.graph.loops import make_scan
from tetrad.graph.nodes import Node
from tetrad.ops.calculus import (
    Batched,
    all_batched,
    batched_axis,
    full_like,
    moved,
    reshape,
    run,
    sliced,
    sum_to,
    swapped,
    zeros_like,
)
from tetrad.ops.cases import (
    Rng,
    exact_array,
    line_shape,
    pick,
    random_indices,
    random_shape,
    unit_array,
)
from tetrad.ops.gather import offset_indices
from tetrad.ops.movement import flipped
from tetrad.ops.rules import (
    ANY_NUMBERS,
    EVERY,
    INDICES,
    Array,
    broadcast_shapes,
    check_axis,
    check_dtype,
    check_index_dtype,
    check_same,
    ieee,
    lowest,
    wrapped_indices,
)

# -- matrix product --------------------------------------------------------------------------------


def matmul_type(a: ArrayType, b: ArrayType) -> ArrayType:
    if a.dtype is not b.dtype:
        raise DtypeError(
            f"matmul: operands have different dtypes: {a}, {b}", hint="convert with astype"
        )
    check_dtype("matmul", a.dtype, EVERY)
    if a.rank != b.rank or a.rank < 2:
        raise ShapeError(
            f"matmul: operands need equal rank, at least 2, got {a} and {b}",
            hint="expand_dims adds axes",
        )
    if a.shape[-1] != b.shape[-2]:
        sides = f"lhs {a} contracts {a.shape[-1]}, rhs {b} contracts {b.shape[-2]}"
        raise ShapeError(f"matmul: inner sizes differ: {sides}", hint="transpose one side")
    batch = broadcast_shapes("matmul", a.with_shape(a.shape[:-2]), b.with_shape(b.shape[:-2]))
    return ArrayType(i32 if a.dtype is i8 else a.dtype, (*batch, a.shape[-2], b.shape[-1]))


def _matmul_cases(rng: Rng) -> Case:
    dtype, batch = pick(rng, EVERY), [pick(rng, (1, 2, 3)) for _ in range(rng.integers(0, 3))]
    m, n = (pick(rng, (0, 1, 2, 3, 5, 8, 16, 17, 33)) for _ in range(2))
    inner = pick(rng, (0, 1, 2, 7, 16, 33, 1030))
    left, right = ([pick(rng, (1, size)) for size in batch] for _ in range(2))
    return Case(
        (exact_array(rng, dtype, (*left, m, inner)), exact_array(rng, dtype, (*right, inner, n)))
    )


@op(
    type=matmul_type,
    kind="special",
    cases=_matmul_cases,
    dtypes=EVERY,
    promote="numeric",
    public=False,
    prologue=True,
    epilogue=True,
    may_fail=False,
)
@ieee
def matmul(a: Array, b: Array) -> Array:
    """Matrix product of the last two axes, the others broadcast. Halves accumulate in f32 and round
    once; i8 gives i32, other integers wrap in their own type; of truth values, whether any product
    is true.

    >>> matmul(np.array([[1, 2], [3, 4]]), np.array([[5], [6]]))
    array([[17],
           [39]])
    """
    if a.dtype == np.int8:
        a, b = a.astype(np.int32), b.astype(np.int32)
    return np.matmul(a, b)


matmul.transpose(
    lambda ct, a, b: sum_to(matmul(ct, swapped(b)), a.type.shape),
    lambda ct, a, b: sum_to(matmul(swapped(a), ct), b.type.shape),
)


@matmul.batch
def matmul_batch(batched: Batched, a: Node, b: Node) -> Node:
    """One product where the right side is shared by matrices: their rows one below the other."""
    if batched == (True, False) and b.type.rank == 2:
        size, rows, inner = a.type.shape
        flat = matmul(reshape(a, (size * rows, inner)), b)
        return reshape(flat, (size, rows, b.type.shape[-1]))
    sides = (
        x if flag else reshape(x, (1, *x.type.shape))
        for x, flag in zip((a, b), batched, strict=True)
    )
    result: Node = matmul(*sides)
    return result


# -- running sum -----------------------------------------------------------------------------------


def cumsum_type(x: ArrayType, *, axis: int, exclusive: bool = False) -> ArrayType:
    check_dtype("cumsum", x.dtype, ANY_NUMBERS)
    check_axis("cumsum", axis, x)
    return x


def _cumsum_cases(rng: Rng) -> Case:
    shape = line_shape(rng)
    settings = {"axis": int(rng.integers(len(shape))), "exclusive": bool(rng.integers(2))}
    return Case((exact_array(rng, pick(rng, ANY_NUMBERS), shape),), settings)


@op(type=cumsum_type, kind="special", cases=_cumsum_cases, dtypes=ANY_NUMBERS, public=False)
@ieee
def cumsum(x: Array, *, axis: int, exclusive: bool = False) -> Array:
    """Sums of everything up to each element along an axis, from left to right; without the element
    when exclusive.

    >>> cumsum(np.array([[1, 2, 3, 4]]), axis=1)
    array([[ 1,  3,  6, 10]])
    >>> cumsum(np.array([[1, 2, 3, 4]]), axis=1, exclusive=True)
    array([[0, 1, 3, 6]])
    """
    sums = np.cumsum(x, axis, dtype=x.dtype) + x.dtype.type(0)  # sums start from +0, so none is -0
    if not exclusive or not x.shape[axis]:
        return sums
    first = np.zeros_like(np.take(sums, [0], axis))
    return np.concatenate([first, np.delete(sums, -1, axis)], axis)


def _cumsum_back(ct: Node, x: Node, *, axis: int, exclusive: bool = False) -> Node:
    """Sums from the other end."""
    return flipped(cumsum(flipped(ct, axis), axis=axis, exclusive=exclusive), axis)


cumsum.transpose(_cumsum_back)
cumsum.batch(batched_axis(cumsum, axis=1))


# -- running product -------------------------------------------------------------------------------


def cumprod_type(x: ArrayType, *, axis: int) -> ArrayType:
    check_dtype("cumprod", x.dtype, ANY_NUMBERS)
    check_axis("cumprod", axis, x)
    return x


def _cumprod_cases(rng: Rng) -> Case:
    shape = line_shape(rng)
    return Case(
        (unit_array(rng, pick(rng, ANY_NUMBERS), shape),), {"axis": int(rng.integers(len(shape)))}
    )


@op(type=cumprod_type, kind="special", cases=_cumprod_cases, dtypes=ANY_NUMBERS, public=False)
@ieee
def cumprod(x: Array, *, axis: int) -> Array:
    """Products of everything up to each element along an axis, from left to right; integers wrap.

    >>> cumprod(np.array([[1, 2, 3, 4]]), axis=1)
    array([[ 1,  2,  6, 24]])
    """
    return np.cumprod(x, axis, dtype=x.dtype)


@cumprod.jvp
def cumprod_jvp(t: Node, y: Node, x: Node, *, axis: int) -> Node:
    """Row by row, c becomes c * x + (the product before) * t: no quotients, so elements may be
    0."""
    length = x.type.shape[axis]
    if length == 0:
        return zeros_like(y)
    before = run(
        "concat", full_like(sliced(y, axis, 0, 1), 1), sliced(y, axis, 0, length - 1), axis=axis
    )
    rows = [moved(v, axis, 0) for v in (x, before, t)]
    kind = x.type.with_shape(rows[0].type.shape[1:])
    c, factor, product, change = inputs = [make_parameter(kind, i) for i in range(4)]
    after = c * factor + product * change
    body = make_graph("cumprod_jvp", inputs, [after, after])
    _, changes = make_scan(body, [], [filled(0, kind)], rows, length=length)
    return moved(changes, 0, axis)


cumprod.batch(batched_axis(cumprod, axis=1))


def cumprod_parts_type(re: ArrayType, im: ArrayType) -> tuple[ArrayType, ArrayType]:
    check_same("cumprod_parts", (re, im))
    check_dtype("cumprod_parts", re.dtype, (f32, f64))
    check_axis("cumprod_parts", 0, re)
    return re, im


@op(type=cumprod_parts_type, kind="special", public=False)
def cumprod_parts(re: Array, im: Array) -> tuple[Array, Array]:
    """The parts of the products of complex numbers up to each along the first axis.

    >>> cumprod_parts(np.array([0.0, 3.0]), np.array([1.0, 4.0]))
    (array([ 0., -4.]), array([1., 3.]))
    """
    reals, imags = re.copy(), im.copy()
    for i in range(1, len(re)):
        a, b, c, d = reals[i - 1], imags[i - 1], re[i], im[i]
        reals[i], imags[i] = a * c - b * d, a * d + b * c
    return reals, imags


cumprod_parts.not_differentiable("compiling puts it in, after derivatives were taken")


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


# -- rows added to where they belong ---------------------------------------------------------------


def add_at_type(x: ArrayType, updates: ArrayType, indices: ArrayType) -> ArrayType:
    if updates.dtype is not x.dtype:
        raise DtypeError(f"add_at: {x} cannot take {updates}", hint="convert it with astype")
    if x.rank < 1 or scatter_add_type(updates, indices, size=x.shape[0]) != x:
        raise ShapeError(f"add_at: rows of {updates} are no rows of {x}")
    return x


def _add_at_cases(rng: Rng) -> Case:
    case = _scatter_add_cases(rng)
    updates, indices = case.args
    kind = pick(rng, [d for d in ANY_NUMBERS if d.np == updates.dtype])
    return Case(
        (exact_array(rng, kind, (case.params["size"], *updates.shape[1:])), updates, indices)
    )


@op(
    type=add_at_type,
    kind="special",
    in_place=True,
    cases=_add_at_cases,
    dtypes=ANY_NUMBERS,
    public=False,
)
def add_at(x: Array, updates: Array, indices: Array) -> Array:
    """x, to whose row indices[i] row i of updates is added, i ascending: each sum is rounded before
    the next, and rows that are not named keep their bits. Indices as in `gather`.

    >>> add_at(np.array([1, 1, 1]), np.array([2, 3, 4]), np.array([1, 0, 1]))
    array([4, 7, 1])
    """
    result = np.array(x)
    with np.errstate(all="ignore"):
        np.add.at(result, wrapped_indices("add_at", indices, 0, len(result)), updates)
    return result


add_at.transpose(
    lambda ct, x, updates, indices: ct,
    lambda ct, x, updates, indices: run("gather", ct, indices, axis=0),
    None,
)


@add_at.jvp_of_all
def add_at_jvp(
    tangents: tuple[Node | None, ...], y: Node, x: Node, updates: Node, indices: Node
) -> Node | None:
    dx, du = tangents[:2]
    if du is None:
        return dx
    result: Node = add_at(filled(0, x.type) if dx is None else dx, du, indices)
    return result


@add_at.batch
def add_at_batch(batched: Batched, x: Node, updates: Node, indices: Node) -> Node:
    """Shared indices: the batch is a trailing axis. Else all rows together, in one table after the
    other."""
    if not batched[2]:
        sides = all_batched(batched[:2], (x, updates))
        return moved(add_at(*(moved(side, 0, 1) for side in sides), indices), 1, 0)
    x, updates, indices = all_batched(batched, (x, updates, indices))
    (batch, size, *rest), count = x.type.shape, updates.type.shape[1]
    flat = reshape(offset_indices("add_at", indices, 0, size), (batch * count,))
    rows = add_at(reshape(x, (batch * size, *rest)), reshape(updates, (batch * count, *rest)), flat)
    return reshape(rows, x.type.shape)


# -- product of complex numbers --------------------------------------------------------------------


def product_parts_type(re: ArrayType, im: ArrayType) -> tuple[ArrayType, ArrayType]:
    check_same("product_parts", (re, im))
    check_dtype("product_parts", re.dtype, (f32, f64))
    check_axis("product_parts", 0, re)
    kind = re.with_shape(re.shape[1:])
    return kind, kind


@op(type=product_parts_type, kind="special", public=False)
def product_parts(re: Array, im: Array) -> tuple[Array, Array]:
    """The parts of the product of complex numbers along the first axis, in order; of none it is 1.

    >>> product_parts(np.array([0.0, 3.0]), np.array([1.0, 4.0]))
    (array(-4.), array(3.))
    """
    a, b = np.ones(re.shape[1:], re.dtype), np.zeros(re.shape[1:], re.dtype)
    for c, d in zip(re, im, strict=True):
        a, b = a * c - b * d, a * d + b * c
    return np.asarray(a), np.asarray(b)


product_parts.not_differentiable("compiling puts it in, after derivatives were taken")
