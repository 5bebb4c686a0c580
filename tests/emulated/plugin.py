"""A plugin of pytest: tests run as on the processor named by EMULATED, whose code runs in an emulator.

    EMULATED=icelake-client python -m pytest -p tests.emulated.plugin tests/codegen

The compiler sees that processor's name and features, so it makes the code that it would make there. Calls of compiled
code go to `Processor.call`; the native loop is such code too. Workers are not emulated: every run is alone.
"""

from __future__ import annotations

import ctypes
import importlib
import os
from collections.abc import Callable

import llvmlite.binding as llvm
import pytest

from tests.emulated.processor import MODELS, Processor
from tetrad.codegen.targets import x86_64
from tetrad.compiler import kernels, objects, recall
from tetrad.runtime import pool

CALLERS = ("tetrad.runtime.pool", "tetrad.compiler.check", "tests.codegen.machine", "tests.runtime.kernels")


class EmulatedCalls:
    """The module `ctypes`, except that functions made from an address run in the emulator."""

    def __init__(self, processor: Processor) -> None:
        self.processor = processor

    def __getattr__(self, name: str) -> object:
        return getattr(ctypes, name)

    def CFUNCTYPE(self, result: type | None, *arguments: type) -> Callable[[int], Callable[..., int]]:
        def function(address: int) -> Callable[..., int]:
            return lambda *values: self.converted(result, self.processor.call(address, *map(integer, values)))

        return function

    PYFUNCTYPE = CFUNCTYPE

    def converted(self, result: type | None, word: int) -> int | None:
        return None if result is None else result(word).value


def integer(value: object) -> int:
    return value if isinstance(value, int) else ctypes.cast(value, ctypes.c_void_p).value or 0


def pytest_configure(config: pytest.Config) -> None:
    name = os.environ.get("EMULATED", "")
    if name not in MODELS:
        raise pytest.UsageError(f"EMULATED names a processor: {', '.join(MODELS)}")
    processor = Processor(name)
    features = processor.features()
    llvm.get_host_cpu_name, llvm.get_host_cpu_features = lambda: name, lambda: features
    for module in (objects, recall, x86_64):
        module.processor_identity = lambda: name
    for module in (kernels, x86_64):
        module.missing_features = lambda target: missing(target.vector_bits, features)
    pool.Pool.start, pool.may_interrupt = lambda self, threads: None, lambda: False
    calls = EmulatedCalls(processor)
    for caller in CALLERS:
        importlib.import_module(caller).ctypes = calls
    config.stash[STASH] = processor


STASH = pytest.StashKey[Processor]()


def missing(vector_bits: int, features: dict[str, bool]) -> tuple[str, ...]:
    needed = {512: x86_64.V3_FEATURES + x86_64.V4_FEATURES, 256: x86_64.V3_FEATURES}.get(vector_bits, ())
    return tuple(name for name in needed if not features[name])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    terminalreporter.write_line(f"{config.stash[STASH].calls} calls ran in the emulator")
