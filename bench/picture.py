"""Bench, picture: rows in, an SVG out. A bar is a ratio on a logarithmic scale, its tick the figure
to reach."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol
from xml.sax.saxutils import escape

WIDTH, LEFT, RIGHT, TOP, STEP = 900, 330, 110, 70, 24
COLOURS = {
    "pass": "#2a7f62",
    "FAIL": "#c0392b",
    "roof": "#b7791f",
    "void": "#a0a0a0",
    "WRONG": "#000000",
}


class Shown(Protocol):
    """What a picture needs of a row."""

    @property
    def name(self) -> str: ...
    @property
    def ratio(self) -> float | None: ...
    @property
    def at_least(self) -> float | None: ...
    @property
    def verdict(self) -> str: ...


def bars(title: str, subtitle: str, rows: Sequence[Shown]) -> str:
    ratios = [v for row in rows for v in (row.ratio, row.at_least) if v]
    low, high = min([0.5, *ratios]), max([2.0, *ratios])
    height = TOP + STEP * len(rows) + 20

    def x(ratio: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log(max(ratio, low) / low) / math.log(
            high / low
        )

    body = [bar(row, TOP + STEP * i, x) for i, row in enumerate(rows)]
    one = upright(x(1), TOP - 10, height - 16, 'stroke="#888" stroke-dasharray="3 3"')
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        'font-family="sans-serif"',
        ' font-size="13">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        text(20, 26, title, "start", 'font-size="16" font-weight="bold"'),
        text(20, 46, subtitle, "start", 'fill="#555"'),
        text(x(1), TOP - 14, "1", "middle", 'fill="#555"'),
    ]
    return "\n".join([*head, one, *body, "</svg>"]) + "\n"


def bar(row: Shown, y: float, x: Callable[[float], float]) -> str:
    ratio, goal = row.ratio or 0.0, row.at_least or 0.0
    start, end = sorted((x(1), x(ratio)))
    mark = "" if row.verdict == "pass" else f" {row.verdict}"
    parts = [
        text(LEFT - 12, y + 13, row.name, "end"),
        f'<rect x="{start:.1f}" y="{y + 2}" width="{end - start + 1:.1f}" height="14" '
        f'fill="{COLOURS[row.verdict]}"/>',
        upright(x(goal), y, y + 18, 'stroke="black" stroke-width="2"'),
        text(max(end, x(goal)) + 8, y + 13, f"{ratio:.2f}{mark}", "start", 'fill="#333"'),
    ]
    return "\n".join(parts)


def upright(x: float, top: float, bottom: float, look: str) -> str:
    return f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}" {look}/>'


def text(x: float, y: float, words: str, anchor: str, extra: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {extra}>{escape(words)}</text>'
