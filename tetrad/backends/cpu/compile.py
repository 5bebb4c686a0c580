"""CPU back end, kernels: kernel programs in, addresses of machine code out; compiled once, kept on
disk.

Equal programs (by fingerprint) share code within the process; the code of each is an object file in
the disk cache, keyed by everything it depends on. Jobs make it in threads of their own, while the
next program is still lowered.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence

from tetrad.backends.cpu import code_cache as objects
from tetrad.backends.cpu.cache import cache_key
from tetrad.backends.cpu.code_cache import OBJECTS, Objects
from tetrad.backends.cpu.isa import missing_features
from tetrad.backends.cpu.llvm import assembly, compile_object
from tetrad.backends.llvm.module import emit_module
from tetrad.backends.llvm.target import Target
from tetrad.core import show
from tetrad.core.errors import BackendError
from tetrad.core.flags import code_key, flag_words
from tetrad.core.jobs import JOBS, BackgroundJob
from tetrad.kernel.nodes import Program
from tetrad.kernel.text import fingerprint


class Kernels:
    """Finds the machine code of programs in this process or on disk, or makes it."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        self.compiled = 0  # modules that went through LLVM; a new size of a Dim must not raise it
        self.begun: dict[str, BackgroundJob] = {}

    def begin(self, program: Program, target: Target) -> None:
        """Start to compile a program that will be loaded later, if it is new; the caller goes
        on."""
        if not missing_features(target):
            check = default_check()
            self.job(symbol_for(program, target, check), program, target, check)

    def load(
        self, programs: Iterable[Program], target: Target, check: str | None = None
    ) -> dict[Program, int]:
        """An address for each program, compiling those that are new to the process and to the
        disk."""
        check = default_check() if check is None else check
        symbols = {program: symbol_for(program, target, check) for program in programs}
        distinct = {
            symbol: program for program, symbol in sorted(symbols.items(), key=lambda pair: pair[1])
        }
        if not distinct.keys() <= self.objects.addresses.keys():
            refuse_foreign(target)
            show_llvm(lambda: emit_module(self.new(distinct), target, check), target)
        jobs = {
            symbol: self.job(symbol, program, target, check) for symbol, program in distinct.items()
        }
        try:
            made = [job.result() for job in jobs.values() if job is not None]
        finally:
            for symbol in jobs:
                self.begun.pop(symbol, None)
        self.tell(made, len(distinct) - len(made))
        return {program: self.objects.addresses[symbol] for program, symbol in symbols.items()}

    def new(self, programs: Mapping[str, Program]) -> dict[str, Program]:
        return {
            symbol: program
            for symbol, program in programs.items()
            if symbol not in self.objects.addresses
        }

    def job(
        self, symbol: str, program: Program, target: Target, check: str
    ) -> BackgroundJob | None:
        """Whoever makes the code of a symbol, or has made it for this load; None if the process had
        it."""
        with self.objects.lock:
            if symbol not in self.begun and symbol not in self.objects.addresses:
                self.begun[symbol] = JOBS.submit(lambda: self.build(symbol, program, target, check))
            return self.begun.get(symbol)

    def build(self, symbol: str, program: Program, target: Target, check: str) -> show.Spent:
        """In a thread of its own: have the object file of one program and load it."""
        spent = show.Spent()
        entry = cache_key(objects.build_identity(), code_key(), target.key, check, symbol)
        image = objects.disk_cache().get(entry)
        if image is None:
            with spent.timed("emit"):
                text = emit_module({symbol: program}, target, check)
            with spent.timed("llvm"):
                image = compile_object(text, target)
            self.compiled += 1
            objects.disk_cache().put(entry, image)
        with spent.timed("load"):
            self.objects.add(entry, image, [symbol])
        return spent

    def tell(self, made: Sequence[show.Spent], shared: int) -> None:
        compiled = sum("llvm" in spent.seconds for spent in made)
        for origin, number in (
            ("process", shared),
            ("compiled", compiled),
            ("disk", len(made) - compiled),
        ):
            if number:
                show.count(origin, number)
        for stage in ("emit", "llvm", "load"):
            if made:
                show.add(stage, sum(spent.seconds.get(stage, 0.0) for spent in made))


def symbol_for(program: Program, target: Target, check: str) -> str:
    return symbol_of(f"{check}-{target.key}-{fingerprint(program)}")


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


def show_llvm(made: Callable[[], str], target: Target) -> None:
    if show.wants("llvm", "asm"):
        text = made()
        if show.wants("llvm"):
            show.show("llvm", target.name, text)
        if show.wants("asm"):
            show.show("asm", target.name, assembly(text, target))
