"""Block formats: how low-bit weights lie in bytes. One file per format; they are loaded when the
first format is asked for.

Receives bytes as GGUF files hold them and gives f32 arrays, or the other way round. Kernels take
the parts instead (`Format.codes`, `scales`, `mins`); files are opened elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from tetrad.core import lazy
from tetrad.core.errors import ShapeError
from tetrad.core.source import user_source
from tetrad.quant.fields import F32, U8
from tetrad.quant.format import FORMATS, Format, format_named

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from tetrad.quant.later import *  # noqa: F403

PROVIDED = ("GroupQuantized", "from_bytes", "from_parts", "matmul", "quantize")
LATER = ("int4", *PROVIDED)
__all__ = ["Format", "format_named", "formats", "pack", "unpack", *LATER]


if not TYPE_CHECKING:  # which would take any name for one of ours

    def __getattr__(name: str) -> Any:
        """Quantised arrays are made on top of all this; here are only their names."""
        if name == "int4":
            return lazy.provided("packed nibbles")
        if name in PROVIDED:
            return getattr(lazy.provided("quantised arrays"), name)
        raise AttributeError(f"tetrad.quant has no {name}")


def __dir__() -> list[str]:
    return __all__


formats: Mapping[str, Format] = MappingProxyType(FORMATS)


def unpack(
    buffer: bytes | bytearray | memoryview | NDArray[np.uint8], name: str, shape: Sequence[int]
) -> F32:
    """The f32 array of `shape` that the bytes hold in the format `name`.

    >>> unpack(bytes.fromhex("0038") + bytes(range(32)), "q8_0", (1, 32))[0, :5]
    array([0. , 0.5, 1. , 1.5, 2. ], dtype=float32)
    """
    format = format_named(name)
    packed = np.frombuffer(buffer, np.uint8) if not isinstance(buffer, np.ndarray) else buffer
    expected = format.packed_shape(tuple(shape))
    if packed.size != prod(expected):
        raise ShapeError(
            f"unpack: {name} of shape {list(shape)} takes {prod(expected)} bytes, got "
            f"{packed.size}",
            source=user_source(),
            hint=f"{format.nbytes} bytes hold {format.block} elements",
        )
    return format.unpack(packed.reshape(expected))


def pack(array: ArrayLike, name: str) -> U8:
    """The bytes that hold the array in the format `name`, as near as it comes: [..., k] to u8[...,
    bytes of k].

    >>> pack(np.arange(64).reshape(2, 32), "q4_0").shape
    (2, 18)
    """
    return format_named(name).pack(array)
