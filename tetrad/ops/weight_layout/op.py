"""The op that lays rows of a block format out for the low-bit kernels: bytes of a file in, an
interleaved weight out.

What the layout is, `quant.lanes` says; this makes it an op, so that whole models are rearranged by
compiled code.
"""

from __future__ import annotations

import numpy as np

from tetrad.core.dtypes import i64, u8
from tetrad.core.errors import DtypeError, ShapeError, UnsupportedError
from tetrad.core.op import op
from tetrad.core.types import ArrayType
from tetrad.ops.rules import Array
from tetrad.quant.lanes import LANES, LINE, ROWS, WORD


def interleave_type(
    target: ArrayType,
    raw: ArrayType,
    starts: ArrayType,
    places: ArrayType,
    blocks: ArrayType,
    *,
    format: str,
) -> ArrayType:
    if format not in LANES:
        hint = f"supported: {', '.join(LANES)}"
        raise UnsupportedError(
            f"interleave: no interleaved layout of the format {format!r}", hint=hint
        )
    given = f"{target}, {raw}, {starts}, {places} and {blocks}"
    if (target.dtype, raw.dtype) != (u8, u8) or any(
        kind.dtype is not i64 for kind in (starts, places, blocks)
    ):
        raise DtypeError(f"interleave: expected u8, u8, i64, i64 and i64, got {given}")
    ranks = tuple(kind.rank for kind in (target, raw, starts, places, blocks))
    if ranks != (2, 1, 2, 1, 0) or (target.shape[1], *starts.shape) != (LINE, *places.shape, ROWS):
        expected = f"u8[lines,{LINE}], u8[bytes], i64[groups,{ROWS}], i64[groups] and i64[]"
        raise ShapeError(f"interleave: expected {expected}, got {given}")
    return target


@op(type=interleave_type, kind="special", in_place=True, public=False)
def interleave(
    target: Array, raw: Array, starts: Array, places: Array, blocks: Array, *, format: str
) -> Array:
    """Rows of `blocks` blocks, which begin at the bytes `starts` of raw (-1: a row of zero bytes),
    are laid out in `target`, sixteen of them from each of the bytes `places` on. Nothing else of it
    changes, nothing is decoded.

    >>> raw = np.arange(34, dtype=np.uint8)  # one row of one q8_0 block: a scale, then 32 codes
    >>> starts = np.full((1, 16), -1)
    >>> starts[0, 3] = 0
    >>> target = np.zeros((9, 64), np.uint8)
    >>> laid = interleave(target, raw, starts, np.array([0]), np.array(1), format="q8_0")
    >>> laid.reshape(-1)[12:16]  # the first word of row 3
    array([2, 3, 4, 5], dtype=uint8)
    """
    lanes, result = LANES[format], target.copy()
    nbytes, size = int(blocks) * lanes.format.nbytes, int(blocks) * lanes.super_bytes
    firsts = np.maximum(starts, 0)
    check_places(firsts, nbytes, raw.size, lanes.unit_bytes)
    check_places(places, size, result.size, WORD)
    check_places(starts + 1, 0, raw.size, 1)
    for group, first, place in zip(starts, firsts, places, strict=True):
        rows = np.where((group < 0)[:, None], np.uint8(0), raw[first[:, None] + np.arange(nbytes)])
        result.reshape(-1)[place : place + size] = lanes.interleave(rows).reshape(-1)
    return result


interleave.not_differentiable("the bytes of a quantised weight are no quantities")


def check_places(at: Array, nbytes: int, size: int, unit: int) -> None:
    wrong = at[(at < 0) | (at + nbytes > size) | (at % unit != 0)]
    if wrong.size:
        message = (
            f"interleave: {nbytes} bytes from {wrong[0]} on are out of range for {size}, or not at "
            f"a multiple of {unit}"
        )
        raise IndexError(message)
