"""Compiler, resident buffers: elements that stay in the memory of a back end between launches.

Receives an array or a number of elements, returns a buffer that `td.dispatch` takes as an input and
as an output, without copies. What it holds is read back when somebody asks; nobody else sees its
memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tetrad.arrays.creation import asarray
from tetrad.backends import backend_named
from tetrad.core.backend import MEMORY
from tetrad.core.dtypes import DType, as_dtype
from tetrad.core.errors import BackendError, BadInputs, an
from tetrad.tracing.array import Array

RESIDENT = "D009"  # code of errors
MOST = 1 << 62  # bytes
LAYOUTS: dict[tuple[str, str, int], int] = {}  # one number for buffers that launches take alike


class ResidentBuffer:
    """A flat buffer in the memory of a back end. `read()` gives an array of what it holds now,
    `write(values)` replaces it."""

    __slots__ = ("backend", "count", "dtype", "layout", "memory", "nbytes")

    def __init__(self, memory: Any, dtype: DType, count: int, backend: str) -> None:
        self.memory, self.dtype, self.count, self.backend = memory, dtype, count, backend
        self.nbytes = count * dtype.nbytes
        key = (backend, dtype.short_name, count)
        self.layout = LAYOUTS.setdefault(key, len(LAYOUTS))

    def read(self) -> Array:
        """The elements as an array; a copy, so later launches do not change it."""
        return Array.from_numpy(np.array(self.memory.as_numpy(self.dtype.np, (self.count,))))

    def to_bytes(self) -> bytes:
        return self.memory.as_numpy(self.dtype.np, (self.count,)).tobytes()  # type: ignore[no-any-return]

    def write(self, values: Any) -> None:
        """Replace all elements."""
        given = np.asarray(asarray(values))
        if as_dtype(given.dtype) is not self.dtype or given.size != self.count:
            came = f"{given.size} of {given.dtype}"
            raise BadInputs(
                f"write: {self!r} takes {self.count} elements, got {came}", code=RESIDENT
            )
        self.memory.fill(np.ascontiguousarray(given))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.read().memory, dtype)

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        return f"<resident {self.dtype}[{self.count}] on {self.backend}>"


def resident(values: Any, dtype: Any = None, backend: str = "cpu") -> ResidentBuffer:
    """A buffer that stays in the memory of a back end: a copy of an array, or so many zeros.

    >>> import tetrad as td
    >>> held = td.kernel.resident(4, td.float32)
    >>> held.write(td.asarray([1.0, 2.0, 3.0, 4.0]))
    >>> held.read()
    Array([1., 2., 3., 4.], float32)
    """
    runner = backend_named(backend, "resident")
    try:
        array = content(values, dtype)
        held = runner.resident(array)
    except MemoryError:
        told = f"{values} elements of {dtype}" if isinstance(values, int) else "a copy"
        raise BackendError(
            f"resident: no memory for {told}", code=MEMORY, hint="fewer elements at a time"
        ) from None
    return ResidentBuffer(held, as_dtype(array.dtype), array.size, backend)


def content(values: Any, dtype: Any) -> np.ndarray:
    """The elements in a row."""
    kind = None if dtype is None else as_dtype(dtype)
    refuse_packed(kind if kind is not None else getattr(values, "dtype", None))
    if isinstance(values, int | np.integer) and not isinstance(values, bool):
        if kind is None or values < 0:
            message = f"resident: {values} elements of {dtype}"
            raise BadInputs(message, code=RESIDENT, hint="td.kernel.resident(count, dtype)")
        if values * kind.nbytes > MOST:  # NumPy would not even try
            raise MemoryError
        return np.zeros(int(values), kind.np)
    if isinstance(values, bytes | bytearray | memoryview):
        return raw(values, kind)
    if not isinstance(values, Array | np.ndarray | Sequence | ResidentBuffer):
        message = (
            f"resident: expected an array or a number of elements, got {an(type(values).__name__)}"
        )
        raise BadInputs(message, code=RESIDENT)
    array = np.asarray(values if isinstance(values, ResidentBuffer) else asarray(values))
    return np.array(array, None if kind is None else kind.np).reshape(-1)


def refuse_packed(kind: Any) -> None:
    """Kernels load no element of such a type; they are given its bytes."""
    if isinstance(kind, DType) and kind.is_quantized:
        message = f"resident: kernels have no elements of {kind}"
        hint = "hold its bytes as td.uint8, or convert with astype(td.int8)"
        raise BadInputs(message, code=RESIDENT, hint=hint)


def raw(values: bytes | bytearray | memoryview, kind: DType | None) -> np.ndarray:
    held = memoryview(values).cast("B")
    if kind is None or held.nbytes % kind.nbytes:
        message = f"resident: {held.nbytes} bytes are no whole number of {kind}"
        raise BadInputs(message, code=RESIDENT, hint="td.kernel.resident(data, dtype)")
    return np.frombuffer(held.tobytes(), kind.np)
