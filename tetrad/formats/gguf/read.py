"""GGUF, reading: a path becomes metadata, tensor descriptions and views of mapped bytes.

Receives the path of a file, or of any shard of a split set; returns a File. Every tensor was
checked to lie inside its file, aligned and apart from the others, before the File exists.
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NoReturn

from tetrad.core.errors import FileFormatError
from tetrad.core.record import record
from tetrad.core.visible import one_line, shown
from tetrad.formats.gguf.cursor import Cursor
from tetrad.formats.gguf.layout import (
    ALIGNMENT_KEY,
    DEFAULT_ALIGNMENT,
    FORMAT_NAMES,
    MAGIC,
    MAX_ALIGNMENT,
    MAX_AXES,
    MAX_KEYS,
    MAX_SHARDS,
    MAX_TENSORS,
    VERSIONS,
    Tensor,
    Typed,
    aligned,
    is_alignment,
    plain,
    shape_problem,
    tensor_bytes,
)
from tetrad.formats.mapped import MappedFiles
from tetrad.formats.pin import Pin

SMALLEST_KEY = 8 + 1 + 4 + 1  # a name of one byte, the type, a value of one byte
SMALLEST_TENSOR = 8 + 1 + 4 + 4 + 8  # a name of one byte, no axes, format, offset

SPLIT_KEYS = ("split.no", "split.count", "split.tensors.count")
SHARD_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)

HINTS = {
    b"vers": "this looks like a Git LFS pointer in place of the model: fetch it with `git lfs "
    "pull`",
    b"PK\x03\x04": "this is a zip archive, perhaps a PyTorch checkpoint",
    b"fmgg": "files older than GGUF are not read; convert it with llama.cpp",
    b"lmgg": "files older than GGUF are not read; convert it with llama.cpp",
    b"tjgg": "files older than GGUF are not read; convert it with llama.cpp",
}
ELSE = (
    "models of other formats have to be converted, for instance by llama.cpp's "
    "convert_hf_to_gguf.py"
)


class File(MappedFiles[Tensor]):
    """An open file or split set. `typed` is the metadata with the types it was stored with, which
    is what `write` needs to store it again."""

    def __init__(
        self,
        path: str,
        typed: dict[str, Typed],
        tensors: dict[str, Tensor],
        parts: Sequence[FilePart],
    ) -> None:
        super().__init__(path, tensors, parts)
        self.typed = typed
        self.metadata: dict[str, object] = {key: plain(value) for key, value in typed.items()}

    def __repr__(self) -> str:
        return (
            f"<gguf.File {one_line(self.path)}: {len(self.metadata)} keys, {len(self.tensors)} "
            "tensors>"
        )


@record
class FilePart:
    """One file of a set, or the only one."""

    path: str
    typed: dict[str, Typed]
    tensors: dict[str, Tensor]
    mapped: mmap.mmap
    pin: Pin


def open_file(path: str | os.PathLike[str]) -> File:
    """Opens a GGUF file in place; given any shard of a split set, opens the whole set as if it were
    one file."""
    part = open_part(os.fsdecode(path))
    if split_number(part, "split.count", default=0) <= 1:
        return File(part.path, part.typed, part.tensors, [part])
    return join(open_shards(part))


# -- one file --------------------------------------------------------------------------------------


def open_part(path: str) -> FilePart:
    pin = Pin(path)
    mapped = pin.mapped()
    typed, tensors = read_header(Cursor(path, mapped), len(mapped))
    return FilePart(path, typed, tensors, mapped, pin)


def parse_header(data: bytes, size: int, file: str) -> tuple[dict[str, Typed], dict[str, Tensor]]:
    """Metadata and tensors of a file of `size` bytes, of which `data` is the beginning.

    Raises FileTooShortError where the header goes on behind it. `file` names it in errors."""
    return read_header(Cursor(file, data), size)


def read_header(cursor: Cursor, size: int) -> tuple[dict[str, Typed], dict[str, Tensor]]:
    n_tensors, n_keys = read_counts(cursor)
    typed = read_metadata(cursor, n_keys)
    alignment = typed[ALIGNMENT_KEY].value if ALIGNMENT_KEY in typed else DEFAULT_ALIGNMENT
    found = [read_tensor(cursor) for _ in range(n_tensors)]
    start = aligned(cursor.position, alignment)
    return typed, place_tensors(cursor, found, start, alignment, size)


def read_counts(cursor: Cursor) -> tuple[int, int]:
    """Numbers of tensors and keys, after magic and version."""
    magic = cursor.data[:4]
    if magic != MAGIC:
        cursor.fail(
            f"the file begins with {magic!r}, a GGUF file with {MAGIC!r}", 0, HINTS.get(magic, ELSE)
        )
    cursor.take(4, "the magic")
    version = cursor.u32("the version")
    if version not in VERSIONS:
        fail_version(cursor, version)
    n_tensors = cursor.count("tensors", SMALLEST_TENSOR, MAX_TENSORS)
    return n_tensors, cursor.count("keys", SMALLEST_KEY, MAX_KEYS)


def fail_version(cursor: Cursor, version: int) -> NoReturn:
    swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
    if swapped in VERSIONS:
        cursor.fail(
            "the file is big-endian",
            4,
            "only little-endian files are read; convert it with gguf_convert_endian",
        )
    cursor.fail(
        f"version {version} of the format",
        4,
        "versions 2 and 3 are read; convert it with llama.cpp",
    )


def read_metadata(cursor: Cursor, count: int) -> dict[str, Typed]:
    typed: dict[str, Typed] = {}
    for i in range(count):
        cursor.part, start = f"key {i}", cursor.position
        key = cursor.name("the key")
        cursor.part = f"key {shown(key)}"
        if key in typed:
            cursor.fail("the key occurs twice", start)
        typed[key] = cursor.value()
        if key == ALIGNMENT_KEY:
            check_alignment(cursor, typed[key], start)
    return typed


def check_alignment(cursor: Cursor, value: Typed, at: int) -> None:
    if value.type != "u32" or not is_alignment(value.value):
        cursor.fail(
            f"{value.type} {value.value!r:.40}: must be a u32, a power of two, at most "
            f"{MAX_ALIGNMENT}",
            at,
        )


@record
class TensorEntry:
    """A tensor as the header describes it: the offset counts from the beginning of the data; `at`
    is the entry."""

    name: str
    shape: tuple[int, ...]
    format: str
    offset: int
    at: int


def read_tensor(cursor: Cursor) -> TensorEntry:
    cursor.part, at = "tensors", cursor.position
    name = cursor.name("the name of a tensor")
    cursor.part = f"tensor {shown(name)}"
    axes = cursor.u32("the number of axes")
    if axes > MAX_AXES:
        cursor.fail(f"{axes} axes, at most {MAX_AXES} are possible", cursor.position - 4)
    shape = cursor.u64s(axes, "the shape")[::-1]  # the file has the fastest axis first
    number = cursor.u32("the format")
    if number not in FORMAT_NAMES:
        cursor.fail(
            f"{number} is not the number of a format",
            cursor.position - 4,
            "FORMATS lists those that are",
        )
    format = FORMAT_NAMES[number]
    if (problem := shape_problem(format, shape)) is not None:
        cursor.fail(problem, at)
    return TensorEntry(name, shape, format, cursor.u64("the offset"), at)


def place_tensors(
    cursor: Cursor, found: list[TensorEntry], data_start: int, alignment: int, size: int
) -> dict[str, Tensor]:
    """Tensors by name, in the order of the file; each aligned, inside the file, apart from the
    others."""
    tensors = dict[str, Tensor]()
    for tensor in found:
        cursor.part = f"tensor {shown(tensor.name)}"
        if tensor.name in tensors:
            cursor.fail("the tensor occurs twice", tensor.at)
        if tensor.offset % alignment:
            cursor.fail(
                f"offset {tensor.offset} is not a multiple of the alignment {alignment}", tensor.at
            )
        start, nbytes = data_start + tensor.offset, tensor_bytes(tensor.format, tensor.shape)
        if start + nbytes > size:
            cursor.fail(
                f"its data are the bytes {start} to {start + nbytes}, but the file ends at {size}",
                tensor.at,
                "the file is damaged or not complete",
            )
        tensors[tensor.name] = Tensor(
            tensor.name, tensor.shape, tensor.format, nbytes, cursor.file, start
        )
    refuse_overlaps(cursor, tensors)
    return tensors


def refuse_overlaps(cursor: Cursor, tensors: dict[str, Tensor]) -> None:
    ordered = sorted(tensors.values(), key=lambda t: t.offset)
    for before, after in pairwise(ordered):
        if before.offset + before.nbytes > after.offset:
            cursor.part = f"tensor {shown(after.name)}"
            cursor.fail(f"its data overlap those of tensor {shown(before.name)}", after.offset)


# -- split sets ------------------------------------------------------------------------------------


def split_number(part: FilePart, key: str, default: int | None = None) -> int:
    value = part.typed[key].value if key in part.typed else default
    if not isinstance(value, int):
        raise FileFormatError(
            "a shard needs this key, an integer", file=part.path, part=f"key {shown(key)}"
        )
    return value


def open_shards(part: FilePart) -> list[FilePart]:
    """All files of the set that `part` belongs to, which is not opened again."""
    count = split_number(part, "split.count")
    if count > MAX_SHARDS:
        raise FileFormatError(f"{count} shards", file=part.path, part="key 'split.count'")
    names = shard_names(part, count)
    missing = [name for name in names if not os.path.exists(name)]
    if missing:
        others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        hint = "all shards of a set must lie in one folder"
        raise FileFormatError(
            f"{os.path.basename(missing[0])}{others} of the set is missing",
            file=part.path,
            hint=hint,
        )
    shards = [part if name == part.path else open_part(name) for name in names]
    for number, shard in enumerate(shards):
        check_split(shard, "split.no", number)
        check_split(shard, "split.count", count)
    return shards


def shard_names(part: FilePart, count: int) -> list[str]:
    match = SHARD_NAME.fullmatch(part.path)
    number = split_number(part, "split.no")
    if match is None or int(match["number"]) != number + 1 or int(match["count"]) != count:
        expected = f"name-{number + 1:05}-of-{count:05}.gguf"
        raise FileFormatError(
            f"shard {number} of {count} (from 0) must be called {expected}", file=part.path
        )
    return [f"{match['stem']}-{i + 1:05}-of-{count:05}.gguf" for i in range(count)]


def check_split(shard: FilePart, key: str, expected: int) -> None:
    if (value := split_number(shard, key)) != expected:
        raise FileFormatError(
            f"{value}, but {expected} was expected", file=shard.path, part=f"key {shown(key)}"
        )


def join(shards: list[FilePart]) -> File:
    """The metadata of the first shard and the tensors of all; the keys that say it was split are
    left out."""
    first, tensors = shards[0], dict[str, Tensor]()
    for shard in shards:
        for name, tensor in shard.tensors.items():
            if name in tensors:
                message = f"the tensor is also in {os.path.basename(tensors[name].file)}"
                raise FileFormatError(message, file=shard.path, part=f"tensor {shown(name)}")
            tensors[name] = tensor
    check_split(first, "split.tensors.count", len(tensors))
    typed = {key: value for key, value in first.typed.items() if key not in SPLIT_KEYS}
    return File(first.path, typed, tensors, shards)
