"""The op `linear_4bit_int8`: rows in 8 bits times a weight of unsigned nibbles, by exact dots of
integers.

Rows come as codes, four to a word, with a scale and a sum for every few words (`arrays.int4` makes
them), and as the floats they were, for derivatives; the weight is that of `linear_4bit`. Blocks
ascend from the bias on; in each, the dot is exact and the scaled dot is rounded, then added.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tetrad.core.dtypes import f32, i32, u32
from tetrad.core.errors import ShapeError
from tetrad.core.op import Case, op
from tetrad.core.sizes import plain
from tetrad.core.types import ArrayType
from tetrad.graph.nodes import Node
from tetrad.ops.cases import Rng, pick, random_array
from tetrad.ops.int4.op import WORD, bytes_of, check_rows, check_words
from tetrad.ops.int4.stack import batched_stack, beside_rows, check_stack
from tetrad.ops.linear_4bit.op import (
    check_affine,
    check_bias,
    drawn_case,
    group_count,
    linear_4bit_jvp,
    parted,
)
from tetrad.ops.rules import Array, ieee


def block_count(words: int, block: int) -> int:
    return -(-words // block)


def linear_4bit_int8_type(
    codes: ArrayType,
    w: ArrayType,
    sums: ArrayType,
    scales: ArrayType,
    x: ArrayType,
    *rest: ArrayType,
    block: int,
    group_size: int = 0,
) -> ArrayType:
    check_words("linear_4bit_int8", codes, w, inner=2)
    words, outer = plain(w.shape[-2]), codes.shape[:-2]
    if codes.dtype is not u32 or codes.shape[-2:] != (words, 2):
        raise ShapeError(f"linear_4bit_int8: expected codes u32[..., {words}, 2], got {codes}")
    if block < 1 or group_size % (block * WORD) and group_size < words * WORD:
        raise ShapeError(f"linear_4bit_int8: no groups of {group_size} in blocks of {block} words")
    for side, dtype in ((sums, i32), (scales, f32)):
        wanted = ArrayType(dtype, (*outer, block_count(words, block)))
        if side != wanted:
            raise ShapeError(f"linear_4bit_int8: expected {wanted}, got {side}")
    check_rows("linear_4bit_int8", (x,), outer, words)
    affine, bias = parted(rest)
    check_affine("linear_4bit_int8", f32, w, affine, group_size)
    check_bias("linear_4bit_int8", f32, w, bias)
    if w.rank == 3:
        check_stack("linear_4bit_int8", codes, rest)
    return ArrayType(f32, (*outer, w.shape[-1]))


def _cases(rng: Rng) -> Case:
    x, _, w, affine, bias, size = drawn_case(rng, f32)
    words, block = w.shape[-2], pick(rng, (1, 2, 4))
    if size % (block * WORD) and size < words * WORD:
        block, size = 1, WORD * max(1, size // WORD)
        affine = [np.repeat(s[..., :1, :], group_count(words * WORD, size), -2) for s in affine]
    outer, blocks = x.shape[:-1], block_count(words, block)
    codes = rng.integers(0, 1 << 32, (*outer, words, 2), dtype=np.uint32)
    sums = rng.integers(-4000, 4000, (*outer, blocks)).astype(np.int32)
    scales = random_array(rng, f32, (*outer, blocks))
    settings = {"block": block, "group_size": size}
    return Case((codes, w, sums, scales, x, *affine, *bias), settings)


@op(
    type=linear_4bit_int8_type,
    kind="special",
    cases=_cases,
    dtypes=(u32,),
    epilogue=True,
    may_fail=False,
    public=False,
)
@ieee
def linear_4bit_int8(
    codes: Array,
    w: Array,
    sums: Array,
    scales: Array,
    x: Array,
    *rest: Array,
    block: int,
    group_size: int = 0,
) -> Array:
    """Bias plus, over blocks of words, (scale of the row * scale of the weight) * (dot - zero point
    * sum); without scale and zero point of the weight, scale of the row * dot. What follows the
    rows x, which were rounded to the codes, is that of `linear_4bit`; so are the derivatives.

    The bytes of codes[..., i, 0] meet nibbles 0, 2, 4, 6 of word i, those of codes[..., i, 1] the
    others; `sums` are those of the bytes of a block.

    >>> codes = np.array([[1, 0, 0, 0], [2, 0, 0, 0]], np.int8).view(np.uint32)[:, 0]
    >>> sums, scales, b = np.array([3], np.int32), np.float32([0.5]), np.float32([1])
    >>> x, words = np.float32([0.5, 1, 0, 0, 0, 0, 0, 0]), np.array([[0x43]], np.uint32)
    >>> linear_4bit_int8(codes[None], words, sums, scales, x, b, block=1)
    array([6.5], dtype=float32)
    """
    (affine, bias), rank = parted(rest), codes.ndim - 1
    total = np.zeros((*codes.shape[:-2], w.shape[-1]), np.float32)
    for b in bias:
        total[...] = beside_rows(b, rank)
    for i, first in enumerate(range(0, w.shape[-2], block)):
        here = slice(first, first + block)
        value = nibble_dots(codes[..., here, :], w[..., here, :]).astype(np.float32)
        factor = scales[..., i, None]
        if affine:
            scale, zero_point = (
                beside_rows(side[..., first * WORD // group_size, :], rank) for side in affine
            )
            held = zero_point.astype(np.float32) * sums[..., i, None].astype(np.float32)
            value, factor = value - held, factor * scale
        total += factor * value
    return total


def nibble_dots(codes: Array, w: Array) -> Array:
    """Dots of signed bytes with unsigned nibbles, i32[..., outputs]."""
    total = np.zeros((*codes.shape[:-2], w.shape[-1]), np.int32)
    held = bytes_of(codes)
    for i in range(w.shape[-2]):
        for j in range(WORD):
            nibble = ((w[..., i, :] >> np.uint32(4 * j)) & np.uint32(15)).astype(np.int32)
            row = held[..., i, j % 2, j // 2, None].astype(np.int32)
            total += row * beside_rows(nibble, codes.ndim - 1)
    return total


@linear_4bit_int8.jvp_of_all
def linear_4bit_int8_jvp(
    tangents: Sequence[Node | None],
    y: Node,
    codes: Node,
    w: Node,
    sums: Node,
    scales: Node,
    x: Node,
    *rest: Node,
    block: int,
    group_size: int = 0,
) -> Node | None:
    """Rounding of rows to 8 bits is taken for no change."""
    by = (tangents[4], None, *tangents[5:])
    found: Node | None = linear_4bit_jvp(by, y, x, w, *rest, group_size=group_size)
    return found


linear_4bit_int8.batch(batched_stack(linear_4bit_int8, rows=(0, 2, 3, 4)))
