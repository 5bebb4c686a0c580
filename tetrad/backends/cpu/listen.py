"""CPU back end, listening: which signals a long run in native code has to hear, and what their
handlers raised.

Python runs handlers in the main thread alone, between two of its instructions; in native code there
are none. So a run is told which signals have handlers, and has Python run them as they come
(`backends.cpu.native.signals`).
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` spends microseconds on making enums
import ctypes
import signal
from threading import get_ident, main_thread
from typing import Any

# Raised by an instruction or by the process itself: no handler of Python's can do anything about
# them.
OWN = ("SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV", "SIGSYS", "SIGTRAP")
FAULTS = frozenset(getattr(signal, name) for name in OWN if hasattr(signal, name))
# signals below this number; to ask for real-time ones too would take as long again, at every run
STANDARD = 32
HEARD = tuple(sorted(int(n) for n in _signal.valid_signals() - FAULTS if n < STANDARD))
# profilers want to know who is running
UNHEARD_BY_WORKERS = frozenset(HEARD) - {getattr(signal, "SIGPROF", 0)}

PYTHON = ("PyGILState_Ensure", "PyErr_CheckSignals", "PyErr_Fetch", "PyGILState_Release")


class Ear:
    """The signals with handlers written in Python, as bits; asked at every long run, so it
    remembers the answer."""

    def __init__(self) -> None:
        self.handlers: list[Any] = []
        self.signals = 0

    def listens_to(self) -> int:
        """None in other threads: then the main thread is in Python, and hears by itself."""
        if get_ident() != main_thread().ident:
            return 0
        found = [*map(_signal.getsignal, HEARD)]
        if found != self.handlers:
            self.handlers = found
            self.signals = sum(
                1 << n for n, handler in zip(HEARD, found, strict=True) if callable(handler)
            )
        return self.signals


EAR = Ear()


def python_functions() -> Any:
    """Addresses of the functions by which native code has handlers run."""
    found = [ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p) for name in PYTHON]
    return (ctypes.c_void_p * len(PYTHON))(*found)


def restored(parts: Any) -> BaseException | None:
    """The exception that PyErr_Fetch took apart; None if there was none."""
    if not parts[0]:
        return None
    restore = ctypes.pythonapi.PyErr_Restore
    restore.argtypes, restore.restype = [ctypes.c_void_p] * 3, None
    try:
        restore(*parts)
    except BaseException as error:
        return error
    return None
