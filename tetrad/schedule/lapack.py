"""Schedule: where the routines of its host calls, LAPACK, are. Receives the name of a routine
(`dgetrf`), returns its address.

NumPy's wheel carries an OpenBLAS; its routines are found by symbol name, nothing is linked
(docs/adr/0013). A `form` is the signature of a routine, one character per argument: a capital
letter is that character, `i` (64 bits) or `j` (32) an integer, `m` memory. All arguments go by
address, as in Fortran, and the lengths of the characters come last.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache

import numpy as np

from tetrad.core.errors import UnsupportedError
from tetrad.core.record import record

# How builds of OpenBLAS spell `dgetrf`, and the bits of their integers.
SPELLINGS = (
    ("scipy_", "_64_", 64),
    ("", "_64_", 64),
    ("", "64_", 64),
    ("scipy_", "_", 32),
    ("", "_", 32),
)
WHEELS = ("scipy_openblas64", "scipy_openblas32")
# of a routine, the lengths of characters included: as many words are passed at every call, for one
# that takes fewer does not look at the others
MOST_ARGUMENTS = 20


@record
class LapackLibrary:
    """A library with LAPACK in it, and how its names are spelled."""

    handle: ctypes.CDLL
    prefix: str
    suffix: str
    bits: int

    def find(self, routine: str) -> int:
        symbol = getattr(self.handle, f"{self.prefix}{routine}{self.suffix}")
        return ctypes.cast(symbol, ctypes.c_void_p).value or 0


@cache
def library() -> LapackLibrary:
    """The first library that has LAPACK: the one NumPy loaded, or that of an openblas wheel."""
    for path in candidates():
        handle = ctypes.CDLL(path)
        for prefix, suffix, bits in SPELLINGS:
            if hasattr(handle, f"{prefix}dgetrf{suffix}"):
                return LapackLibrary(handle, prefix, suffix, bits)
    raise UnsupportedError(
        "linalg: no LAPACK was found beside NumPy", hint="pip install scipy-openblas32"
    )


def candidates() -> Iterator[str]:
    """Paths that may be an OpenBLAS, the likeliest first."""
    home = os.path.dirname(np.__file__)
    for folder in (f"{home}.libs", os.path.join(home, ".dylibs")):
        yield from libraries_in(folder)
    for wheel in WHEELS:
        found = importlib.util.find_spec(wheel)
        for folder in () if found is None else found.submodule_search_locations or ():
            yield from libraries_in(os.path.join(folder, "lib"))


def libraries_in(folder: str) -> list[str]:
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return sorted(os.path.join(folder, name) for name in names if "openblas" in name)


@cache
def address(routine: str) -> int:
    """The address of a routine in this process."""
    return library().find(routine)


def integer() -> str:
    """The letter of an integer argument in forms."""
    return "i" if library().bits == 64 else "j"


def lengths(form: str) -> int:
    """How many lengths of characters come last: each is 1."""
    return sum(letter.isupper() for letter in form)


def invoke(where: int, form: str, numbers: Sequence[int], pointers: Sequence[int]) -> None:
    """Call a routine. The form takes integers and pointers in order."""
    integers, memory = iter(numbers), iter(pointers)
    args: list[object] = []
    for letter in form:
        if letter == "m":
            args.append(ctypes.c_void_p(next(memory)))
        elif letter in "ij":
            kind = ctypes.c_int64 if letter == "i" else ctypes.c_int32
            args.append(ctypes.byref(kind(next(integers))))
        else:
            args.append(ctypes.c_char_p(letter.encode()))
    ctypes.CFUNCTYPE(None)(where)(*args, *[ctypes.c_size_t(1)] * lengths(form))


# -- threads ---------------------------------------------------------------------------------------


class Threads:
    """The number of threads of OpenBLAS: 1 while anybody is inside, then what it was."""

    def __init__(self) -> None:
        self.lock, self.users, self.before = threading.Lock(), 0, 1

    def enter(self) -> None:
        with self.lock:
            if not self.users:
                self.before = thread_function("get")()
                thread_function("set")(1)
            self.users += 1

    def leave(self) -> None:
        with self.lock:
            self.users -= 1
            if not self.users:
                thread_function("set")(self.before)


THREADS = Threads()


@cache
def thread_function(verb: str) -> ctypes._CFuncPtr:  # type: ignore[name-defined]
    found = library()
    # with a lone underscore the symbol is the Fortran wrapper
    endings = ("64_", "") if found.bits == 64 else ("",)
    for name in (f"{found.prefix}openblas_{verb}_num_threads{ending}" for ending in endings):
        if hasattr(found.handle, name):
            return getattr(found.handle, name)
    raise UnsupportedError(
        f"linalg: this LAPACK has no openblas_{verb}_num_threads",
        hint="pip install scipy-openblas32",
    )


@contextmanager
def one_thread() -> Iterator[None]:
    """Inside, LAPACK runs on the calling thread: our own workers already share the batch."""
    THREADS.enter()
    try:
        yield
    finally:
        THREADS.leave()
