"""Ops on weights that are decoded as they are read: the numbers of a quantised array, and its
product with floats.

`matmul(x, dequantize(w).T)` becomes `decoded_matmul(x, w)` by a rule (`passes.quantized`), so w is
never in memory as floats. The order is that of a float matmul (docs/numerics.md): k ascending in
chunks of 1,024, one fma chain from zero per chunk, chunk sums added in order.
"""

from __future__ import annotations

import numpy as np

from tetrad.core.dtypes import f32
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.core.op import op
from tetrad.core.types import ArrayType
from tetrad.ops.calculus import run
from tetrad.ops.quantized_matmul.op import Types, check_weight, weight_parts
from tetrad.ops.rules import Array, ieee


def numbers_of(w: Array, kind: ArrayType) -> Array:
    """What an interleaved weight stands for: f32[n, k], rounded as its file format says."""
    codes, scales, lows = weight_parts(w, kind)
    size = codes.shape[1] // scales.shape[1]
    numbers = codes.reshape(len(codes), -1, size).astype(np.float32) * scales[..., None]
    return np.asarray((numbers if lows is None else numbers + lows[..., None]).reshape(codes.shape))


def dequantize_type(w: ArrayType) -> ArrayType:
    check_weight("dequantize", w)
    return w.with_dtype(f32)


@op(type=dequantize_type, kind="special", typed=True, public=False)
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


dequantize.not_differentiable("the codes of a quantised array are integers")


def decoded_matmul_type(x: ArrayType, w: ArrayType) -> ArrayType:
    check_weight("decoded_matmul", w)
    if x.dtype is not f32:
        raise DtypeError(f"decoded_matmul: expected f32 rows, got {x}", hint="convert with astype")
    if x.rank != 2 or x.shape[1] != w.shape[1]:
        raise ShapeError(f"decoded_matmul: inner sizes differ: rows {x}, weight {w}")
    return ArrayType(f32, (x.shape[0], w.shape[0]))


@op(type=decoded_matmul_type, kind="special", typed=True, public=False, epilogue=True)
@ieee
def decoded_matmul(x: Array, w: Array, *, types: Types) -> Array:
    """x w^T with the numbers of a quantised weight [outputs, inputs].

    >>> import tetrad as td
    >>> row = bytes.fromhex("003c") + bytes([1] * 32)  # scale 1, then codes
    >>> w = td.quant.from_bytes(row * 2, "q8_0", shape=(2, 32))
    >>> decoded_matmul(td.ones((1, 32)), w)
    Array([[32., 32.]], float32)
    """
    return np.matmul(x, numbers_of(w, types[1]).T)


decoded_matmul.transpose(lambda ct, x, w: run("matmul", ct, dequantize(w)), None)
