"""JAX's names: `jax.dtypes`, and the dtypes of keys and of derivatives by integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from tetrad.core.dtypes import DType, as_dtype, canonical
from tetrad.core.errors import DtypeError
from tetrad.jax._shell import tables
from tetrad.jax._shell.tables import td

TABLE = tables.same("bfloat16 finfo iinfo") | {"TypePromotionError": "errors.DtypeError"}
float0 = np.dtype([("float0", np.void, 0)])


class extended(np.generic):
    """The kind of dtypes that are no numbers."""


class prng_key(extended):
    """The kind of the dtypes of keys."""


class KeyDtype:
    """The dtype of keys of one generator: `key<fry>`."""

    type = prng_key
    itemsize = 8

    def __init__(self, generator: str) -> None:
        self.generator = generator

    @property
    def name(self) -> str:
        return f"key<{SHORT.get(self.generator, self.generator)}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeyDtype) and other.generator == self.generator

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return self.name


SHORT = {"threefry": "fry"}


def issubdtype(arg1: Any, arg2: Any) -> bool:
    """Is the first a kind of the second? Dtypes of keys are no numbers."""
    if isinstance(arg1, KeyDtype):
        return arg2 in (prng_key, extended, np.generic) or arg1 == arg2
    if isinstance(arg2, type) and issubclass(arg2, extended):
        return isinstance(arg1, type) and issubclass(arg1, arg2)
    return bool(td.issubdtype(arg1, arg2))


def canonicalize_dtype(dtype: Any, allow_extended_dtype: bool = False) -> Any:
    """The dtype that arrays have where this one is asked for."""
    if isinstance(dtype, KeyDtype):
        if not allow_extended_dtype:
            raise DtypeError(f"canonicalize_dtype: {dtype} is the dtype of keys, not of numbers")
        return dtype
    return canonical(as_dtype(dtype)).dtype


def result_type(*args: Any, return_weak_type_flag: bool = False) -> Any:
    found = td.result_type(*args)
    return (found, False) if return_weak_type_flag else found


def scalar_type_of(x: Any) -> type:
    """Python's type of the numbers in x."""
    kind = (x if isinstance(x, DType) else td.asarray(x).dtype).kind
    return {"b": bool, "i": int, "u": int, "f": float, "c": complex}[kind]


def itemsize_bits(dtype: Any) -> int:
    return as_dtype(dtype).bits


__getattr__, __dir__ = tables.offers(globals(), TABLE)
