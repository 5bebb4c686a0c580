"""Core: the floating-point state that we compute under.

Round to nearest, keep subnormals, mask exceptions. The state belongs to the thread, and the host
program may have changed it: a library compiled for speed turns on flush-to-zero, interval
arithmetic rounds down. NumPy and Python compute under whatever is set, so tracing, folding,
emitting and evaluating run inside `own_floats`. Native code sets its own state.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# Symbols of the C library. PyDLL keeps the GIL: the calls are too short to release it.
LIBRARY = ctypes.PyDLL(None)
ENVIRONMENT_BYTES = 64  # of fenv_t: 32 on x86-64 (x87 and MXCSR)
DEFAULT = ctypes.c_void_p(-1)  # FE_DFL_ENV, in glibc and in musl

get_environment, set_environment = LIBRARY.fegetenv, LIBRARY.fesetenv
get_environment.argtypes = set_environment.argtypes = [ctypes.c_void_p]


class own_floats:
    """Compute under our own state until the block ends; then restore the host's state, exception
    flags included."""

    __slots__ = ("kept",)

    def __enter__(self) -> None:
        self.kept = ctypes.create_string_buffer(ENVIRONMENT_BYTES)
        get_environment(self.kept)
        set_environment(DEFAULT)

    def __exit__(self, *_: object) -> None:
        set_environment(self.kept)


# Not as constant expressions: Python folds those when it compiles the file, under any state.
with own_floats():
    ULP, SUBNORMAL = math.ldexp(1.0, -52), math.ldexp(1.0, -1030)


def are_plain(
    one: float = 1.0, more: float = 3 * ULP / 4, less: float = ULP / 4, tiny: float = SUBNORMAL
) -> bool:
    """Does this thread round to nearest and keep subnormals? Two sums and a product tell, at a
    tenth of the cost of a C call: only rounding to nearest rounds one sum up and the other down.
    The numbers are arguments so that Python cannot fold the expression."""
    return (one + more) - (one + less) == ULP and tiny * 0.5 != 0.0


def guarded(function: Callable[P, T]) -> Callable[P, T]:
    """The function, run under our own state if the host has set another. For functions that are
    called often: the check is cheap."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        if are_plain():
            return function(*args, **kwargs)
        with own_floats():
            return function(*args, **kwargs)

    return wrapped
