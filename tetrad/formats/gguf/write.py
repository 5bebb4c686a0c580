"""GGUF, writing: metadata and tensors become one file of version 3.

Receives Python values, NumPy arrays and raw blocks; leaves a complete file under its name, or
nothing at all: the bytes are written beside it, made durable and renamed. What the reader would
refuse is refused before a byte is written.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple, NoReturn

import numpy as np

from tetrad.core.errors import FileFormatError
from tetrad.core.visible import shown
from tetrad.formats.gguf.layout import (
    ALIGNMENT_KEY,
    ARRAY,
    DEFAULT_ALIGNMENT,
    FORMATS,
    MAGIC,
    MAX_ALIGNMENT,
    MAX_ARRAYS,
    MAX_DEPTH,
    MAX_HEADER_BYTES,
    MAX_KEYS,
    MAX_NAME_BYTES,
    MAX_TENSORS,
    SCALARS,
    STRING,
    Bytes,
    Raw,
    Typed,
    aligned,
    is_alignment,
    shape_problem,
    tensor_bytes,
)
from tetrad.formats.replace import replaced
from tetrad.formats.strings import Strings

ARRAY_FORMATS = {
    np.dtype(SCALARS[name].dtype).name: name for name in ("f32", "f64", "i8", "i16", "i32", "i64")
} | {
    "float16": "f16",
    "bfloat16": "bf16",  # by name: who has such an array has loaded ml_dtypes, others need not
}
DTYPE_NAMES = {np.dtype(scalar.dtype): name for name, scalar in SCALARS.items()}
ELEMENTS = {f"[{name}]": name for name in (*SCALARS, "str", "array")}
NUMBERS = (bool, int, float, np.number, np.bool_)
RANGES = {
    "u32": range(1 << 32),
    "i32": range(-1 << 31, 1 << 31),
    "u64": range(1 << 64),
    "i64": range(-1 << 63, 1 << 63),
}


class ValuePath(NamedTuple):
    """Where a value goes, for errors."""

    file: str
    part: str

    def fail(self, message: str, hint: str | None = None) -> NoReturn:
        raise FileFormatError(message, file=self.file, part=self.part, hint=hint)


def write(
    path: str | os.PathLike[str],
    metadata: Mapping[str, object],
    tensors: Mapping[str, np.ndarray | Raw],
) -> None:
    """Writes a GGUF file, all or nothing.

    Python values become what other programs expect: int u32 (i32, i64 or u64 where it does not
    fit), float f32, a list of ints [i32]. NumPy scalars and arrays keep their type, `Typed` states
    any; `bytes` are a string of any bytes.
    """
    file = os.fsdecode(path)
    typed = {
        key: as_typed(ValuePath(file, f"key {shown(key)}"), value)
        for key, value in metadata.items()
    }
    raw = {
        name: as_raw(ValuePath(file, f"tensor {shown(name)}"), tensor)
        for name, tensor in tensors.items()
    }
    alignment = alignment_of(file, typed)
    header = pack_header(file, typed, raw, alignment)
    with replaced(file, "gguf") as out:
        out.write(header.ljust(aligned(len(header), alignment), b"\0"))
        for name, tensor in raw.items():
            write_tensor(out, ValuePath(file, f"tensor {shown(name)}"), tensor, alignment)


# -- header ----------------------------------------------------------------------------------------


def pack_header(
    file: str, typed: Mapping[str, Typed], raw: Mapping[str, Raw], alignment: int
) -> bytes:
    refuse_more(file, "keys", len(typed), MAX_KEYS)
    refuse_more(file, "arrays", sum(map(count_arrays, typed.values())), MAX_ARRAYS)
    refuse_more(file, "tensors", len(raw), MAX_TENSORS)
    header = bytearray(MAGIC + struct.pack("<IQQ", 3, len(raw), len(typed)))
    for key, value in typed.items():
        place = ValuePath(file, f"key {shown(key)}")
        header += pack_name(place, key) + pack_value(place, value)
    offset = 0
    for name, tensor in raw.items():
        header += pack_tensor(ValuePath(file, f"tensor {shown(name)}"), name, tensor, offset)
        offset = aligned(offset + tensor_bytes(tensor.format, tensor.shape), alignment)
    refuse_more(file, "bytes of header", len(header), MAX_HEADER_BYTES)
    return bytes(header)


def refuse_more(file: str, what: str, count: int, most: int) -> None:
    if count > most:
        ValuePath(file, "header").fail(f"{count} {what}, at most {most} are possible")


def count_arrays(value: object) -> int:
    if isinstance(value, Typed):
        return count_arrays(value.value)
    if isinstance(value, list | tuple):
        return 1 + sum(map(count_arrays, value))
    return int(isinstance(value, np.ndarray | Strings))


def alignment_of(file: str, typed: Mapping[str, Typed]) -> int:
    value = typed.get(ALIGNMENT_KEY, Typed("u32", DEFAULT_ALIGNMENT))
    if value.type != "u32" or not is_alignment(value.value):
        message = f"{value.value!r:.40}: must be a u32, a power of two, at most {MAX_ALIGNMENT}"
        ValuePath(file, f"key {shown(ALIGNMENT_KEY)}").fail(message)
    return int(value.value)


def pack_name(place: ValuePath, name: str) -> bytes:
    raw = encode(place, name) if isinstance(name, str) else b""
    if not 0 < len(raw) <= MAX_NAME_BYTES or b"\0" in raw:
        place.fail(f"a name has 1 to {MAX_NAME_BYTES} bytes, none of them zero")
    return pack_string(raw)


def pack_string(raw: bytes) -> bytes:
    return struct.pack("<Q", len(raw)) + raw


def encode(place: ValuePath, text: object) -> bytes:
    if isinstance(text, bytes):
        return text
    if not isinstance(text, str):
        place.fail(f"a string is str or bytes, not {type(text).__name__}")
    try:
        return text.encode()
    except UnicodeEncodeError:
        place.fail(f"{shown(text)} has no UTF-8", hint="hand in bytes")


def pack_tensor(place: ValuePath, name: str, tensor: Raw, offset: int) -> bytes:
    axes = len(tensor.shape)
    number = FORMATS[tensor.format].number
    return pack_name(place, name) + struct.pack(
        f"<I{axes}QIQ", axes, *tensor.shape[::-1], number, offset
    )


# -- values of the metadata ------------------------------------------------------------------------


def pack_value(place: ValuePath, typed: Typed) -> bytes:
    """The type and the value."""
    if typed.type == "str":
        return struct.pack("<I", STRING) + pack_string(encode(place, typed.value))
    if typed.type in SCALARS:
        return struct.pack("<I", SCALARS[typed.type].number) + pack_number(place, typed)
    return struct.pack("<I", ARRAY) + pack_array(place, typed, 1)


def pack_number(place: ValuePath, typed: Typed) -> bytes:
    try:
        if typed.type == "bool" and not isinstance(typed.value, bool | np.bool_):
            raise struct.error  # to struct everything is true or false
        return struct.pack(SCALARS[typed.type].code, typed.value)
    except (struct.error, OverflowError):
        place.fail(f"{typed.value!r:.60} is not a value of {typed.type}")


def pack_array(place: ValuePath, typed: Typed, depth: int) -> bytes:
    """The type of the elements, their number, the elements."""
    if typed.type not in ELEMENTS:
        place.fail(
            f"unknown type {shown(typed.type)}",
            hint=f"types are str, {', '.join((*SCALARS, *ELEMENTS))}",
        )
    if isinstance(typed.value, str | bytes) or not isinstance(typed.value, Sequence | np.ndarray):
        place.fail(f"{typed.type} takes a sequence, not {type(typed.value).__name__}")
    if depth > MAX_DEPTH:
        place.fail(f"arrays are nested more than {MAX_DEPTH} deep")
    number, items = pack_items(place, ELEMENTS[typed.type], typed.value, depth)
    return struct.pack("<IQ", number, len(typed.value)) + items


def pack_items(place: ValuePath, element: str, value: Any, depth: int) -> tuple[int, bytes]:
    """The number of the type of the elements, and the elements."""
    if element == "str":
        return STRING, pack_strings(place, value)
    if element == "array":
        return ARRAY, b"".join(
            [pack_array(place, as_typed(place, item), depth + 1) for item in value]
        )
    return SCALARS[element].number, as_numbers(place, element, value).tobytes()


def pack_strings(place: ValuePath, value: Sequence[object]) -> bytes:
    if isinstance(value, Strings):
        return value.data
    return b"".join([pack_string(encode(place, item)) for item in value])


def as_numbers(place: ValuePath, element: str, value: Any) -> np.ndarray:
    # As objects Python's integers compare exactly with what they became.
    given = value if isinstance(value, np.ndarray) else np.array(value, object)
    if given.ndim != 1 or not (
        given.dtype.kind in "biuf" or all(isinstance(x, NUMBERS) for x in given)
    ):
        place.fail(f"[{element}] takes one axis of numbers, got {value!r:.60}")
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # what they say is found below
            numbers = given.astype(SCALARS[element].dtype)
    except (OverflowError, ValueError):  # too large, or NaN as an integer
        numbers = None
    if numbers is None or not same_numbers(given, numbers):
        place.fail(f"not all of {value!r:.60} are values of {element}")
    return numbers


def same_numbers(given: np.ndarray, numbers: np.ndarray) -> bool:
    """Integers keep their value; floats may lose digits, but not become infinite."""
    if numbers.dtype.kind == "f":
        return bool(np.isinf(given[np.isinf(numbers)].astype(np.float64)).all())
    return bool((numbers == given).all())


def as_typed(place: ValuePath, value: object) -> Typed:
    """The type other programs expect for a Python value."""
    match value:
        case Typed():
            return value
        case str() | bytes():
            return Typed("str", value)
        case bool():
            return Typed("bool", value)
        case int():
            return Typed(smallest_holding(place, value, value, ("u32", "i32", "i64", "u64")), value)
        case float() if not isinstance(value, np.floating):
            return Typed("f32", value)
        case np.generic() if value.dtype in DTYPE_NAMES:
            return Typed(DTYPE_NAMES[value.dtype], value.item())
        case np.ndarray() if value.dtype.newbyteorder("<") in DTYPE_NAMES and value.ndim == 1:
            return Typed(f"[{DTYPE_NAMES[value.dtype.newbyteorder('<')]}]", value)
        case Strings():
            return Typed("[str]", value)
        case list() | tuple():
            return as_array(place, value)
    place.fail(
        f"no type for a value of {type(value).__name__}", hint="wrap it: gguf.Typed(type, value)"
    )


def as_array(place: ValuePath, value: Sequence[Any]) -> Typed:
    kinds = {type(item) for item in value}
    if kinds and kinds <= {str, bytes}:
        return Typed("[str]", value)
    if kinds == {bool}:
        return Typed("[bool]", value)
    if kinds == {int}:
        return Typed(
            f"[{smallest_holding(place, min(value), max(value), ('i32', 'i64', 'u64'))}]", value
        )
    if kinds == {float}:
        return Typed("[f32]", value)
    if kinds and kinds <= {list, tuple, np.ndarray, Strings, Typed}:
        return Typed("[array]", value)
    what = (
        "an empty list"
        if not kinds
        else f"a list of {', '.join(sorted(k.__name__ for k in kinds))}"
    )
    place.fail(f"no type for {what}", hint='wrap it: gguf.Typed("[f32]", values)')


def smallest_holding(place: ValuePath, low: int, high: int, names: Sequence[str]) -> str:
    for name in names:
        if low in RANGES[name] and high in RANGES[name]:
            return name
    place.fail(f"{low} to {high} fits no integer type")


# -- tensors ---------------------------------------------------------------------------------------


def as_raw(place: ValuePath, tensor: np.ndarray | Raw) -> Raw:
    """A tensor with its format known and its shape possible."""
    raw = tensor if isinstance(tensor, Raw) else array_as_raw(place, tensor)
    if raw.format not in FORMATS:
        place.fail(f"unknown format {shown(raw.format)}", hint=f"formats are {', '.join(FORMATS)}")
    shape = tuple(int(size) for size in raw.shape)
    if (problem := shape_problem(raw.format, shape)) is not None:
        place.fail(problem)
    return Raw(raw.format, shape, raw.data)


def array_as_raw(place: ValuePath, tensor: object) -> Raw:
    if not isinstance(tensor, np.ndarray):
        place.fail(f"a tensor is a NumPy array or gguf.Raw, not {type(tensor).__name__}")
    dtype = tensor.dtype.newbyteorder("<")
    if dtype.name not in ARRAY_FORMATS:
        known = ", ".join(ARRAY_FORMATS)
        place.fail(
            f"no format for arrays of {tensor.dtype}",
            hint=f"convert it to one of {known}, or use gguf.Raw",
        )
    return Raw(ARRAY_FORMATS[dtype.name], tensor.shape, lambda: np.ascontiguousarray(tensor, dtype))


def write_tensor(out: BinaryIO, place: ValuePath, tensor: Raw, alignment: int) -> None:
    data: Bytes = tensor.data() if callable(tensor.data) else tensor.data
    view = as_bytes(place, data)
    expected = tensor_bytes(tensor.format, tensor.shape)
    if len(view) != expected:
        place.fail(
            f"{len(view)} bytes, but {tensor.format} of shape {tensor.shape} takes {expected}"
        )
    out.write(view)
    out.write(b"\0" * (aligned(expected, alignment) - expected))


def as_bytes(place: ValuePath, data: Bytes) -> memoryview:
    if isinstance(data, np.ndarray):  # bf16 has no buffer protocol of its own
        return np.ascontiguousarray(data).reshape(-1).view(np.uint8).data
    try:
        return memoryview(data).cast("B")
    except TypeError as error:
        place.fail(f"data of {type(data).__name__}: {error}", hint="hand in contiguous bytes")
