"""Imports point one way: each folder of the package may import only the folders before it in the pipeline."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.modules import ROOT, Module, package_modules, parse

FOLDERS = frozenset(p.name for p in (ROOT / "tetrad").iterdir() if (p / "__init__.py").exists())
API = "api"  # the modules directly in tetrad/
ANYTHING = FOLDERS | {API}

MAY_IMPORT: dict[str, frozenset[str]] = {
    "core": frozenset(),
    "text": frozenset({"core"}),
    "graph": frozenset({"core"}),
    "kernel": frozenset({"core"}),
    "quant": frozenset({"core"}),
    "formats": frozenset({"core", "quant"}),
    "ops": frozenset({"core", "graph", "kernel", "quant"}),
    "derive": frozenset({"core", "graph", "ops"}),
    "tracing": frozenset({"core", "graph", "ops", "derive"}),
    "passes": frozenset({"core", "graph", "ops"}),
    "lower": frozenset({"core", "graph", "kernel", "ops", "passes", "quant"}),
    "codegen": frozenset({"core", "kernel"}),
    "runtime": frozenset({"core", "kernel", "codegen"}),
    "optim": frozenset({"core", "tracing", API}),
    "models": frozenset({"core", "quant", "formats", "text", "ops", "tracing", "runtime", API}),
    "compiler": ANYTHING - {"cli", "explain"},
    "explain": ANYTHING - {"cli"},
    "hub": frozenset({"core", "formats"}),
    "compat": ANYTHING - {"cli"},
    "cli": ANYTHING,
    API: ANYTHING,
}

# (file, imported module): why the import may sit inside a function
INSIDE_FUNCTIONS = {
    ("tetrad/kernel/nodes.py", "tetrad.kernel.text"): "printing lives with parsing, and text imports nodes",
    ("tetrad/graph/nodes.py", "tetrad.graph.text"): "printing lives with parsing, and text imports nodes",
    ("tetrad/graph/nodes.py", "tetrad.graph.build"): "an op applied to a node builds a node, and build imports nodes",
}

Import = ast.Import | ast.ImportFrom


def imported(module: Module, node: Import) -> Iterator[str]:
    """The dotted names one import statement may bind a module from; relative imports made absolute."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    parents = module.package.split(".")[: 1 - node.level or None] if node.level else []
    base = ".".join([*parents, *([node.module] if node.module else [])])
    if base == "tetrad":
        yield from (f"tetrad.{alias.name}" for alias in node.names)
    else:
        yield base


def folder_of(name: str) -> str | None:
    """The folder of a dotted name, API for what lies directly in the package, None for other packages."""
    parts = name.split(".")
    if parts[0] != "tetrad":
        return None
    return parts[1] if len(parts) > 1 and parts[1] in FOLDERS else API


def home_of(module: Module) -> str:
    parts = module.path.split("/")
    return parts[1] if len(parts) > 2 else API


def wrong_directions(module: Module) -> Iterator[str]:
    home = home_of(module)
    for node in ast.walk(module.tree):
        if isinstance(node, Import):
            for name in imported(module, node):
                folder = folder_of(name)
                if folder not in MAY_IMPORT[home] | {home, None}:
                    yield f"{module.place(node)}: {home} must not import {name}"


def hidden_imports(module: Module) -> Iterator[str]:
    functions = (n for n in ast.walk(module.tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    statements = {n for function in functions for n in ast.walk(function) if isinstance(n, Import)}
    for node in sorted(statements, key=lambda n: n.lineno):
        for name in imported(module, node):
            if (module.path, name) not in INSIDE_FUNCTIONS:
                yield f"{module.place(node)}: import of {name} inside a function"


def test_every_folder_has_its_place_in_the_table() -> None:
    assert FOLDERS - MAY_IMPORT.keys() == set()


def test_imports_point_one_way() -> None:
    assert [line for module in package_modules() for line in wrong_directions(module)] == []


def test_imports_sit_at_the_top_of_the_file() -> None:
    assert [line for module in package_modules() for line in hidden_imports(module)] == []


@pytest.mark.parametrize(
    "text",
    [
        "import tetrad.graph.nodes",
        "import tetrad",
        "from tetrad import graph",
        "from tetrad.graph import nodes",
        "from tetrad.graph.nodes import Node",
        "from ..graph import nodes",
        "from .. import graph",
        "from ..graph.nodes import Node",
        "def f() -> None:\n    from tetrad import graph",
        "if TYPE_CHECKING:\n    from tetrad import graph",
    ],
)
def test_a_wrong_direction_is_found_however_it_is_spelled(text: str) -> None:
    assert len(list(wrong_directions(parse("tetrad/kernel/example.py", text)))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "import numpy as np",
        "from tetrad.core import dtypes",
        "from tetrad import core",
        "from . import nodes",
        "from .nodes import Load",
    ],
)
def test_a_right_direction_is_accepted(text: str) -> None:
    assert list(wrong_directions(parse("tetrad/kernel/example.py", text))) == []


@pytest.mark.parametrize("head", ["def f():", "async def f():", "class C:\n  def f(self):"])
def test_an_import_inside_a_function_is_found(head: str) -> None:
    assert len(list(hidden_imports(parse("tetrad/kernel/example.py", f"{head}\n    import os")))) == 1
