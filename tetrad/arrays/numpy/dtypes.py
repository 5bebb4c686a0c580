"""Arrays, NumPy's names: dtypes as NumPy and JAX ask for them, and the kinds they belong to.

Receives dtypes, their names or arrays; returns dtypes and truth values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tetrad.arrays.type_info import result_type
from tetrad.core.dtypes import DType
from tetrad.tracing.array import Array
from tetrad.tracing.operands import dtype_of

complexfloating, floating, generic = np.complexfloating, np.floating, np.generic
inexact, integer, number = np.inexact, np.integer, np.number
signedinteger, unsignedinteger = np.signedinteger, np.unsignedinteger
ABSTRACT: dict[Any, str] = {
    np.generic: "biufcq", np.number: "iufcq", np.integer: "iu", np.signedinteger: "i",
    np.unsignedinteger: "u", np.inexact: "fc", np.floating: "f", np.complexfloating: "c",
    "generic": "biufcq", "number": "iufcq", "integer": "iu", "signedinteger": "i",
    "unsignedinteger": "u", "inexact": "fc", "floating": "f", "complexfloating": "c",
    bool: "b", np.bool_: "b",
}  # fmt: skip


class _DTypeMeta(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, DType | np.dtype)


class dtype(metaclass=_DTypeMeta):
    """`td.dtype(x)`: the dtype of this name, NumPy dtype or Python type; what has a dtype is one.

    >>> import tetrad as td
    >>> td.dtype("float32") == np.float32, isinstance(td.int8, td.dtype)
    (True, True)
    """

    def __new__(cls, like: Any, align: bool = False, copy: bool = False) -> DType:  # type: ignore[misc]
        return dtype_of(like)


def issubdtype(arg1: Any, arg2: Any) -> bool:
    """Whether a dtype is a kind of another: a dtype itself, or one of `td.floating`, `td.integer`,
    ...

    >>> import tetrad as td
    >>> td.issubdtype(td.bfloat16, td.floating), td.issubdtype(td.int32, td.floating)
    (True, False)
    """
    if isinstance(arg1, type) and arg1 in ABSTRACT and issubclass(arg1, np.generic):
        return isinstance(arg2, type) and arg2 in ABSTRACT and issubclass(arg1, arg2)
    given = arg1.dtype if isinstance(arg1, Array) else dtype_of(arg1)
    try:
        kinds = ABSTRACT.get(arg2)
    except TypeError:
        kinds = None
    if kinds is None:
        return given is dtype_of(arg2)
    return _kind(given) in kinds


def _kind(given: DType) -> str:
    """The letter of its kind; numbers of four bits are integers, of eight floats."""
    if given.is_float8:
        return "f"
    return "iu"[given.short_name[0] == "u"] if given.is_nibble else given.kind


def promote_types(a: Any, b: Any) -> DType:
    """The dtype that holds what two dtypes hold.

    >>> import tetrad as td
    >>> td.promote_types(td.int8, "uint8")
    i16
    """
    return result_type(dtype_of(a), dtype_of(b))
