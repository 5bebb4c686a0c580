"""Models, weights: tensors of floats of a model file as arrays that compiled code reads.

Receives an open file, returns arrays, in place where that can be; low-bit tensors are `packed`'s.
`shapes` has checked every tensor before a byte of it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from tetrad.core.dtypes import bf16, f16, f32
from tetrad.formats.gguf import Tensor
from tetrad.formats.pin import Pin
from tetrad.tracing.array import Array

# a small tensor of floats by name, or None where the file has none
Factors = Callable[[str], np.ndarray | None]
FLOATS = {"f32": f32, "f16": f16, "bf16": bf16}
# bytes of a tensor up to which a copy costs less than to depend on the file for the model's life
COPIED = 256 << 10


class ModelFile(Protocol):
    """An open model: a GGUF file, or a folder that looks like one."""

    @property
    def path(self) -> str: ...

    @property
    def metadata(self) -> Mapping[str, object]: ...

    @property
    def tensors(self) -> Mapping[str, Tensor]: ...

    @property
    def pins(self) -> Mapping[str, Pin]: ...

    def data(self, name: str) -> np.ndarray:
        """The bytes of a tensor, in place where they lie in a file."""

    def contents(self, file: str) -> np.ndarray:
        """All bytes of the file that a tensor lies in."""

    def check(self) -> None:
        """Raises if a file was changed in place since it was opened."""

    def release(self, name: str) -> None:
        """Gives up the memory of a tensor of which something has been made."""

    def close(self) -> None: ...


def read_floats(file: ModelFile, name: str) -> np.ndarray:
    """A tensor of floats as NumPy has it, in place."""
    tensor = file.tensors[name]
    return file.data(name).view(FLOATS[tensor.format].np).reshape(tensor.shape)


def factors_of(file: ModelFile) -> Factors:
    return lambda name: read_floats(file, name).astype(np.float64) if name in file.tensors else None


def load_floats(file: ModelFile, name: str, order: np.ndarray | None) -> Array:
    """A tensor of floats where it lies, or copied if it is small, kernels want it elsewhere or in
    another order."""
    values = read_floats(file, name)
    if values.ndim > 2:  # matrices above one another, as the low-bit ones are
        values = values.reshape(-1, values.shape[-1])
    wanted = values if order is None else values[order]
    return Array.from_numpy(
        wanted if wanted.nbytes > COPIED and is_aligned(wanted) else aligned_copy(wanted)
    )


def is_aligned(values: np.ndarray) -> bool:
    """At an address that is a multiple of 64, as kernels want their constants."""
    return bool(values.__array_interface__["data"][0] % 64 == 0 and values.flags.c_contiguous)


def aligned_copy(values: np.ndarray) -> np.ndarray:
    made = aligned_bytes(values.nbytes).view(values.dtype).reshape(values.shape)
    made[...] = values
    return made


def aligned_bytes(nbytes: int) -> np.ndarray:
    raw = np.empty(nbytes + 64, np.uint8)
    start = -raw.__array_interface__["data"][0] % 64
    return raw[start : start + nbytes]
