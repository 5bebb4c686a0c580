"""The package's own source, as syntax trees, for the tests that read code instead of running it."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Module:
    """One file of the package."""

    path: str  # tetrad/kernel/nodes.py
    text: str
    tree: ast.Module

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        return tuple(ast.walk(self.tree))

    @property
    def package(self) -> str:
        """The dotted name of the folder the file is in."""
        return ".".join(self.path.split("/")[:-1])

    def place(self, node: ast.stmt | ast.expr | ast.keyword) -> str:
        return f"{self.path}:{node.lineno}"


def parse(path: str, text: str) -> Module:
    return Module(path, text, ast.parse(text, filename=path))


@cache
def package_modules() -> tuple[Module, ...]:
    """Every file, read once for all tests."""
    files = sorted((ROOT / "tetrad").rglob("*.py"))
    return tuple(parse(f.relative_to(ROOT).as_posix(), f.read_text("utf-8")) for f in files)
