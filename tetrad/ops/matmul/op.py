"""The op `matmul`: products of matrices, whose operands' types decide how they are computed.

a b of two arrays of one type; or, `transposed`, x w^T with a weight as model files hold it, a row
for every output: of floats, of a low-bit format with float rows, or of such a format with rows in 8
bits. Here it has its meaning, types and test cases. The order of a sum is part of its meaning
(docs/numerics.md), and follows from the types:

    a b, and float rows times low-bit   k ascends in chunks of 1,024, an fma chain from zero each;
                                        chunk sums are added in order
    float rows times float weight       column c goes to sum c % 16, an fma chain each; they are
                                        joined by halving (i with i + 8, then 4, 2, 1)
    rows in 8 bits times low-bit        blocks of a weight row ascend: an exact integer dot, then
                                        acc = fma(sw * sx, dot, acc), then, where the format has
                                        mins, acc = fma(mw, sumx, acc); of several terms each has a
                                        sum, added in order
    float rows times groups             columns 2 i and 2 i + 1 go to sum i % 16, an fma chain each;
                                        they are joined by halving
    rows in 8 bits times groups         blocks of 128 columns ascend; columns 8 i to 8 i + 7 go to
                                        sum i % 16: an exact integer dot, then acc = fma(sw * sx,
                                        fma(-zero, sumx, dot), acc); joined by halving. INT4 groups
                                        of whole blocks: acc = fma(sw * sx, dot, acc), and to what
                                        is joined a chain over the blocks is added, low =
                                        fma(-(sw * zero), sx * sumx, low)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tetrad.core import lazy
from tetrad.core.dtypes import DType, as_dtype, bf16, f16, f32, i8, i32, u4
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.core.op import Case, op
from tetrad.core.sizes import plain
from tetrad.core.types import ArrayType
from tetrad.graph.nodes import Node
from tetrad.ops.calculus import Batched, cast, reshape, sum_to, swapped
from tetrad.ops.cases import Rng, exact_array, pick
from tetrad.ops.quantized.op import (
    Types,
    check_weight,
    dequantize,
    eight_bits,
    numbers_of,
    row_parts,
    weight_parts,
)
from tetrad.ops.rules import EVERY, Array, broadcast_shapes, check_dtype, ieee
from tetrad.quant.lanes import BLOCK, q8_row

groups = lazy.later("tetrad.ops.groups.op")  # what derivatives of products with them are made of
CHUNK = 1024  # of k: part of the meaning
FLOATS = (f32, f16, bf16)  # of weights as model files hold them
PAIR = 32  # columns of a weight in groups that kernels take at a time
INT8_BLOCK = 128  # columns of a row in 8 bits that share a scale
ACTIVATIONS = ("", "int8")


# -- types -----------------------------------------------------------------------------------------


def matmul_type(
    a: ArrayType, b: ArrayType, *factors: ArrayType, transposed: bool = False, terms: int = 1,
    scheme: str = "", group: int = 0, activations: str = "",
) -> ArrayType:  # fmt: skip
    if terms != 1 and a.dtype is not q8_row:
        raise DtypeError(f"matmul: only rows in 8 bits have {terms} terms, not {a}")
    if b.dtype is u4:
        return grouped_type(a, b, *factors, scheme=scheme, group=group, activations=activations)
    if b.dtype.is_quantized and not transposed:
        return columns_type(a, b)
    return weight_type(a, b, terms) if transposed else plain_type(a, b)


def plain_type(a: ArrayType, b: ArrayType) -> ArrayType:
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


def weight_type(x: ArrayType, w: ArrayType, terms: int) -> ArrayType:
    """f32[rows, outputs] of rows and a weight [outputs, inputs]."""
    if w.dtype.is_quantized:
        check_weight("matmul", w)
    elif w.dtype not in FLOATS:
        raise DtypeError(
            f"matmul: expected a weight of {', '.join(map(str, FLOATS))} or a low-bit one, got {w}"
        )
    if x.dtype is not f32 and not (x.dtype is q8_row and w.dtype.is_quantized):
        rows = "f32, or of 8 bits" if w.dtype.is_quantized else "f32"
        raise DtypeError(
            f"matmul: a weight {w} takes rows of {rows}, got {x}",
            hint="convert with astype; quantize_rows makes rows of 8 bits",
        )
    if x.rank != 2 or w.rank != 2 or x.shape[1] != w.shape[1] * terms:
        of_terms = f" in {terms} terms" if terms > 1 else ""
        raise ShapeError(f"matmul: inner sizes differ: rows {x}{of_terms}, weight {w}")
    return ArrayType(f32, (x.shape[0], w.shape[0]))


def columns_type(x: ArrayType, w: ArrayType) -> ArrayType:
    """f32[rows, columns] of rows and a low-bit weight [inputs, columns]."""
    check_weight("matmul", w)
    if x.dtype is not f32:
        raise DtypeError(f"matmul: a weight {w} takes rows of f32, got {x}", hint="use astype")
    if x.rank != 2 or x.shape[1] != w.shape[0]:
        raise ShapeError(f"matmul: inner sizes differ: rows {x}, weight {w}")
    return ArrayType(f32, (x.shape[0], w.shape[1]))


def grouped_type(
    x: ArrayType, codes: ArrayType, *factors: ArrayType, scheme: str, group: int, activations: str
) -> ArrayType:
    """[rows, outputs] of rows and a weight in groups: codes [outputs, inputs] and factors."""
    if not are_rows_of_groups(x, codes, *factors, scheme=scheme, group=group):
        raise ShapeError(
            f"matmul: a weight in groups of {group} needs rows of whole groups, or groups of whole "
            f"rows, got rows {x}, codes {codes}",
            hint="dequantize it, which products read as they need",
        )
    if activations not in ACTIVATIONS or (activations and x.dtype is not f32):
        raise DtypeError(f"matmul: rows {x} cannot be rounded to {activations!r}")
    return ArrayType(x.dtype, (x.shape[0], codes.shape[0]))


def are_rows_of_groups(
    x: ArrayType, codes: ArrayType, *factors: ArrayType, scheme: str, group: int
) -> bool:
    """May kernels read the groups along the rows of a weight, 32 columns at a time?"""
    if codes.rank != 2 or not isinstance(codes.shape[1], int) or x.shape[1:] != codes.shape[1:]:
        return False
    columns = codes.shape[1]
    is_along = group > 0 and columns > 0 and (columns % group == 0 or group % columns == 0)
    most = 1 if group > columns else 2  # axes: rows with factors of their own share no group
    is_along = is_along and all(factor.rank <= most for factor in factors)
    is_whole = columns % PAIR == 0 and group % PAIR == 0
    are_floats = x.dtype in FLOATS and all(factor.dtype is f32 for factor in factors)
    return is_along and is_whole and are_floats and scheme in ("int4", "nf4")


def is_plain(node: Node) -> bool:
    """Is it a b of two arrays of one type, not a product with a weight?"""
    return node.op is matmul and reads_views(*(i.type for i in node.inputs), **dict(node.params))


def reads_views(
    a: ArrayType, b: ArrayType, *factors: ArrayType, transposed: bool = False, **settings: Any
) -> bool:
    return not transposed and not b.dtype.is_quantized


def takes_epilogue(
    a: ArrayType, b: ArrayType, *factors: ArrayType, transposed: bool = False, **settings: Any
) -> bool:
    """Not where lanes run along the columns, and join their sums in the end: then no lane has an
    element of the result."""
    return not transposed or (b.dtype.is_quantized and not b.dtype.is_nibble)


# -- meaning ---------------------------------------------------------------------------------------


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
    prologue=reads_views,
    epilogue=takes_epilogue,
    may_fail=False,
    typed=True,
    cases=_matmul_cases,
    dtypes=EVERY,
    promote="numeric",
    public=False,
)
def matmul(
    a: Array, b: Array, *factors: Array, transposed: bool = False, terms: int = 1,
    scheme: str = "", group: int = 0, activations: str = "", types: Types = (),
) -> Array:  # fmt: skip
    """Matrix product of the last two axes, the others broadcast. Halves accumulate in f32 and round
    once; i8 gives i32, other integers wrap in their own type; of truth values, whether any product
    is true.

    The right side may be a low-bit weight [inputs, outputs], with rows and result in f32.
    Transposed, it is a weight [outputs, inputs] of floats or low-bit, the left side has
    rows in f32, or for a low-bit weight in 8 bits, of so many `terms`; the result is in f32. A
    weight in groups is codes of u4 with their scales and zero points (`ops.groups`); with
    `activations` "int8" rows are rounded to 8 bits, a scale for every 128 columns.

    >>> matmul(np.array([[1, 2], [3, 4]]), np.array([[5], [6]]))
    array([[17],
           [39]])
    >>> matmul(np.float32([[1, 2]]), np.float16([[3, 4], [5, 6]]), transposed=True)
    array([[11., 17.]], dtype=float32)
    >>> import tetrad as td
    >>> row = bytes.fromhex("003c") + bytes([1] * 32)  # scale 1, then codes
    >>> w = td.quant.from_bytes(row * 2, "q8_0", shape=(2, 32))
    >>> matmul(td.ones((1, 32)), w, transposed=True)
    Array([[32., 32.]], float32)
    """
    if not transposed:
        is_low = bool(types) and types[1].dtype.is_quantized
        return plain_product(a, numbers_of(b, types[1]) if is_low else b)
    if factors:
        return grouped_product(a, b, *factors, scheme=scheme, group=group, kind=types[1],
                               is_rounded=bool(activations))  # fmt: skip
    if not types or not types[1].dtype.is_quantized:
        return weight_product(a, b)
    is_exact = types[0].dtype is f32
    return decoded_product(a, b, types) if is_exact else int8_product(a, b, types, terms)


@ieee
def plain_product(a: Array, b: Array) -> Array:
    if a.dtype == np.int8:
        a, b = a.astype(np.int32), b.astype(np.int32)
    return np.matmul(a, b)


def weight_product(x: Array, w: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray((x.astype(np.float64) @ w.astype(np.float64).T).astype(np.float32))


def decoded_product(x: Array, w: Array, types: Types) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(np.matmul(x, numbers_of(w, types[1]).T))


def grouped_product(
    x: Array, codes: Array, *factors: Array, scheme: str, group: int, kind: ArrayType,
    is_rounded: bool,
) -> Array:  # fmt: skip
    weight = groups.dequantize_groups.reference(
        codes, *factors, scheme=scheme, group=group, dtype=as_dtype(x.dtype), types=(kind,)
    )
    with np.errstate(all="ignore"):
        rows = round_rows(x) if is_rounded else x
        return np.asarray((rows.astype(np.float64) @ weight.astype(np.float64).T).astype(x.dtype))


def round_rows(x: Array) -> Array:
    """Rows in 8 bits, a scale for every 128 columns, as numbers again; NaN where a block has NaN or
    infinity."""
    blocks = np.zeros((len(x), -(-x.shape[1] // INT8_BLOCK) * INT8_BLOCK), np.float32)
    blocks[:, : x.shape[1]] = x
    codes, scales = eight_bits(blocks.reshape(len(x), -1, INT8_BLOCK))
    numbers = codes.astype(np.float32) * scales[..., None]
    return np.asarray(numbers.reshape(len(x), -1)[:, : x.shape[1]])


def int8_product(x: Array, w: Array, types: Types, terms: int) -> Array:
    codes, scales, _ = row_parts(x, plain(types[0].shape[1]))
    weights, factors, lows = weight_parts(w, types[1])
    count = factors.shape[1]
    size = weights.shape[1] // count
    total = np.zeros((len(x), len(weights)), np.float64)
    with np.errstate(all="ignore"):
        for i in range(terms * count):
            here, block = i % count, i * size // BLOCK
            left = codes.reshape(len(x), -1)[:, i * size : (i + 1) * size].astype(np.int32)
            dot = left @ weights[:, here * size : (here + 1) * size].T
            total += (factors[:, here] * scales[:, block, None]) * dot.astype(np.float64)
            if lows is not None:
                sums = scales[:, block, None] * left.sum(axis=1, keepdims=True).astype(np.float32)
                total += lows[:, here].astype(np.float64) * sums
        return total.astype(np.float32)


# -- derivatives and batching ----------------------------------------------------------------------


def _back_to_left(
    ct: Node, a: Node, b: Node, *factors: Node, transposed: bool = False, **settings: Any
) -> Node:
    if not transposed and b.type.dtype.is_quantized:
        made: Node = matmul(ct, b, transposed=True)
        return made
    if not transposed:
        return sum_to(matmul(ct, swapped(b)), a.type.shape)
    result: Node = matmul(ct, weight_numbers(b, factors, a.type.dtype, **settings))
    return result


def weight_numbers(
    w: Node, factors: Sequence[Node], dtype: DType, *, scheme: str = "", group: int = 0,
    **settings: Any,
) -> Node:  # fmt: skip
    """What a weight stands for, in f32; one in groups as its rows are."""
    if factors:
        made: Node = groups.dequantize_groups(w, *factors, scheme=scheme, group=group, dtype=dtype)
        return made
    return dequantize(w) if w.type.dtype.is_quantized else cast(w, f32)


def _back_to_scale(
    ct: Node, a: Node, codes: Node, scale: Node, *zero: Node, scheme: str, group: int,
    **settings: Any,
) -> Node:  # fmt: skip
    """Of a weight in groups."""
    weight = cast(matmul(swapped(ct), a), f32)
    made: Node = groups.reduce_groups(
        weight, codes, *zero, scheme=scheme, group=group, lead=scale.type.rank - 1
    )
    return made


def _back_to_right(
    ct: Node, a: Node, b: Node, *factors: Node, transposed: bool = False, **settings: Any
) -> Node:
    if transposed:
        return cast(matmul(swapped(ct), a), b.type.dtype)
    return sum_to(matmul(swapped(a), ct), b.type.shape)


def _by_left(t: Node, y: Node, a: Node, *weight: Node, activations: str = "", **kept: Any) -> Node:
    """Rounding of rows to 8 bits is taken for no change."""
    made: Node = matmul(t, *weight, **kept)
    return made


def _by_right(t: Node, y: Node, a: Node, b: Node, **params: Any) -> Node:
    made: Node = matmul(a, t, **params)
    return made


def _by_scale(
    t: Node, y: Node, a: Node, codes: Node, scale: Node, *zero: Node, activations: str = "",
    **kept: Any,
) -> Node:  # fmt: skip
    made: Node = matmul(a, codes, t, *zero, **kept)
    return made


def _by_zero(
    t: Node, y: Node, a: Node, codes: Node, scale: Node, zero: Node, *, group: int, **settings: Any
) -> Node:
    change = groups.dequantize_groups(
        codes, -(scale * t), scheme="ones", group=group, dtype=a.type.dtype
    )
    made: Node = matmul(a, swapped(change))
    return made


matmul.jvp(_by_left, _by_right, _by_scale, _by_zero)
matmul.transpose(_back_to_left, _back_to_right, _back_to_scale)


@matmul.batch
def matmul_batch(
    batched: Batched, a: Node, b: Node, *factors: Node, transposed: bool = False, **settings: Any
) -> Node | None:
    """One product where the right side is shared by matrices: their rows one below the other."""
    if transposed and (a.type.dtype.is_quantized or any(batched[1:])):
        return None
    if transposed:
        size, rows, inner = a.type.shape
        below = reshape(a, (size * rows, inner))
        flat = matmul(below, b, *factors, transposed=True, **settings)
        return reshape(flat, (size, rows, b.type.shape[0]))
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
