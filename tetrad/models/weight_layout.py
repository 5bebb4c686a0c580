"""Models, weight layout: all weights of a file laid out for the kernels, quickly and in little more
memory than they need.

Receives an open model file, returns its tensors as arrays by name. Low-bit ones are interleaved
(`quant.lanes`) by compiled code, on all processors, into one piece of memory. Nothing of it is kept
on disk: docs/adr/0010 says why.
"""

from __future__ import annotations

import math
import mmap
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from typing import Any

import numpy as np

from tetrad.backends.cpu.memory import Storage
from tetrad.compiler.named_function import NamedFunction
from tetrad.core import lazy
from tetrad.core.dtypes import u8
from tetrad.core.errors import UnsupportedError
from tetrad.core.limits import check_memory
from tetrad.core.record import record
from tetrad.core.sizes import Dim, plain
from tetrad.core.types import ArrayType
from tetrad.formats.gguf import Tensor
from tetrad.formats.pin import Pin
from tetrad.models.weights import FLOATS, ModelFile, load_floats
from tetrad.quant.lanes import DTYPES, LANES, LINE, ROWS, Lanes
from tetrad.tracing.array import Array, array_type

SMALL = 4 << 20  # bytes of a format that NumPy has rearranged before a kernel would be compiled
STAGE = 1 << 21  # bytes that NumPy rearranges at a time: bounds the memory that needs
BATCH = 4 << 20  # bytes of the file that are laid out together, at least
HUGE = 2 << 20  # bytes of a large page

# the rows wanted of a tensor, None for those of the file
Order = Callable[[str], np.ndarray | None]


