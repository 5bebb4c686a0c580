"""Ops on packed signed nibbles, eight to a word: rows of floats times a packed weight, its
derivative by the rows, and rows in 8 bits times a packed weight.

Column c of row r is bits 4 (c % 8) and up of w[r, c // 8], in two's complement; rows are filled up
to whole words, and what stands behind the last column does not count. The order of a sum is part of
the meaning: columns ascend from zero, each product is rounded and then added; dots of integers are
exact. Weights may be stacked (`ops.int4.stack`). Packing and scales are left to `arrays.int4`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add

import numpy as np

from tetrad.core.dtypes import f32, f64, i32, u32
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.core.op import Case, op
from tetrad.core.sizes import Shape, plain
from tetrad.core.types import ArrayType
from tetrad.graph.nodes import Node
from tetrad.ops.calculus import expand
from tetrad.ops.cases import Rng, pick, random_array
from tetrad.ops.int4.stack import batched_stack, beside_rows, between, check_stack
from tetrad.ops.rules import Array, check_dtype, ieee

WORD = 8  # nibbles of a word
BLOCK = 4  # words that share a scale of rows in 8 bits: 32 columns
COMPUTED = (f32, f64)  # halves are converted by the caller


def words_of(columns: int) -> int:
    """Words that hold so many nibbles.

    >>> [words_of(n) for n in (0, 1, 7, 8, 9)]
    [0, 1, 1, 1, 2]
    """
    return -(-columns // WORD)


# -- types -----------------------------------------------------------------------------------------


def check_words(name: str, x: ArrayType, w: ArrayType, inner: int = 1) -> None:
    if w.dtype is not u32 or w.rank not in (2, 3) or not isinstance(w.shape[-1], int):
        raise DtypeError(f"{name}: expected words u32[rows, columns / 8], got {w}")
    if x.rank < w.rank - 2 + inner:
        raise ShapeError(f"{name}: rows {x} have no axis for the stack of {w}")
    if w.rank == 3:
        check_stack(name, x, (w,))


def int4_matvec_type(x: ArrayType, w: ArrayType) -> ArrayType:
    check_dtype("int4_matvec", x.dtype, COMPUTED)
    check_words("int4_matvec", x, w)
    if words_of(plain(x.shape[-1])) != w.shape[-1]:
        raise ShapeError(f"int4_matvec: rows {x} do not fit {w}, eight columns to a word")
    return x.with_shape((*x.shape[:-1], w.shape[-2]))


def int4_matvec_back_type(ct: ArrayType, w: ArrayType, *, columns: int) -> ArrayType:
    check_dtype("int4_matvec_back", ct.dtype, COMPUTED)
    check_words("int4_matvec_back", ct, w)
    if ct.shape[-1] != w.shape[-2] or words_of(columns) != w.shape[-1]:
        raise ShapeError(f"int4_matvec_back: rows {ct} and {columns} columns do not fit {w}")
    return ct.with_shape((*ct.shape[:-1], columns))


def int4_dots_type(
    codes: ArrayType, w: ArrayType, sums: ArrayType, *scaled: ArrayType
) -> ArrayType:
    check_words("int4_dots", codes, w, inner=2)
    words = plain(w.shape[-1])
    if codes.dtype is not u32 or codes.shape[-2:] != (words, 2):
        raise ShapeError(f"int4_dots: expected codes u32[..., {words}, 2], got {codes}")
    blocks, lead = -(-words // BLOCK) if scaled else 1, codes.shape[:-2]
    for side, dtype in zip((sums, *scaled[:1]), (i32, f32), strict=False):
        wanted = ArrayType(dtype, (*lead, blocks))
        if side != wanted:
            raise ShapeError(f"int4_dots: expected {wanted}, got {side}")
    if scaled:
        check_rows("int4_dots", scaled[1:2], lead, words)
        check_factors("int4_dots", scaled[2:], codes, w)
    return ArrayType(f32 if scaled else i32, (*lead, w.shape[-2]))


def check_rows(name: str, rows: Sequence[ArrayType], lead: Shape, words: int) -> None:
    """The rows that the codes were made of."""
    if len(rows) != 1 or rows[0].dtype is not f32 or rows[0].shape[:-1] != lead:
        raise ShapeError(f"{name}: expected rows f32[..., columns], got {list(map(str, rows))}")
    if words_of(plain(rows[0].shape[-1])) != words:
        raise ShapeError(f"{name}: rows {rows[0]} do not fit {words} words")


def check_factors(name: str, factors: Sequence[ArrayType], x: ArrayType, w: ArrayType) -> None:
    """One for each row of the weight."""
    if len(factors) != 1 or factors[0].dtype is not f32 or factors[0].rank != w.rank - 1:
        raise ShapeError(f"{name}: expected row scales f32[rows], got {list(map(str, factors))}")
    if factors[0].shape[-1] != w.shape[-2]:
        raise ShapeError(f"{name}: row scales {factors[0]} do not fit {w}")
    if w.rank == 3:
        check_stack(name, x, factors)


# -- meaning ---------------------------------------------------------------------------------------


def lanes_at(w: Array, c: int) -> Array:
    """Column c of a packed weight, i32[(stack,) rows]."""
    return (w[..., c // WORD].view(np.int32) << (28 - 4 * (c % WORD))) >> 28


def drawn_words(rng: Rng) -> tuple[tuple[int, ...], Array, int]:
    """Leading axes of rows, a weight (now and then a stack) and its columns."""
    rows = pick(rng, (0, 1, 2, 7, 15, 16, 17, 33, 40))
    columns = pick(rng, (0, 1, 7, 8, 9, 16, 17, 31, 32, 33, 40))
    lead = pick(rng, ((), (1,), (3,), (0,), (2, 3), (9,)))
    stack = pick(rng, (None, None, 1, 3))
    outer = lead if stack is None else (stack, *lead)
    front = () if stack is None else (pick(rng, (1, stack)),)
    shape = (*front, rows, words_of(columns))
    return outer, rng.integers(0, 1 << 32, shape, dtype=np.uint32), columns


def _matvec_cases(rng: Rng) -> Case:
    outer, w, columns = drawn_words(rng)
    return Case((random_array(rng, pick(rng, COMPUTED), (*outer, columns)), w))


@op(
    type=int4_matvec_type,
    kind="special",
    cases=_matvec_cases,
    dtypes=COMPUTED,
    epilogue=True,
    may_fail=False,
    public=False,
)
@ieee
def int4_matvec(x: Array, w: Array) -> Array:
    """The sum over c of nibble c of a weight row times x[..., c], for every row of the weight.

    >>> int4_matvec(np.float32([1, 2, 3]), np.array([[0xF21], [0x100]], np.uint32))
    array([2., 3.], dtype=float32)
    """
    total = np.zeros((*x.shape[:-1], w.shape[-2]), x.dtype)
    for c in range(x.shape[-1]):
        total += x[..., c, None] * beside_rows(lanes_at(w, c).astype(x.dtype), x.ndim)
    return total


def _back_cases(rng: Rng) -> Case:
    outer, w, columns = drawn_words(rng)
    ct = random_array(rng, pick(rng, COMPUTED), (*outer, w.shape[-2]))
    return Case((ct, w), {"columns": columns})


@op(
    type=int4_matvec_back_type,
    kind="special",
    cases=_back_cases,
    dtypes=COMPUTED,
    may_fail=False,
    public=False,
)
@ieee
def int4_matvec_back(ct: Array, w: Array, *, columns: int) -> Array:
    """The sum over rows r of the weight, ascending, of ct[..., r] times nibble c, for each
    column c.

    >>> int4_matvec_back(np.float32([10, 1]), np.array([[0xF21], [0x100]], np.uint32), columns=3)
    array([10., 20., -9.], dtype=float32)
    """
    total = np.zeros((*ct.shape[:-1], columns), ct.dtype)
    lefts = 28 - 4 * np.arange(WORD, dtype=np.int32)
    for r in range(ct.shape[-1]):
        lanes = (w[..., r, :, None].view(np.int32) << lefts) >> 28
        lanes = lanes.reshape(*w.shape[:-2], WORD * w.shape[-1])
        line = lanes[..., :columns].astype(ct.dtype)
        total += ct[..., r, None] * beside_rows(line, ct.ndim)
    return total


def _dots_cases(rng: Rng) -> Case:
    outer, w, columns = drawn_words(rng)
    codes = rng.integers(-128, 128, (*outer, w.shape[-1], 2, 4)).astype(np.int8)
    words = np.ascontiguousarray(codes).view(np.uint32)[..., 0]
    if rng.integers(2):
        sums = codes.sum(axis=(-1, -2, -3), dtype=np.int32)[..., None]
        return Case((words, w, sums))
    blocks = -(-w.shape[-1] // BLOCK)
    sums = rng.integers(-4000, 4000, (*outer, blocks)).astype(np.int32)
    scales, rows = (random_array(rng, f32, (*outer, n)) for n in (blocks, columns))
    stack = () if w.ndim == 2 else (pick(rng, (1, outer[0])),)
    return Case((words, w, sums, scales, rows, random_array(rng, f32, (*stack, w.shape[-2]))))


@op(
    type=int4_dots_type,
    kind="special",
    cases=_dots_cases,
    dtypes=(u32,),
    epilogue=True,
    may_fail=False,
    public=False,
)
@ieee
def int4_dots(codes: Array, w: Array, sums: Array, *scaled: Array) -> Array:
    """Exact dots of rows of signed bytes with the rows of a packed weight, i32, modulo 2**32.

    The bytes of codes[..., i, 0] meet nibbles 0, 2, 4, 6 of word i, those of codes[..., i, 1] the
    others. `sums` are those of the bytes. With scales there is one, and a sum, for every 32
    columns: blocks ascend, the product of scale and dot is rounded and then added, f32. Behind the
    scales stand the rows that were rounded to codes, for derivatives are those of their product,
    and a factor for each row of the weight.

    >>> codes = np.array([[1, 0, 0, 0], [2, 0, 0, 0]], np.int8).view(np.uint32)[:, 0]
    >>> int4_dots(codes[None], np.array([[0xF3]], np.uint32), np.array([3], np.int32))
    array([1], dtype=int32)
    """
    step = BLOCK if scaled else max(w.shape[-1], 1)
    total = np.zeros((*codes.shape[:-2], w.shape[-2]), np.float32 if scaled else np.int32)
    for b, first in enumerate(range(0, w.shape[-1], step)):
        here = slice(first, first + step)
        dot = unsigned_dots(codes[..., here, :], w[..., here]) - 8 * sums[..., b, None]
        total += scaled[0][..., b, None] * dot.astype(np.float32) if scaled else dot
    return total * beside_rows(scaled[2], total.ndim) if scaled else total


def bytes_of(codes: Array) -> Array:
    """Signed bytes i8[..., words, 2, 4] of words of codes."""
    return np.ascontiguousarray(codes)[..., None].view(np.int8)


def unsigned_dots(codes: Array, w: Array) -> Array:
    """Dots of signed bytes with nibbles whose highest bit is turned: 8 more than they stand for."""
    bytes_ = bytes_of(codes)
    total = np.zeros((*codes.shape[:-2], w.shape[-2]), np.int32)
    for i in range(w.shape[-1]):
        for j in range(WORD):
            nibble = ((w[..., i] >> np.uint32(4 * j)) & np.uint32(15)) ^ np.uint32(8)
            held = beside_rows(nibble.astype(np.int32), codes.ndim - 1)
            total += bytes_[..., i, j % 2, j // 2, None].astype(np.int32) * held
    return total


# -- derivatives and batches -----------------------------------------------------------------------


def _matvec_transposed(ct: Node, x: Node, w: Node) -> Node:
    result: Node = int4_matvec_back(ct, w, columns=plain(x.type.shape[-1]))
    return result


def _back_transposed(given: Node, ct: Node, w: Node, *, columns: int) -> Node:
    result: Node = int4_matvec(given, w)
    return result


@int4_dots.jvp_of_all
def int4_dots_jvp(
    tangents: Sequence[Node | None], y: Node, codes: Node, w: Node, sums: Node, *scaled: Node
) -> Node | None:
    """Rounding of rows to 8 bits is taken for no change. (Dots without scales are integers.)"""
    _, x, factors = scaled
    pairs = ((tangents[4], factors), (x, tangents[5]))
    parts = [
        int4_matvec(rows, w) * expand(between(each, y.type.rank), y.type.shape)
        for rows, each in pairs
        if rows is not None and each is not None
    ]
    return reduce(add, parts) if parts else None


int4_matvec.transpose(_matvec_transposed)
int4_matvec_back.transpose(_back_transposed)
int4_matvec.batch(batched_stack(int4_matvec))
int4_matvec_back.batch(batched_stack(int4_matvec_back))
int4_dots.batch(batched_stack(int4_dots, rows=(0, 2, 3, 4)))
