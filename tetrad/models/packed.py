"""Models, packed: all weights of a file laid out for the kernels, quickly and in little more memory than they need.

Receives an open GGUF file, returns its tensors as arrays by name. Low-bit ones are interleaved (`quant.lanes`) by
compiled code, on all processors, into one piece of memory. Nothing of it is kept on disk: docs/adr/0010 says why.
"""

from __future__ import annotations

import math
import mmap
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import tetrad as td
from tetrad.core.dtypes import u8
from tetrad.core.errors import UnsupportedError
from tetrad.core.memory import check_memory
from tetrad.core.types import ArrayType
from tetrad.formats.gguf import File, Tensor
from tetrad.models.weights import FLOATS, load_floats
from tetrad.ops.interleave import LINE, interleave, unit_bytes
from tetrad.quant.lanes import DTYPES, LANES, ROWS, Lanes
from tetrad.runtime.memory import Storage
from tetrad.tracing.array import Array, array_type

SMALL = 4 << 20  # bytes of a format that NumPy has rearranged before a kernel would be compiled
STAGE = 1 << 21  # bytes that NumPy rearranges at a time: bounds the memory that needs
BATCH = 4 << 20  # bytes of the file that are laid out together, at least
HUGE = 2 << 20  # bytes of a large page

Order = Callable[[str], np.ndarray | None]  # the rows wanted of a tensor, None for those of the file


@dataclass(frozen=True, eq=False)
class Place:
    """A low-bit tensor of the file, and the byte of the common memory where it is laid out."""

    tensor: Tensor
    kind: ArrayType
    start: int

    @property
    def lanes(self) -> Lanes:
        return LANES[self.tensor.format]

    @property
    def blocks(self) -> int:
        """Of a row."""
        return int(self.kind.shape[1]) // self.lanes.format.block  # type: ignore[arg-type]

    def rows(self, order: np.ndarray | None) -> np.ndarray:
        """The rows wanted, i64[n]."""
        return np.arange(self.kind.shape[0]) if order is None else order  # type: ignore[arg-type]

    def row_starts(self, order: np.ndarray | None) -> np.ndarray:
        """The bytes of the file where the rows wanted begin, i64[groups, 16]; -1 fills the last group."""
        starts = self.tensor.offset + self.rows(order) * (self.blocks * self.lanes.format.nbytes)
        return np.pad(starts, (0, -len(starts) % ROWS), constant_values=-1).reshape(-1, ROWS)

    def group_places(self) -> np.ndarray:
        """The bytes of the memory where its groups of sixteen rows begin."""
        return np.arange(self.start, self.start + int(self.kind.nbytes), self.blocks * self.lanes.super_bytes)  # type: ignore[arg-type]

    def bytes_in(self, memory: np.ndarray) -> np.ndarray:
        """Its part of the memory, as rows of bytes."""
        part = memory.reshape(-1)[self.start : self.start + int(self.kind.nbytes)]  # type: ignore[arg-type]
        return part.reshape(self.kind.storage_shape)  # type: ignore[arg-type]


def load_weights(file: File, order_of: Order) -> dict[str, Array]:
    """The tensors of a file, in its order.

    What was read of the file is given back at once, and the largest batches come first: when memory holds nearly all
    of the result, little of the file is beside it.
    """
    places, size = plan(file)
    small = small_formats(file)
    quick = [place for place in places if place.tensor.format not in small and is_aligned(place)]
    memory = room(size)
    for batch in batches(quick):
        memory = lay_out(file, batch, order_of, memory)
        for place in batch:
            file.release(place.tensor.name)
    weights = {place.tensor.name: Array.from_bytes(place.bytes_in(memory.view), place.kind) for place in places}
    for place in set(places).difference(quick):
        lay_out_slowly(file, place, order_of(place.tensor.name), weights[place.tensor.name].view)
    for name in file.tensors.keys() - weights.keys():
        weights[name] = load_floats(file, name, order_of(name))
        if not np.may_share_memory(weights[name].view, file.data(name)):
            file.release(name)
    return {name: weights[name] for name in file.tensors}


