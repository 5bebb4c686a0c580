"""Runtime, memory: aligned blocks that arrays, arenas and packed weights live in.

Receives byte counts, returns `Storage`: an address, a size and whatever keeps the bytes alive. Freed blocks are kept
for the next request of the same size class (fresh pages cost more than most kernels), up to a limit. Blocks of
some large pages lie in those where the system has them: fewer misses of the address cache. Smaller ones do not: to find
memory for a large page may take the system milliseconds.
"""

from __future__ import annotations

import ctypes
import math
import sys
from typing import Any, NoReturn

import numpy as np

ALIGNMENT = 64
LARGE_PAGE, LARGE_BLOCK = 2 << 20, 8 << 20
MADV_HUGEPAGE = 14  # of Linux
KEEP_BYTES = 512 << 20  # free blocks kept for reuse

_libc = ctypes.CDLL(None)
_aligned_alloc = _libc.aligned_alloc
_aligned_alloc.argtypes, _aligned_alloc.restype = [ctypes.c_size_t, ctypes.c_size_t], ctypes.c_void_p
_free = _libc.free
_free.argtypes, _free.restype = [ctypes.c_void_p], None


class Shelf:
    """Free blocks of one size class. List append and pop are atomic, so no lock is taken."""

    __slots__ = ("free", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.free: list[int] = []

    def take(self, nbytes: int) -> Storage:
        """A block from the shelf, or a fresh one."""
        try:
            address = self.free.pop()
        except IndexError:
            return _Owned(self.fresh(), nbytes, self)
        _kept[0] -= self.size
        return _Owned(address, nbytes, self)

    def fresh(self) -> int:
        alignment = LARGE_PAGE if self.size >= LARGE_BLOCK else ALIGNMENT
        address = _aligned_alloc(alignment, self.size)
        if not address:
            release_kept_blocks()
            address = _aligned_alloc(alignment, self.size)
        if not address:
            raise MemoryError(f"tetrad: cannot allocate {self.size} bytes") from None
        if alignment == LARGE_PAGE and sys.platform == "linux":
            _libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(self.size), MADV_HUGEPAGE)  # may say no
        return int(address)


_shelves: dict[int, Shelf] = {}
_kept = [0]  # bytes of all free blocks, roughly: threads may race for it


def shelf(nbytes: int) -> Shelf:
    """The shelf that serves requests of this size."""
    size = size_class(nbytes)
    return _shelves.get(size) or _shelves.setdefault(size, Shelf(size))


def release_kept_blocks() -> None:
    """Return every kept block to the system."""
    for one in list(_shelves.values()):
        while one.free:
            _free(one.free.pop())
    _kept[0] = 0


def size_class(nbytes: int) -> int:
    """Powers of two up to 64 kB, then multiples of 64 kB: few classes, little waste."""
    if nbytes <= 65536:
        return max(ALIGNMENT, 1 << (nbytes - 1).bit_length()) if nbytes else ALIGNMENT
    return (nbytes + 65535) & ~65535


class Storage:
    """Bytes at an address. `owner` keeps foreign memory alive; own memory returns to the pool."""

    __slots__ = ("__weakref__", "nbytes", "owner", "ptr")

    def __init__(self, ptr: int, nbytes: int, owner: Any) -> None:
        self.ptr, self.nbytes, self.owner = ptr, nbytes, owner

    def __reduce__(self) -> NoReturn:
        """An address is of this process, and has one owner."""
        raise TypeError("memory is neither copied nor pickled; copy the array")

    @staticmethod
    def allocate(nbytes: int) -> Storage:
        return shelf(nbytes).take(nbytes)

    @staticmethod
    def from_numpy(array: np.ndarray) -> Storage:
        """The bytes of a contiguous array, in place."""
        return Storage(array.__array_interface__["data"][0], array.nbytes, array)

    def as_numpy(self, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        """A view that keeps this storage alive."""
        if 0 in shape:
            return np.empty(shape, dtype)
        raw = np.asarray(_View(self, self.nbytes))
        return raw[: dtype.itemsize * math.prod(shape)].view(dtype).reshape(shape)


class _Owned(Storage):
    """A block of ours; its owner is the shelf it returns to."""

    __slots__ = ()

    def __del__(self) -> None:
        if _kept is None:  # the process ends and its modules are emptied already: memory goes back with it
            return
        home = self.owner
        if _kept[0] > KEEP_BYTES:
            _free(self.ptr)
        else:
            _kept[0] += home.size
            home.free.append(self.ptr)


class _View:
    """Hands NumPy the bytes of a storage; NumPy keeps this object, this object keeps the storage."""

    def __init__(self, storage: Storage, nbytes: int) -> None:
        self.storage = storage
        self.__array_interface__ = {"data": (storage.ptr, False), "shape": (nbytes,), "typestr": "|u1", "version": 3}
