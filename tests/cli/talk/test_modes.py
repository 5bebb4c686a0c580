"""Terminal modes, at a real terminal with a shell: what is typed is not echoed into an answer, and
the shell gets its terminal back."""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import sys
import termios
import time
from collections.abc import Iterator

import pytest

from tests.modules import ROOT

PROGRAM = """
import sys, time
from tetrad.cli.talk.modes import silent_keys
with silent_keys():
    print("be" + "gun", flush=True)
    try:
        time.sleep(float(sys.argv[1]))
    except KeyboardInterrupt:
        pass
print("en" + "ded", flush=True)
"""


class Shell:
    """A shell with job control at a pseudo-terminal of its own."""

    def __init__(self) -> None:
        self.number, self.master = pty.fork()
        if self.number == 0:
            os.chdir(ROOT)
            os.execvp("bash", ["bash", "--norc", "--noediting", "-i"])
        self.seen, self.at = b"", 0

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def wait(self, text: str, seconds: float = 60.0) -> bytes:
        """Everything up to this text, since the last one awaited."""
        deadline = time.monotonic() + seconds
        while (place := self.seen.find(text.encode(), self.at)) < 0:
            if time.monotonic() > deadline:
                raise AssertionError(f"{text!r} did not come: {self.seen[self.at :]!r}")
            if select.select([self.master], [], [], 0.1)[0]:
                self.seen += os.read(self.master, 65536)
        begun, self.at = self.at, place + len(text.encode())
        return self.seen[begun : self.at]

    def echoes(self) -> bool:
        return bool(termios.tcgetattr(self.master)[3] & termios.ECHO)

    def until_echo(self, is_on: bool) -> None:
        deadline = time.monotonic() + 30
        while self.echoes() != is_on:
            assert time.monotonic() < deadline, f"echo is {'off' if is_on else 'on'}"
            time.sleep(0.02)

    def close(self) -> None:
        os.kill(self.number, signal.SIGKILL)
        os.close(self.master)
        os.waitpid(self.number, 0)


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    if shutil.which("bash") is None:
        pytest.skip("no bash")
    monkeypatch.setenv("PS1", "ready$ ")
    monkeypatch.setenv("PROGRAM", PROGRAM)
    monkeypatch.setenv("PY", sys.executable)
    found = Shell()
    try:
        yield found
    finally:
        found.close()


def begin(shell: Shell, seconds: float = 30) -> None:
    shell.type(f'"$PY" -c "$PROGRAM" {seconds}\n')
    shell.wait("begun")
    shell.until_echo(False)


def test_keys_are_not_echoed_and_not_lost(shell: Shell) -> None:
    begin(shell, 1)
    shell.type("echo ty''ped\n")
    assert b"echo" not in shell.wait("ended")
    shell.wait("typed")  # the shell reads it now
    shell.until_echo(True)


def test_ctrl_z_gives_the_terminal_back_and_fg_goes_on(shell: Shell) -> None:
    begin(shell)
    shell.type("\x1a")
    shell.wait("Stopped")
    shell.until_echo(True)
    shell.type("stty -a | grep -c ' echo '\n")
    shell.wait("1\r\n")
    shell.type("fg\n")
    shell.until_echo(False)
    shell.type("unseen")
    shell.type("\x03")
    assert b"unseen" not in shell.wait("ended")
    shell.until_echo(True)


def test_in_the_background_it_is_not_stopped_again(shell: Shell) -> None:
    begin(shell)
    shell.type("\x1a")
    shell.wait("Stopped")
    shell.type("bg; sleep 0.3; jobs\n")
    shell.wait("Running")
    assert shell.echoes()


@pytest.mark.parametrize("name", ["TERM", "HUP"])
def test_a_signal_that_ends_it_leaves_the_terminal_as_it_was(shell: Shell, name: str) -> None:
    """Read before the shell does: it would set the terminal right by itself."""
    shell.type('set +m; ( "$PY" -c "$PROGRAM" 30 & echo num""ber $! .; wait ); echo over\n')
    shell.wait("number ")
    number = int(shell.wait(" .").split()[0])
    shell.wait("begun")
    shell.until_echo(False)
    os.kill(number, getattr(signal, f"SIG{name}"))
    shell.until_echo(True)
    shell.wait("over")


def test_without_a_terminal_nothing_happens() -> None:
    from tetrad.cli.talk.modes import silent_keys

    before = signal.getsignal(signal.SIGTSTP)
    with silent_keys():
        assert signal.getsignal(signal.SIGTSTP) is before