def plan(file: File) -> tuple[list[Place], int]:
    """Where each low-bit tensor goes, and how many bytes they take."""
    found: list[Place] = []
    start = 0
    for tensor in file.tensors.values():
        if tensor.format in FLOATS:
            continue
        if tensor.format not in LANES:
            known = ", ".join([*FLOATS, *LANES])
            message = f"{file.path}: tensor {tensor.name} has the format {tensor.format}, which is not supported yet"
            raise UnsupportedError(message, hint=f"supported: {known}")
        *outer, columns = tensor.shape
        kind = ArrayType(DTYPES[tensor.format], (math.prod(outer), columns))
        found.append(Place(tensor, kind, start))
        start += -(-int(kind.nbytes) // LINE) * LINE  # type: ignore[arg-type]
    return found, start


def small_formats(file: File) -> set[str]:
    """Those of which there is so little that compiling takes longer than NumPy."""
    sizes = Counter[str]()
    for tensor in file.tensors.values():
        sizes[tensor.format] += tensor.nbytes
    return {format for format, nbytes in sizes.items() if nbytes <= SMALL}


def is_aligned(place: Place) -> bool:
    """Can kernels read it where it lies? A file may align to less than a word."""
    return place.tensor.offset % unit_bytes(place.lanes) == 0


def batches(places: Iterable[Place]) -> list[list[Place]]:
    """Tensors that one run lays out: of one format, rows equally long, in one file. The largest first."""
    made: list[list[Place]] = []
    open_: dict[tuple[str, int, str], list[Place]] = {}
    for place in places:
        key = (place.tensor.format, place.blocks, place.tensor.file)
        if key not in open_ or batch_bytes(open_[key]) >= BATCH:
            open_[key] = []
            made.append(open_[key])
        open_[key].append(place)
    return sorted(made, key=batch_bytes, reverse=True)


def batch_bytes(batch: list[Place]) -> int:
    return sum(place.tensor.nbytes for place in batch)


def room(size: int) -> Array:
    """Zeroed memory u8[lines, 64] in large pages where the system has them: a hundredth of the page faults, and fewer
    misses of the address cache whenever the weights are read."""
    check_memory(size, "the weights of a model")
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    try:
        mapped = mmap.mmap(-1, size + HUGE, **private)
    except OSError as error:
        raise MemoryError(f"tetrad: cannot allocate {size} bytes for the weights of a model") from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        mapped.madvise(mmap.MADV_HUGEPAGE)
    start = np.frombuffer(mapped, np.uint8).__array_interface__["data"][0]
    return Array.from_storage(array_type(u8, (size // LINE, LINE)), Storage(start + -start % HUGE, size, mapped))


def lay_out(file: File, batch: list[Place], order_of: Order, memory: Array) -> Array:
    """The memory with some more tensors in it."""
    first = batch[0]
    raw = Array.from_numpy(file.contents(first.tensor.file))
    starts = np.concatenate([place.row_starts(order_of(place.tensor.name)) for place in batch])
    places = np.concatenate([place.group_places() for place in batch])
    return interleaver(first.tensor.format)(memory, raw, starts, places, np.int64(first.blocks))


@cache
def interleaver(format: str) -> Callable[..., Array]:
    """`interleave`, compiled for files of any size and any number of rows."""
    lines, size, groups = (td.Dim(name, max=1 << 40) for name in ("lines", "size", "groups"))
    dims = {"memory": {0: lines}, "raw": {0: size}, "starts": {0: groups}, "places": {0: groups}}

    def lay_out_rows(memory: Array, raw: Array, starts: Array, places: Array, blocks: Array) -> Any:
        return interleave(memory, raw, starts, places, blocks, format=format)

    return td.jit(lay_out_rows, donate_argnums=0, dims=dims)  # type: ignore[no-any-return]


def lay_out_slowly(file: File, place: Place, order: np.ndarray | None, target: np.ndarray) -> None:
    """With NumPy, some rows at a time."""
    rows, raw = place.rows(order), file.data(place.tensor.name).reshape(place.kind.shape[0], -1)  # type: ignore[arg-type]
    step = max(1, STAGE // raw.shape[1] // ROWS) * ROWS
    for start in range(0, len(rows), step):
        part = place.lanes.interleave(raw[rows[start : start + step]])
        target[start : start + len(part)] = part
