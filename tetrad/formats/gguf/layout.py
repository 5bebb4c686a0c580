"""GGUF, the layout: numbers, sizes and limits of the format, and the values that reader and writer
share.

Receives nothing; returns tables and small frozen values. Numbers and block sizes are those of
ggml.h and ggml-common.h; a format that Tetrad reads says its own, in its file in `quant`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from tetrad.core.record import record
from tetrad.quant import formats

MAGIC = b"GGUF"
VERSIONS = (2, 3)  # the same bytes; version 3 only added big-endian files
ALIGNMENT_KEY = "general.alignment"
DEFAULT_ALIGNMENT = 32

# Limits no real file comes near. They bound the memory a hostile file can ask for: Python objects
# are larger than the bytes they are read from.
MAX_HEADER_BYTES = 64 << 20
MAX_NAME_BYTES = 65535  # of a key (the format's own limit) or a tensor
# of names and strings that are decoded: one wide letter makes a text four times as large
MAX_TEXT_BYTES = 8 << 20
# from here on a string stays bytes: what is so long is no text that is read here
LONG_STRING_BYTES = 1 << 20
MAX_KEYS = 1 << 14
MAX_ARRAYS = 1 << 16  # counting those inside arrays
MAX_STRINGS = 1 << 21  # in arrays; large vocabularies have 262,144 tokens and twice as many merges
MAX_DEPTH = 4  # of arrays in arrays
MAX_TENSORS = 1 << 16
MAX_AXES = 4
MAX_ELEMENTS = 1 << 48
MAX_ALIGNMENT = 1 << 20
MAX_SHARDS = (1 << 16) - 1  # split.count is a u16


class ElementFormat(NamedTuple):
    """How elements of a tensor are stored: `nbytes` for every `block` elements of the fastest
    axis."""

    number: int
    block: int
    nbytes: int


# What a file may hold and no file of `quant` reads: known here for its size.
SIZES_ONLY: dict[str, ElementFormat] = {
    "q8_1": ElementFormat(9, 32, 36),
    "iq2_xxs": ElementFormat(16, 256, 66),
    "iq2_xs": ElementFormat(17, 256, 74),
    "iq3_xxs": ElementFormat(18, 256, 98),
    "iq1_s": ElementFormat(19, 256, 50),
    "iq3_s": ElementFormat(21, 256, 110),
    "iq2_s": ElementFormat(22, 256, 82),
    "i8": ElementFormat(24, 1, 1),
    "i16": ElementFormat(25, 1, 2),
    "i32": ElementFormat(26, 1, 4),
    "i64": ElementFormat(27, 1, 8),
    "f64": ElementFormat(28, 1, 8),
    "iq1_m": ElementFormat(29, 256, 56),
    "tq1_0": ElementFormat(34, 256, 54),
    "tq2_0": ElementFormat(35, 256, 66),
    "nvfp4": ElementFormat(40, 64, 36),
    "q1_0": ElementFormat(41, 128, 18),
    "q2_0": ElementFormat(42, 64, 18),
}
READ = {
    name: ElementFormat(format.number, format.block, format.nbytes)
    for name, format in formats.items()
}
FORMATS: dict[str, ElementFormat] = dict(
    sorted((READ | SIZES_ONLY).items(), key=lambda entry: entry[1].number)
)
FORMAT_NAMES = {f.number: name for name, f in FORMATS.items()}


@record
class Scalar:
    """A type of metadata: its number in the file, its code for `struct` and its NumPy dtype."""

    number: int
    code: str
    dtype: str


SCALARS: dict[str, Scalar] = {
    "u8": Scalar(0, "<B", "|u1"),
    "i8": Scalar(1, "<b", "|i1"),
    "u16": Scalar(2, "<H", "<u2"),
    "i16": Scalar(3, "<h", "<i2"),
    "u32": Scalar(4, "<I", "<u4"),
    "i32": Scalar(5, "<i", "<i4"),
    "f32": Scalar(6, "<f", "<f4"),
    "bool": Scalar(7, "<?", "|b1"),
    "u64": Scalar(10, "<Q", "<u8"),
    "i64": Scalar(11, "<q", "<i8"),
    "f64": Scalar(12, "<d", "<f8"),
}
SCALAR_NAMES = {s.number: name for name, s in SCALARS.items()}
STRING, ARRAY = 8, 9


@record
class Typed:
    """A metadata value with its type: "u32", "str", "[f32]", "[str]"; "[array]" holds a list of
    Typed arrays."""

    type: str
    value: Any


def plain(typed: Typed) -> object:
    """The value alone, also inside arrays of arrays."""
    return [plain(item) for item in typed.value] if typed.type == "[array]" else typed.value


@record
class Tensor:
    """One tensor of an open file; `offset` counts from the beginning of `file`, the slowest axis
    comes first."""

    name: str
    shape: tuple[int, ...]
    format: str
    nbytes: int
    file: str
    offset: int


Bytes = Any  # anything with the buffer protocol: bytes, memoryview, a contiguous NumPy array


@record
class Raw:
    """A tensor to be written as it is: bytes of a format, or a function called for them when it is
    their turn."""

    format: str
    shape: tuple[int, ...]
    data: Bytes | Callable[[], Bytes]


def shape_problem(format: str, shape: tuple[int, ...]) -> str | None:
    """Why no tensor of a file has this format and shape, None if one may have it."""
    if len(shape) > MAX_AXES:
        return f"{len(shape)} axes, at most {MAX_AXES} are possible"
    if any(not 0 < size <= MAX_ELEMENTS for size in shape) or math.prod(shape) > MAX_ELEMENTS:
        return f"shape {shape}: sizes must be at least 1 and their product at most 2**48"
    block = FORMATS[format].block
    if (row := shape[-1] if shape else 1) % block:
        return f"rows of {row} elements, but {format} stores blocks of {block}"
    return None


def tensor_bytes(format: str, shape: tuple[int, ...]) -> int:
    """Bytes of a tensor that has no shape_problem."""
    return math.prod(shape) // FORMATS[format].block * FORMATS[format].nbytes


def aligned(offset: int, alignment: int) -> int:
    """The first multiple of the alignment at or behind the offset."""
    return -(-offset // alignment) * alignment


def is_alignment(value: object) -> bool:
    return isinstance(value, int) and 0 < value <= MAX_ALIGNMENT and value & (value - 1) == 0
