"""The op `linear_4bit`, rows times a weight of unsigned nibbles that stays packed, and the op of its
derivative by the rows.

A word holds eight inputs of one output: input k of output i is bits 4 (k % 8) and up of
w[k // 8, i]. The order of a sum is part of the meaning: from the bias on, k ascends, each product
is rounded and then added. Weights may be stacked: a leading axis on all operands, of size 1 where
one is shared. How weights are packed for users is left to `nn`.
"""

from __future__ import annotations

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
    zeros,
)
from tetrad.ops.cases import Rng, pick, random_array
from tetrad.ops.int4.stack import batched_stack, beside_rows, check_stack
from tetrad.ops.matmul.op import matmul
from tetrad.ops.movement import padded
from tetrad.ops.rules import Array, check_dtype, ieee

WORD = 8  # nibbles of a word
COMPUTED = (f32, f64)  # halves are converted by the caller


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
    name: str, dtype: DType, w: ArrayType, affine: tuple[ArrayType, ...], group_size: int
) -> None:
    """Scale and zero point, [groups, outputs] of the type of the sums, or neither."""
    if len(affine) not in (0, 2) or bool(affine) != (group_size > 0):
        raise ShapeError(f"{name}: a scale and a zero point go with a group size, got {group_size}")
    for side in affine:
        groups = group_count(WORD * plain(w.shape[-2]), group_size)
        wanted = ArrayType(dtype, (groups, w.shape[-1]))
        if side.with_shape(side.shape[-2:]) != wanted or side.rank != w.rank:
            raise ShapeError(
                f"{name}: expected {wanted} for each group of {group_size}, got {side}"
            )


def linear_4bit_type(
    x: ArrayType, w: ArrayType, b: ArrayType, *affine: ArrayType, group_size: int = 0
) -> ArrayType:
    check_weight("linear_4bit", x, w)
    if x.shape[-1] != WORD * plain(w.shape[-2]):
        raise ShapeError(f"linear_4bit: rows {x} do not fit the weight {w}, eight inputs to a word")
    if b.dtype is not x.dtype or b.rank != w.rank - 1 or b.shape[-1] != w.shape[-1]:
        raise ShapeError(f"linear_4bit: expected a bias {x.dtype}[{w.shape[-1]}], got {b}")
    check_affine("linear_4bit", x.dtype, w, affine, group_size)
    if w.rank == 3:
        check_stack("linear_4bit", x, (w, b, *affine))
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


