"""Core: the user's source line, which every node keeps through every stage.

Reads the Python stack when an op is called; returns the innermost frame outside the package.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tetrad.core.record import record

PACKAGE_DIR = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
GUEST = PACKAGE_DIR + "demo.py"  # a user's program that comes with the package


# functions that stand for others, and what those are called in them
WRAPPERS, WRAPPED = ("wrapped", "called", "function", "method"), ("op", "function", "fun", "name")


@record
class Source:
    """Where in the user's program a node came from."""

    file: str
    line: int
    function: str
    scope: str = ""  # names that the user gave this part of the program, outermost first

    def __str__(self) -> str:
        place = f"{os.path.basename(self.file)}:{self.line}"
        return f"{self.scope} {place}" if self.scope else place


_taken_from: ContextVar[tuple[Source | None] | None] = ContextVar("taken_from", default=None)


@contextmanager
def taken_from(source: Source | None) -> Iterator[None]:
    """While a stage rewrites a node, new nodes take that node's source line, not the line now
    running."""
    token = _taken_from.set((source,))
    try:
        yield
    finally:
        _taken_from.reset(token)


_scope: ContextVar[str] = ContextVar("scope", default="")


@contextmanager
def in_scope(name: str) -> Iterator[None]:
    """Nodes made until the block ends come from a part of the program of this name."""
    around = _scope.get()
    token = _scope.set(f"{around}/{name}" if around else name)
    try:
        yield
    finally:
        _scope.reset(token)


def is_ours(file: str) -> bool:
    return file.startswith(PACKAGE_DIR) and file != GUEST


def user_source() -> Source | None:
    """The innermost stack frame outside the package, or None when there is none."""
    given = _taken_from.get()
    if given is not None:
        return given[0]
    frame = sys._getframe(1)
    while frame is not None and is_ours(frame.f_code.co_filename):
        frame = frame.f_back  # type: ignore[assignment]
    if frame is None:
        return None
    return Source(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name, _scope.get())


def called_name() -> str | None:
    """What of the package the user called: the name of our outermost frame below theirs."""
    frame, outermost = sys._getframe(1), None
    while frame is not None and is_ours(frame.f_code.co_filename):
        frame, outermost = frame.f_back, frame  # type: ignore[assignment]
    if frame is None or outermost is None:
        return None
    name = outermost.f_code.co_name
    if name in WRAPPERS:
        inner = next((outermost.f_locals[v] for v in WRAPPED if v in outermost.f_locals), None)
        name = getattr(inner, "__name__", None) or getattr(inner, "name", None) or name
    return None if name in WRAPPERS or "<" in name else name.strip("_")


def repeated_source(error: BaseException) -> Source | None:
    """The line outside the package that occurs most often in the traceback of an error: that of a
    recursion."""
    counts: dict[Source, int] = {}
    step = error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        if not is_ours(code.co_filename):
            source = Source(code.co_filename, step.tb_lineno, code.co_name)
            counts[source] = counts.get(source, 0) + 1
        step = step.tb_next
    return max(counts, key=lambda source: counts[source], default=None)
