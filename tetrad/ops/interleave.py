"""The op that lays rows of a block format out for the low-bit kernels: bytes of a file in, an interleaved weight out.

What the layout is, `quant.lanes` says; this makes it an op, so that whole models are rearranged by compiled code.
"""

from __future__ import annotations

import numpy as np

from tetrad.core.dtypes import i32, u8
from tetrad.core.errors import DtypeError, ShapeError, UnsupportedError
from tetrad.core.op import op
from tetrad.core.types import ArrayType
from tetrad.ops.rules import Array
from tetrad.quant.lanes import DTYPES, LANES


def interleave_type(raw: ArrayType, order: ArrayType, *, format: str) -> ArrayType:
    if format not in LANES:
        hint = f"supported: {', '.join(LANES)}"
        raise UnsupportedError(f"interleave: no interleaved layout of the format {format!r}", hint=hint)
    if raw.dtype is not u8 or order.dtype is not i32:
        raise DtypeError(f"interleave: expected u8 blocks and an i32 order of rows, got {raw} and {order}")
    made = LANES[format].format
    if raw.rank != 3 or raw.shape[2] != made.nbytes or order.rank != 1:
        expected = f"u8[rows,blocks,{made.nbytes}] and i32[rows wanted]"
        raise ShapeError(f"interleave: {format} is {expected}, got {raw} and {order}")
    return ArrayType(DTYPES[format], (order.shape[0], raw.shape[1] * made.block))


@op(type=interleave_type, kind="special", public=False)
def interleave(raw: Array, order: Array, *, format: str) -> Array:
    """Row i of the weight is row order[i] of raw [rows, blocks, bytes of a block]. Nothing is decoded."""
    if order.size and (order.min() < 0 or order.max() >= len(raw)):
        raise IndexError(f"interleave: row out of range for {len(raw)} rows")
    return LANES[format].interleave(np.ascontiguousarray(raw[order]).reshape(len(order), -1))
