"""Command line, the beginning: what the console script and `python -m tetrad` call.

Nothing heavy is loaded here. Ctrl-C ends the program without a word from the first moment on, also
in the middle of an import, where an exception would be taken for a broken package.
"""

from __future__ import annotations

import os
import signal
import sys

from tetrad.core import lazy

TYPE_CHECKING = False  # to import `typing` takes time in which Ctrl-C is not quiet yet
if TYPE_CHECKING:
    from types import TracebackType
    from typing import NoReturn

INTERRUPTED = 130  # 128 + the signal, as shells report it


def leave(signum: int, frame: object) -> NoReturn:
    os._exit(INTERRUPTED)


def open_streams() -> None:
    """A stream that was closed before (`<&-`, a service without any) is None: what is written goes
    nowhere then."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  (for as long as the program runs)


def show_error(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """A traceback, of a defect of ours, in which no file steers the terminal either."""
    traceback = lazy.module("traceback")
    visible = lazy.module("tetrad.core.visible").visible
    sys.stderr.write(visible("".join(traceback.format_exception(kind, error, trace))))


def main() -> None:
    open_streams()
    sys.excepthook = show_error
    # else it is ignored, and stays so
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, leave)
    lazy.module("tetrad.cli.main").main(prog_name="tetrad")


def loaded() -> None:
    """All that a command needs is there: from now on Ctrl-C is an exception, which the command may
    want to see."""
    if signal.getsignal(signal.SIGINT) is leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)
