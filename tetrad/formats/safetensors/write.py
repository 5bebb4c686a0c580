"""Safetensors, writing: named arrays become one file, or shards with an index.

Receives NumPy arrays and texts; leaves complete files under their names, or nothing at all. What
the reader would refuse is refused before a byte is written. Larger elements come first, so that
every tensor is aligned.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import BinaryIO

import numpy as np

from tetrad.core.dtypes import as_dtype
from tetrad.core.errors import DtypeError, FileFormatError
from tetrad.core.visible import shown
from tetrad.formats.replace import replaced
from tetrad.formats.safetensors.layout import (
    ALIGNMENT,
    DTYPES,
    MAX_HEADER_BYTES,
    MAX_METADATA_BYTES,
    MAX_METADATA_KEYS,
    MAX_NAME_BYTES,
    MAX_NAMES_BYTES,
    MAX_TENSORS,
    METADATA,
    NAMES,
    PREFIX,
    shape_problem,
)

Arrays = Mapping[str, np.ndarray]
PIECE = 64 << 20  # bytes that are made contiguous at a time


def write(path: str | os.PathLike[str], arrays: Arrays, metadata: Mapping[str, str]) -> None:
    """Writes one file, all or nothing."""
    file = os.fsdecode(path)
    check_metadata(file, metadata)
    check_names(file, arrays)
    dtypes = {name: dtype_name(file, name, array) for name, array in arrays.items()}
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    header = packed_header(file, order, arrays, dtypes, metadata)
    with replaced(file, "safetensors") as out:
        out.write(len(header).to_bytes(PREFIX, "little"))
        out.write(header)
        for name in order:
            write_array(out, arrays[name])


def write_shards(
    path: str | os.PathLike[str], arrays: Arrays, metadata: Mapping[str, str], most: int
) -> None:
    """Files NAME-00001-of-00002.safetensors of at most `most` bytes of tensors (one that is larger
    has a file of its own), and then their index, NAME.safetensors.index.json."""
    file = os.fsdecode(path)
    stem = file.removesuffix(".safetensors")
    groups = grouped(arrays, most)
    places: dict[str, str] = {}
    for i, names in enumerate(groups):
        shard = f"{stem}-{i + 1:05}-of-{len(groups):05}.safetensors"
        write(shard, {name: arrays[name] for name in names}, metadata)
        places |= dict.fromkeys(names, os.path.basename(shard))
    total = sum(array.nbytes for array in arrays.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}
    with replaced(f"{stem}.safetensors.index.json", "safetensors") as out:
        out.write(json.dumps(index, indent=2).encode())


def grouped(arrays: Arrays, most: int) -> list[list[str]]:
    """Names in their order, as many together as fit."""
    groups: list[list[str]] = []
    left = 0
    for name, array in arrays.items():
        if array.nbytes > left or not groups:
            groups.append([])
            left = max(most, array.nbytes)
        groups[-1].append(name)
        left -= array.nbytes
    return groups or [[]]


def packed_header(
    file: str,
    order: Sequence[str],
    arrays: Arrays,
    dtypes: Mapping[str, str],
    metadata: Mapping[str, str],
) -> bytes:
    entries: dict[str, object] = {METADATA: dict(metadata)} if metadata else {}
    at = 0
    for name in order:
        end = at + arrays[name].nbytes
        shape = list(arrays[name].shape)
        entries[name] = {"dtype": dtypes[name], "shape": shape, "data_offsets": [at, end]}
        at = end
    header = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    header = header.ljust(-(-(len(header) + PREFIX) // ALIGNMENT) * ALIGNMENT - PREFIX)
    if len(header) > MAX_HEADER_BYTES:
        raise FileFormatError(f"a header of {len(header)} bytes", file=file, part="header")
    return header


def dtype_name(file: str, name: str, array: np.ndarray) -> str:
    """How the format spells the type of an array whose shape is possible."""
    part = f"tensor {shown(name)}"
    try:
        found = NAMES.get(as_dtype(array.dtype.newbyteorder("=")))
    except DtypeError:
        found = None
    if found is None:
        hint = f"supported: {', '.join(dtype.name for dtype in DTYPES.values())}"
        raise DtypeError(f"{file}, {part}: no safetensors type for {array.dtype}", hint=hint)
    if (problem := shape_problem(found, array.shape)) is not None:
        raise FileFormatError(problem, file=file, part=part)
    return found


def check_names(file: str, arrays: Arrays) -> None:
    if len(arrays) > MAX_TENSORS or sum(map(len, arrays)) > MAX_NAMES_BYTES:
        most = f"{MAX_TENSORS} tensors and {MAX_NAMES_BYTES} bytes of their names"
        raise FileFormatError(f"at most {most} are possible", file=file, part="header")
    for name in arrays:
        check_text(file, f"tensor {shown(name)}", name, MAX_NAME_BYTES)
        if name == METADATA:
            raise FileFormatError("no tensor is called so", file=file, part=f"tensor {METADATA}")


def check_metadata(file: str, metadata: Mapping[str, str]) -> None:
    for key, value in metadata.items():
        if not isinstance(key, str) or not isinstance(value, str):
            message = f"metadata are texts by name, got {key!r:.40}: {type(value).__name__}"
            raise FileFormatError(message, file=file, part=METADATA)
        check_text(file, f"key {shown(key)}", key, MAX_NAME_BYTES)
        check_text(file, f"key {shown(key)}", value, MAX_METADATA_BYTES)
    size = sum(len(text.encode()) for pair in metadata.items() for text in pair)
    if len(metadata) > MAX_METADATA_KEYS or size > MAX_METADATA_BYTES:
        most = f"{MAX_METADATA_KEYS} keys of {MAX_METADATA_BYTES} bytes together"
        raise FileFormatError(f"at most {most} are possible", file=file, part=METADATA)


def check_text(file: str, part: str, text: str, most: int) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise FileFormatError("has no UTF-8", file=file, part=part) from None
    if size > most:
        raise FileFormatError(f"{size} bytes, at most {most} are possible", file=file, part=part)


def write_array(out: BinaryIO, array: np.ndarray) -> None:
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    if little.ndim < 2 or little.flags.c_contiguous:
        out.write(np.ascontiguousarray(little).reshape(-1).view(np.uint8).data)
        return
    rows = max(1, PIECE * len(little) // max(little.nbytes, 1))
    for start in range(0, len(little), rows):
        piece = np.ascontiguousarray(little[start : start + rows])
        out.write(piece.reshape(-1).view(np.uint8).data)
