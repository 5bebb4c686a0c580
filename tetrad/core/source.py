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


@record
class Source:
    """Where in the user's program a node came from."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{os.path.basename(self.file)}:{self.line}"


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
    return Source(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


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
