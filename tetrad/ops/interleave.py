"""The op that lays rows of a block format out for the low-bit kernels: bytes of a file in, an interleaved weight out.

What the layout is, `quant.lanes` says; this makes it an op, so that whole models are rearranged by compiled code.
"""

from __future__ import annotations

import numpy as np

from tetrad.core.dtypes import i32, i64, u8
from tetrad.core.errors import DtypeError, ShapeError, UnsupportedError
from tetrad.core.op import op
from tetrad.core.types import ArrayType
from tetrad.ops.rules import Array
from tetrad.quant.lanes import LANES

LINE = 64  # bytes; weights begin at multiples of it


def interleave_type(target: ArrayType, raw: ArrayType, order: ArrayType, start: ArrayType, *, format: str) -> ArrayType:
    if format not in LANES:
        hint = f"supported: {', '.join(LANES)}"
        raise UnsupportedError(f"interleave: no interleaved layout of the format {format!r}", hint=hint)
    if (target.dtype, raw.dtype, order.dtype, start.dtype) != (u8, u8, i32, i64):
        raise DtypeError(f"interleave: expected u8, u8, i32 and i64, got {target}, {raw}, {order} and {start}")
    nbytes = LANES[format].format.nbytes
    fits = raw.rank == 3 and raw.shape[2] == nbytes and order.rank == 1 and start.rank == 0
    if not fits or target.rank != 2 or target.shape[1] != LINE:
        expected = f"u8[lines,{LINE}], u8[rows,blocks,{nbytes}], i32[rows wanted] and i64[]"
        raise ShapeError(f"interleave: {format} takes {expected}, got {target}, {raw}, {order} and {start}")
    return target


@op(type=interleave_type, kind="special", in_place=True, public=False)
def interleave(target: Array, raw: Array, order: Array, start: Array, *, format: str) -> Array:
    """The rows order[0], order[1], ... of raw [rows, blocks, bytes of a block] are laid out in `target` from the line
    `start` on; nothing else of it changes. Nothing is decoded."""
    if order.size and (order.min() < 0 or order.max() >= len(raw)):
        raise IndexError(f"interleave: row out of range for {len(raw)} rows")
    made = LANES[format].interleave(np.ascontiguousarray(raw[order]).reshape(len(order), -1))
    result, at = target.copy(), int(start) * LINE
    if at < 0 or at + made.nbytes > result.nbytes:
        raise IndexError(f"interleave: {made.nbytes} bytes from line {int(start)} on do not fit {len(target)} lines")
    result.reshape(-1)[at : at + made.nbytes] = made.reshape(-1)
    return result