@record(eq=False)
class PlacedTensor:
    """A low-bit tensor of the file, and the byte of the common memory where it is laid out."""

    tensor: Tensor
    kind: ArrayType
    storage: tuple[int, int]  # rows and bytes of a row, laid out
    start: int

    @property
    def lanes(self) -> Lanes:
        return LANES[self.tensor.format]

    @property
    def nbytes(self) -> int:
        return self.storage[0] * self.storage[1]

    @property
    def blocks(self) -> int:
        """Of a row."""
        return plain(self.kind.shape[1]) // self.lanes.format.block

    def rows(self, order: np.ndarray | None) -> np.ndarray:
        """The rows wanted, i64[n]."""
        return np.arange(plain(self.kind.shape[0])) if order is None else order

    def row_starts(self, order: np.ndarray | None) -> np.ndarray:
        """The bytes of the tensor where the rows wanted begin, i64[groups, 16]; -1 fills the last
        group."""
        starts = self.rows(order) * (self.blocks * self.lanes.format.nbytes)
        filled = np.full(-(-len(starts) // ROWS) * ROWS, -1)
        filled[: len(starts)] = starts
        return filled.reshape(-1, ROWS)

    def group_places(self) -> np.ndarray:
        """The bytes of its memory where groups of sixteen rows begin."""
        return np.arange(0, self.nbytes, self.blocks * self.lanes.super_bytes)

    def bytes_in(self, memory: np.ndarray) -> np.ndarray:
        """Its part of the memory, as rows of bytes."""
        return memory[self.start : self.start + self.nbytes].reshape(self.storage)


def load_weights(file: ModelFile, order_of: Order) -> tuple[dict[str, Array], tuple[Pin, ...]]:
    """The tensors of a file, in its order, and the files in which some of them stay.

    What was read of the file is given back at once, and the largest batches come first: when memory
    holds nearly all of the result, little of the file is beside it.
    """
    places, size = plan(file)
    small = small_formats(file)
    quick = [place for place in places if place.tensor.format not in small and is_aligned(place)]
    memory, patterns = room(size), Patterns(order_of)
    for batch in batches(quick):
        lay_out(file, batch, patterns, memory)
        for place in batch:
            file.release(place.tensor.name)
    flat = memory.memory.reshape(-1)
    weights = {
        place.tensor.name: Array.from_bytes(place.bytes_in(flat), place.kind) for place in places
    }
    writable = memory.storage(Storage.from_numpy).as_numpy(np.dtype(np.uint8), flat.shape)
    for place in set(places).difference(quick):
        name = place.tensor.name
        lay_out_slowly(
            file,
            place,
            order_of(name),
            place.bytes_in(writable).reshape(weights[name].memory.shape),
        )
    in_place: set[str] = set()
    for name in file.tensors.keys() - weights.keys():
        weights[name] = load_floats(file, name, order_of(name))
        if np.may_share_memory(weights[name].memory, file.data(name)):
            in_place.add(file.tensors[name].file)
        else:
            file.release(name)
    return {name: weights[name] for name in file.tensors}, tuple(
        file.pins[path] for path in in_place if path in file.pins
    )


def plan(file: ModelFile) -> tuple[list[PlacedTensor], int]:
    """Where each low-bit tensor goes, and how many bytes they take."""
    found: list[PlacedTensor] = []
    start = 0
    for tensor in file.tensors.values():
        if tensor.format in FLOATS:
            continue
        if tensor.format not in LANES:
            known = ", ".join([*FLOATS, *LANES])
            message = (
                f"{file.path}: tensor {tensor.name} has the format {tensor.format}, which is not "
                "supported yet"
            )
            raise UnsupportedError(message, hint=f"supported: {known}")
        kind, storage = laid_out(tensor.format, tensor.shape)
        found.append(PlacedTensor(tensor, kind, storage, start))
        start += -(-storage[0] * storage[1] // LINE) * LINE
    return found, start


@lru_cache
def laid_out(format: str, shape: tuple[int, ...]) -> tuple[ArrayType, tuple[int, int]]:
    """The type of a tensor, matrices above one another, and the rows and bytes of a row that it
    takes."""
    *outer, columns = shape
    kind = array_type(DTYPES[format], (math.prod(outer), columns))
    rows, nbytes = kind.storage_shape
    return kind, (plain(rows), plain(nbytes))


def small_formats(file: ModelFile) -> set[str]:
    """Those of which there is so little that compiling takes longer than NumPy."""
    sizes = Counter[str]()
    for tensor in file.tensors.values():
        sizes[tensor.format] += tensor.nbytes
    return {format for format, nbytes in sizes.items() if nbytes <= SMALL}


def is_aligned(place: PlacedTensor) -> bool:
    """Can kernels read it where it lies? A file may align to less than a word."""
    return place.tensor.offset % place.lanes.unit_bytes == 0


def batches(places: Iterable[PlacedTensor]) -> list[list[PlacedTensor]]:
    """Tensors that one run lays out: of one format, rows equally long, in one file. The largest
    first."""
    made: list[list[PlacedTensor]] = []
    open_: dict[tuple[str, int, str], list[PlacedTensor]] = {}
    for place in places:
        key = (place.tensor.format, place.blocks, place.tensor.file)
        if key not in open_ or batch_bytes(open_[key]) >= BATCH:
            open_[key] = []
            made.append(open_[key])
        open_[key].append(place)
    return sorted(made, key=batch_bytes, reverse=True)


def batch_bytes(batch: list[PlacedTensor]) -> int:
    return sum(place.tensor.nbytes for place in batch)


def room(size: int) -> Array:
    """Zeroed memory u8[lines, 64] in large pages where the system has them: a hundredth of the page
    faults, and fewer misses of the address cache whenever the weights are read."""
    check_memory(size, "the weights of a model")
    private = (
        {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    )
    try:
        mapped = mmap.mmap(-1, size + HUGE, **private)
    except OSError as error:
        raise MemoryError(
            f"tetrad: cannot allocate {size} bytes for the weights of a model"
        ) from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        mapped.madvise(mmap.MADV_HUGEPAGE)
    start = np.frombuffer(mapped, np.uint8).__array_interface__["data"][0]
    return Array.from_storage(
        array_type(u8, (size // LINE, LINE)), Storage(start + -start % HUGE, size, mapped)
    )


class Patterns:
    """Where rows begin in the file, and groups of rows in memory, from the start of a tensor on:
    equal for all tensors of one shape whose rows have the same order."""

    def __init__(self, order_of: Order) -> None:
        self.order_of = order_of
        self.known: dict[tuple[int, int], tuple[np.ndarray | None, np.ndarray, np.ndarray]] = {}

    def of(self, place: PlacedTensor) -> tuple[np.ndarray, np.ndarray]:
        order = self.order_of(place.tensor.name)
        # there is one object of each type; and the order is kept, so its id is its own
        key = id(place.kind), id(order)
        if key not in self.known:
            self.known[key] = order, place.row_starts(order), place.group_places()
        _, starts, places = self.known[key]
        moved = starts + place.tensor.offset
        if starts[-1, -1] < 0:
            moved[-1][starts[-1] < 0] = -1
        return moved, places + place.start


def lay_out(file: ModelFile, batch: list[PlacedTensor], patterns: Patterns, memory: Array) -> None:
    """Put some more tensors into the memory."""
    first = batch[0]
    starts, places = (np.concatenate(parts) for parts in zip(*map(patterns.of, batch), strict=True))
    blocks = np.array(first.blocks, np.int64)
    raw = file.contents(first.tensor.file)
    arguments = [memory, *map(Array.from_numpy, (raw, starts, places, blocks))]
    program = interleaver(first.tensor.format).sized(*arguments)
    program.run([x.storage(Storage.from_numpy) for x in arguments], program.dims)


@cache
def interleaver(format: str) -> NamedFunction:
    """`interleave`, compiled for files of any size and any number of rows; the memory is changed
    where it is."""
    lines, size, groups = ({0: Dim(name, max=1 << 40)} for name in ("lines", "size", "groups"))

    def lay_out_rows(memory: Array, raw: Array, starts: Array, places: Array, blocks: Array) -> Any:
        interleave = lazy.module("tetrad.ops.weight_layout.op").interleave
        return interleave(memory, raw, starts, places, blocks, format=format)

    dims = {0: lines, 1: size, 2: groups, 3: groups}
    return NamedFunction(lay_out_rows, lambda: f"interleave {format}", donated=(0,), dims=dims)


def lay_out_slowly(
    file: ModelFile, place: PlacedTensor, order: np.ndarray | None, target: np.ndarray
) -> None:
    """With NumPy, some rows at a time."""
    rows, raw = (
        place.rows(order),
        file.data(place.tensor.name).reshape(plain(place.kind.shape[0]), -1),
    )
    step = max(1, STAGE // raw.shape[1] // ROWS) * ROWS
    for start in range(0, len(rows), step):
        part = place.lanes.interleave(raw[rows[start : start + step]])
        target[start : start + len(part)] = part
