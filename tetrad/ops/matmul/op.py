"""Ops, products of matrices: of floats, of float rows with weights as model files hold them (a row for
every output), and of rows with low-bit weights.

Here they have their meaning, types and test cases. The order of a sum is part of its meaning
(docs/numerics.md): `matmul` and `decoded_matmul` add k ascending in chunks of 1,024, one fma chain
from zero per chunk, chunk sums in order. `row_matmul` has column c in sum c % 16, each an fma chain
over ascending columns, joined by halving (i with i + 8, then 4, 2, 1). `lowbit_matmul` has for each
sub-block of a weight row an exact integer dot, then acc = fma(sw * sx, dot, acc), then, where the
format has mins, acc = fma(mw, sumx, acc); sub-blocks ascend. Rows in several terms have a sum for
each, added in order.
"""

from __future__ import annotations

import numpy as np

from tetrad.core.dtypes import bf16, f16, f32, i8, i32
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.core.op import Case, op
from tetrad.core.sizes import plain
from tetrad.core.types import ArrayType
from tetrad.graph.nodes import Node
from tetrad.ops.calculus import Batched, cast, reshape, run, sum_to, swapped
from tetrad.ops.cases import Rng, exact_array, pick
from tetrad.ops.quantized.op import (
    Types,
    check_weight,
    dequantize,
    numbers_of,
    row_parts,
    weight_parts,
)
from tetrad.ops.rules import EVERY, Array, broadcast_shapes, check_dtype, ieee
from tetrad.quant.lanes import BLOCK, q8_row

FLOATS = (f32, f16, bf16)

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
    epilogue=True,
    cases=_matmul_cases,
    dtypes=EVERY,
    promote="numeric",
    public=False,
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


# -- float weights as model files hold them ---------------------------------------------------------


def row_matmul_type(x: ArrayType, w: ArrayType) -> ArrayType:
    if x.dtype is not f32 or w.dtype not in FLOATS:
        raise DtypeError(
            f"row_matmul: expected f32 rows and a weight of {', '.join(map(str, FLOATS))}, got "
            f"{x}, {w}"
        )
    if x.rank != 2 or w.rank != 2 or x.shape[1] != w.shape[1]:
        raise ShapeError(f"row_matmul: inner sizes differ: rows {x}, weight {w}")
    return ArrayType(f32, (x.shape[0], w.shape[0]))


@op(type=row_matmul_type, kind="special", public=False)
def row_matmul(x: Array, w: Array) -> Array:
    """x w^T in f32, whatever the weight is stored in.

    >>> row_matmul(np.float32([[1, 2]]), np.float16([[3, 4], [5, 6]]))
    array([[11., 17.]], dtype=float32)
    """
    with np.errstate(all="ignore"):
        return np.asarray((x.astype(np.float64) @ w.astype(np.float64).T).astype(np.float32))


row_matmul.transpose(
    lambda ct, x, w: run("matmul", ct, cast(w, f32)),
    lambda ct, x, w: cast(run("matmul", swapped(ct), x), w.type.dtype),
)


# -- low-bit weights -------------------------------------------------------------------------------


def lowbit_matmul_type(x: ArrayType, w: ArrayType, *, terms: int = 1) -> ArrayType:
    check_weight("lowbit_matmul", w)
    if x.dtype is not q8_row:
        raise DtypeError(
            f"lowbit_matmul: expected rows in 8 bits, got {x}", hint="quantize_rows makes them"
        )
    if x.rank != 2 or w.rank != 2 or x.shape[1] != w.shape[1] * terms:
        of_terms = f" in {terms} terms" if terms > 1 else ""
        raise ShapeError(f"lowbit_matmul: inner sizes differ: rows {x}{of_terms}, weight {w}")
    return ArrayType(f32, (x.shape[0], w.shape[0]))


@op(type=lowbit_matmul_type, kind="special", epilogue=True, typed=True, public=False)
@ieee
def lowbit_matmul(x: Array, w: Array, *, terms: int = 1, types: Types) -> Array:
    """x w^T: rows in 8 bits times a low-bit weight [outputs, inputs]; of rows in several terms, all
    of them.

    >>> import tetrad as td
    >>> from tetrad.ops.quantized.op import quantize_rows
    >>> w = td.quant.from_bytes((bytes.fromhex("003c") + bytes([1] * 32)) * 2, "q8_0", shape=(2, 32))
    >>> lowbit_matmul(quantize_rows(td.ones((1, 32))), w)
    Array([[32., 32.]], float32)
    """
    codes, scales, _ = row_parts(x, plain(types[0].shape[1]))
    weights, factors, lows = weight_parts(w, types[1])
    count = factors.shape[1]
    size = weights.shape[1] // count
    total = np.zeros((len(x), len(weights)), np.float64)
    for i in range(terms * count):
        here, block = i % count, i * size // BLOCK
        left = codes.reshape(len(x), -1)[:, i * size : (i + 1) * size].astype(np.int32)
        dot = left @ weights[:, here * size : (here + 1) * size].T
        total += (factors[:, here] * scales[:, block, None]) * dot.astype(np.float64)
        if lows is not None:
            sums = scales[:, block, None] * left.sum(axis=1, keepdims=True).astype(np.float32)
            total += lows[:, here].astype(np.float64) * sums
    return total.astype(np.float32)


lowbit_matmul.not_differentiable(
    "its rows are codes of 8 bits; matmul(x, w.dequantize().T) has a derivative by x"
)


def decoded_matmul_type(x: ArrayType, w: ArrayType) -> ArrayType:
    check_weight("decoded_matmul", w)
    if x.dtype is not f32:
        raise DtypeError(f"decoded_matmul: expected f32 rows, got {x}", hint="convert with astype")
    if x.rank != 2 or x.shape[1] != w.shape[1]:
        raise ShapeError(f"decoded_matmul: inner sizes differ: rows {x}, weight {w}")
    return ArrayType(f32, (x.shape[0], w.shape[0]))


@op(type=decoded_matmul_type, kind="special", epilogue=True, typed=True, public=False)
@ieee
def decoded_matmul(x: Array, w: Array, *, types: Types) -> Array:
    """x w^T with the numbers of a quantised weight [outputs, inputs].

    >>> import tetrad as td
    >>> w = td.quant.from_bytes((bytes.fromhex("003c") + bytes([1] * 32)) * 2, "q8_0", shape=(2, 32))
    >>> decoded_matmul(td.ones((1, 32)), w)
    Array([[32., 32.]], float32)
    """
    return np.matmul(x, numbers_of(w, types[1]).T)


decoded_matmul.transpose(lambda ct, x, w: run("matmul", ct, dequantize(w)), None)
