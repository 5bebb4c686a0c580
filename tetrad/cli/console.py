"""Command line, the console: the one place where commands print.

Answers and tables go to stdout; progress, timings and notes go to stderr, so that output can be
piped. Whatever is printed passes `tetrad.core.visible`: no file, repository or model steers the
terminal. Only the text of a model goes into a pipe as it is: whoever reads it there wants its
bytes.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

from tetrad.core.visible import json_visible, one_line, visible
from tetrad.hub.download import Progress as Report

QUIET = 1.0  # seconds that nothing need be said of
AGAIN = 0.3  # seconds between two lines of progress
ERASE = "\r\x1b[K"
DIM, PLAIN = "\x1b[2m", "\x1b[0m"

console = Console(highlight=False, markup=False, emoji=False)
notes = Console(stderr=True, highlight=False, markup=False, emoji=False)


def say(text: object = "", *, end: str = "\n", flush: bool = False) -> None:
    """Words of the program, to stdout."""
    print(visible(str(text)), end=end, flush=flush)


def write(text: str, *, end: str = "") -> None:
    """Text of a model or a prompt, to stdout at once: shown on a terminal, its own bytes in a
    pipe."""
    sys.stdout.write((visible(text) if sys.stdout.isatty() else text) + end)
    sys.stdout.flush()


def paint(text: str, *, is_dim: bool = False) -> None:
    """To the terminal that stdout is, at once: text that is visible already, and moves of the
    cursor between its words."""
    sys.stdout.write(f"{DIM}{text}{PLAIN}" if is_dim and text else text)
    sys.stdout.flush()


def note(text: str, *, style: str | None = None) -> None:
    """Words of the program, to stderr."""
    notes.print(Text(visible(text), style or ""), soft_wrap=True)


def say_json(data: Any) -> None:
    say(json_visible(json.dumps(data, ensure_ascii=False, indent=2)))


Cells = Iterable[tuple[str, str]]  # text and its style


def say_sheet(title: str, rows: Iterable[Cells]) -> None:
    """A table with a title, wrapped to the window."""
    table = Table(
        title=styled(title, "bold"),
        title_justify="left",
        show_header=False,
        box=None,
        padding=(0, 2),
    )
    for row in rows:
        table.add_row(*(styled(*cell) for cell in row))
    console.print(table, "")


def say_styled(text: str, style: str) -> None:
    console.print(styled(text, style))


def styled(text: str, style: str) -> Text:
    return Text(one_line(text), style)


class Columns:
    """A table without lines, as `ls` prints one. Nothing is cut: what is piped does not depend on
    the window."""

    def __init__(self, *heads: str, right: tuple[str, ...] = ()) -> None:
        self.heads, self.right, self.rows = heads, right, list[tuple[str, ...]]()

    def add(self, *cells: str) -> None:
        self.rows.append(tuple(map(one_line, cells)))

    def __str__(self) -> str:
        lines = [self.heads, *self.rows] if any(self.heads) else self.rows
        widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
        return "\n".join(self.line(cells, widths) for cells in lines)

    def line(self, cells: tuple[str, ...], widths: list[int]) -> str:
        padded = (
            cell.rjust(width) if head in self.right else cell.ljust(width)
            for head, cell, width in zip(self.heads, cells, widths, strict=True)
        )
        return "   ".join(padded).rstrip()


@contextmanager
def progress_bar(title: str) -> Iterator[Report]:
    """A bar on stderr that follows a download."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=notes, transient=True) as bar:
        task = bar.add_task(one_line(title), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def counting_bar(title: str, total: int, *, shown: bool) -> Iterator[Callable[[int], None]]:
    """A bar on stderr that follows how many of them are done."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=notes, transient=True, disable=not shown) as bar:
        task = bar.add_task(one_line(title), total=total)
        yield lambda done: bar.update(task, completed=done)


def prompt_beside(text: str) -> None:
    """A prompt for whoever types, where stdout is not theirs: on stderr, if that is a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(visible(text))
        sys.stderr.flush()


def ask(question: str) -> bool:
    """Whether the user, at a terminal, says yes."""
    prompt_beside(f"{question} [y/N] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


class Waiting:
    """A line on stderr, if that is a terminal, while something takes longer than a moment; gone
    when it has come."""

    def __init__(self, text: Callable[[], str], is_wanted: bool = True) -> None:
        self.text, self.come, self.is_shown, self.is_wanted = (
            text,
            threading.Event(),
            False,
            is_wanted,
        )
        self.thread: threading.Thread | None = None

    def __enter__(self) -> Waiting:
        if self.is_wanted and sys.stderr.isatty():
            self.thread = threading.Thread(target=self.follow, daemon=True)
            self.thread.start()
        return self

    def follow(self) -> None:
        wait = QUIET
        while not self.come.wait(wait):
            sys.stderr.write(ERASE + one_line(self.text()))
            sys.stderr.flush()
            self.is_shown, wait = True, AGAIN

    def end(self) -> None:
        """What was awaited is there, or will not come."""
        if self.thread is None or self.come.is_set():
            return
        self.come.set()
        self.thread.join()
        if self.is_shown:
            sys.stderr.write(ERASE)
            sys.stderr.flush()

    def __exit__(self, *ended: object) -> None:
        self.end()
