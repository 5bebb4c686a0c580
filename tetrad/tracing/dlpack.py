"""Tracing, DLPack: also arrays of dtypes that DLPack has and NumPy's exchange has not: bf16 and
floats of eight bits.

NumPy makes and reads the capsules, for unsigned integers of the same width; the name of the dtype
is changed in the capsule. (The layout: `dlpack.h`, versions 0.8 and 1.1.)
"""

from __future__ import annotations

import ctypes
from types import FrameType
from typing import Any

import numpy as np

from tetrad.core.dtypes import FLOAT8, DType, bf16
from tetrad.core.errors import UnsupportedError
from tetrad.tracing.fail import fail

CODES = {bf16: 4} | dict(zip(FLOAT8, (10, 12, 11, 13), strict=True))  # DLDataTypeCode
# Libraries that ask for DLPack 1.0 and write to what its flag calls read-only (torch 2.13), by the
# module that asks.
CARELESS = {"torch": "PyTorch"}
UNSIGNED, CPU = 1, 1
OLD, VERSIONED = b"dltensor", b"dltensor_versioned"
# Bytes before DLTensor: none, or version, context, deleter and flags; in it before its DLDataType:
# the address, device and rank.
BEFORE, IN_TENSOR = {OLD: 0, VERSIONED: 32}, 20

_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]


class DLDataType(ctypes.Structure):
    """Code, bits and lanes of an element."""

    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class Lent:
    """A capsule as NumPy takes it."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **options: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU, 0


def careless(asking: FrameType) -> str | None:
    """The library of this frame, if it writes to memory that it was told is read-only."""
    module: str = asking.f_globals.get("__name__", "")
    return CARELESS.get(module.partition(".")[0])


def element_of(capsule: Any) -> DLDataType:
    """The dtype in a capsule, in place."""
    name = VERSIONED if _is_valid(capsule, VERSIONED) else OLD
    address = _pointer(capsule, name)
    return DLDataType.from_address(address + BEFORE[name] + IN_TENSOR)


def as_integers(view: np.ndarray) -> np.ndarray:
    """The same memory as unsigned integers."""
    return view.view(f"u{view.itemsize}")


def capsule_of(view: np.ndarray, dtype: DType, options: dict[str, Any]) -> Any:
    """A capsule over the memory of a view of this dtype."""
    if dtype not in CODES:
        return view.__dlpack__(**options)
    capsule = as_integers(view).__dlpack__(**options)
    element_of(capsule).code = CODES[dtype]
    return capsule


def read(x: Any) -> np.ndarray:
    """The elements of another library's array, in its memory; floats of eight bits in the type of
    ml_dtypes."""
    device = x.__dlpack_device__()
    if device[0] != CPU:
        place = tuple(map(int, device))
        message = f"from_dlpack: the array is on device {place}, not in memory of the CPU"
        fail(UnsupportedError, message, "copy it to the CPU first")
    capsule = asked(x)
    element = element_of(capsule)
    dtype = next((dtype for dtype, code in CODES.items() if code == element.code), None)
    if dtype is None:
        return np.from_dlpack(Lent(capsule))
    element.code = UNSIGNED
    return np.from_dlpack(Lent(capsule)).view(dtype.dtype)


def asked(x: Any) -> Any:
    try:
        return x.__dlpack__(max_version=(1, 0))
    except TypeError:  # older than DLPack 1.0
        return x.__dlpack__()
