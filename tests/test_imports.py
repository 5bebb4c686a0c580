"""Imports point one way: the folders of the package stand in one order, and each imports only those
before it.

What is loaded later counts as well: `core.lazy` is the one place that imports by name, and its
calls are read here like import statements.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.modules import ROOT, Module, package_modules, parse

# Each folder may import those above it. The package itself (`tetrad/__init__.py` and what lies
# beside it) comes last.
ORDER = (
    "core",
    "graph", "kernel", "schedule",
    "quant", "loopnest", "ops",
    "tracing", "arrays", "transforms",
    "passes", "lower", "backends/llvm", "backends/cpu", "backends/cuda", "backends",
    "compiler", "debug",
    "linalg", "fft", "special", "random", "nn", "optim", "stats", "solvers",
    "jax",
    "formats", "text", "models", "hub", "explain", "compat", "serve", "cli",
)  # fmt: skip
PACKAGE = "tetrad"
PLACE = {name: i for i, name in enumerate((*ORDER, PACKAGE))}
FOLDERS = frozenset(p.name for p in (ROOT / "tetrad").iterdir() if (p / "__init__.py").exists())

# (file, imported module): why the import may sit inside a function
INSIDE_FUNCTIONS = {
    (
        "tetrad/schedule/nodes.py",
        "tetrad.schedule.text",
    ): "printing lives with parsing, and text imports nodes",
    (
        "tetrad/kernel/nodes.py",
        "tetrad.kernel.text",
    ): "printing lives with parsing, and text imports nodes",
    (
        "tetrad/graph/nodes.py",
        "tetrad.graph.text",
    ): "printing lives with parsing, and text imports nodes",
    (
        "tetrad/graph/nodes.py",
        "tetrad.graph.build",
    ): "an op applied to a node builds a node, and build imports nodes",
}

Import = ast.Import | ast.ImportFrom
LAZY = ("module", "import_module")  # functions that import by name


def imported(module: Module, node: Import) -> Iterator[str]:
    """The dotted names one import statement may bind a module from; relative imports made
    absolute."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    parents = module.package.split(".")[: 1 - node.level or None] if node.level else []
    base = ".".join([*parents, *([node.module] if node.module else [])])
    if base in ("tetrad", "tetrad.backends"):
        yield from (f"{base}.{alias.name}" for alias in node.names)
    else:
        yield base


def loaded(node: ast.Call) -> Iterator[str]:
    """The dotted name that a call loads, as far as it is written there."""
    name = (
        node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
    )
    if name in LAZY and node.args:
        given = node.args[0]
        if isinstance(given, ast.JoinedStr):
            given = given.values[0]
        if isinstance(given, ast.Constant) and isinstance(given.value, str):
            yield given.value.rstrip(".")


def names_in(module: Module) -> Iterator[tuple[str, ast.stmt | ast.expr]]:
    for node in ast.walk(module.tree):
        if isinstance(node, Import):
            yield from ((name, node) for name in imported(module, node))
        elif isinstance(node, ast.Call):
            yield from ((name, node) for name in loaded(node))


def folder_of(name: str) -> str | None:
    """The folder of a dotted name, PACKAGE for what lies directly in the package, None for other
    packages."""
    parts = name.split(".")
    if parts[0] != "tetrad":
        return None
    if parts[1:2] == ["backends"]:
        inner = "/".join(parts[1:3])
        return inner if inner in PLACE else "backends"
    return parts[1] if len(parts) > 1 and parts[1] in FOLDERS else PACKAGE


def home_of(module: Module) -> str:
    return (
        folder_of(module.path.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
        or PACKAGE
    )


def wrong_directions(module: Module) -> Iterator[str]:
    home = home_of(module)
    for name, node in names_in(module):
        folder = folder_of(name)
        if folder is not None and PLACE[folder] > PLACE[home]:
            yield f"{module.place(node)}: {home} must not import {name}"


def hidden_imports(module: Module) -> Iterator[str]:
    functions = (
        n for n in ast.walk(module.tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    statements = {n for function in functions for n in ast.walk(function) if isinstance(n, Import)}
    for node in sorted(statements, key=lambda n: n.lineno):
        for name in imported(module, node):
            if (module.path, name) not in INSIDE_FUNCTIONS:
                yield f"{module.place(node)}: import of {name} inside a function"


def test_every_folder_has_its_place_in_the_order() -> None:
    known = {name.partition("/")[0] for name in ORDER}
    assert FOLDERS ^ known == set()


def test_imports_point_one_way() -> None:
    assert [line for module in package_modules() for line in wrong_directions(module)] == []


def test_imports_sit_at_the_top_of_the_file() -> None:
    assert [line for module in package_modules() for line in hidden_imports(module)] == []


@pytest.mark.parametrize(
    "text",
    [
        "import tetrad.ops.movement",
        "import tetrad",
        "from tetrad import ops",
        "from tetrad.ops import movement",
        "from tetrad.ops.movement import reshape",
        "from ..ops import movement",
        "from .. import ops",
        "from tetrad.backends import cpu",
        "def f() -> None:\n    from tetrad import ops",
        "if TYPE_CHECKING:\n    from tetrad import ops",
        "lazy.module('tetrad.ops.movement')",
        "module(f'tetrad.ops.{name}')",
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
        "lazy.module('tetrad.core.dtypes')",
        "lazy.module('difflib')",
    ],
)
def test_a_right_direction_is_accepted(text: str) -> None:
    assert list(wrong_directions(parse("tetrad/kernel/example.py", text))) == []


@pytest.mark.parametrize("head", ["def f():", "async def f():", "class C:\n  def f(self):"])
def test_an_import_inside_a_function_is_found(head: str) -> None:
    assert (
        len(list(hidden_imports(parse("tetrad/kernel/example.py", f"{head}\n    import os")))) == 1
    )
