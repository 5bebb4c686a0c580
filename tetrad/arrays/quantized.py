"""Quantised arrays for users: `td.quant.quantize`, `td.quant.from_bytes`, and what such an array
can do.

Receives numbers or the bytes of a GGUF tensor, returns an `Array` of a quantised type. It is kept
the way kernels read it, sixteen rows interleaved; `to_bytes` gives the bytes of the file format
again, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tetrad.arrays.groups import GROUPED, from_packed, known_shape, quantize_in_groups
from tetrad.arrays.groups import GroupQuantized as GroupQuantized
from tetrad.arrays.groups import from_parts as from_parts
from tetrad.arrays.groups import matmul as matmul
from tetrad.core.dtypes import f32, named
from tetrad.core.errors import ShapeError, UnsupportedError
from tetrad.core.floats import guarded
from tetrad.core.owners import lasting
from tetrad.core.types import ArrayType
from tetrad.ops.quantized.op import dequantize as dequantize_op
from tetrad.quant.format import FORMATS, format_named
from tetrad.quant.lanes import DTYPES, LANES, lanes_of
from tetrad.quant.separate import separate
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import as_array, traced

SETTINGS = ("group", "symmetric", "zero_point", "dtype")  # of formats in groups
FLOATS = ("f32", "f16", "bf16")  # formats that are plain arrays


def from_bytes(
    buffer: Any, name: str, shape: Sequence[int], **settings: Any
) -> Array | GroupQuantized:
    """An array of the block format `name` from the bytes a file holds; of "int4" and "nf4", which
    take the settings of `quantize` and a `dtype`, from what `to_bytes` gave.

    >>> import tetrad as td
    >>> w = td.quant.from_bytes(bytes.fromhex("0038") + bytes(range(32)), "q8_0", shape=(1, 32))
    >>> w.dtype, w.dequantize()[0, :3]
    (q8_0x16, Array([0. , 0.5, 1. ], float32))
    """
    check_name("from_bytes", name)
    wrong = [each for each in settings if name not in GROUPED or each not in SETTINGS]
    if wrong:
        fail(UnsupportedError, f"from_bytes: {name} has no setting {', '.join(wrong)}")
    sizes = known_shape("from_bytes", shape)
    if name in GROUPED:
        return from_packed(buffer, name, sizes, **settings)
    return from_blocks(buffer, name, sizes)


def from_blocks(buffer: Any, name: str, shape: Sequence[int]) -> Array:
    rows, columns = matrix_shape(name, tuple(shape))
    raw = (
        np.frombuffer(buffer, np.uint8)
        if not isinstance(buffer, np.ndarray)
        else buffer.reshape(-1).view(np.uint8)
    )
    packed = format_named(name).packed_shape((rows, columns))
    if raw.size != packed[0] * packed[1]:
        message = (
            f"from_bytes: {name} of shape {list(shape)} takes {packed[0] * packed[1]} bytes, got "
            f"{raw.size}"
        )
        fail(ShapeError, message, "is the shape [rows, columns], slowest first?")
    if name in FLOATS:
        return Array.from_numpy(lasting(raw).view(named(name).np).reshape(rows, columns))
    return Array.from_bytes(
        LANES[name].interleave(raw.reshape(packed)), ArrayType(DTYPES[name], (rows, columns))
    )


def quantize(
    x: Any,
    name: str,
    group: int | None = None,
    symmetric: bool | None = None,
    *,
    zero_point: str | None = None,
) -> Array | GroupQuantized:
    """The nearest a format comes to an array.

    name        "int4" or "nf4": any array, in groups of neighbours (`GroupQuantized`); or a block
                format of `td.quant.formats`: a matrix
    group       elements that share a scale, of "int4" and "nf4" (64)
    symmetric   of "int4": codes from -8 to 7, no zero points (False)
    zero_point  of "int4" that is not symmetric: "integer", from 0 to 15, or "float"

    >>> import tetrad as td
    >>> td.quant.quantize(td.asarray([7.0, 0.5, -7.0]), "int4", group=4, symmetric=True).codes
    Array([15,  8,  1], uint4)
    >>> td.quant.quantize(td.ones((2, 32)), "q4_0").dequantize().shape
    (2, 32)
    """
    check_name("quantize", name)
    if name in GROUPED:
        return quantize_in_groups(x, name, group, symmetric, zero_point)
    given = {"group": group, "symmetric": symmetric, "zero_point": zero_point}
    for setting, value in given.items():
        if value is not None:
            fail(
                UnsupportedError,
                f"quantize: the block format {name} has no setting {setting}",
                "int4 and nf4 have; the formats of files are what they are",
            )
    return quantize_in_blocks(x, name)


def check_name(by: str, name: Any) -> None:
    if not isinstance(name, str) or (name not in GROUPED and name not in FORMATS):
        known = ", ".join((*sorted(FORMATS), *GROUPED))
        fail(UnsupportedError, f"{by}: unknown format {name!r}", f"known formats: {known}")


@guarded
def quantize_in_blocks(x: Any, name: str) -> Array:
    values = as_array(x)
    matrix_shape(name, values.shape)
    return from_blocks(format_named(name).pack(np.asarray(values.memory)), name, values.shape)


def dequantize(w: Array) -> Array:
    """The numbers of a quantised array, computed when somebody asks for elements; a product with
    them never has them in memory."""
    if w.dtype in map(named, FLOATS):
        return w.astype(f32)
    return dequantize_op(traced(w))  # type: ignore[no-any-return]


def to_bytes(w: Array) -> bytes:
    """The bytes of a quantised array as its file format holds them; of any other array, its
    elements."""
    if not w.dtype.is_quantized:
        return np.ascontiguousarray(w.memory).tobytes()
    if w.dtype.rows == 1:
        return np.ascontiguousarray(w.memory).tobytes()
    return separate(lanes_of(w.dtype), w.memory, int(w.shape[0])).tobytes()


def matrix_shape(name: str, shape: tuple[Any, ...]) -> tuple[int, int]:
    format_named(name)  # an unknown name is an error that lists the known ones
    if len(shape) != 2 or not all(isinstance(n, int) and n > 0 for n in shape):
        fail(
            ShapeError,
            f"{name}: expected a matrix, got shape {list(shape)}",
            "reshape it to [rows, columns]",
        )
    return shape
