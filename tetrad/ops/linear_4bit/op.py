"""The op `linear_4bit`, rows times a weight of unsigned nibbles that stays packed, and the op of
its derivative by the rows.

A word holds eight inputs of one output: input k of output i is bits 4 (k % 8) and up of
w[k // 8, i]. The order of a sum is part of the meaning: from the bias on, k ascends, each product
is rounded and then added. Weights may be stacked: a leading axis on all operands, of size 1 where
one is shared. How weights are packed for users is left to `nn`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import TypeVar

import numpy as np

from tetrad.core.dtypes import DType, f32, f64, u32
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.core.machine import LANES
from tetrad.core.op import Case, op
from tetrad.core.sizes import Shape, plain, product
from tetrad.core.types import ArrayType
from tetrad.graph.build import make_constant
from tetrad.graph.nodes import Node
from tetrad.ops.calculus import (
    cast,
    expand,
    reduce_sum,
    reshape,
    run,
    sum_to,
    swapped,
)
from tetrad.ops.cases import Rng, pick, random_array
from tetrad.ops.int4.stack import batched_stack, beside_rows, between, check_stack
from tetrad.ops.matmul.op import matmul
from tetrad.ops.movement import padded
from tetrad.ops.rules import Array, check_dtype, ieee

WORD = 8  # nibbles of a word
COMPUTED = (f32, f64)  # halves are converted by the caller
T = TypeVar("T")


# -- types -----------------------------------------------------------------------------------------


def group_count(inputs: int, group_size: int) -> int:
    return -(-inputs // group_size)


def check_weight(name: str, x: ArrayType, w: ArrayType) -> None:
    check_dtype(name, x.dtype, COMPUTED)
    if w.dtype is not u32 or w.rank not in (2, 3) or not isinstance(w.shape[-2], int):
        raise DtypeError(f"{name}: expected words u32[inputs / 8, outputs], got {w}")
    if x.rank < w.rank - 1:
        raise ShapeError(f"{name}: rows {x} have no axis for the stack of {w}")


def check_affine(
    name: str, dtype: DType, w: ArrayType, affine: Sequence[ArrayType], group_size: int
) -> None:
    """Scale and zero point, [groups, outputs] of the type of the sums, or neither. A zero point may
    be u32 too."""
    if bool(affine) != (group_size > 0):
        raise ShapeError(f"{name}: a scale and a zero point go with a group size, got {group_size}")
    for side, dtypes in zip(affine, ((dtype,), (dtype, u32)), strict=False):
        shape = (group_count(WORD * plain(w.shape[-2]), group_size), w.shape[-1])
        if side.shape[-2:] != shape or side.rank != w.rank or side.dtype not in dtypes:
            wanted = ArrayType(dtype, shape)
            raise ShapeError(f"{name}: expected {wanted} for groups of {group_size}, got {side}")


def check_bias(name: str, dtype: DType, w: ArrayType, bias: Sequence[ArrayType]) -> None:
    for b in bias:
        if b.dtype is not dtype or b.rank != w.rank - 1 or b.shape[-1] != w.shape[-1]:
            raise ShapeError(f"{name}: expected a bias {dtype}[{w.shape[-1]}], got {b}")


def parted(rest: Sequence[T]) -> tuple[tuple[T, ...], tuple[T, ...]]:
    """Scale and zero point, or neither; the bias, or none."""
    count = 2 if len(rest) > 1 else 0
    return tuple(rest[:count]), tuple(rest[count:])


def linear_4bit_type(
    x: ArrayType, w: ArrayType, *rest: ArrayType, group_size: int = 0
) -> ArrayType:
    check_weight("linear_4bit", x, w)
    if x.shape[-1] != WORD * plain(w.shape[-2]):
        raise ShapeError(f"linear_4bit: rows {x} do not fit the weight {w}, eight inputs to a word")
    affine, bias = parted(rest)
    check_affine("linear_4bit", x.dtype, w, affine, group_size)
    check_bias("linear_4bit", x.dtype, w, bias)
    if w.rank == 3:
        check_stack("linear_4bit", x, (w, *rest))
    return x.with_shape((*x.shape[:-1], w.shape[-1]))


def linear_4bit_back_type(
    ct: ArrayType, w: ArrayType, *affine: ArrayType, group_size: int = 0
) -> ArrayType:
    check_weight("linear_4bit_back", ct, w)
    if ct.shape[-1] != w.shape[-1]:
        raise ShapeError(f"linear_4bit_back: rows {ct} do not fit the weight {w}")
    check_affine("linear_4bit_back", ct.dtype, w, affine, group_size)
    if w.rank == 3:
        check_stack("linear_4bit_back", ct, (w, *affine))
    return ct.with_shape((*ct.shape[:-1], WORD * plain(w.shape[-2])))


# -- meaning ---------------------------------------------------------------------------------------


def weights_of(
    w: Array, affine: Sequence[Array], group_size: int, inputs: Array, dtype: DType
) -> Array:
    """What these inputs are multiplied with, [(stack,) inputs, outputs]: (nibble - zero point) *
    scale."""
    shifts = (4 * (inputs % WORD)).astype(np.uint32)[:, None]
    numbers = ((w[..., inputs // WORD, :] >> shifts) & np.uint32(15)).astype(dtype.np)
    if affine:
        scale, zero_point = (side[..., inputs // group_size, :] for side in affine)
        numbers = (numbers - zero_point.astype(dtype.np)) * scale
    return numbers


Drawn = tuple[Array, Array, Array, list[Array], list[Array], int]


def drawn_case(rng: Rng, *dtypes: DType) -> Drawn:
    """Rows, cotangents of the result, words, scale and zero point or neither, a bias or none, the
    group size: of odd sizes, now and then stacked."""
    dtype = pick(rng, dtypes or COMPUTED)
    words, outputs = pick(rng, (1, 2, 3, 5)), pick(rng, (1, 2, 3, 15, 16, 17, 33, 40))
    stack = pick(rng, (None, None, 1, 3))
    outer = (*(() if stack is None else (stack,)), *pick(rng, ((), (1,), (3,), (0,), (2, 3), (9,))))
    size = pick(rng, (0, 0, 1, 3, 4, 8, 10, 16, 100))

    def floats(*shape: int) -> Array:
        front = () if stack is None else (pick(rng, (1, stack)),)
        return random_array(rng, dtype, (*front, *shape))

    groups = group_count(WORD * words, size) if size else 0
    affine = [floats(groups, outputs) for _ in range(2)] if size else []
    if size and rng.integers(2):
        affine[1] = rng.integers(0, 1 << 32, affine[1].shape, dtype=np.uint32)
    w = rng.integers(0, 1 << 32, floats(words, outputs).shape, dtype=np.uint32)
    x, ct = (random_array(rng, dtype, (*outer, n)) for n in (WORD * words, outputs))
    return x, ct, w, affine, [floats(outputs)] if rng.integers(2) else [], size


def _cases(rng: Rng) -> Case:
    x, _, w, affine, bias, size = drawn_case(rng)
    return Case((x, w, *affine, *bias), {"group_size": size})


@op(
    type=linear_4bit_type,
    kind="special",
    cases=_cases,
    dtypes=COMPUTED,
    epilogue=True,
    may_fail=False,
    public=False,
)
@ieee
def linear_4bit(x: Array, w: Array, *rest: Array, group_size: int = 0) -> Array:
    """The sum over k of x[..., k] * ((nibble - zero point) * scale), from the bias on. Behind the
    words stand scale and zero point [groups, outputs], or neither, then the bias, or none; without
    scale and zero point a term is x[..., k] * nibble.

    >>> words = np.array([[0x87654321, 0]], np.uint32)
    >>> linear_4bit(np.arange(1, 9, dtype=np.float32), words, np.float32([0, 1]))
    array([204.,   1.], dtype=float32)
    """
    affine, bias = parted(rest)
    total = np.zeros((*x.shape[:-1], w.shape[-1]), x.dtype)
    for b in bias:
        total[...] = beside_rows(b, x.ndim)
    dtype = f64 if x.dtype == f64.np else f32
    for k in range(x.shape[-1]):
        numbers = weights_of(w, affine, group_size, np.array([k]), dtype)
        total += x[..., k, None] * beside_rows(numbers[..., 0, :], x.ndim)
    return total


def _back_cases(rng: Rng) -> Case:
    _, ct, w, affine, _, size = drawn_case(rng)
    return Case((ct, w, *affine), {"group_size": size})


@op(
    type=linear_4bit_back_type,
    kind="special",
    cases=_back_cases,
    dtypes=COMPUTED,
    may_fail=False,
    public=False,
)
@ieee
def linear_4bit_back(ct: Array, w: Array, *affine: Array, group_size: int = 0) -> Array:
    """The sum over i of ct[..., i] times the weight of input k and output i, for every k: output i
    goes to sum i % 16, i ascends, and sums are joined by halving (i with i + 8, then 4, 2, 1).

    >>> words = np.array([[0x87654321, 0x11111111]], np.uint32)
    >>> linear_4bit_back(np.float32([1, 10]), words)
    array([11., 12., 13., 14., 15., 16., 17., 18.], dtype=float32)
    """
    dtype = f64 if ct.dtype == f64.np else f32
    inputs, rows = np.arange(WORD * w.shape[-2]), ct.shape[w.ndim - 2 : -1]
    sums = np.zeros((*ct.shape[:-1], len(inputs), LANES), ct.dtype)
    for i in range(0, w.shape[-1], LANES):
        here = (..., slice(i, i + LANES))
        numbers = weights_of(w[here], [side[here] for side in affine], group_size, inputs, dtype)
        stack = numbers.shape[:-2]
        each = numbers.reshape(*stack, *(1,) * len(rows), *numbers.shape[-2:])
        sums[..., : each.shape[-1]] += ct[here][..., None, :] * each
    return joined(sums)


def joined(sums: Array) -> Array:
    """Sixteen sums along the last axis, joined by halving."""
    width = sums.shape[-1]
    while width > 1:
        width //= 2
        sums = sums[..., :width] + sums[..., width : 2 * width]
    return sums[..., 0]


# -- derivatives -----------------------------------------------------------------------------------


@linear_4bit.jvp_of_all
def linear_4bit_jvp(
    tangents: Sequence[Node | None], y: Node, x: Node, w: Node, *rest: Node, group_size: int = 0
) -> Node | None:
    """Linear in rows, scale and bias; of zero points the nibbles do not matter: -(sums of x over
    groups) @ (t * scale)."""
    (affine, _), by_rows = parted(rest), tangents[0]
    by_affine, by_bias = parted(tangents[2:])
    parts: list[Node] = []
    if by_rows is not None:
        parts.append(linear_4bit(by_rows, w, *affine, group_size=group_size))
    if by_affine and by_affine[0] is not None:
        parts.append(linear_4bit(x, w, by_affine[0], affine[1], group_size=group_size))
    if by_affine and by_affine[1] is not None:
        sums = group_sums(matrices(x, w), group_size)
        factors = expand_stack(-by_affine[1], sums) * expand_stack(affine[0], sums)
        parts.append(reshape(matmul(sums, factors), y.type.shape))
    if by_bias and by_bias[0] is not None:
        parts.append(expand(between(by_bias[0], y.type.rank), y.type.shape))
    return reduce(add, parts) if parts else None


def matrices(x: Node, w: Node) -> Node:
    """Rows as [rows, columns], of a stack as [stack, rows, columns]."""
    stack = x.type.shape[: w.type.rank - 2]
    rows = x.type.shape[len(stack) : -1]
    return reshape(x, (*stack, product(rows), x.type.shape[-1]))


def expand_stack(x: Node, like: Node) -> Node:
    """A matrix with the stack of another."""
    return expand(x, (*like.type.shape[:-2], *x.type.shape[-2:]))


def in_groups(x: Node, axis: int, group_size: int) -> Node:
    """One axis as [groups, elements of a group], filled up with zeros."""
    size = plain(x.type.shape[axis])
    count, held = group_count(size, group_size), min(group_size, size)
    whole = padded(x, axis, 0, count * held - size)
    shape = x.type.shape
    return reshape(whole, (*shape[:axis], count, held, *shape[axis + 1 :]))


def group_sums(x: Node, group_size: int) -> Node:
    grouped = in_groups(x, x.type.rank - 1, group_size)
    return reduce_sum(grouped, (grouped.type.rank - 1,))


@linear_4bit.transpose_of_all
def linear_4bit_transpose(
    ct: Node, is_linear: Sequence[bool], x: Node, w: Node, *rest: Node, group_size: int = 0
) -> list[Node | None]:
    affine, bias = parted(rest)
    found: list[Node | None] = [None] * (2 + len(rest))
    if is_linear[0]:
        found[0] = linear_4bit_back(ct, w, *affine, group_size=group_size)
    if affine and is_linear[2]:
        found[2] = scale_cotangent(x, ct, w, affine, group_size)
    if bias and is_linear[-1]:
        summed = reduce_sum(ct, range(w.type.rank - 2, ct.type.rank - 1))
        found[-1] = sum_to(summed, bias[0].type.shape)
    return found


def scale_cotangent(x: Node, ct: Node, w: Node, affine: tuple[Node, ...], group_size: int) -> Node:
    """Over each group of k the sum of (x^T ct)[k, i] * (nibble - zero point). The product x^T ct is
    as large as the weight in floats; the weight itself is decoded where the sum reads it."""
    scale, zero_point = affine[0], cast(affine[1], x.type.dtype)
    outer = matmul(swapped(matrices(x, w)), matrices(ct, w))
    groups = in_groups(outer, outer.type.rank - 2, group_size)
    numbers = in_groups(cast(decoded(w), x.type.dtype), w.type.rank - 2, group_size)
    *stack, count, outputs = zero_point.type.shape
    zeros = reshape(zero_point, (*stack, count, 1, outputs))
    shape = groups.type.shape
    terms = groups * (expand(numbers, shape) - expand(zeros, shape))
    return sum_to(reduce_sum(terms, (len(shape) - 2,)), scale.type.shape)


def decoded(w: Node) -> Node:
    """Nibbles u32[..., inputs, outputs] of words [..., inputs / 8, outputs]."""
    *stack, words, outputs = w.type.shape
    shape: Shape = (*stack, words, WORD, outputs)
    shifts = make_constant(np.arange(0, 32, 4, dtype=np.uint32).reshape(WORD, 1))
    spread = expand(reshape(w, (*stack, words, 1, outputs)), shape)
    each = expand(reshape(shifts, (1,) * (len(shape) - 2) + (WORD, 1)), shape)
    nibbles = run("bitwise_and", run("bitwise_right_shift", spread, each), fifteen(shape))
    return reshape(nibbles, (*stack, WORD * plain(words), outputs))


def fifteen(shape: Shape) -> Node:
    held = make_constant(np.array(15, np.uint32))
    return expand(reshape(held, (1,) * len(shape)), shape)


def back_by_rows(t: Node, y: Node, ct: Node, w: Node, *affine: Node, group_size: int = 0) -> Node:
    result: Node = linear_4bit_back(t, w, *affine, group_size=group_size)
    return result


def back_by_scale(t: Node, y: Node, ct: Node, w: Node, *affine: Node, group_size: int = 0) -> Node:
    result: Node = linear_4bit_back(ct, w, t, affine[1], group_size=group_size)
    return result


def back_by_zero_point(
    t: Node, y: Node, ct: Node, w: Node, *affine: Node, group_size: int = 0
) -> Node:
    """-(ct @ (t * scale)^T), the same for all k of a group."""
    rows = matrices(ct, w)
    sums = matmul(rows, swapped(expand_stack(-t, rows) * expand_stack(affine[0], rows)))
    shape, inputs = sums.type.shape, plain(y.type.shape[-1])
    held = min(group_size, inputs)
    spread = reshape(
        expand(reshape(sums, (*shape, 1)), (*shape, held)), (*shape[:-1], shape[-1] * held)
    )
    starts, sizes = (0,) * spread.type.rank, (*shape[:-1], inputs)
    cut = run("slice", spread, starts=starts, sizes=sizes, steps=(1,) * spread.type.rank)
    return reshape(cut, y.type.shape)


linear_4bit_back.jvp(back_by_rows, None, back_by_scale, back_by_zero_point)


def back_rows_transposed(
    given: Node, ct: Node, w: Node, *affine: Node, group_size: int = 0
) -> Node:
    result: Node = linear_4bit(given, w, *affine, group_size=group_size)
    return result


def back_scale_transposed(
    given: Node, ct: Node, w: Node, *affine: Node, group_size: int = 0
) -> Node:
    return scale_cotangent(given, ct, w, affine, group_size)


linear_4bit_back.transpose(back_rows_transposed, None, back_scale_transposed)


# -- batches ---------------------------------------------------------------------------------------


linear_4bit.batch(batched_stack(linear_4bit))
linear_4bit_back.batch(batched_stack(linear_4bit_back))
