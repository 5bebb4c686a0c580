"""Arrays, NumPy's names: arrays as text and in files, by NumPy's own functions.

Receives files, buffers and settings, returns arrays. Arrays are printed by NumPy, so its settings
are those of arrays here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tetrad.arrays.creation import asarray
from tetrad.tracing.array import Array
from tetrad.tracing.operands import dtype_of

get_printoptions, set_printoptions = np.get_printoptions, np.set_printoptions
printoptions = np.printoptions


def array_repr(arr: Any, *args: Any, **settings: Any) -> str:
    """What `repr` gives."""
    return repr(arr)


def array_str(a: Any, *args: Any, **settings: Any) -> str:
    """What `str` gives."""
    return str(a)


def einsum_path(subscripts: Any, *operands: Any, optimize: Any = "greedy") -> Any:
    """The order of products NumPy would choose for an Einstein sum; `td.einsum` chooses its own.

    >>> import tetrad as td
    >>> td.einsum_path("ij,jk->ik", td.ones((2, 3)), td.ones((3, 4)))[0]
    ['einsum_path', (0, 1)]
    """
    given = [np.empty(np.shape(x)) for x in operands]
    return np.einsum_path(subscripts, *given, optimize=optimize)


def frombuffer(buffer: Any, dtype: Any = float, count: int = -1, offset: int = 0) -> Array:
    """The numbers in a buffer.

    >>> import tetrad as td
    >>> td.frombuffer(bytes([1, 2]), td.uint8)
    Array([1, 2], uint8)
    """
    return asarray(np.frombuffer(buffer, dtype_of(dtype).np, count, offset))


def fromfile(file: Any, dtype: Any = float, *args: Any, **settings: Any) -> Array:
    """The numbers in a file, as NumPy reads them."""
    return asarray(np.fromfile(file, dtype_of(dtype).np, *args, **settings))


def fromiter(iter: Any, dtype: Any, count: int = -1) -> Array:
    """The numbers that an iterator gives."""
    return asarray(np.fromiter(iter, dtype_of(dtype).np, count))


def fromstring(string: str, dtype: Any = float, count: int = -1, *, sep: str) -> Array:
    """The numbers in a text, between which `sep` stands."""
    return asarray(np.fromstring(string, dtype_of(dtype).np, count, sep=sep))


def savez(file: Any, *args: Any, **arrays: Any) -> None:
    """Arrays in a file of NumPy's, by name; `np.load` reads it."""
    named = {name: np.asarray(x) for name, x in arrays.items()}
    np.savez(file, *(np.asarray(x) for x in args), allow_pickle=False, **named)
