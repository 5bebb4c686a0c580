"""A pseudo-terminal for tests: what a command shows there, and what is typed."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from tests.modules import ROOT

RUN = "from tetrad.cli.start import main; main()"
Typing = Sequence[tuple[bytes, bytes]]  # what is awaited on the screen, what is typed then


def seen_at_terminal(
    *words: str,
    typing: Typing = (),
    environ: Mapping[str, str] | None = None,
    stdout: int | None = None,
    seconds: float = 60.0,
) -> tuple[int, bytes]:
    """The exit code and every byte that reached the terminal; `stdout` may lead elsewhere."""
    master, slave = pty.openpty()
    variables = {**os.environ, "TERM": "xterm", "COLUMNS": "400", **(environ or {})}
    run = subprocess.Popen(
        [sys.executable, "-c", RUN, *words],
        stdin=slave, stdout=slave if stdout is None else stdout, stderr=slave, env=variables, cwd=ROOT,
        start_new_session=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
    )  # fmt: skip
    os.close(slave)
    try:
        found = conversation(master, list(typing), time.monotonic() + seconds)
        return run.wait(10), found
    finally:
        run.kill()
        run.wait()
        os.close(master)


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
        if typing and typing[0][0] in found[at:]:
            at = len(found)
            os.write(master, typing.pop(0)[1])
    raise AssertionError(f"the command did not end; it showed {found[-2000:]!r}")


