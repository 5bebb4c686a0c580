"""CPU back end, memory: aligned blocks that arrays, arenas and packed weights live in.

Receives byte counts, returns `Storage`: an address, a size and whatever keeps the bytes alive.
Freed blocks are kept for the next request of the same size class (fresh pages cost more than most
kernels); before a fresh block is made, others go back, so that many sizes take no more memory than
the largest. `Arenas` are the working memory of one program.

Blocks of some large pages lie in those where the system has them: fewer misses of the address
cache. Smaller ones do not: to find memory for a large page may take the system milliseconds.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import mmap
import sys
from typing import Any, NoReturn

import numpy as np

from tetrad.core.owners import Lasting

ALIGNMENT = 64
LARGE_PAGE, LARGE_BLOCK = 2 << 20, 8 << 20
MADV_HUGEPAGE = 14  # of Linux
KEEP_BYTES = 512 << 20  # free blocks kept for reuse, at most
# of them, those that stay when a fresh block is made, or as many as were ever in use at once
SPARE_BYTES = 24 << 20
FINE = 65536  # size classes are powers of two up to here, then multiples
RECOUNT = 64  # fresh blocks after which kept bytes are counted anew
MOST_IDLE = 4  # arenas that a program keeps between calls; it has more while more calls run at once

# blocks from here on are mapped: freed among others, the C library would not give them back
MAPPED = 1 << 20
MAP_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None)
_libc.aligned_alloc.argtypes, _libc.aligned_alloc.restype = (
    [ctypes.c_size_t, ctypes.c_size_t],
    ctypes.c_void_p,
)
_libc.free.argtypes, _libc.free.restype = [ctypes.c_void_p], None
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]
_libc.mmap.restype = ctypes.c_void_p
_libc.munmap.argtypes, _libc.munmap.restype = [ctypes.c_void_p, ctypes.c_size_t], ctypes.c_int


def _aligned_alloc(alignment: int, size: int) -> int | None:
    """The address of fresh bytes, or None if there are none."""
    if size < MAPPED:
        found: int | None = _libc.aligned_alloc(alignment, size)
        return found
    extra = alignment if alignment > mmap.PAGESIZE else 0
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    start = _libc.mmap(None, size + extra, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
    if start == MAP_FAILED:
        return None
    skip = -start % alignment if extra else 0
    for unused, nbytes in ((start, skip), (start + skip + size, extra - skip)):
        if nbytes:
            _libc.munmap(unused, nbytes)
    return int(start) + skip


def _free(address: int, size: int) -> None:
    if size < MAPPED:
        _libc.free(address)
    else:
        _libc.munmap(address, size)


class Shelf:
    """Free blocks of one size class. List append and pop are atomic, so no lock is taken."""

    __slots__ = ("free", "size", "was_used")

    def __init__(self, size: int) -> None:
        self.size = size
        self.free: list[int] = []
        self.was_used = False  # since blocks were last looked for that can go back

    def take(self, nbytes: int) -> Storage:
        """A block from the shelf, or a fresh one."""
        try:
            address = self.free.pop()
        except IndexError:
            return _Owned(self.fresh(), nbytes, self)
        _kept[0] -= self.size
        self.was_used = True
        return _Owned(address, nbytes, self)

    def fresh(self) -> int:
        _most[0] = max(_most[0], _held[0] - _kept[0] + self.size)
        if _kept[0] > spare_bytes() or next(_fresh) % RECOUNT == 0:
            make_room(self.size)
        address = new_block(self.size)
        _held[0] += self.size
        return address

    def release(self, address: int) -> None:
        if _libc is not None:  # at the end of the process memory goes back with it
            _free(address, self.size)

    def give_back(self, nbytes: int) -> int:
        """Return free blocks to the system until it has so many bytes; how many it has."""
        given = 0
        while given < nbytes:
            try:
                _free(self.free.pop(), self.size)
            except IndexError:
                break
            given += self.size
        _kept[0] -= given
        _held[0] -= given
        return given


def new_block(size: int) -> int:
    """The address of so many bytes from the system."""
    alignment = LARGE_PAGE if size >= LARGE_BLOCK else ALIGNMENT
    address = _aligned_alloc(alignment, size)
    if not address:
        release_kept_blocks()
        address = _aligned_alloc(alignment, size)
    if not address:
        raise MemoryError(f"tetrad: cannot allocate {size} bytes") from None
    if alignment == LARGE_PAGE and sys.platform == "linux":
        _libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(size), MADV_HUGEPAGE)  # may say no
    return int(address)


def spare_bytes() -> int:
    """Functions called in turn, each with large results of a size of its own, find their blocks
    again."""
    return min(max(SPARE_BYTES, _most[0]), KEEP_BYTES)


def give_back_most() -> None:
    """A program goes, and with it who asked for blocks of its sizes: those that nobody uses go,
    too."""
    _most[0] = _held[0] - _kept[0]
    if _kept[0] > SPARE_BYTES:
        for one in list(_shelves.values()):
            one.give_back(len(one.free) * one.size)


def make_room(nbytes: int) -> None:
    """Return up to so many kept bytes to the system, beyond those to spare: first of classes not
    used of late.

    So the memory held is bounded by what was in use at once, at most, and not by how many sizes
    there were.
    """
    shelves = list(_shelves.values())
    _kept[0] = sum(len(one.free) * one.size for one in shelves)  # counted anew: threads race for it
    excess = min(nbytes, _kept[0] - spare_bytes())
    for any_of_them in (False, True):
        for one in shelves:
            if excess <= 0:
                return
            if one.free and (any_of_them or not one.was_used):
                excess -= one.give_back(excess)
            one.was_used = False


_shelves: dict[int, Shelf] = {}
_kept = [0]  # bytes of all free blocks, roughly: threads may race for it
_held = [0]  # bytes of all blocks, free or in use
_most = [0]  # bytes that were in use at once, at most
_fresh = itertools.count(1)


def shelf(nbytes: int) -> Shelf:
    """The shelf that serves requests of this size."""
    size = size_class(nbytes)
    return _shelves.get(size) or _shelves.setdefault(size, Shelf(size))


def release_kept_blocks() -> None:
    """Return every kept block to the system."""
    for one in list(_shelves.values()):
        one.give_back(len(one.free) * one.size)
    _kept[0] = 0


def size_class(nbytes: int) -> int:
    """Powers of two up to 64 kB, then multiples of 64 kB: few classes, little waste."""
    if nbytes <= FINE:
        return max(ALIGNMENT, 1 << (nbytes - 1).bit_length()) if nbytes else ALIGNMENT
    return (nbytes + FINE - 1) & -FINE


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

    def fill(self, array: np.ndarray) -> None:
        """Replace what it holds by the bytes of a contiguous array."""
        ctypes.memmove(self.ptr, array.__array_interface__["data"][0], array.nbytes)

    def as_numpy(
        self, dtype: np.dtype, shape: tuple[int, ...], writable: bool = True
    ) -> np.ndarray:
        """A view that keeps this storage alive. One that is not writable cannot be made so."""
        if 0 in shape:
            return np.empty(shape, dtype)
        raw = np.asarray(_View(self) if writable else _Frozen(self))
        return raw[: dtype.itemsize * math.prod(shape)].view(dtype).reshape(shape)


class _Owned(Storage):
    """A block of ours; its owner is the shelf it returns to."""

    __slots__ = ()

    # Bound, not looked up: quicker, and still there when the process ends and its modules are
    # emptied.
    def __del__(self, kept: list[int] = _kept, held: list[int] = _held) -> None:
        home = self.owner
        if kept[0] > (KEEP_BYTES or 0):
            home.release(self.ptr)
            held[0] -= home.size
        else:
            kept[0] += home.size
            home.free.append(self.ptr)


class _Alone(Storage):
    """A block of ours that goes back to the system at once."""

    __slots__ = ()

    def __del__(self) -> None:
        if _libc is not None:  # at the end of the process memory goes back with it
            _free(self.ptr, self.nbytes)


class Arenas:
    """The working memory of one program: an arena for each call that runs, as large as the largest
    call so far needs.

    List append and pop are atomic, so no lock is taken: calls at once never have the same arena. A
    call that raises does not bring its arena back. They all go back to the system with the program.
    """

    __slots__ = ("idle", "size")

    def __init__(self) -> None:
        self.size = 0
        self.idle: list[Storage] = []

    def __del__(self) -> None:
        if _libc is not None:  # as above
            give_back_most()

    def take(self, nbytes: int) -> Storage:
        """An arena for a call that needs so many bytes; one that is too small goes back to the
        system first."""
        while self.idle:
            try:
                arena = self.idle.pop()
            except IndexError:  # another call was quicker
                break
            if arena.nbytes >= nbytes:
                return arena
            del arena
        # with some room: growing sizes make few arenas, and what no call touches costs nothing
        if nbytes > self.size:
            self.size = size_class(nbytes + nbytes // 8 if self.size else nbytes)
        return _Alone(new_block(self.size), self.size, None)


class _View:
    """Hands NumPy the bytes of a storage; NumPy keeps this object, this object keeps the
    storage."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.__array_interface__ = interface(storage, read_only=False)


class _Frozen(Lasting):
    """The same for bytes that are an array's: nobody writes to them any more."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.__array_interface__ = interface(storage, read_only=True)


def interface(storage: Storage, read_only: bool) -> dict[str, Any]:
    return {
        "data": (storage.ptr, read_only),
        "shape": (storage.nbytes,),
        "typestr": "|u1",
        "version": 3,
    }
