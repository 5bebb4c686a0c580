"""Command line, the page of a model: one HTML file with its tensors, its memory and the kernels of
one decoding step.

Receives a description and the story of a step; writes the page. Nothing in it is loaded from
elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape as escape_markup
from pathlib import Path

from tetrad.core.record import record
from tetrad.core.visible import visible
from tetrad.explain.assets import SCRIPT, STYLE
from tetrad.explain.page import hue
from tetrad.explain.report import bytes_text, time_text
from tetrad.explain.story import Explanation, KernelStory
from tetrad.hub.describe import Description, count_text
from tetrad.hub.fits import gib


def escape(text: str) -> str:
    """Text of a file on a page: neither markup nor anything that turns a line around."""
    return escape_markup(visible(text))


@record(eq=False)
class Launches:
    """All launches of one kernel in the step."""

    name: str
    program: str
    count: int
    ns: int
    nbytes: int
    least_ns: float  # that the roofs allow


def write_model_page(found: Description, step: Explanation, context: int, path: Path) -> None:
    body = [
        f"<h1>{escape(found.title or Path(found.path).name)}</h1><p "
        f"class=sub>{escape(Path(found.path).name)}</p>",
        cards(found, step, context),
        memory_section(found, context),
        kernel_section(step),
        tensor_section(found),
    ]
    head = f"<meta charset=utf-8><title>tetrad: {escape(found.title)}</title><style>{STYLE}</style>"
    tail = f"<div id=tip></div><script>{SCRIPT}</script>"
    page = (
        "<!doctype html><html "
        f"lang=en><head>{head}</head><body><main>{''.join(body)}</main>{tail}</body></html>\n"
    )
    path.write_text(page, encoding="utf-8")


def cards(found: Description, step: Explanation, context: int) -> str:
    moved = sum(kernel.nbytes for kernel in step.kernels)
    reached = moved / max(step.wall_ns, 1)
    shown = [
        (
            found.architecture,
            f"{found.number('block_count')} layers, width {found.number('embedding_length')}",
        ),
        (count_text(found.parameters), f"parameters, {found.quant}"),
        (
            gib(found.weight_bytes),
            f"weights; {gib(found.cache_bytes(context))} of keys and values at {context} tokens",
        ),
        (f"{1e9 / max(step.wall_ns, 1):.1f}", "tokens a second: one decoding step, no sampling"),
        (
            time_text(step.wall_ns),
            f"a step of {len(step.kernels)} launches, {step.threads} threads",
        ),
        (
            f"{reached:.1f} GB/s",
            f"{reached / step.all.memory:.0%} of the {step.all.memory:.1f} that memory gives here",
        ),
    ]
    made = (f"<div class=fact><b>{escape(a)}</b><span>{escape(b)}</span></div>" for a, b in shown)
    return f"<div class=facts>{''.join(made)}</div>"


def section(title: str, hint: str, content: str) -> str:
    return f"<section><h2>{title}<small>{escape(hint)}</small></h2>{content}</section>"


def strip(parts: Sequence[tuple[str, int]]) -> str:
    """Shares of a whole, side by side."""
    total = sum(size for _, size in parts) or 1
    bars = (
        (
            f'<i style="{hue(i)};width:{100 * size / total:.3f}%" data-tip="{escape(name)}: '
            f'{gib(size)}"></i>'
        )
        for i, (name, size) in enumerate(parts)
    )
    keys = (
        f'<span style="{hue(i)}"><span class=chip></span>{escape(name)} <b>{gib(size)}</b></span>'
        for i, (name, size) in enumerate(parts)
    )
    return f"<div class=stages>{''.join(bars)}</div><div class=keys>{''.join(keys)}</div>"


def memory_section(found: Description, context: int) -> str:
    parts = [(f"{kind.format}, {kind.count} tensors", kind.nbytes) for kind in found.kinds]
    parts.append((f"keys and values in f16, {context} tokens", found.cache_bytes(context)))
    return section("memory", "known before anything is loaded", strip(parts))


def rows_of(kernels: Iterable[KernelStory]) -> list[Launches]:
    """Kernels by name, the longest first."""
    found: dict[str, list[KernelStory]] = {}
    for kernel in kernels:
        found.setdefault(kernel.name, []).append(kernel)
    made = [
        Launches(name, of[0].text, len(of), sum(k.ns for k in of),
        sum(k.nbytes for k in of),
                 sum(max(k.memory_ns, k.arithmetic_ns) for k in of))
        for name, of in found.items()
    ]  # fmt: skip
    return sorted(made, key=lambda row: -row.ns)


def kernel_section(step: Explanation) -> str:
    heads = "<th>kernel</th><th></th>" + "".join(
        f"<th class=num>{head}</th>"
        for head in ("launches", "bytes", "time", "of the step", "GB/s", "of the roof")
    )
    rows = rows_of(step.kernels)
    longest, whole = max((row.ns for row in rows), default=1), max(1, sum(row.ns for row in rows))
    lines = "".join(kernel_line(i, row, longest, whole) for i, row in enumerate(rows))
    hint = (
        "all launches of one kernel together; bar: time, its dark part the least the roofs allow; "
        "click for the text"
    )
    return section(
        "one decoding step", hint, f"<div class=scroll><table><tr>{heads}</tr>{lines}</table></div>"
    )


def kernel_line(number: int, row: Launches, longest: int, whole: int) -> str:
    least = min(row.ns, row.least_ns)
    bar = f'<div class=bar><i style="width:{100 * row.ns / longest:.2f}%"></i>'
    bar += f'<i class=least style="width:{100 * least / longest:.2f}%"></i></div>'
    ns = max(row.ns, 1)
    numbers = (
        str(row.count), bytes_text(row.nbytes), time_text(row.ns), f"{row.ns / whole:.1%}",
        f"{row.nbytes / ns:.1f}",
        f"{least / ns:.0%}",
    )  # fmt: skip
    cells = "".join(f"<td class=num>{escape(n)}</td>" for n in numbers)
    name = escape(row.name)
    first = f'<td class=name data-tip="{name}"><span class=chip></span>{name}</td><td>{bar}</td>'
    text = f"<tr hidden><td colspan=8><pre>{escape(row.program)}</pre></td></tr>"
    return f'<tr class=kernel style="{hue(number)}">{first}{cells}</tr>{text}'


def tensor_section(found: Description) -> str:
    heads = (
        "<th>tensor</th><th></th><th>format</th><th>shape</th><th class=num>bytes</th><th "
        "class=num>offset</th>"
    )
    largest = max((t.nbytes for t in found.tensors.values()), default=1)
    hues = {kind.format: hue(i) for i, kind in enumerate(found.kinds)}
    rows = "".join(
        f'<tr style="{hues[t.format]}"><td class=name><span class=chip></span>{escape(t.name)}</td>'
        "<td><div class=bar><i class=least "
        f'style="width:{100 * t.nbytes / largest:.2f}%"></i></div></td>'
        f"<td>{escape(t.format)}</td><td>{' &times; '.join(map(str, t.shape))}</td>"
        f"<td class=num>{bytes_text(t.nbytes)}</td><td class=num>{t.offset}</td></tr>"
        for t in found.tensors.values()
    )
    hint = f"{len(found.tensors)} of them, as they lie in the file"
    return section(
        "tensors", hint, f"<div class=scroll><table><tr>{heads}</tr>{rows}</table></div>"
    )
