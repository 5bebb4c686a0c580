"""The driver, kernels: kernel programs in, addresses of machine code out; compiled once, kept on disk.

Equal programs (by fingerprint) share code within the process; the code of all programs a graph needs is one object file
in the disk cache, keyed by everything it depends on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from tetrad.codegen.llvm import compile_object
from tetrad.codegen.module import emit_module
from tetrad.codegen.targets.x86_64 import missing_features
from tetrad.compiler import objects, stations
from tetrad.compiler.objects import OBJECTS, Objects
from tetrad.core.errors import BackendError
from tetrad.core.flags import code_key, flag_words
from tetrad.core.target import Target
from tetrad.kernel.nodes import Program
from tetrad.kernel.text import fingerprint
from tetrad.runtime.cache import cache_key


class Kernels:
    """Finds the machine code of programs in this process or on disk, or makes it."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        self.compiled = 0  # modules that went through LLVM; a new size of a Dim must not raise it

    def load(self, programs: Iterable[Program], target: Target, check: str | None = None) -> dict[Program, int]:
        """An address for each program, compiling those that are new to the process and to the disk."""
        check = default_check() if check is None else check
        symbols = {program: symbol_of(f"{check}-{target.key}-{fingerprint(program)}") for program in programs}
        known = self.objects.addresses
        with self.objects.lock:
            missing = {symbol: program for program, symbol in symbols.items() if symbol not in known}
            stations.count("process", len(set(symbols.values())) - len(missing))
            if missing:
                self.build(dict(sorted(missing.items())), target, check)
        return {program: known[symbol] for program, symbol in symbols.items()}

    def build(self, missing: dict[str, Program], target: Target, check: str) -> None:
        refuse_foreign(target)
        entry = cache_key(objects.build_identity(), code_key(), target.key, check, *missing)
        image = objects.disk_cache().get(entry)
        stations.count("compiled" if image is None else "disk", len(missing))
        if image is None or stations.wants("llvm", "asm"):
            text = emit_module(missing, target, check)
            stations.show_llvm(text, target)
            with stations.timed("llvm"):
                image = compile_object(text, target)
            self.compiled += 1
            objects.disk_cache().put(entry, image)
        with stations.timed("load"):
            self.objects.add(entry, image, missing)


def symbol_of(key: str) -> str:
    return f"k_{hashlib.sha256(key.encode()).hexdigest()[:24]}"


def default_check() -> str:
    return "trap" if "bounds" in flag_words("TETRAD_CHECK") else "plain"


def refuse_foreign(target: Target) -> None:
    lacking = missing_features(target)
    if lacking:
        raise BackendError(
            f"code for {target.name} cannot run here: this processor lacks {', '.join(lacking)}",
            hint="TETRAD_TARGET=host runs on any machine",
        )


KERNELS = Kernels(OBJECTS)
