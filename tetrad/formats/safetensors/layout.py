"""Safetensors, the layout: element types, limits, and the values that reader and writer share.

A file is the length of its header (u64), the header (a JSON object: name -> dtype, shape,
data_offsets; `__metadata__` -> texts by name), and the bytes of all tensors, one after the other
without holes. Receives nothing; returns tables and small frozen values.
"""

from __future__ import annotations

import math

from tetrad.core.dtypes import (
    DType,
    bf16,
    bool_,
    c64,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    named,
    u8,
    u16,
    u32,
    u64,
)
from tetrad.core.record import record

METADATA = "__metadata__"
PREFIX = 8  # bytes before the header: its length
ALIGNMENT = 64  # of the data of files that are written here

# Limits no real file comes near. They bound the memory a hostile file can ask for.
MAX_HEADER_BYTES = 100_000_000  # the format's own
MAX_TENSORS = 1 << 16
MAX_AXES = 16
MAX_ELEMENTS = 1 << 48
MAX_NAME_BYTES = 65535
MAX_NAMES_BYTES = 8 << 20  # of all names together
MAX_METADATA_BYTES = 16 << 20  # of all texts together
MAX_METADATA_KEYS = 1 << 14
MAX_SHARDS = 1 << 14

# What arrays can hold.
DTYPES: dict[str, DType] = {
    "BOOL": bool_,
    "U8": u8,
    "I8": i8,
    "U16": u16,
    "I16": i16,
    "F16": f16,
    "BF16": bf16,
    "U32": u32,
    "I32": i32,
    "F32": f32,
    "U64": u64,
    "I64": i64,
    "F64": f64,
    "C64": c64,
    "F8_E4M3": named("float8_e4m3fn"),
    "F8_E5M2": named("float8_e5m2"),
    "F8_E4M3FNUZ": named("float8_e4m3fnuz"),
    "F8_E5M2FNUZ": named("float8_e5m2fnuz"),
}
# Bits of an element; the types that are not in DTYPES are known for their size only.
BITS: dict[str, int] = {name: 8 * dtype.nbytes for name, dtype in DTYPES.items()} | {
    "F8_E8M0": 8,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "F4": 4,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


@record
class StoredTensor:
    """One tensor of an open file; `offset` counts from the beginning of `file`."""

    name: str
    shape: tuple[int, ...]
    dtype: str  # as the format spells it
    nbytes: int
    file: str
    offset: int


def shape_problem(dtype: str, shape: tuple[int, ...]) -> str | None:
    """Why no tensor of a file has this type and shape, None if one may have it."""
    if len(shape) > MAX_AXES:
        return f"{len(shape)} axes, at most {MAX_AXES} are possible"
    if any(size > MAX_ELEMENTS for size in shape) or math.prod(shape) > MAX_ELEMENTS:
        return f"shape {list(shape)}: the product of the sizes must be at most 2**48"
    if math.prod(shape) * BITS[dtype] % 8:
        return f"shape {list(shape)} of {dtype} is not a whole number of bytes"
    return None


def tensor_bytes(dtype: str, shape: tuple[int, ...]) -> int:
    """Bytes of a tensor that has no shape_problem."""
    return math.prod(shape) * BITS[dtype] // 8
