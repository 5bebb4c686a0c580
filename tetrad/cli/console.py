"""Command line, the console: where commands print.

Answers and tables go to stdout; progress, timings and notes go to stderr, so that output can be piped.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from tetrad.hub.download import Progress as Report

console = Console(highlight=False, markup=False)
notes = Console(stderr=True, highlight=False, markup=False)


class Columns:
    """A table without lines, as `ls` prints one. Nothing is cut: what is piped does not depend on the window."""

    def __init__(self, *heads: str, right: tuple[str, ...] = ()) -> None:
        self.heads, self.right, self.rows = heads, right, list[tuple[str, ...]]()

    def add(self, *cells: str) -> None:
        self.rows.append(cells)

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
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=notes, transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
