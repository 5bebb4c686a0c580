"""CPU back end, objects: machine code of this process and where it lies on disk. Needs neither LLVM
nor the compiler.

Receives object files from `backends.cpu.compile` or names of cache entries from
`compiler.program_cache`; gives addresses. Also starts the native schedule loop, which every program
needs.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
from collections.abc import Iterable, Mapping
from functools import cache

import llvmlite
import numpy as np

from tetrad.backends.cpu import native, pool
from tetrad.backends.cpu.cache import ObjectCache, cache_key
from tetrad.backends.cpu.isa import host, processor_identity
from tetrad.backends.cpu.llvm import Library, load_object
from tetrad.core.flags import code_key
from tetrad.core.jobs import JOBS, Job
from tetrad.core.limits import available_threads
from tetrad.core.locks import process_lock

PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CODE_MAKERS = ("backends",)
# the system's functions, which here do not let other Python threads go on
LOCKED = ctypes.PyDLL(None, use_errno=True)


class Objects:
    """Symbol -> address, symbol -> cache entry, and the libraries that own the code."""

    def __init__(self) -> None:
        self.addresses: dict[str, int] = {}
        self.homes: dict[str, str] = {}
        self.libraries: list[Library] = []
        self.lock = process_lock()

    def add(self, entry: str, image: bytes, symbols: Iterable[str]) -> None:
        """Load an object file, the caller vouches for its bytes; `entry` is its name in the disk
        cache."""
        library = load_object(image, tuple(symbols))
        with self.lock:
            self.libraries.append(library)
            self.addresses.update(library.address)
            self.homes.update(dict.fromkeys(library.address, entry))

    def recall(self, homes: Mapping[str, str]) -> bool:
        """Have these symbols, from the entries named; False when one is no longer there."""
        with self.lock:
            missing = [symbol for symbol in homes if symbol not in self.addresses]
            for entry in {homes[symbol] for symbol in missing}:
                image = disk_cache().get(entry)
                if image is None:
                    return False
                self.add(entry, image, [symbol for symbol in missing if homes[symbol] == entry])
        return True


OBJECTS = Objects()


@cache
def disk_cache() -> ObjectCache:
    return ObjectCache.from_flags()


def made_by(folders: tuple[str, ...]) -> tuple[str, ...] | None:
    """All that has a hand in a program besides its graph; None where nobody says what the processor
    is."""
    processor = processor_identity()
    if processor is None:
        return None
    return (
        build_identity(folders),
        code_key(),
        processor,
        libraries(),
        f"{available_threads()} threads",
    )


@cache
def libraries() -> str:
    """Those that compute folded constants. What says the version of the second is read: loading it
    takes longer."""
    found = importlib.util.find_spec("ml_dtypes")
    with open(found.origin if found and found.origin else os.devnull, "rb") as file:
        return f"numpy {np.__version__}, ml_dtypes {hashlib.sha256(file.read()).hexdigest()}"


@cache
def build_identity(folders: tuple[str, ...] = CODE_MAKERS) -> str:
    """What made the code: our sources in these folders, and LLVM's version."""
    digests = " ".join(folder_digest(folder) for folder in folders)
    return f"{digests};llvmlite {llvmlite.__version__}"


@cache
def folder_digest(folder: str) -> str:
    """Of the sources in a folder of the package and below; '' are those beside the folders."""
    where = os.path.join(PACKAGE, folder)
    room, parts = ctypes.create_string_buffer(1 << 16), list[bytes]()
    for path in sources(where, deep=bool(folder)):
        text = content(path, room)
        parts += f"{path[len(where) :]} {len(text)} ".encode(), text
    # of all at once: other threads go on only meanwhile
    return hashlib.sha256(b"".join(parts)).hexdigest()


def content(path: str, room: ctypes.Array[ctypes.c_char]) -> bytes:
    """Of a small file, read with Python's lock held: to wait for it after each of a thousand calls
    of the system, while another thread traces or lowers, would take five times as long. `room` is
    memory for the time being."""
    source = LOCKED.open(os.fsencode(path), os.O_RDONLY | os.O_CLOEXEC)
    if source < 0:
        raise OSError(ctypes.get_errno(), "a source of tetrad cannot be read", path)
    try:
        found, count = b"", LOCKED.read(source, room, len(room))
        while count == len(room):  # less is the end: it is a file on a disk
            found, count = found + room.raw, LOCKED.read(source, room, len(room))
        if count < 0:
            raise OSError(ctypes.get_errno(), "a source of tetrad cannot be read", path)
        return found + ctypes.string_at(room, count)
    finally:
        LOCKED.close(source)


def sources(folder: str, deep: bool) -> list[str]:
    """The Python files in a folder, and with `deep` in those inside it, in a fixed order."""
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    inner = [
        sources(e.path, deep) for e in entries if deep and e.is_dir() and e.name != "__pycache__"
    ]
    return [e.path for e in entries if e.name.endswith(".py")] + [
        path for paths in inner for path in paths
    ]


# -- the native schedule loop ----------------------------------------------------------------------


def load_runtime() -> None:
    """The native schedule loop, from the disk cache when it is there."""
    processor = processor_identity() or host().key
    entry = cache_key(build_identity(), processor, "runtime")
    image = disk_cache().get(entry)
    if image is None:
        image = pool.compile_loop(host())
        disk_cache().put(entry, image)
    pool.use_library(load_object(image, native.SYMBOLS))


@cache
def loading_runtime() -> Job:
    """The native schedule loop, loaded (at first: compiled) beside the Python work of the first
    compilation."""
    return JOBS.submit(load_runtime)
