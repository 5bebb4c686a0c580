"""CPU back end, objects: machine code of this process and where it lies on disk. Needs neither LLVM
nor the compiler.

Receives object files from `backends.cpu.compile` or names of cache entries from
`compiler.program_cache`; gives addresses. Also starts the native schedule loop, which every program
needs.
"""

from __future__ import annotations

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
from tetrad.core.jobs import JOBS, BackgroundJob
from tetrad.core.limits import available_threads
from tetrad.core.locks import process_lock

PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CODE_MAKERS = ("backends",)


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
    """Of the sources in a folder of the package and below; '' are those beside the folders.

    A source is known by its size, its file and when that last changed, as Python knows whether
    bytecode is stale: to read all of them takes three times as long.
    """
    found = sorted(sources(os.path.join(PACKAGE, folder), deep=bool(folder)))
    return hashlib.sha256(repr(found).encode()).hexdigest()


Source = tuple[str, int, int, int, int]  # path, size, inode, times of the last changes


def sources(folder: str, deep: bool) -> list[Source]:
    """The Python files in a folder, and with `deep` in those inside it."""
    found: list[Source] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            if name.endswith(".py"):
                told = entry.stat()
                times = told.st_mtime_ns, told.st_ctime_ns
                found.append((entry.path, told.st_size, told.st_ino, *times))
            elif deep and name != "__pycache__" and entry.is_dir():
                found += sources(entry.path, deep)
    return found


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
def loading_runtime() -> BackgroundJob:
    """The native schedule loop, loaded (at first: compiled) beside the Python work of the first
    compilation."""
    return JOBS.submit(load_runtime)
