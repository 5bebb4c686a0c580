"""Safetensors, reading: a path becomes metadata, tensor descriptions and views of mapped bytes.

Receives the path of a file, of an index of shards, or of a folder that has one of the two; returns
a TensorFile. Before that exists, every tensor was checked to lie inside its file, apart from the
others and without holes between them.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence

import numpy as np

from tetrad.core.errors import FileFormatError, UnsupportedError
from tetrad.core.record import record
from tetrad.core.visible import one_line, shown
from tetrad.formats.json_file import read_object
from tetrad.formats.mapped import MappedFiles
from tetrad.formats.pin import Pin
from tetrad.formats.safetensors.cursor import HeaderCursor
from tetrad.formats.safetensors.layout import (
    BITS,
    DTYPES,
    MAX_AXES,
    MAX_HEADER_BYTES,
    MAX_METADATA_BYTES,
    MAX_METADATA_KEYS,
    MAX_NAME_BYTES,
    MAX_NAMES_BYTES,
    MAX_SHARDS,
    MAX_TENSORS,
    METADATA,
    PREFIX,
    StoredTensor,
    shape_problem,
    tensor_bytes,
)

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
MAX_INDEX_BYTES = 16 << 20
FIELDS = ("dtype", "shape", "data_offsets")
HINTS = {
    b"GGUF": "this is a GGUF file",
    b"PK\x03\x04": "this is a zip archive, perhaps a PyTorch checkpoint",
    b"vers": "this looks like a Git LFS pointer in place of the file: fetch it with `git lfs pull`",
}
CUT = "the file is damaged or not complete"


class TensorFile(MappedFiles[StoredTensor]):
    """An open file, or the files of an index; of metadata that several have, the first counts."""

    def __init__(self, path: str, parts: Sequence[TensorFilePart]) -> None:
        tensors = {name: tensor for part in parts for name, tensor in part.tensors.items()}
        super().__init__(path, tensors, parts)
        self.metadata: dict[str, str] = {}
        for part in parts:
            self.metadata = part.metadata | self.metadata

    def array(self, name: str) -> np.ndarray:
        """A tensor as NumPy has it, read-only, in place."""
        data, tensor = self.data(name), self.tensors[name]
        if tensor.dtype not in DTYPES:
            message = f"{tensor.file}: tensor {shown(name)} has the type {tensor.dtype}"
            raise UnsupportedError(message, hint=f"supported: {', '.join(DTYPES)}")
        if tensor.dtype == "BOOL" and data.size and data.max() > 1:
            at = tensor.offset + int((data > 1).argmax())
            part = f"tensor {shown(name)}"
            raise FileFormatError("a bool is 0 or 1", file=tensor.file, part=part, offset=at)
        return data.view(DTYPES[tensor.dtype].dtype).reshape(tensor.shape)

    def __repr__(self) -> str:
        return f"<safetensors {one_line(self.path)}: {len(self.tensors)} tensors>"


@record
class TensorFilePart:
    """One file of a set, or the only one."""

    path: str
    metadata: dict[str, str]
    tensors: dict[str, StoredTensor]
    mapped: mmap.mmap
    pin: Pin


def open_file(path: str | os.PathLike[str]) -> TensorFile:
    """Opens a file in place; of an index (`model.safetensors.index.json`), or a folder with one,
    all files as if they were one."""
    place = os.fsdecode(path)
    if os.path.isdir(place):
        place = file_in(place)
    if place.endswith(".json"):
        return TensorFile(place, open_shards(place))
    return TensorFile(place, [open_part(place)])


def file_in(folder: str) -> str:
    """The file of tensors that a folder has, or its index."""
    for name in (SINGLE, INDEX):
        if os.path.exists(place := os.path.join(folder, name)):
            return place
    raise FileFormatError(f"there is neither {SINGLE} nor {INDEX}", file=folder)


# -- one file --------------------------------------------------------------------------------------


def open_part(path: str) -> TensorFilePart:
    pin = Pin(path)
    mapped = pin.mapped()
    cursor = HeaderCursor(path, mapped, header_end(path, mapped))
    metadata, tensors = read_header(cursor)
    check_places(cursor, tensors, len(mapped))
    return TensorFilePart(path, metadata, tensors, mapped, pin)


def header_end(path: str, data: mmap.mmap) -> int:
    """Where the header ends, which its length says."""
    size, length = len(data), int.from_bytes(data[:PREFIX], "little")
    problem = None
    if size < PREFIX + 2:
        problem = f"the file has {size} bytes, the smallest has {PREFIX + 2}"
    elif length > MAX_HEADER_BYTES:
        problem = f"a header of {length} bytes, at most {MAX_HEADER_BYTES} are accepted"
    elif length > size - PREFIX:
        problem = f"a header of {length} bytes, but only {size - PREFIX} are left"
    elif data[PREFIX : PREFIX + 1] != b"{":
        problem = "the header does not begin with {"
    if problem is not None:
        hint = HINTS.get(data[:4], CUT)
        raise FileFormatError(problem, file=path, part="header", offset=0, hint=hint)
    return PREFIX + length


def read_header(cursor: HeaderCursor) -> tuple[dict[str, str], dict[str, StoredTensor]]:
    """Metadata, and tensors in the order of the header."""
    metadata: dict[str, str] = {}
    tensors: dict[str, StoredTensor] = {}
    names = 0
    for start, name in cursor.keys("the name", MAX_NAME_BYTES):
        if name == METADATA:
            metadata = read_metadata(cursor)
            continue
        names += len(name)
        cursor.part = f"tensor {shown(name)}"
        if len(tensors) == MAX_TENSORS or names > MAX_NAMES_BYTES:
            most = f"{MAX_TENSORS} tensors and {MAX_NAMES_BYTES} bytes of their names"
            cursor.fail(f"at most {most} are accepted", start)
        tensors[name] = read_tensor(cursor, name, start)
        cursor.part = "header"
    if cursor.skip() != cursor.end:
        cursor.fail("expected the end of the header")
    return metadata, tensors


def read_metadata(cursor: HeaderCursor) -> dict[str, str]:
    cursor.part = METADATA
    made: dict[str, str] = {}
    left = MAX_METADATA_BYTES
    for start, key in cursor.keys("the key", MAX_NAME_BYTES):
        made[key] = cursor.text(f"key {shown(key)}", left)
        left = max(0, left - len(key) - len(made[key]))
        if len(made) > MAX_METADATA_KEYS:
            cursor.fail(f"more than {MAX_METADATA_KEYS} keys", start)
    cursor.part = "header"
    return made


def read_tensor(cursor: HeaderCursor, name: str, start: int) -> StoredTensor:
    """Type, shape and place of one tensor, which agree with each other."""
    found: dict[str, object] = {}
    dtype, shape, offsets = "", (), ()  # type: tuple[str, tuple[int, ...], tuple[int, ...]]
    for at, field in cursor.keys("the field", MAX_NAME_BYTES):
        if field == "dtype":
            dtype = cursor.text(field, MAX_NAME_BYTES)
        elif field == "shape":
            shape = cursor.wholes(field, MAX_AXES)
        elif field == "data_offsets":
            offsets = cursor.wholes(field, 2)
        else:
            cursor.fail(f"{shown(field)} is none of its fields, {', '.join(FIELDS)}", at)
        found[field] = at
    if missing := [field for field in FIELDS if field not in found]:
        cursor.fail(f"{missing[0]} is missing", start)
    if dtype not in BITS:
        cursor.fail(f"unknown type {shown(dtype)}", start, f"types are {', '.join(BITS)}")
    if (problem := shape_problem(dtype, shape)) is not None:
        cursor.fail(problem, start)
    check_extent(cursor, dtype, shape, offsets, start)
    return StoredTensor(
        name, shape, dtype, offsets[1] - offsets[0], cursor.file, cursor.end + offsets[0]
    )


def check_extent(
    cursor: HeaderCursor, dtype: str, shape: tuple[int, ...], offsets: tuple[int, ...], start: int
) -> None:
    if len(offsets) != 2 or offsets[1] < offsets[0]:
        cursor.fail(f"data_offsets {list(offsets)}: expected a beginning and an end", start)
    nbytes, wanted = offsets[1] - offsets[0], tensor_bytes(dtype, shape)
    if nbytes != wanted:
        cursor.fail(
            f"{dtype} of shape {list(shape)} takes {wanted} bytes, data_offsets hold {nbytes}",
            start,
        )


def check_places(cursor: HeaderCursor, tensors: dict[str, StoredTensor], size: int) -> None:
    """All bytes after the header belong to one tensor each."""
    expected = cursor.end
    for tensor in sorted(tensors.values(), key=lambda t: (t.offset, t.nbytes)):
        cursor.part = f"tensor {shown(tensor.name)}"
        end = tensor.offset + tensor.nbytes
        if end > size:
            message = (
                f"its data are the bytes {tensor.offset} to {end}, but the file ends at {size}"
            )
            cursor.fail(message, tensor.offset, CUT)
        if tensor.offset != expected:
            what = "overlap those of another" if tensor.offset < expected else "leave a hole before"
            cursor.fail(
                f"its data {what}: they begin at {tensor.offset}, expected {expected}",
                tensor.offset,
            )
        expected = end
    if expected != size:
        cursor.part = "data"
        cursor.fail(f"{size - expected} bytes after the last tensor", expected, CUT)


# -- an index of shards ----------------------------------------------------------------------------


def open_shards(path: str) -> list[TensorFilePart]:
    """The files that an index names, each tensor in the one that it says."""
    places = read_index(path)
    folder = os.path.dirname(path)
    parts: list[TensorFilePart] = []
    for name in sorted(set(places.values())):
        if not os.path.exists(os.path.join(folder, name)):
            hint = "all shards of an index must lie beside it"
            raise FileFormatError(f"the shard {shown(name)} is missing", file=path, hint=hint)
        parts.append(open_part(os.path.join(folder, name)))
    found = {name: os.path.basename(part.path) for part in parts for name in part.tensors}
    for name in {**places, **found}:
        if places.get(name) != found.get(name):
            said, is_in = (where.get(name, "no shard") for where in (places, found))
            message = f"the index says {said}, the tensor is in {is_in}"
            raise FileFormatError(message, file=path, part=f"tensor {shown(name)}")
    if sum(len(part.tensors) for part in parts) != len(found):
        raise FileFormatError("a tensor is in more than one shard", file=path)
    return parts


def read_index(path: str) -> dict[str, str]:
    """Tensor -> name of its shard, a plain name beside the index."""
    places = read_object(path, MAX_INDEX_BYTES).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise FileFormatError(
            "expected an object: tensor -> file", file=path, part="field weight_map"
        )
    for name, shard in places.items():
        if not isinstance(shard, str) or not is_plain(shard):
            message = f"expected the name of a file beside the index, got {shard!r:.80}"
            raise FileFormatError(message, file=path, part=f"field weight_map.{shown(name)}")
    if len(set(places.values())) > MAX_SHARDS:
        raise FileFormatError(f"more than {MAX_SHARDS} shards", file=path, part="field weight_map")
    return places


def is_plain(name: str) -> bool:
    """
    >>> is_plain("model-00001-of-00002.safetensors"), is_plain("../a"), is_plain("a/b")
    (True, False, False)
    """
    return (
        name.endswith(".safetensors")
        and not name.startswith(".")
        and not set(name) & set('/\\:\0"')
    )
