"""Explain, the page: an explanation as one HTML file with pictures, nothing loaded from elsewhere.

Receives an `Explanation`, returns HTML: the graph with nodes coloured by the group that computes
them, kernels with their time against the roofs and their text, a roofline, the arena over time, the
time per stage.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from tetrad.explain.assets import SCRIPT, STYLE
from tetrad.explain.layout import Drawing, Point, lay_out
from tetrad.explain.parts import GraphPart
from tetrad.explain.report import bytes_text, count_text, time_text
from tetrad.graph.build import call, parameter
from tetrad.graph.constants import constant_value
from tetrad.graph.nodes import Node
from tetrad.passes.fused import ordered
from tetrad.schedule.nodes import Leaf, Step

if TYPE_CHECKING:
    from tetrad.explain.story import Explanation, KernelStory

BOX_HEIGHT = 40
MARGIN = 16
GOLDEN_ANGLE = 137.508  # neighbouring numbers get hues far apart
LETTER, SMALL_LETTER = 7.0, 6.6  # widths of the fonts in the boxes


def write_page(story: Explanation, path: str | Path) -> Path:
    """Write the page and say where it is."""
    target = Path(path)
    target.write_text(page(story), encoding="utf-8")
    return target


def page(story: Explanation) -> str:
    body = [
        f"<h1>{escape(story.name)}</h1><p class=sub>{escape(story.signature)}</p>",
        facts(story),
        *(graph_section(story, part) for part in story.parts),
        kernel_section(story),
        f"<div class=two>{arena_section(story)}{roofline_section(story)}</div>",
        stage_section(story),
    ]
    head = f"<meta charset=utf-8><title>tetrad: {escape(story.name)}</title><style>{STYLE}</style>"
    tail = f"<div id=tip></div><script>{SCRIPT}</script>"
    return (
        "<!doctype html><html "
        f"lang=en><head>{head}</head><body><main>{''.join(body)}</main>{tail}</body></html>\n"
    )


# -- head ------------------------------------------------------------------------------------------


def facts(story: Explanation) -> str:
    inside = sum(k.ns for k in story.kernels)
    moved, done = sum(k.nbytes for k in story.kernels), sum(k.flops for k in story.kernels)
    shown = [
        (time_text(story.wall_ns), f"one call, best of {story.runs}, {story.threads} threads"),
        (time_text(inside), f"of it in {len(story.kernels)} kernel launches"),
        (bytes_text(moved), f"moved, {count_text(done)} operations"),
        (
            bytes_text(story.arena_bytes),
            f"arena; {bytes_text(story.intermediate_bytes)} side by side",
        ),
        (bytes_text(story.scratch_bytes), "scratch of each thread"),
        (
            f"{len(story.traced.nodes())} → {len(story.graph.nodes())}",
            f"nodes; {story.programs} different kernels",
        ),
        ("compiled now" if story.is_new else "reused", "; ".join(story.why)),
    ]
    cards = (f"<div class=fact><b>{escape(a)}</b><span>{escape(b)}</span></div>" for a, b in shown)
    return f"<div class=facts>{''.join(cards)}</div>"


def hue(number: int) -> str:
    return f"--h:{(205 + number * GOLDEN_ANGLE) % 360:.0f}"


# -- the graph -------------------------------------------------------------------------------------


def graph_section(story: Explanation, part: GraphPart) -> str:
    number = story.parts.index(part)
    nodes = [n for n in ordered(part.graph) if constant_value(n) is None]
    shown = set(nodes)
    names = {node: f"n{number}-{i}" for i, node in enumerate(nodes)}
    edges = [(operand, node) for node in nodes for operand in node.inputs if operand in shown]
    layout = lay_out({node: box_width(node) for node in nodes}, edges)
    lines = [edge_svg(path, f"{names[a]} {names[b]}") for (a, b), path in drawn_edges(layout)]
    boxes = [node_svg(part, number, node, layout, names[node]) for node in nodes]
    title = "graph" if number == 0 else f"graph {escape(part.graph.name)}, called"
    buttons = (("in", "+"), ("out", "-"), ("fit", "fit"), ("whole", "whole"))
    zoom = "".join(f"<button data-zoom={kind}>{text}</button>" for kind, text in buttons)
    hint = "one colour, one kernel; point at a node for its line, click it for its kernel"
    return (
        f"<section>{zoom}<h2>{title}<small>{hint}</small></h2><div class=scroll>"
        f"{svg(layout.width, layout.height, [*lines, *boxes], 'graph')}</div></section>"
    )


def drawn_edges(layout: Drawing) -> Iterator[tuple[tuple[Node, Node], tuple[Point, ...]]]:
    for (a, b), path in layout.edges.items():
        if isinstance(a, Node) and isinstance(b, Node):
            yield (a, b), path


def label(node: Node) -> str:
    """The op, with the operands and settings that are worth a place in a box."""
    numbers = [f"{value:g}" for i in node.inputs if (value := constant_value(i)) is not None]
    if node.op is parameter:
        return f"input {node.param('index')}"
    if node.op is call:
        return f"call {node.param('graph').name}"
    return " ".join([node.op.name, *numbers])


def box_width(node: Node) -> float:
    return max(len(label(node)) * LETTER, len(str(node.type)) * SMALL_LETTER) + 22


def node_svg(part: GraphPart, number: int, node: Node, layout: Drawing, name: str) -> str:
    x, y = layout.centres[node]
    width, groups = box_width(node), part.computed.get(node, ())
    classes = ["node", *(["in"] if groups else []), *(["again"] if len(groups) > 1 else [])]
    classes += ["out"] if node in part.graph.outputs else []
    where = [f"group {g} ({part.groups[g].kind}: {part.groups[g].name})" for g in groups]
    tip = "\n".join(
        [part.lines[node], *where, *(["computed in each of them"] if len(groups) > 1 else [])]
    )
    ids = " ".join(f"{number}.{g}" for g in groups)
    style = f' style="{hue(groups[0] + 3 * number)}"' if groups else ""
    return (
        f'<g class="{" ".join(classes)}" id="{name}" data-groups="{ids}" '
        f'data-tip="{escape(tip)}"{style}>'
        f'<rect x="{x - width / 2:.1f}" y="{y - BOX_HEIGHT / 2:.1f}" width="{width:.1f}" '
        f'height="{BOX_HEIGHT}"/>'
        f'<text x="{x:.1f}" y="{y - 3:.1f}">{escape(label(node))}</text>'
        f'<text class=type x="{x:.1f}" y="{y + 12:.1f}">{escape(str(node.type))}</text></g>'
    )


def edge_svg(path: Sequence[Point], ends: str) -> str:
    """A smooth line, upright at every point it passes."""
    points = list(path)
    points[0] = (points[0][0], points[0][1] + BOX_HEIGHT / 2)
    points[-1] = (points[-1][0], points[-1][1] - BOX_HEIGHT / 2)
    text = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for (x0, y0), (x1, y1) in pairwise(points):
        middle = (y0 + y1) / 2
        text += f"C{x0:.1f} {middle:.1f} {x1:.1f} {middle:.1f} {x1:.1f} {y1:.1f}"
    return f'<path class=edge data-ends="{ends}" d="{text}"/>'


def svg(width: float, height: float, content: Sequence[str], kind: str) -> str:
    w, h = width + 2 * MARGIN, height + 2 * MARGIN
    box = f"{-MARGIN} {-MARGIN} {w:.0f} {h:.0f}"
    size = f'width="{w:.0f}" height="{h:.0f}" data-width="{w:.0f}"'
    return (
        f'<svg class="{kind}" viewBox="{box}" {size} '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(content)}</svg>'
    )


# -- kernels ---------------------------------------------------------------------------------------


def group_id(story: Explanation, step: Step) -> tuple[int, int] | None:
    """Part and number of the group a launch belongs to."""
    if isinstance(step, Leaf) and step.group is not None:
        for number, part in enumerate(story.parts):
            if step.group in part.groups:
                return number, part.number(step.group)
    return None


def colour(story: Explanation, step: Step) -> str:
    found = group_id(story, step)
    return hue(found[1] + 3 * found[0]) if found else ""


def kernel_section(story: Explanation) -> str:
    heads = ("kernel", "", "groups", "threads", "bytes", "ops", "time", "GB/s", "Gop/s", "bound by")
    row = "".join(f"<th{' class=num' if 2 <= i <= 8 else ''}>{h}</th>" for i, h in enumerate(heads))
    longest = max((k.ns for k in story.kernels), default=1) or 1
    rows = "".join(kernel_rows(story, kernel, longest) for kernel in story.kernels)
    hint = "bar: measured time, its dark part the least the roofs allow; click for the text"
    table = f"<table><tr>{row}</tr>{rows}</table>"
    return (
        f"<section><h2>kernels<small>{hint}</small></h2><div class=scroll>{table}</div></section>"
    )


def kernel_rows(story: Explanation, kernel: KernelStory, longest: int) -> str:
    found = group_id(story, kernel.launch)
    group = f"{found[0]}.{found[1]}" if found else ""
    least = min(kernel.ns, max(kernel.memory_ns, kernel.arithmetic_ns))
    bar = f'<div class=bar><i style="width:{100 * kernel.ns / longest:.2f}%"></i>'
    bar += f'<i class=least style="width:{100 * least / longest:.2f}%"></i></div>'
    numbers = [
        str(kernel.groups), str(kernel.threads), bytes_text(kernel.nbytes),
        count_text(kernel.flops),
        time_text(kernel.ns), *kernel.rates,
    ]  # fmt: skip
    name = escape("/".join((*kernel.path, kernel.name)))
    cells = "".join(f"<td class=num>{escape(n)}</td>" for n in numbers)
    source = "" if kernel.launch.source is None else f"\n{kernel.launch.source}"
    first = (
        f'<td class=name data-tip="{name}{escape(source)}"><span '
        f"class=chip></span>{name}</td><td>{bar}</td>"
    )
    style = colour(story, kernel.launch)
    text = f"<tr hidden><td colspan=10><pre>{escape(kernel.text)}</pre></td></tr>"
    return (
        f'<tr class=kernel data-group="{group}" '
        f'style="{style}">{first}{cells}<td>{kernel.limit}</td></tr>{text}'
    )


# -- the arena over time ---------------------------------------------------------------------------


def arena_section(story: Explanation) -> str:
    """A box for every intermediate: as wide as its life, as high as its bytes, where it lies in the
    arena."""
    width, height = 760.0, 300.0
    steps, total = max(len(story.steps), 1), max(story.arena_bytes, 1)
    boxes = []
    for life, offset in zip(story.lives, story.plan.offsets, strict=True):
        x, w = width * life.first / steps, width * (life.last - life.first + 1) / steps
        h = height * life.nbytes / total
        y = height - height * offset / total - h
        style = colour(story, story.steps[life.first])
        kind = f'class=life style="{style}"' if style else 'class="life plain"'
        tip = (
            f"{life.name}: {bytes_text(life.nbytes)} at byte {offset}\n"
            f"{span_text(story, life.first, life.last)}"
        )
        shape = f'x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{max(h, 1):.1f}"'
        boxes.append(f'<rect {kind} {shape} data-tip="{escape(tip)}"/>')
    axes = [f'<path class=axis fill=none d="M0 0V{height}H{width}"/>']
    axes += [f'<text class=small x="4" y="10">{bytes_text(story.arena_bytes)}</text>']
    axes += [
        f'<text class=small x="{width}" y="{height + 14}" text-anchor=end>step {steps - 1}</text>'
    ]
    axes += [f'<text class=small x="0" y="{height + 14}">step 0</text>']
    hint = f"{len(story.lives)} intermediates; across: steps, up: bytes"
    picture = shrinking(svg(width, height, [*axes, *boxes], "arena"))
    return f"<section><h2>arena over time<small>{hint}</small></h2>{picture}</section>"


def span_text(story: Explanation, first: int, last: int) -> str:
    return (
        f"from step {first} ({step_name(story.steps[first])}) to step {last} "
        f"({step_name(story.steps[last])})"
    )


def step_name(step: Step) -> str:
    return step.name


# -- roofline --------------------------------------------------------------------------------------

DECADES_X, DECADES_Y = (-2, 3), (-1, 3)  # operations a byte, operations a nanosecond
CHART_WIDTH, CHART_HEIGHT = 460.0, 300.0


def roofline_section(story: Explanation) -> str:
    """The usual picture: operations a byte across, operations a nanosecond up, both logarithmic."""
    parts = [*chart_axes(), *roof_lines(story), *kernel_points(story)]
    hint = f"Gop/s over operations a byte; lines: cache and memory, {story.all.threads} threads"
    picture = shrinking(svg(CHART_WIDTH, CHART_HEIGHT, parts, "roofline"))
    return f"<section><h2>roofline<small>{hint}</small></h2>{picture}</section>"


def chart_point(x: float, y: float) -> Point:
    """Into the chart, and not beyond its edges."""
    across = (math.log10(max(x, 1e-9)) - DECADES_X[0]) / (DECADES_X[1] - DECADES_X[0])
    up = (math.log10(max(y, 1e-9)) - DECADES_Y[0]) / (DECADES_Y[1] - DECADES_Y[0])
    return CHART_WIDTH * min(max(across, 0), 1), CHART_HEIGHT * (1 - min(max(up, 0), 1))


def chart_axes() -> Iterator[str]:
    yield f'<path class=axis fill=none d="M0 0V{CHART_HEIGHT}H{CHART_WIDTH}"/>'
    for decade in range(DECADES_X[0], DECADES_X[1] + 1):
        x = chart_point(10.0**decade, 1)[0]
        yield (
            f'<text class=small x="{x:.0f}" y="{CHART_HEIGHT + 14}" '
            f"text-anchor=middle>{10.0**decade:g}</text>"
        )
    for decade in range(DECADES_Y[0], DECADES_Y[1] + 1):
        y = chart_point(1, 10.0**decade)[1]
        yield f'<path class=axis d="M0 {y:.1f}H{CHART_WIDTH}"/>'
        yield f'<text class=small x="2" y="{y - 3:.0f}">{10.0**decade:g}</text>'


def roof_lines(story: Explanation) -> Iterator[str]:
    left, top = 10.0 ** DECADES_X[0], story.all.flops
    for name, rate, kind in (
        ("cache", story.all.cache, "roof low"),
        ("memory", story.all.memory, "roof"),
    ):
        corners = ((left, rate * left), (top / rate, top), (1e9, top))
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (chart_point(*corner) for corner in corners))
        tip = f"{name}: {rate:.0f} GB/s, {top:.0f} GFLOP/s, {story.all.threads} threads"
        yield f'<polyline class="{kind}" points="{line}" data-tip="{tip}"/>'


def kernel_points(story: Explanation) -> Iterator[str]:
    for kernel in story.kernels:
        if kernel.flops and kernel.nbytes and kernel.ns:
            dense, rate = kernel.flops / kernel.nbytes, kernel.flops / kernel.ns
            x, y = chart_point(dense, rate)
            tip = escape(f"{kernel.name}\n{dense:.2g} operations a byte, {rate:.1f} Gop/s")
            style = colour(story, kernel.launch)
            yield (
                f'<circle class=point style="{style}" cx="{x:.1f}" cy="{y:.1f}" r=6 '
                f'data-tip="{tip}"/>'
            )


def shrinking(picture: str) -> str:
    return picture.replace("<svg ", '<svg style="max-width:100%;height:auto" ', 1)


# -- time per stage --------------------------------------------------------------------------------


def stage_section(story: Explanation) -> str:
    total = sum(story.stages.values()) or 1
    bars, keys = [], []
    for i, (stage, seconds) in enumerate(story.stages.items()):
        tip = f"{stage}: {time_text(seconds * 1e9)}"
        bars.append(f'<i style="{hue(i)};width:{100 * seconds / total:.3f}%" data-tip="{tip}"></i>')
        keys.append(
            f'<span style="{hue(i)}"><span class=chip></span>{stage} '
            f"<b>{time_text(seconds * 1e9)}</b></span>"
        )
    hint = "of this call" if story.is_new else "when it was compiled"
    strip = f"<div class=stages>{''.join(bars)}</div><div class=keys>{''.join(keys)}</div>"
    return f"<section><h2>time per stage<small>{hint}</small></h2>{strip}</section>"
