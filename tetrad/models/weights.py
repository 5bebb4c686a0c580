"""Models, weights: tensors of a GGUF file as arrays that compiled code reads.

Receives an open file, returns arrays: low-bit weights interleaved for the kernels (`quant.lanes`), others as they are.
`shapes` has checked every tensor before a byte of it is read.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tetrad.core.dtypes import bf16, f16, f32
from tetrad.core.errors import UnsupportedError
from tetrad.core.types import ArrayType
from tetrad.formats.gguf import File
from tetrad.quant.lanes import DTYPES, LANES
from tetrad.tracing.array import Array

Factors = Callable[[str], np.ndarray | None]  # a small tensor of floats by name, or None where the file has none
FLOATS = {"f32": f32, "f16": f16, "bf16": bf16}
STAGE = 1 << 22  # elements interleaved at a time: bounds the memory that needs


def read_floats(file: File, name: str) -> np.ndarray:
    """A tensor of floats as NumPy has it, in place."""
    tensor = file.tensors[name]
    return file.data(name).view(FLOATS[tensor.format].np).reshape(tensor.shape)


def factors_of(file: File) -> Factors:
    return lambda name: read_floats(file, name).astype(np.float64) if name in file.tensors else None


def load_weight(file: File, name: str, order: np.ndarray | None = None) -> Array:
    """One tensor as an array; `order` puts its rows in another order."""
    tensor = file.tensors[name]
    if tensor.format in FLOATS:
        values = read_floats(file, name)
        if values.ndim > 2:  # matrices above one another, as the low-bit ones are
            values = values.reshape(-1, values.shape[-1])
        return Array.from_numpy(aligned(values if order is None else values[order]))
    if tensor.format not in LANES:
        known = ", ".join([*FLOATS, *LANES])
        message = f"{file.path}: tensor {name} has the format {tensor.format}, which is not supported yet"
        raise UnsupportedError(message, hint=f"supported: {known}")
    return interleaved(file.data(name), tensor.format, tensor.shape, order)


def interleaved(data: np.ndarray, format: str, shape: tuple[int, ...], order: np.ndarray | None) -> Array:
    *outer, columns = shape
    rows = int(np.prod(outer))
    lanes, kind = LANES[format], ArrayType(DTYPES[format], (rows, columns))
    packed = data.reshape(rows, -1)
    made = aligned_bytes(int(kind.nbytes)).reshape(kind.storage_shape)  # type: ignore[arg-type, call-overload]
    step = max(1, STAGE // columns // 16) * 16
    for start in range(0, rows, step):
        part = packed[start : start + step] if order is None else packed[order[start : start + step]]
        made[start : start + len(part) + -len(part) % 16] = lanes.interleave(part)
    return Array.from_bytes(made, kind)


def aligned(values: np.ndarray) -> np.ndarray:
    """The values at an address that is a multiple of 64, as kernels want their constants."""
    if values.__array_interface__["data"][0] % 64 == 0 and values.flags.c_contiguous:
        return values
    made = aligned_bytes(values.nbytes).view(values.dtype).reshape(values.shape)
    made[...] = values
    return made


def aligned_bytes(nbytes: int) -> np.ndarray:
    raw = np.empty(nbytes + 64, np.uint8)
    start = -raw.__array_interface__["data"][0] % 64
    return raw[start : start + nbytes]


def rope_order(heads: int, size: int, turned: int) -> np.ndarray:
    """Rows of a query or key weight whose rope pairs are (2i, 2i+1), in the order where they are (i, i + pairs)."""
    inside = np.arange(size)
    inside[:turned] = np.concatenate([np.arange(0, turned, 2), np.arange(1, turned, 2)])
    return (np.arange(heads)[:, None] * size + inside).reshape(-1)
