"""Command line, terminal modes: while an answer is written, keys are not echoed into it.

Receives nothing; the terminal is as it was when the answer ends, however it ends, and while the
program is suspended (Ctrl-Z). What was typed meanwhile is there to be read afterwards.
"""

from __future__ import annotations

import os
import signal
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)  # Ctrl-C is an exception, as ever
LOCAL = 3  # place of the local modes in what termios gives


@contextmanager
def silent_keys() -> Iterator[None]:
    """Within, keys are not shown. Without a terminal, or in another thread, nothing changes."""
    terminal = terminal_number()
    if terminal is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    silence = Silence(terminal)
    silence.begin()
    try:
        yield
    finally:
        silence.end()


def terminal_number() -> int | None:
    """The terminal that the answer is seen at, or else the one that is typed at."""
    for stream in (sys.stdout, sys.stdin):
        with suppress(OSError, ValueError, AttributeError):
            if stream.isatty():
                return stream.fileno()
    return None


class Silence:
    """A terminal without echo. Signals that nobody else has a handler for restore it before they
    do what they always do."""

    def __init__(self, terminal: int) -> None:
        self.terminal, self.had_echo = terminal, False
        self.handlers: dict[int, Any] = {}

    def begin(self) -> None:
        with suppress(termios.error):
            self.had_echo = bool(termios.tcgetattr(self.terminal)[LOCAL] & termios.ECHO)
        wanted: dict[int, Callable[[int, Any], None]] = dict.fromkeys(ENDING, self.on_end)
        wanted |= {signal.SIGTSTP: self.on_stop, signal.SIGCONT: self.on_continue}
        for number, handler in wanted.items():
            if signal.getsignal(number) == signal.SIG_DFL:
                self.handlers[number] = handler
                signal.signal(number, handler)
        self.set_echo(False)

    def end(self) -> None:
        self.set_echo(True)
        for number in self.handlers:
            signal.signal(number, signal.SIG_DFL)

    def set_echo(self, is_on: bool) -> None:
        """Only echo: whatever else was changed meanwhile stays. A terminal that is gone needs
        nothing."""
        if not self.had_echo or not self.is_in_front():
            return
        with suppress(termios.error):
            modes = termios.tcgetattr(self.terminal)
            modes[LOCAL] = modes[LOCAL] | termios.ECHO if is_on else modes[LOCAL] & ~termios.ECHO
            termios.tcsetattr(self.terminal, termios.TCSANOW, modes)

    def is_in_front(self) -> bool:
        """Whoever is in the background and changes modes is stopped for it (SIGTTOU)."""
        try:
            return os.tcgetpgrp(self.terminal) == os.getpgrp()
        except OSError:  # not the terminal that controls us
            return True

    def on_end(self, number: int, frame: Any) -> None:
        self.set_echo(True)
        self.as_always(number)

    def on_stop(self, number: int, frame: Any) -> None:
        """Ctrl-Z: the shell gets its terminal back as it gave it; `fg` goes on here."""
        self.set_echo(True)
        self.as_always(number)
        signal.signal(number, self.handlers[number])
        self.set_echo(False)

    def on_continue(self, number: int, frame: Any) -> None:
        """Stopped from elsewhere, and in front again."""
        self.set_echo(False)

    def as_always(self, number: int) -> None:
        """To this very thread, so that nothing more is run before it is obeyed."""
        signal.signal(number, signal.SIG_DFL)
        signal.pthread_kill(threading.get_ident(), number)
