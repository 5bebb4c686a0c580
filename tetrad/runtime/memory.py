"""Runtime, memory: aligned blocks that arrays, arenas and packed weights live in.

Receives byte counts, returns `Storage`: an address, a size and whatever keeps the bytes alive. Freed blocks are kept for
the next request of the same size class (fresh pages cost more than most kernels), up to a limit.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np

ALIGNMENT = 64
KEEP_BYTES = 512 << 20  # free blocks kept for reuse

_libc = ctypes.CDLL(None)
_aligned_alloc = _libc.aligned_alloc
_aligned_alloc.argtypes, _aligned_alloc.restype = [ctypes.c_size_t, ctypes.c_size_t], ctypes.c_void_p
_free = _libc.free
_free.argtypes, _free.restype = [ctypes.c_void_p], None


class _Pool:
    """Free blocks by size class. List append and pop are atomic, so the usual path takes no lock."""

    def __init__(self) -> None:
        self.blocks: dict[int, list[int]] = {}
        self.kept = 0
        self.lock = threading.Lock()

    def take(self, size: int) -> int:
        free = self.blocks.get(size)
        if free:
            try:
                address = free.pop()
            except IndexError:  # another thread was quicker
                return self.fresh(size)
            self.kept -= size
            return address
        return self.fresh(size)

    def fresh(self, size: int) -> int:
        address = _aligned_alloc(ALIGNMENT, size)
        if not address:
            self.drop()
            address = _aligned_alloc(ALIGNMENT, size)
        if not address:
            raise MemoryError(f"tetrad: cannot allocate {size} bytes")
        return int(address)

    def give(self, address: int, size: int) -> None:
        if self.kept + size > KEEP_BYTES:
            _free(address)
            return
        self.kept += size
        self.blocks.setdefault(size, []).append(address)

    def drop(self) -> None:
        """Return every kept block to the system."""
        with self.lock:
            for size, free in self.blocks.items():
                while free:
                    _free(free.pop())
                    self.kept -= size


_pool = _Pool()
release_kept_blocks = _pool.drop


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

    @staticmethod
    def allocate(nbytes: int) -> Storage:
        return _Owned(_pool.take(size_class(nbytes)), nbytes, None)

    @staticmethod
    def from_numpy(array: np.ndarray) -> Storage:
        """The bytes of a contiguous array, in place."""
        return Storage(array.__array_interface__["data"][0], array.nbytes, array)

    def as_numpy(self, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        """A view that keeps this storage alive."""
        if 0 in shape:
            return np.empty(shape, dtype)
        raw = np.asarray(_View(self, self.nbytes))
        return raw[: dtype.itemsize * int(np.prod(shape, dtype=object))].view(dtype).reshape(shape)


class _Owned(Storage):
    __slots__ = ()

    def __del__(self) -> None:
        _pool.give(self.ptr, size_class(self.nbytes))


class _View:
    """Hands NumPy the bytes of a storage; NumPy keeps this object, this object keeps the storage."""

    def __init__(self, storage: Storage, nbytes: int) -> None:
        self.storage = storage
        self.__array_interface__ = {"data": (storage.ptr, False), "shape": (nbytes,), "typestr": "|u1", "version": 3}