def weights_at(w: Array, affine: tuple[Array, ...], group_size: int, k: int, dtype: DType) -> Array:
    """What input k is multiplied with: [(stack,) outputs], (nibble - zero point) * scale."""
    nibbles = (w[..., k // WORD, :] >> np.uint32(4 * (k % WORD))) & np.uint32(15)
    numbers = nibbles.astype(dtype.np)
    if affine:
        scale, zero_point = (side[..., k // group_size, :] for side in affine)
        numbers = (numbers - zero_point) * scale
    return numbers


def drawn_case(rng: Rng, *dtypes: DType) -> tuple[list[Array], Array, list[Array], int]:
    """Rows, words, bias, scale and zero point of an odd size; now and then stacked."""
    dtype = pick(rng, dtypes or COMPUTED)
    words, outputs = pick(rng, (1, 2, 3, 5)), pick(rng, (1, 2, 3, 15, 16, 17, 33, 40))
    lead = pick(rng, ((), (1,), (3,), (0,), (2, 3), (9,)))
    stack = pick(rng, (None, None, 1, 3))
    group_size = pick(rng, (0, 0, 1, 3, 4, 8, 10, 16, 100))

    def stacked(*shape: int) -> tuple[int, ...]:
        return shape if stack is None else (pick(rng, (1, stack)), *shape)

    outer = lead if stack is None else (stack, *lead)
    w = rng.integers(0, 1 << 32, stacked(words, outputs), dtype=np.uint32)
    groups = (group_count(WORD * words, group_size), outputs) if group_size else ()
    sides = [random_array(rng, dtype, stacked(*groups)) for _ in range(2 if groups else 0)]
    x, ct = (random_array(rng, dtype, (*outer, n)) for n in (WORD * words, outputs))
    b = random_array(rng, dtype, stacked(outputs))
    return [x, ct, b], w, sides, group_size


def _cases(rng: Rng) -> Case:
    (x, _, b), w, affine, group_size = drawn_case(rng)
    return Case((x, w, b, *affine), {"group_size": group_size})


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
def linear_4bit(x: Array, w: Array, b: Array, *affine: Array, group_size: int = 0) -> Array:
    """Bias plus the sum over k of x[..., k] * (nibble - zero point) * scale, where scale and zero
    point are those of the group of k and the output; without them, x[..., k] * nibble.

    >>> words = np.array([[0x87654321, 0]], np.uint32)
    >>> linear_4bit(np.arange(1, 9, dtype=np.float32), words, np.zeros(2, np.float32))
    array([204.,   0.], dtype=float32)
    """
    total = np.empty((*x.shape[:-1], w.shape[-1]), x.dtype)
    total[...] = beside_rows(b, x.ndim)
    dtype = f64 if x.dtype == f64.np else f32
    for k in range(x.shape[-1]):
        numbers = weights_at(w, affine, group_size, k, dtype)
        total += x[..., k, None] * beside_rows(numbers, x.ndim)
    return total


def _back_cases(rng: Rng) -> Case:
    (_, ct, _), w, affine, group_size = drawn_case(rng)
    return Case((ct, w, *affine), {"group_size": group_size})


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
    inputs, outputs = WORD * w.shape[-2], w.shape[-1]
    total = np.empty((*ct.shape[:-1], inputs), ct.dtype)
    dtype = f64 if ct.dtype == f64.np else f32
    for k in range(inputs):
        numbers = beside_rows(weights_at(w, affine, group_size, k, dtype), ct.ndim)
        sums = np.zeros((*ct.shape[:-1], LANES), ct.dtype)
        for i in range(0, outputs, LANES):
            part = ct[..., i : i + LANES] * numbers[..., i : i + LANES]
            sums[..., : part.shape[-1]] += part
        total[..., k] = joined(sums)
    return total


def joined(sums: Array) -> Array:
    """Sixteen sums along the last axis, joined by halving."""
    width = sums.shape[-1]
    while width > 1:
        width //= 2
        sums = sums[..., :width] + sums[..., width : 2 * width]
    return sums[..., 0]


# -- derivatives -----------------------------------------------------------------------------------


def no_bias(x: Node, w: Node) -> Node:
    """Zeros where the bias stands; of a stack one for all."""
    return zeros(x.type, (1,) * (w.type.rank - 2) + (w.type.shape[-1],))


def by_rows(
    t: Node, y: Node, x: Node, w: Node, b: Node, *affine: Node, group_size: int = 0
) -> Node:
    result: Node = linear_4bit(t, w, no_bias(x, w), *affine, group_size=group_size)
    return result


def by_bias(
    t: Node, y: Node, x: Node, w: Node, b: Node, *affine: Node, group_size: int = 0
) -> Node:
    return expand(between(t, y.type.rank), y.type.shape)


def by_scale(
    t: Node, y: Node, x: Node, w: Node, b: Node, *affine: Node, group_size: int = 0
) -> Node:
    zero_point = affine[1]
    result: Node = linear_4bit(x, w, no_bias(x, w), t, zero_point, group_size=group_size)
    return result


def by_zero_point(
    t: Node, y: Node, x: Node, w: Node, b: Node, *affine: Node, group_size: int = 0
) -> Node:
    """-(sums of x over groups) @ (t * scale): the nibbles do not matter."""
    sums = group_sums(matrices(x, w), group_size)
    flat = matmul(sums, expand_stack(-t, sums) * expand_stack(affine[0], sums))
    return reshape(flat, y.type.shape)


def between(x: Node, rank: int) -> Node:
    """[(stack,) outputs] with axes of size 1 in between, up to a rank."""
    stack, outputs = x.type.shape[:-1], x.type.shape[-1]
    return reshape(x, (*stack, *(1,) * (rank - 1 - len(stack)), outputs))


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


linear_4bit.jvp(by_rows, None, by_bias, by_scale, by_zero_point)


def rows_transposed(
    ct: Node, x: Node, w: Node, b: Node, *affine: Node, group_size: int = 0
) -> Node:
    result: Node = linear_4bit_back(ct, w, *affine, group_size=group_size)
    return result


def bias_transposed(
    ct: Node, x: Node, w: Node, b: Node, *affine: Node, group_size: int = 0
) -> Node:
    stack = w.type.rank - 2
    return sum_to(reduce_sum(ct, range(stack, ct.type.rank - 1)), b.type.shape)


def scale_transposed(
    ct: Node, x: Node, w: Node, b: Node, *affine: Node, group_size: int = 0
) -> Node:
    return scale_cotangent(x, ct, w, affine, group_size)


def scale_cotangent(x: Node, ct: Node, w: Node, affine: tuple[Node, ...], group_size: int) -> Node:
    """Over each group of k the sum of (x^T ct)[k, i] * (nibble - zero point). The product x^T ct is
    as large as the weight in floats; the weight itself is decoded where the sum reads it."""
    scale, zero_point = affine
    outer = matmul(swapped(matrices(x, w)), matrices(ct, w))
    groups = in_groups(outer, outer.type.rank - 2, group_size)
    held = in_groups(cast(decoded(w), x.type.dtype), w.type.rank - 2, group_size)
    each = expand(
        reshape(zero_point, (*zero_point.type.shape[:-1], 1, zero_point.type.shape[-1])),
        (*zero_point.type.shape[:-1], *held.type.shape[-2:]),
    )
    stack = outer.type.shape[:-2]
    numbers = expand(held, (*stack, *held.type.shape[-3:])) - expand(
        each, (*stack, *each.type.shape[-3:])
    )
    return sum_to(reduce_sum(groups * numbers, (groups.type.rank - 2,)), scale.type.shape)


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


linear_4bit.transpose(rows_transposed, None, bias_transposed, scale_transposed)


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
    result: Node = linear_4bit(given, w, no_bias(ct, w), *affine, group_size=group_size)
    return result


def back_scale_transposed(
    given: Node, ct: Node, w: Node, *affine: Node, group_size: int = 0
) -> Node:
    return scale_cotangent(given, ct, w, affine, group_size)


linear_4bit_back.transpose(back_rows_transposed, None, back_scale_transposed)


# -- batches ---------------------------------------------------------------------------------------


linear_4bit.batch(batched_stack(linear_4bit))
linear_4bit_back.batch(batched_stack(linear_4bit_back))
