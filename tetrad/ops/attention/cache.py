"""Ops on the KV cache: keys and values of new tokens go where the cache lies. It is changed in
place, `passes.in_place_updates` sees to that; `ops.attention.op` reads it.
"""

from __future__ import annotations

import numpy as np

from tetrad.core.dtypes import DType, bf16, f16, f32, i8, i32
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.core.op import op
from tetrad.core.types import ArrayType
from tetrad.ops.quantized.op import quantize_rows, row_parts
from tetrad.ops.rules import Array
from tetrad.quant.lanes import BLOCK

KEYS = 16  # neighbouring keys that lie interleaved
CACHES: tuple[DType, ...] = (f16, bf16, f32, i8)


def put_cache_type(
    cache: ArrayType, rows: ArrayType, layer: ArrayType, slot: ArrayType, position: ArrayType
) -> ArrayType:
    if cache.rank not in (5, 6) or cache.dtype not in CACHES:
        raise ShapeError(f"put_cache: no cache of keys or values: {cache}")
    check_places("put_cache", cache, rows, layer, slot, position)
    if rows.shape[1:] != (cache.shape[2], cache.shape[4]):
        raise ShapeError(f"put_cache: rows {rows} do not fit a cache {cache}")
    return cache


def check_places(
    name: str,
    cache: ArrayType,
    rows: ArrayType,
    layer: ArrayType,
    slot: ArrayType,
    position: ArrayType,
) -> None:
    if (
        rows.rank != 3
        or slot.shape != rows.shape[:1]
        or position.shape != rows.shape[:1]
        or layer.rank
    ):
        raise ShapeError(
            f"{name}: rows {rows}, layer {layer}, slots {slot}, positions {position} do not go "
            "together"
        )
    if any(kind.dtype is not i32 for kind in (layer, slot, position)) or rows.dtype is not f32:
        raise DtypeError(
            f"{name}: expected f32 rows and i32 places, got {rows}, {layer}, {slot}, {position}"
        )
    if cache.dtype is i8 and cache.shape[4] % BLOCK:
        raise ShapeError(f"{name}: channels in 8 bits come in blocks of {BLOCK}, got {cache}")


@op(type=put_cache_type, kind="special", in_place=True, public=False)
def put_cache(cache: Array, rows: Array, layer: Array, slot: Array, position: Array) -> Array:
    """Row t [heads, channels] becomes key or value `position[t]` of sequence `slot[t]` in a layer.

    A cache of rank 5 is [layer, slot, head, position, channel]; one of rank 6 keeps sixteen
    neighbouring positions interleaved: [layer, slot, head, position / 16, channel, 16]. A cache of
    i8 takes the codes of the rows; their scales go where `put_scales` puts them.

    >>> cache, rows = np.zeros((1, 1, 1, 4, 2), np.float16), np.array([[[1, 2]]], np.float32)
    >>> put_cache(cache, rows, np.int32(0), np.array([0]), np.array([3]))[0, 0, 0]
    array([[0., 0.],
           [0., 0.],
           [0., 0.],
           [1., 2.]], dtype=float16)
    """
    values = row_codes(rows)[0] if cache.dtype == np.int8 else rows
    return with_rows(cache, values, layer, slot, position)


put_cache.not_differentiable("it writes into the cache of a running model")


def put_scales_type(
    scales: ArrayType, rows: ArrayType, layer: ArrayType, slot: ArrayType, position: ArrayType
) -> ArrayType:
    check_places("put_scales", scales, rows, layer, slot, position)
    blocks = (
        rows.shape[2] // BLOCK
        if isinstance(rows.shape[2], int) and rows.shape[2] % BLOCK == 0
        else None
    )
    is_cache = scales.rank in (5, 6) and scales.dtype is f16
    if not is_cache or (rows.shape[1], blocks) != (scales.shape[2], scales.shape[4]):
        raise ShapeError(f"put_scales: rows {rows} do not fit scales {scales}")
    return scales


@op(type=put_scales_type, kind="special", in_place=True, public=False)
def put_scales(scales: Array, rows: Array, layer: Array, slot: Array, position: Array) -> Array:
    """The scales of rows whose codes `put_cache` puts into a cache of i8: one f16 for every 32
    channels.

    >>> scales, rows = np.zeros((1, 1, 1, 2, 1), np.float16), np.full((1, 1, 32), 127, np.float32)
    >>> put_scales(scales, rows, np.int32(0), np.array([0]), np.array([1]))[0, 0, 0]
    array([[0.],
           [1.]], dtype=float16)
    """
    return with_rows(scales, row_codes(rows)[1], layer, slot, position)


put_scales.not_differentiable("it writes into the cache of a running model")


def row_codes(rows: Array) -> tuple[Array, Array]:
    """Codes i8[T, heads, channels] and scales f16[T, heads, channels / 32], as `quantize_rows`
    makes them."""
    count, heads, channels = rows.shape
    packed = quantize_rows.reference(np.ascontiguousarray(rows).reshape(count * heads, channels))
    codes, scales, _ = row_parts(packed, channels)
    return codes.reshape(rows.shape), scales.reshape(count, heads, -1).astype(np.float16)


def with_rows(cache: Array, rows: Array, layer: Array, slot: Array, position: Array) -> Array:
    result, at = cache.copy(), int(layer)
    if cache.ndim == 5:
        result[at, slot, :, position] = rows
    else:
        result[at, slot, :, position // KEYS, :, position % KEYS] = rows
    return result
