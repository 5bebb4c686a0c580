"""A plugin of pytest: tests run as on the processor named by EMULATED, whose code runs in an
emulator.

    EMULATED=icelake-client python -m pytest -p tests.emulated.plugin tests/backends/llvm

The compiler sees that processor's name and features, so it makes the code that it would make there.
Calls of compiled code go to `Processor.call`; the native loop is such code too. Workers are not
emulated: every run is alone.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib
import os
import sys
from collections.abc import Callable

import pytest

from tests.emulated.processor import MODELS, Processor
from tetrad.backends.cpu import code_cache as objects
from tetrad.backends.cpu import isa as targets
from tetrad.backends.cpu import pool

PROCESSOR = pytest.StashKey[Processor]()
# of the emulator; the test may pass
DEFECTS = {"[bitwise_right_shift-i64]": "Bochs shifts by 64 places as by none"}
CALLERS = (
    "tetrad.backends.cpu.pool",
    "tetrad.compiler.check",
    "tests.backends.llvm.machine",
    "tests.backends.cpu.kernels",
)


class EmulatedCalls:
    """The module `ctypes`, except that functions made from an address run in the emulator."""

    def __init__(self, processor: Processor) -> None:
        self.processor = processor

    def __getattr__(self, name: str) -> object:
        return getattr(ctypes, name)

    def CFUNCTYPE(
        self, result: type | None, *arguments: type
    ) -> Callable[[int], Callable[..., int]]:
        def function(address: int) -> Callable[..., int]:
            return lambda *values: self.converted(
                result, self.processor.call(address, *map(integer, values))
            )

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
    config.stash[PROCESSOR] = processor = Processor(name)
    pretend(name, processor.features())
    calls = EmulatedCalls(processor)
    for caller in CALLERS:
        importlib.import_module(caller).ctypes = calls
    pool.Pool.start, pool.EAR.listens_to = lambda self, threads: None, lambda: 0


def pretend(name: str, features: dict[str, bool]) -> None:
    """Let the compiler believe that it runs on a processor."""
    targets.host_cpu, targets.host_features = lambda: name, lambda: features
    for module in (objects, targets):
        module.processor_identity = lambda: name


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for ending, reason in DEFECTS.items():
            if item.name.endswith(ending):
                item.add_marker(pytest.mark.xfail(reason=reason, strict=False))


def pytest_report_header(config: pytest.Config) -> str:
    found = config.stash[PROCESSOR].features()
    return f"emulated: {os.environ['EMULATED']}, {' '.join(name for name in found if found[name])}"


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    terminalreporter.write_line(f"{config.stash[PROCESSOR].calls} calls ran in the emulator")


def pytest_sessionfinish(exitstatus: int) -> None:
    """Bochs's package crashes when an interpreter that used it is taken down."""
    atexit.register(lambda: (sys.stdout.flush(), sys.stderr.flush(), os._exit(exitstatus)))
