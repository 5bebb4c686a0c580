"""Ops on quantised arrays: activations in 8 bits, the numbers of a low-bit weight, and rows of it.

Weights lie interleaved (`quant.lanes`). What the bytes stand for is read here with NumPy
(`weight_parts`, `row_parts`, `numbers_of`), for these ops and for the products (`ops.matmul`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tetrad.core import lazy
from tetrad.core.dtypes import f32
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.core.op import op
from tetrad.core.sizes import plain
from tetrad.core.types import ArrayType
from tetrad.ops.rules import Array, check_index_dtype, ieee
from tetrad.quant.fields import widened
from tetrad.quant.lanes import BLOCK, FIELDS, ROWS, Lanes, lanes_of, q8_row
from tetrad.quant.separate import body_of, read_codes, read_scales, read_units

if TYPE_CHECKING:
    from tetrad.kernel.build import KernelBuilder, Val
    from tetrad.loopnest.reader import At, Operand

decode = lazy.later("tetrad.ops.quantized.element")  # of products that read a number at a time
SCALE_OF_TOP = 1 / 127
SMALLEST = 2.0**-110  # a block below this is zero: 127 / max would overflow
Types = tuple[ArrayType, ...]


# -- activations -----------------------------------------------------------------------------------


def quantize_rows_type(x: ArrayType, *, terms: int = 1) -> ArrayType:
    if x.dtype is not f32:
        raise DtypeError(f"quantize_rows: expected f32, got {x}", hint="convert with astype")
    if x.rank != 2 or not isinstance(x.shape[1], int) or x.shape[1] % BLOCK:
        raise ShapeError(f"quantize_rows: expected rows of a multiple of {BLOCK} columns, got {x}")
    return ArrayType(q8_row, (x.shape[0], x.shape[1] * terms))


@op(type=quantize_rows_type, kind="special", public=False)
@ieee
def quantize_rows(x: Array, *, terms: int = 1) -> Array:
    """Rows in 8 bits, a scale for every 32 columns: code = x * (127 / max |x|), rounded to even;
    scale = max |x| / 127.

    A block with NaN or infinity has the scale NaN, and so has whatever is computed from it. A row
    is its codes, then for each block the scale, the scaled sum, the sum of the codes and that of
    the first 16. With two terms, as many columns again follow: x - scale * code, rounded in the
    same way.

    >>> x = np.linspace(-1, 1, 32, dtype=np.float32)[None]
    >>> quantize_rows(x)[0, :32].view(np.int8)[[0, 15, 16, 31]]
    array([-127,   -4,    4,  127], dtype=int8)
    """
    left, parts = x.reshape(len(x), -1, BLOCK), []
    for _ in range(terms):
        parts.append(eight_bits(left))
        left = left - parts[-1][0].astype(np.float32) * parts[-1][1][..., None]
    codes, scale = (np.concatenate(part, axis=1) for part in zip(*parts, strict=True))
    whole, half = (
        part.sum(axis=2, dtype=np.int32).astype(np.float32)
        for part in (codes, codes[..., : BLOCK // 2])
    )
    fields = np.stack([scale, scale * whole, whole, half], axis=2)
    packed = [codes.reshape(len(x), -1).view(np.uint8), fields.reshape(len(x), -1).view(np.uint8)]
    return np.concatenate(packed, axis=1)


quantize_rows.not_differentiable("codes of 8 bits do not change smoothly")


def eight_bits(blocks: Array) -> tuple[Array, Array]:
    """Codes i8[n, blocks, 32] and scales f32[n, blocks] of f32[n, blocks, 32]."""
    top = np.abs(blocks).max(axis=2, initial=0)
    inverse = np.where(top < SMALLEST, np.float32(0), np.float32(127) / top)
    scaled = np.nan_to_num(np.rint(blocks * inverse[..., None]), nan=127.0)
    codes = np.clip(scaled, -127, 127).astype(np.int8)
    return codes, np.where(top < np.inf, top * np.float32(SCALE_OF_TOP), np.float32(np.nan))


def row_parts(rows: Array, columns: int) -> tuple[Array, Array, Array]:
    """Codes i8[n, blocks, 32], scales and scaled sums f32[n, blocks] of quantised rows."""
    codes = rows[:, :columns].view(np.int8).reshape(len(rows), -1, BLOCK)
    fields = np.ascontiguousarray(rows[:, columns:]).view(np.float32).reshape(len(rows), -1, FIELDS)
    return codes, fields[..., 0], fields[..., 1]


# -- weights ---------------------------------------------------------------------------------------


def check_weight(name: str, w: ArrayType) -> Lanes:
    if not w.dtype.is_quantized or w.dtype.rows != ROWS or w.rank != 2:
        raise DtypeError(
            f"{name}: expected a matrix of a quantised type, got {w}",
            hint="td.quant.quantize makes one",
        )
    return lanes_of(w.dtype)


def weight_parts(w: Array, kind: ArrayType) -> tuple[Array, Array, Array | None]:
    """Integers that codes stand for i32[n, k], scales and what is added f32[n, sub-blocks], from
    interleaved bytes."""
    lanes, (n, columns) = lanes_of(kind.dtype), (plain(kind.shape[0]), plain(kind.shape[1]))
    groups, supers = -(-n // ROWS), columns // lanes.format.block
    whole = np.ascontiguousarray(w).reshape(groups, supers, lanes.super_bytes)
    body = body_of(lanes, whole)
    codes = read_codes(lanes, body).transpose(0, 4, 1, 2, 3).reshape(groups * ROWS, columns)[:n]
    factors = [_factors(lanes, whole, body, side)[:n] for side in range(lanes.sides)]
    return (
        lanes.format.integers_of(codes).astype(np.int32),
        factors[0],
        factors[1] if lanes.has_mins else None,
    )


def _factors(lanes: Lanes, whole: Array, body: Array, side: int) -> Array:
    """Scales (side 0) or what is added (side 1): f32[rows, sub-blocks]"""
    levels, rows = lanes.format.levels, whole.shape[0] * ROWS
    if not lanes.factors:
        return widened(read_scales(lanes, body, side), lanes.kind).reshape(rows, -1)
    head = read_units(whole[..., : lanes.head_bytes], len(lanes.factors), lanes.factor_bytes)
    factor = widened(np.ascontiguousarray(head[:, side]), lanes.kind)
    if levels is None:
        return np.repeat(factor, lanes.format.sub_blocks, axis=1).reshape(rows, -1)
    values = read_scales(lanes, body, side).view(np.int8 if levels.has_signs else np.uint8)
    return np.asarray(factor * values.astype(np.float32)).reshape(rows, -1)


def lowbit_rows_type(w: ArrayType, indices: ArrayType) -> ArrayType:
    check_weight("lowbit_rows", w)
    check_index_dtype("lowbit_rows", indices)
    if indices.rank != 1:
        raise ShapeError(f"lowbit_rows: expected a list of row numbers, got {indices}")
    return ArrayType(f32, (indices.shape[0], w.shape[1]))


@op(type=lowbit_rows_type, kind="special", typed=True, public=False)
@ieee
def lowbit_rows(w: Array, indices: Array, *, types: Types) -> Array:
    """Rows of a low-bit weight as floats: scale * code, plus the min, rounded as the file format
    says.

    >>> import tetrad as td
    >>> row = bytes.fromhex("003c") + bytes([1] * 32)  # scale 1, then codes
    >>> w = td.quant.from_bytes(row * 2, "q8_0", shape=(2, 32))
    >>> lowbit_rows(w, td.asarray([1]))[0, :3]
    Array([1., 1., 1.], float32)
    """
    weights, factors, lows = weight_parts(w, types[0])
    if indices.size and (indices.min() < 0 or indices.max() >= len(weights)):
        raise IndexError(f"lowbit_rows: row out of range for {types[0]}")
    size = weights.shape[1] // factors.shape[1]
    rows = (
        weights[indices].reshape(len(indices), -1, size).astype(np.float32)
        * factors[indices][..., None]
    )
    if lows is not None:
        rows = rows + lows[indices][..., None]
    return np.asarray(rows.reshape(len(indices), -1))


lowbit_rows.not_differentiable("the codes of a quantised weight are integers")


def numbers_of(w: Array, kind: ArrayType) -> Array:
    """What an interleaved weight stands for: f32[n, k], rounded as its file format says."""
    codes, scales, lows = weight_parts(w, kind)
    size = codes.shape[1] // scales.shape[1]
    numbers = codes.reshape(len(codes), -1, size).astype(np.float32) * scales[..., None]
    return np.asarray((numbers if lows is None else numbers + lows[..., None]).reshape(codes.shape))


def dequantize_type(w: ArrayType) -> ArrayType:
    check_weight("dequantize", w)
    return w.with_dtype(f32)


@op(
    type=dequantize_type,
    kind="special",
    typed=True,
    inline=True,
    foldable=False,
    may_fail=False,
    public=False,
)
@ieee
def dequantize(w: Array, *, types: Types) -> Array:
    """The numbers of a quantised array.

    >>> import tetrad as td
    >>> row = bytes.fromhex("003c") + bytes([1] * 32)  # scale 1, then codes
    >>> w = td.quant.from_bytes(row * 2, "q8_0", shape=(2, 32))
    >>> dequantize(w)[0, :3]
    Array([1., 1., 1.], float32)
    """
    return numbers_of(w, types[0])


@dequantize.read
def dequantize_read(k: KernelBuilder, at: At, w: Operand) -> Val:
    return decode.element(k, at, w)  # type: ignore[no-any-return]


dequantize.not_differentiable("the codes of a quantised array are integers")
