"""Station 0, shared words: the user's own line, kept on every node through every stage.

Receives the Python stack at the moment an op is called; returns the first frame that is not ours.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

PACKAGE_DIR = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


@dataclass(frozen=True, slots=True)
class Source:
    """Where in the user's program a node came from."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{os.path.basename(self.file)}:{self.line}"


def user_source() -> Source | None:
    """The innermost stack frame outside the package, or None when there is none."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE_DIR):
        frame = frame.f_back  # type: ignore[assignment]
    if frame is None:
        return None
    return Source(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
