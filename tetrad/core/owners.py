"""Core: who can write to the memory of an array.

Receives a NumPy array, says whether anybody may still write to it, and copies it if so. Whatever
outlives a call (an array, a constant of a program) lies in memory that nobody writes to.
"""

from __future__ import annotations

import mmap

import numpy as np

LINE, PAGE = 64, 4096  # bytes
PIECE = 1 << 20  # bytes compared at a time
WRITEABLE = 0x0400  # NPY_ARRAY_WRITEABLE; `flags.writeable` warns of what np.broadcast_arrays made


class Lasting:
    """A base object of arrays: it owns memory that is never written again."""

    __slots__ = ()


def is_lasting(array: np.ndarray, or_mapped: bool = False) -> bool:
    """Can nobody write to this memory?

    A read-only flag proves nothing: the array may be a view of a writable one, and whoever holds
    the owner can set the flag back. So views are followed to the object that owns the bytes.
    `or_mapped`: a read-only mapping counts too, although its file may be written to.
    """
    if array.flags.num & WRITEABLE:
        return False
    owner: object = array.base
    while isinstance(owner, np.ndarray | memoryview):
        if isinstance(owner, np.ndarray) and owner.flags.num & WRITEABLE:
            return False
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    if isinstance(owner, mmap.mmap):
        return or_mapped and memoryview(owner).readonly
    return isinstance(owner, bytes | Lasting)


def lasting(array: np.ndarray) -> np.ndarray:
    """The array, or a copy if somebody may write to it."""
    return array if is_lasting(array) else own_copy(array)


def own_copy(values: np.ndarray) -> np.ndarray:
    """A row-major copy. A large one starts at a cache line, which NumPy does not promise, so that
    no vector crosses a line."""
    if values.nbytes < PAGE:
        return values.copy(order="C")
    room = np.empty(values.nbytes + LINE, np.uint8)
    skip = -room.__array_interface__["data"][0] % LINE
    copy = room[skip : skip + values.nbytes].view(values.dtype).reshape(values.shape)
    copy[...] = values
    return copy


class _Shown(Lasting):
    """Lends an array of ours to NumPy for reading. The NumPy array has no owner whose flag could be
    set back."""

    __slots__ = ("__array_interface__", "array")

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        place = {
            "data": (array.__array_interface__["data"][0], True),
            "shape": array.shape,
            "strides": array.strides,
        }
        self.__array_interface__ = {**place, "typestr": f"|V{array.itemsize}", "version": 3}


def frozen(array: np.ndarray) -> np.ndarray:
    """A read-only view of an array of ours, which nobody can make writable."""
    return (
        array if is_lasting(array, or_mapped=True) else np.asarray(_Shown(array)).view(array.dtype)
    )


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Do two arrays of one type hold the same bytes? Compared piece by piece, without large
    temporaries."""
    one, other = (np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in (a, b))
    return all(
        (one[i : i + PIECE] == other[i : i + PIECE]).all() for i in range(0, one.size, PIECE)
    )
