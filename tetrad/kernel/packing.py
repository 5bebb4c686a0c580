"""Kernel language, packing: numbers to little-endian bytes and back, on every host.

Receives numbers and an element type, returns the bytes that `tetrad.dispatch` takes; or receives
bytes and returns an array. Too few bytes, and bytes that are no whole number of elements, are
errors that name the data.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tetrad.core.dtypes import DType, u32
from tetrad.core.errors import BadInputs

Array = np.ndarray[Any, Any]
SHORT, RAGGED, RANGE = "D002", "D003", "D004"  # the codes that dispatch gives these errors


def pack(values: Iterable[float], dtype: DType) -> bytes:
    """The bytes of the values, lowest byte first.

    >>> from tetrad.core.dtypes import i32
    >>> pack([0x12345678, 0xDEADBEEF], u32).hex(" "), pack([-8], i32).hex(" ")
    ('78 56 34 12 ef be ad de', 'f8 ff ff ff')
    """
    given = list(values)
    try:
        return np.array(given, little(dtype)).tobytes()
    except OverflowError as error:
        raise BadInputs(f"pack: a value is out of range for {dtype}: {error}", code=RANGE) from None


def pack_into(values: Iterable[float], dtype: DType, out: bytearray) -> None:
    """Replace the content of `out` by the bytes of the values; the object stays."""
    out[:] = pack(values, dtype)


def unpack(
    data: bytes | bytearray | memoryview,
    dtype: DType,
    count: int | None = None,
    label: str = "data",
) -> Array:
    """The first `count` elements, or all of them; more bytes than that are allowed only with a
    count.

    >>> from tetrad.core.dtypes import f32
    >>> unpack(bytes.fromhex("0000003f000080bf"), f32)
    array([ 0.5, -1. ], dtype=float32)
    """
    size, width = len(memoryview(data).cast("B")), dtype.nbytes
    if count is None and size % width:
        raise BadInputs(f"{label}: {size} bytes are no whole number of {dtype}", code=RAGGED)
    number = size // width if count is None else count
    if size < number * width:
        raise BadInputs(
            f"{label}: {number} elements of {dtype} need {number * width} bytes, got {size}",
            code=SHORT,
        )
    return np.frombuffer(data, little(dtype), number).astype(dtype.np)


def pack_bytes_as_u32(data: bytes, least: int = 0) -> bytes:
    """One word for each byte, padded with zero words to `least` words.

    >>> pack_bytes_as_u32(b"A", least=2).hex(" ")
    '41 00 00 00 00 00 00 00'
    """
    return pack(data, u32).ljust(4 * least, b"\0")


def little(dtype: DType) -> np.dtype[Any]:
    return dtype.np.newbyteorder("<")
