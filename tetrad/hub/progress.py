"""The hub, progress: one line on a terminal that follows a download, for programs that have no
screen of their own.

Receives a title; returns what a download reports to. Without a terminal nothing is printed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tetrad.core.visible import one_line
from tetrad.hub.download import Progress, silent
from tetrad.hub.fits import gib

AGAIN = 0.2  # seconds between two lines
ERASE = "\r\x1b[K"


@contextmanager
def progress_line(title: str) -> Iterator[Progress]:
    if not sys.stderr.isatty():
        yield silent
        return
    last = [0.0]

    def report(done: int, total: int | None) -> None:
        if time.monotonic() - last[0] < AGAIN:
            return
        last[0] = time.monotonic()
        share = f" of {gib(total)}, {100 * done // total} %" if total else ""
        sys.stderr.write(f"{ERASE}{one_line(title)}: {gib(done)}{share}")
        sys.stderr.flush()

    try:
        yield report
    finally:
        sys.stderr.write(ERASE)
        sys.stderr.flush()
