"""Bench, picture: rows in, an SVG out. `bars`: a bar is a ratio on a logarithmic scale, its tick
the figure to reach. `side_by_side`: a bar a contestant for each model, panels have own scales."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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


# -- a bar for each contestant ---------------------------------------------------------------------

BAR, GAP, HEAD = 13, 9, 34  # heights: of a bar, between models, of a title
SIDE_COLOURS = ("#2a7f62", "#9aa5ad", "#c9a66b")


@dataclass(frozen=True, slots=True)
class Speeds:
    """Tokens a second of one model, of each contestant; 0 where one was not measured."""

    name: str
    values: tuple[float, ...]

    @property
    def shown(self) -> list[tuple[int, float]]:
        return [(i, value) for i, value in enumerate(self.values) if value]

    @property
    def height(self) -> int:
        return len(self.shown) * (BAR + 1) + GAP


@dataclass(frozen=True, slots=True)
class Panel:
    """What is done, and how quickly, on a scale from zero to the best of the panel."""

    title: str
    speeds: Sequence[Speeds]

    @property
    def height(self) -> int:
        return HEAD + sum(one.height for one in self.speeds)


def side_by_side(title: str, subtitle: str, sides: Sequence[str], panels: Sequence[Panel]) -> str:
    shown = [panel for panel in panels if panel.speeds]
    height = TOP + sum(panel.height for panel in shown) + 12
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        'font-family="sans-serif" font-size="13" role="img">',
        f"<title>{escape(title)}: {escape(' and '.join(sides))}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        text(20, 26, title, "start", 'font-size="16" font-weight="bold"'),
        text(20, 46, subtitle, "start", 'fill="#555"'),
        *(legend(side, i - len(sides), i) for i, side in enumerate(sides)),
    ]
    y = float(TOP)
    for panel in shown:
        parts += panel_parts(panel, y)
        y += panel.height
    return "\n".join([*parts, "</svg>"]) + "\n"


def legend(side: str, place: int, number: int) -> str:
    x = WIDTH - 20 + 110 * place
    box = f'<rect x="{x}" y="16" width="12" height="12" fill="{SIDE_COLOURS[number]}"/>'
    return box + text(x + 18, 26, side, "start")


def panel_parts(panel: Panel, y: float) -> list[str]:
    most = max(max(one.values) for one in panel.speeds)
    parts = [text(20, y + 20, panel.title, "start", 'font-weight="bold"')]
    top = y + HEAD
    for one in panel.speeds:
        parts.append(text(LEFT - 12, top + BAR + 4, one.name, "end"))
        for j, (number, value) in enumerate(one.shown):
            length = (WIDTH - LEFT - RIGHT) * value / most
            at = top + j * (BAR + 1)
            parts.append(
                f'<rect x="{LEFT}" y="{at:.1f}" width="{length:.1f}" height="{BAR}" '
                f'fill="{SIDE_COLOURS[number]}"/>'
            )
            said = f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
            parts.append(text(LEFT + length + 8, at + 11, said, "start", 'fill="#333"'))
        top += one.height
    return parts


def upright(x: float, top: float, bottom: float, look: str) -> str:
    return f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}" {look}/>'


def text(x: float, y: float, words: str, anchor: str, extra: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {extra}>{escape(words)}</text>'
