"""What an installed Tetrad consists of: the settings of pyproject.toml against the files of the package."""

from __future__ import annotations

import ast
import tomllib

import tetrad as td
from tests.modules import ROOT
from tetrad.names import SPACES

SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGE = ROOT / "tetrad"


def test_the_version_stands_in_one_place() -> None:
    assert "version" in SETTINGS["project"]["dynamic"] and "version" not in SETTINGS["project"]
    assert SETTINGS["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "tetrad.__version__"}
    assert f"\n## {td.__version__} " in (ROOT / "CHANGELOG.md").read_text()


def test_files_that_are_not_python_are_installed_too() -> None:
    others = [p for p in PACKAGE.rglob("*") if p.is_file() and p.suffix not in (".py", ".pyc")]
    installed = SETTINGS["tool"]["setuptools"]["package-data"]["tetrad"]
    assert sorted(str(p.relative_to(PACKAGE)) for p in others) == installed


def test_every_folder_with_modules_is_a_package() -> None:
    """A folder without __init__.py can be imported from a checkout, and is left out of the wheel."""
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    assert [str(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def test_type_checkers_see_the_lazy_namespaces() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    named = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "tetrad"]
    assert {alias.asname for node in named for alias in node.names} == set(SPACES)
