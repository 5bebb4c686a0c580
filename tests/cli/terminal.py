"""A pseudo-terminal for tests: what a command shows there, and what is typed."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence

from tests.modules import ROOT

RUN = "from tetrad.cli.start import main; main()"
Typing = Sequence[tuple[bytes, bytes]]  # what is awaited on the screen, what is typed then


def seen_at_terminal(
    *words: str,
    typing: Typing = (),
    environ: Mapping[str, str] | None = None,
    piped: bytes | None = None,
    stdout: int | None = None,
    plant: str = "",
    seconds: float = 60.0,
) -> tuple[int, bytes]:
    """The exit code and every byte that reached the terminal; stdin may be a pipe, stdout lead
    elsewhere."""
    master, slave = pty.openpty()
    keep_bytes(slave)
    variables = {**os.environ, "TERM": "xterm", "COLUMNS": "400", **(environ or {})}
    run = subprocess.Popen(
        [sys.executable, "-c", plant + RUN, *words],
        stdin=slave if piped is None else subprocess.PIPE,
        stdout=slave if stdout is None else stdout,
        stderr=slave,
        env=variables,
        cwd=ROOT,
        start_new_session=True,
    )
    os.close(slave)
    if run.stdin is not None:
        with run.stdin:
            run.stdin.write(piped or b"")
    try:
        found = conversation(master, list(typing), time.monotonic() + seconds)
        return run.wait(10), found
    finally:
        run.kill()
        run.wait()
        os.close(master)


def keep_bytes(terminal: int) -> None:
    """The terminal adds nothing of its own: no carriage return before a line feed, no echo."""
    settings = termios.tcgetattr(terminal)
    settings[1] &= ~termios.OPOST
    settings[3] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSANOW, settings)


def conversation(master: int, typing: list[tuple[bytes, bytes]], deadline: float) -> bytes:
    found, at = b"", 0
    while time.monotonic() < deadline:
        if not select.select([master], [], [], 0.1)[0]:
            continue
        try:
            piece = os.read(master, 65536)
        except OSError:  # Linux says so when the other side is gone
            return found
        if not piece:
            return found
        found += piece
        while typing and (place := found.find(typing[0][0], at)) >= 0:
            awaited, typed = typing.pop(0)
            at = place + len(awaited)
            os.write(master, typed)
    raise AssertionError(f"the command did not end; it showed {found[-2000:]!r}")
