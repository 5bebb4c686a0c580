"""A hook of the docs site: the public namespaces in, pages of their functions with signatures and
docstrings out.

`make docs` runs it while the site is built; nothing is written beside the pages.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import tetrad as td

SPACES = {
    "arrays": td,
    "nn": td.nn,
    "linalg": td.linalg,
    "fft": td.fft,
    "random": td.random,
    "optim": td.optim,
    "special": td.special,
    "stats": td.stats,
    "debug": td.debug,
    "quant": td.quant,
    "errors": td.errors,
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Called by mkdocs: the pages of the reference join those of the folder."""
    files.append(File.generated(config, "reference/index.md", content=overview()))
    for name, space in SPACES.items():
        files.append(File.generated(config, f"reference/{name}.md", content=page(name, space)))
    return files


def overview() -> str:
    rows = [
        f"| [{title(name)}]({name}.md) | {first_line(space)} |" for name, space in SPACES.items()
    ]
    return "\n".join(["# Reference", "", "| namespace | what it holds |", "|---|---|", *rows, ""])


def title(name: str) -> str:
    return "td" if name == "arrays" else f"td.{name}"


def first_line(space: Any) -> str:
    return (inspect.getdoc(space) or "").partition("\n")[0].replace("|", "\\|")


def page(name: str, space: Any) -> str:
    parts = [f"# {title(name)}", "", inspect.getdoc(space) or "", ""]
    for member, value in members(space):
        parts += [f"## {title(name)}.{member}", "", *entry(member, value), ""]
    return "\n".join(parts)


def members(space: Any) -> Iterator[tuple[str, Any]]:
    """The public functions and classes, by name."""
    for name in sorted(dir(space), key=str.lower):
        value = getattr(space, name)
        if not name.startswith("_") and callable(value) and not isinstance(value, ModuleType):
            yield name, value


def entry(name: str, value: Any) -> list[str]:
    return ["```python", signature(name, value), "```", "", *docstring(value)]


def signature(name: str, value: Any) -> str:
    try:
        return f"{name}{inspect.signature(value)}"
    except (TypeError, ValueError):
        return name


def docstring(value: Any) -> Iterator[str]:
    """The text; its examples as code."""
    in_example = False
    for line in (inspect.getdoc(value) or "").splitlines():
        starts = line.startswith(">>>") and not in_example
        ends = in_example and not line.strip()
        if starts or ends:
            yield "```pycon" if starts else "```"
            in_example = starts
        yield line
    if in_example:
        yield "```"
