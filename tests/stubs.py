"""`tetrad/__init__.pyi`, for type checkers: every public name, from the module that defines it. The
package finds names when they are first used, which no checker can follow. Elementwise functions,
which are made from their ops, have a file of their own for the package itself; so have folders that
find some of their names later.

`python -m tests.stubs` writes the files; `tests/test_stubs.py` compares them.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import types
from pathlib import Path
from typing import Any

import tetrad as td
from tests.modules import ROOT

PACKAGE = ROOT / "tetrad" / "__init__.pyi"
ELEMENTWISE = ROOT / "tetrad" / "arrays" / "elementwise.pyi"
FOLDERS = ("core/tree", "kernel", "linalg", "nn", "optim", "quant", "random", "special")
HEAD = """# What type checkers see of {}: made by `python -m tests.stubs`.
# ruff: noqa
# fmt: off
from typing import Any

"""
TYPES = """from tetrad.core.config import ProcessSettings as ProcessSettings
from tetrad.core.dtypes import DType as DType
from tetrad.tracing.array import Array as Array

"""
VALUES = {name: name for name in ("DType", "ProcessSettings", "float", "str")} | {
    "NoneType": "None"
}


def public_names() -> list[str]:
    return sorted({*dir(td), "load"})


def is_written(module: str, name: str) -> bool:
    """Does the module define the name where a checker sees it?"""
    file = getattr(importlib.import_module(module), "__file__", None)
    if file is None:
        return False  # a type of Python's
    body = ast.parse(Path(file).read_text()).body
    own = [node for node in body if not isinstance(node, ast.Import | ast.ImportFrom)]
    return any(name in bound(node) for node in own)


def line_of(name: str, value: Any) -> str:
    """What the stub says of a public name. An import under another name would stay private."""
    if isinstance(value, types.ModuleType):
        parent, _, last = value.__name__.rpartition(".")
        return f"from {parent} import {last} as {name}"
    module, own = getattr(value, "__module__", None), getattr(value, "__name__", None)
    if module and own and is_written(module, own):
        if own == name:
            return f"from {module} import {own} as {own}"
        return f"from {module} import {own} as _{name}\n{name} = _{name}"
    if isinstance(value, type):
        return f"{name}: type[Any]"
    if callable(value) and module == "tetrad.arrays.functions":
        return f"def {name}{shown(inspect.signature(value))} -> Array: ..."
    return f"{name}: {VALUES.get(type(value).__name__, 'Any')}"


def shown(signature: inspect.Signature) -> str:
    """The parameters of a function that is made from its op, which takes what becomes an array."""
    plain = [
        p.replace(annotation=inspect.Parameter.empty, default=inspect.Parameter.empty)
        for p in signature.parameters.values()
    ]
    names = [f"{p}: Any" for p in plain]
    return f"({', '.join(names)})"


def elementwise() -> str:
    """The functions that stand in no file."""
    lines = [line for line in public_lines() if line.startswith("def ")]
    return HEAD.format("elementwise functions") + TYPES + "\n".join(lines) + "\n"


def package() -> str:
    return HEAD.format("the package") + TYPES + "\n".join(public_lines()) + "\n"


def public_lines() -> list[str]:
    return [line_of(name, getattr(td, name)) for name in public_names()]


def later_file(folder: str) -> Path:
    return ROOT / "tetrad" / folder / "later.pyi"


def later(folder: str) -> str:
    """The names of a folder that stand nowhere in its own file."""
    home = importlib.import_module(f"tetrad.{folder.replace('/', '.')}")
    seen = names_seen(Path(str(home.__file__)))
    names = [name for name in home.__all__ if name not in seen]
    lines = [line_of(name, getattr(home, name)) for name in names]
    return HEAD.format(f"names that {home.__name__} finds later") + "\n".join(lines) + "\n"


def names_seen(file: Path) -> set[str]:
    """What a checker finds in a file: at its outermost level, and where only checkers look."""
    body = ast.parse(file.read_text()).body
    only = [n for n in body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"]
    return {name for node in [*body, *(n for b in only for n in b.body)] for name in bound(node)}


def bound(node: ast.stmt) -> list[str]:
    """The names that a statement defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name for alias in node.names]
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
    return []


if __name__ == "__main__":
    PACKAGE.write_text(package())
    ELEMENTWISE.write_text(elementwise())
    for folder in FOLDERS:
        later_file(folder).write_text(later(folder))
