"""Models, packed: all weights of a file laid out for the kernels, quickly and in little more memory than they need.

Receives an open GGUF file, returns its tensors as arrays by name. Low-bit ones are interleaved (`quant.lanes`) by
compiled code, on all processors, into one piece of memory. Nothing of it is kept on disk: docs/adr/0010 says why.
"""

from __future__ import annotations

import mmap
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import tetrad as td
from tetrad.core.dtypes import u8
from tetrad.core.errors import UnsupportedError
from tetrad.core.types import ArrayType
from tetrad.formats.gguf import File
from tetrad.models.weights import FLOATS, load_floats
from tetrad.ops.interleave import LINE, interleave
from tetrad.quant.lanes import DTYPES, LANES, ROWS
from tetrad.runtime.memory import Storage
from tetrad.tracing.array import Array, array_type

SMALL = 4 << 20  # bytes of a format that NumPy has rearranged before a kernel would be compiled
STAGE = 1 << 21  # bytes that NumPy rearranges at a time: bounds the memory that needs
HUGE = 2 << 20  # bytes of a large page

Order = Callable[[str], np.ndarray | None]  # the rows wanted of a tensor, None for those of the file


@dataclass(frozen=True)
class Place:
    """A low-bit tensor of the file, and the lines of the common memory where it is laid out."""

    name: str
    format: str
    kind: ArrayType
    start: int
    lines: int

    def bytes_in(self, memory: np.ndarray) -> np.ndarray:
        """Its part of the memory u8[lines, 64], as rows of bytes."""
        whole = memory[self.start : self.start + self.lines].reshape(-1)
        return whole[: self.kind.nbytes].reshape(self.kind.storage_shape)  # type: ignore[arg-type]


def load_weights(file: File, order_of: Order) -> dict[str, Array]:
    """The tensors of a file, in its order.

    What was read of the file is given back at once, and the largest tensors come first: when memory holds nearly all
    of the result, little of the file is beside it.
    """
    places, small = plan(file), small_formats(file)
    memory = room(sum(place.lines for place in places))
    for place in places:
        if place.format not in small:
            raw, order = rows_of(file, place, order_of(place.name))
            memory = interleaver(place.format)(memory, readable(raw), order, np.int64(place.start))
            file.release(place.name)
    made = {place.name: place.bytes_in(memory.view) for place in places}
    for place in places:
        if place.format in small:
            lay_out_slowly(*rows_of(file, place, order_of(place.name)), place.format, made[place.name])
    weights = {place.name: Array.from_bytes(made[place.name], place.kind) for place in places}
    rest = (name for name in file.tensors if name not in weights)
    weights |= {name: load_floats(file, name, order_of(name)) for name in rest}
    return {name: weights[name] for name in file.tensors}


def small_formats(file: File) -> set[str]:
    """Those of which there is so little that compiling takes longer than NumPy."""
    sizes = Counter[str]()
    for tensor in file.tensors.values():
        sizes[tensor.format] += tensor.nbytes
    return {format for format, nbytes in sizes.items() if nbytes <= SMALL}


def plan(file: File) -> list[Place]:
    """Where each low-bit tensor goes, the largest first."""
    found: list[Place] = []
    start = 0
    for tensor in sorted(file.tensors.values(), key=lambda t: t.nbytes, reverse=True):
        if tensor.format in FLOATS:
            continue
        if tensor.format not in LANES:
            known = ", ".join([*FLOATS, *LANES])
            message = f"{file.path}: tensor {tensor.name} has the format {tensor.format}, which is not supported yet"
            raise UnsupportedError(message, hint=f"supported: {known}")
        *outer, columns = tensor.shape
        kind = ArrayType(DTYPES[tensor.format], (int(np.prod(outer)), columns))
        lines = -(-int(kind.nbytes) // LINE)  # type: ignore[arg-type]
        found.append(Place(tensor.name, tensor.format, kind, start, lines))
        start += lines
    return found


def room(lines: int) -> Array:
    """Zeroed memory u8[lines, 64] in large pages where the system has them: a hundredth of the page faults, and fewer
    misses of the address cache whenever the weights are read."""
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    mapped = mmap.mmap(-1, lines * LINE + HUGE, **private)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        mapped.madvise(mmap.MADV_HUGEPAGE)
    start = np.frombuffer(mapped, np.uint8).__array_interface__["data"][0]
    return Array.from_storage(array_type(u8, (lines, LINE)), Storage(start + -start % HUGE, lines * LINE, mapped))


def rows_of(file: File, place: Place, order: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """The blocks of a tensor, u8[rows, blocks, bytes], and the rows wanted of it."""
    rows, nbytes = int(place.kind.shape[0]), LANES[place.format].format.nbytes  # type: ignore[arg-type]
    wanted = np.arange(rows) if order is None else order
    return file.data(place.name).reshape(rows, -1, nbytes), wanted.astype(np.int32)


@cache
def interleaver(format: str) -> Callable[..., Array]:
    """`interleave`, compiled for any number of rows and blocks."""
    lines, rows, blocks, count = (td.Dim(name, max=1 << 40) for name in ("lines", "rows", "blocks", "count"))
    dims = {"memory": {0: lines}, "raw": {0: rows, 1: blocks}, "order": {0: count}}

    def lay_out_rows(memory: Array, raw: Array, order: Array, start: Array) -> Any:
        return interleave(memory, raw, order, start, format=format)

    return td.jit(lay_out_rows, donate_argnums=0, dims=dims)  # type: ignore[no-any-return]


def readable(raw: np.ndarray) -> Array:
    """The blocks where they lie, or copied where kernels cannot read them: a file may align to less than a word."""
    return Array.from_numpy(raw if raw.__array_interface__["data"][0] % 4 == 0 else raw.copy())


def lay_out_slowly(raw: np.ndarray, order: np.ndarray, format: str, target: np.ndarray) -> None:
    """With NumPy, some rows at a time."""
    step = max(1, STAGE // raw[0].size // ROWS) * ROWS
    for start in range(0, len(order), step):
        part = LANES[format].interleave(raw[order[start : start + step]].reshape(-1, raw[0].size))
        target[start : start + len(part)] = part
