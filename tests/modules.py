"""The package's own source, as syntax trees, for the tests that read code instead of running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Module:
    """One file of the package."""

    path: str  # tetrad/kernel/nodes.py
    text: str
    tree: ast.Module

    @property
    def package(self) -> str:
        """The dotted name of the folder the file is in."""
        return ".".join(self.path.split("/")[:-1])

    def place(self, node: ast.stmt | ast.expr | ast.keyword) -> str:
        return f"{self.path}:{node.lineno}"


def parse(path: str, text: str) -> Module:
    return Module(path, text, ast.parse(text, filename=path))


def package_modules() -> Iterator[Module]:
    for file in sorted((ROOT / "tetrad").rglob("*.py")):
        yield parse(file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8"))
