"""Explain, notebook: an explanation as a small table of HTML, which notebooks show.

Receives an `Explanation`, returns HTML without scripts, styles or anything loaded from elsewhere;
names in it, which are the user's, are escaped.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING

from tetrad.explain.report import bytes_text, time_text

if TYPE_CHECKING:
    from tetrad.explain.story import Explanation, KernelStory

HEAD = ("kernel", "bytes", "time", "bound by")


def html_table(story: Explanation) -> str:
    """What was called, how long a call takes, and a row for each launch."""
    called = escape(f"{story.name}{story.signature}")
    launches = f"{len(story.kernels)} launches, arena {bytes_text(story.arena_bytes)}"
    caption = f"<code>{called}</code>: {time_text(story.wall_ns)} a call, {escape(launches)}"
    rows = [line("th", HEAD), *(line("td", cells(kernel)) for kernel in story.kernels)]
    return f"<table><caption>{caption}</caption>{''.join(rows)}</table>"


def cells(kernel: KernelStory) -> tuple[str, ...]:
    name = " / ".join((*kernel.path, kernel.name))
    return name, bytes_text(kernel.nbytes), time_text(kernel.ns), kernel.limit


def line(tag: str, texts: Iterable[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(text)}</{tag}>' for text in texts)}</tr>"
