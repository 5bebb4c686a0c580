"""The driver, kernels: kernel programs in, addresses of machine code out; compiled once, kept on disk.

Equal programs (by fingerprint) share code within the process; the code of all programs a graph needs is one object file
in the disk cache, keyed by everything it depends on.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import llvmlite

from tetrad import codegen
from tetrad.codegen.llvm import Library, compile_object, load_object
from tetrad.codegen.module import emit_module
from tetrad.codegen.targets.x86_64 import missing_features
from tetrad.compiler import stations
from tetrad.core.errors import BackendError
from tetrad.core.flags import code_key, flag_words
from tetrad.core.target import Target
from tetrad.kernel.nodes import Program
from tetrad.kernel.text import fingerprint
from tetrad.runtime import native, pool
from tetrad.runtime.cache import ObjectCache, cache_key


class Kernels:
    """The machine code of one process: fingerprint -> address, and the libraries that own it."""

    def __init__(self) -> None:
        self.addresses: dict[str, int] = {}
        self.libraries: list[Library] = []
        self.compiled = 0  # modules that went through LLVM; a new size of a Dim must not raise it
        self.lock = threading.RLock()

    def load(self, programs: Iterable[Program], target: Target, check: str | None = None) -> dict[Program, int]:
        """An address for each program, compiling those that are new to the process and to the disk."""
        check = default_check() if check is None else check
        keys = {program: f"{check}-{target.key}-{fingerprint(program)}" for program in programs}
        with self.lock:
            missing = {key: program for program, key in keys.items() if key not in self.addresses}
            stations.count("process", len(set(keys.values())) - len(missing))
            if missing:
                self.build(missing, target, check)
        return {program: self.addresses[key] for program, key in keys.items()}

    def build(self, missing: dict[str, Program], target: Target, check: str) -> None:
        refuse_foreign(target)
        symbols = {f"k_{hashlib.sha256(key.encode()).hexdigest()[:24]}": key for key in sorted(missing)}
        entry = cache_key(build_identity(), target.key, check, *symbols)
        image = disk_cache().get(entry)
        stations.count("compiled" if image is None else "disk", len(missing))
        if image is None or stations.wants("llvm", "asm"):
            text = emit_module({symbol: missing[key] for symbol, key in symbols.items()}, target, check)
            stations.show_llvm(text, target)
            with stations.timed("llvm"):
                image = compile_object(text, target)
            self.compiled += 1
            disk_cache().put(entry, image)
        with stations.timed("load"):
            library = load_object(image, tuple(symbols))
        self.libraries.append(library)
        self.addresses.update((key, library.address[symbol]) for symbol, key in symbols.items())

    def load_runtime(self, target: Target) -> None:
        """The native schedule loop, from the disk cache when it is there."""
        entry = cache_key(build_identity(), target.key, "runtime")
        image = disk_cache().get(entry)
        if image is None:
            image = compile_object(native.native_text(target), target)
            disk_cache().put(entry, image)
        pool.use_library(load_object(image, native.SYMBOLS))


def default_check() -> str:
    return "trap" if "bounds" in flag_words("TETRAD_CHECK") else "plain"


def refuse_foreign(target: Target) -> None:
    lacking = missing_features(target)
    if lacking:
        raise BackendError(
            f"code for {target.name} cannot run here: this processor lacks {', '.join(lacking)}",
            hint="TETRAD_TARGET=host runs on any machine",
        )


@cache
def build_identity() -> str:
    """What made the code: our emitters, LLVM's version, the flags."""
    digest = hashlib.sha256()
    for folder in (Path(codegen.__file__).parent, Path(native.__file__).parent):
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.read_bytes())
    return f"{digest.hexdigest()};llvmlite {llvmlite.__version__};{code_key()}"


@cache
def disk_cache() -> ObjectCache:
    return ObjectCache.from_flags()


KERNELS = Kernels()
