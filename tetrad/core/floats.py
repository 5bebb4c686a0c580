"""Station 0, shared words: the floating-point state under which everything of ours computes.

Rounding to nearest, subnormals kept, exceptions masked. It belongs to the thread, and the host may
have set another: a library compiled for speed turns on flush-to-zero, interval arithmetic rounds
down. NumPy and Python compute with whatever is set, so whoever traces, folds, emits or evaluates
does it inside `own_floats`. Native code sets its own.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# the interpreter is linked with the C library; these calls are too short to let others in
LIBRARY = ctypes.PyDLL(None)
ENVIRONMENT_BYTES = 64  # of fenv_t: 32 on x86-64 (x87 and MXCSR)
DEFAULT = ctypes.c_void_p(-1)  # FE_DFL_ENV, in glibc and in musl

get_environment, set_environment = LIBRARY.fegetenv, LIBRARY.fesetenv
get_environment.argtypes = set_environment.argtypes = [ctypes.c_void_p]


class own_floats:
    """Compute under our own state until the block ends; then the host's is back, its exception
    flags included."""

    __slots__ = ("kept",)

    def __enter__(self) -> None:
        self.kept = ctypes.create_string_buffer(ENVIRONMENT_BYTES)
        get_environment(self.kept)
        set_environment(DEFAULT)

    def __exit__(self, *_: object) -> None:
        set_environment(self.kept)


# not as expressions: Python would compute them when it compiles this file, in whatever state
with own_floats():
    ULP, SUBNORMAL = math.ldexp(1.0, -52), math.ldexp(1.0, -1030)


def are_plain(
    one: float = 1.0, more: float = 3 * ULP / 4, less: float = ULP / 4, tiny: float = SUBNORMAL
) -> bool:
    """Does this thread round to nearest and keep subnormals? Asked of sums and a product: a tenth
    of the price of a call to the system's functions. Only rounding to nearest takes one sum up and
    the other down. (The numbers are arguments so that Python does not compute with them
    beforehand.)"""
    return (one + more) - (one + less) == ULP and tiny * 0.5 != 0.0


def guarded(function: Callable[P, T]) -> Callable[P, T]:
    """The function, computing under our own state also where the host has set another: for what is
    called often."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        if are_plain():
            return function(*args, **kwargs)
        with own_floats():
            return function(*args, **kwargs)

    return wrapped
