"""Core: tracebacks of the user's frames, without ours.

An error that says what is wrong names the user's line; between that line and the call lie frames of
tracing and compiling that nobody outside the package needs. They are cut out where an error leaves
a transformed function, and when it is printed at the end of a program. Defects of ours keep all
frames, and TETRAD_TRACEBACK=full shows them always.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from functools import wraps
from types import TracebackType
from typing import Any, TypeVar

from tetrad.core.errors import CheckError, CompileError, TetradError
from tetrad.core.flags import flag
from tetrad.core.source import is_ours

F = TypeVar("F", bound=Callable[..., Any])


def shows_all() -> bool:
    return flag("TETRAD_TRACEBACK") == "full"


def steps(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def is_internal(step: TracebackType) -> bool:
    code = step.tb_frame.f_code
    return is_ours(code.co_filename) or code.co_filename.startswith("<frozen importlib")


def is_users(error: BaseException) -> bool:
    """Is it said to the user, or raised by the user's own code? Anything else is a defect of
    ours."""
    if isinstance(error, TetradError):
        return not isinstance(error, CompileError | CheckError)
    last = None
    for step in steps(error.__traceback__):
        last = step
    return last is None or not is_internal(last)


def cut(error: BaseException) -> TracebackType | None:
    """Take our frames out of the traceback of an error, of its causes too; returns what is left."""
    if shows_all() or not is_users(error):
        return error.__traceback__
    for other in (error.__cause__, error.__context__):
        if other is not None and other.__traceback__ is not None and is_users(other):
            other.__traceback__ = cut(other)
    kept = [step for step in steps(error.__traceback__) if not is_internal(step)]
    below = None
    for step in reversed(kept):
        step.tb_next, below = below, step
    return below


def plain_tracebacks(function: F) -> F:
    """A function out of which errors come without frames of ours."""

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            error.__traceback__ = cut(error)
            raise  # which adds no frame

    return called  # type: ignore[return-value]


# -- at the end of a program -----------------------------------------------------------------------


def install() -> None:
    """Errors that end a program, a thread or a cell are printed without our frames."""
    sys.excepthook = printing_less(sys.excepthook)
    threading.excepthook = threads_printing_less(threading.excepthook)
    shell = sys.modules.get("IPython")
    running = shell.get_ipython() if shell is not None and hasattr(shell, "get_ipython") else None
    if running is not None and not getattr(running, "custom_exceptions", ()):
        running.set_custom_exc((Exception,), shown_in_a_notebook)


def printing_less(before: Callable[..., Any]) -> Callable[..., Any]:
    if hasattr(before, "before_tetrad"):
        return before

    def show(kind: Any, error: BaseException, traceback: TracebackType | None) -> None:
        left = cut(error) if is_touched(error) else traceback
        before(kind, error.with_traceback(left), left)

    show.before_tetrad = before  # type: ignore[attr-defined]
    return show


def threads_printing_less(before: Callable[..., Any]) -> Callable[..., Any]:
    if hasattr(before, "before_tetrad"):
        return before

    def show(args: Any) -> None:
        error = args.exc_value
        if error is None or not is_touched(error):
            before(args)
            return
        left = cut(error)
        fields = (args.exc_type, error.with_traceback(left), left, args.thread)
        before(threading.ExceptHookArgs(fields))

    show.before_tetrad = before  # type: ignore[attr-defined]
    return show


def is_touched(error: BaseException) -> bool:
    return any(map(is_internal, steps(error.__traceback__)))


def shown_in_a_notebook(
    shell: Any, kind: Any, error: BaseException, traceback: Any, tb_offset: Any = None
) -> None:
    left = cut(error) if is_touched(error) else traceback
    shell.showtraceback((kind, error.with_traceback(left), left), tb_offset=tb_offset)
