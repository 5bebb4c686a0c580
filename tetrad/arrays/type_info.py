"""Arrays, types: what the array API lets one ask of dtypes and of the namespace.

Receives dtypes, their names or arrays; returns dtypes, truth values and limits.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from tetrad.core.dtypes import (
    DType,
    bool_,
    c64,
    c128,
    default_float,
    default_int,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
)
from tetrad.core.errors import DtypeError
from tetrad.core.promotion import can_cast as can_cast_dtype
from tetrad.core.record import record
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import NIBBLE_RANGE, check_device, common_dtype, dtype_of


def result_type(*args: Any) -> DType:
    """The dtype of what comes out when arrays, dtypes and Python numbers meet.

    >>> import tetrad as td
    >>> result_type(td.asarray([1]), 2.0), result_type("uint8", "int8")
    (f32, i16)
    """
    return common_dtype(args)


def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether promotion may turn a dtype (or an array's) into another."""
    return can_cast_dtype(
        from_.dtype if isinstance(from_, Array) else dtype_of(from_), dtype_of(to)
    )


KINDS = {
    "bool": "b", "signed integer": "i", "unsigned integer": "u", "integral": "iu",
    "real floating": "f", "complex floating": "c", "numeric": "iufc",
}  # fmt: skip


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind: a dtype, the name of a kind, or a tuple of them.

    >>> isdtype("uint8", "integral"), isdtype("float16", ("bool", "integral"))
    (True, False)
    """
    if isinstance(kind, tuple):
        return bool(np.any([isdtype(dtype, one) for one in kind]))
    if isinstance(kind, str) and kind in KINDS:
        return dtype_of(dtype).kind in KINDS[kind]
    if isinstance(kind, str):
        fail(DtypeError, f"isdtype: unknown kind {kind!r}", f"kinds: {', '.join(KINDS)}")
    return dtype_of(dtype) is dtype_of(kind)


@record
class finfo_object:
    """The limits of a float dtype."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@record
class iinfo_object:
    """The limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: DType


def finfo(type: Any, /) -> finfo_object:
    """The limits of a float dtype (or of an array's); of a complex dtype those of its parts.

    >>> finfo("float32").eps
    1.1920928955078125e-07
    """
    dtype = (type.dtype if isinstance(type, Array) else dtype_of(type)).real
    if not dtype.is_float and not dtype.is_float8:
        fail(DtypeError, f"finfo: {dtype} is not a float dtype")
    info: Any = ml_dtypes.finfo(dtype.dtype)  # type: ignore[no-untyped-call]  # NumPy's own knows no bf16
    eps, high, low, normal = (
        float(v) for v in (info.eps, info.max, info.min, info.smallest_normal)
    )
    return finfo_object(dtype.bits, eps, high, low, normal, dtype)


def iinfo(type: Any, /) -> iinfo_object:
    """The limits of an integer dtype (or of an array's)."""
    dtype = type.dtype if isinstance(type, Array) else dtype_of(type)
    if dtype.is_nibble:
        low, high = NIBBLE_RANGE[dtype]
        return iinfo_object(dtype.bits, high, low, dtype)
    if not dtype.is_integer:
        fail(DtypeError, f"iinfo: {dtype} is not an integer dtype")
    info = np.iinfo(dtype.np)
    return iinfo_object(dtype.bits, int(info.max), int(info.min), dtype)


DTYPES = {
    "bool": bool_, "int8": i8, "int16": i16, "int32": i32, "int64": i64, "uint8": u8, "uint16": u16,
    "uint32": u32,
    "uint64": u64, "float32": f32, "float64": f64, "complex64": c64, "complex128": c128,
}  # fmt: skip


class NamespaceInfo:
    """What the array API asks a namespace about itself."""

    def capabilities(self) -> dict[str, Any]:
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": None}

    def default_device(self) -> str:
        return "cpu"

    def devices(self) -> tuple[str, ...]:
        return ("cpu",)

    def default_dtypes(self, *, device: str | None = None) -> dict[str, DType]:
        check_device("__array_namespace_info__", device)
        real, integer = default_float(), default_int()
        return {
            "real floating": real,
            "complex floating": real.complex,
            "integral": integer,
            "indexing": integer,
        }

    def dtypes(self, *, device: str | None = None, kind: Any = None) -> dict[str, DType]:
        check_device("__array_namespace_info__", device)
        return {
            name: dtype for name, dtype in DTYPES.items() if kind is None or isdtype(dtype, kind)
        }


def __array_namespace_info__() -> NamespaceInfo:
    """Devices, dtypes and capabilities, as the array API standard asks for them.

    >>> __array_namespace_info__().dtypes(kind="real floating")
    {'float32': f32, 'float64': f64}
    """
    return NamespaceInfo()
