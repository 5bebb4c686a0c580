"""What an installed Tetrad consists of: the settings of pyproject.toml against the files of the
package."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import tetrad as td
from tests.modules import ROOT
from tetrad.names import SPACES

SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGE = ROOT / "tetrad"


def test_the_version_stands_in_one_place() -> None:
    assert "version" in SETTINGS["project"]["dynamic"] and "version" not in SETTINGS["project"]
    assert SETTINGS["tool"]["setuptools"]["dynamic"]["version"] == {
        "attr": "tetrad.core.version.__version__"
    }
    assert f"\n## {td.__version__} " in (ROOT / "CHANGELOG.md").read_text()


def test_files_that_are_not_python_are_installed_too() -> None:
    others = [p for p in PACKAGE.rglob("*") if p.is_file() and p.suffix not in (".py", ".pyc")]
    installed = SETTINGS["tool"]["setuptools"]["package-data"]["tetrad"]
    assert sorted(str(p.relative_to(PACKAGE)) for p in others) == installed


def test_every_folder_with_modules_is_a_package() -> None:
    """A folder without __init__.py can be imported from a checkout, and is left out of the
    wheel."""
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    assert [
        str(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()
    ] == []


def test_type_checkers_see_the_lazy_namespaces() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    named = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "tetrad"
    ]
    assert {alias.asname for node in named for alias in node.names} == set(SPACES)


# -- a clone is a folder named tetrad --------------------------------------------------------------

USED = "import tetrad; print(tetrad.zeros(2).shape)"


def test_an_editable_install_is_a_path() -> None:
    """Else setuptools installs a finder, which Python asks only after it has found the clone as a
    namespace."""
    assert SETTINGS["tool"]["setuptools"]["package-dir"] == {"": "."}


def test_the_folder_that_holds_the_clone_does_not_hide_the_package(tmp_path: Path) -> None:
    (tmp_path / "tetrad").symlink_to(ROOT)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "__editable__.tetrad.pth").write_text(f"{ROOT}\n")
    text = f"import site; site.addsitedir({str(tmp_path / 'site')!r}); {USED}"
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout == "(2,)\n", done.stderr


@pytest.mark.slow
def test_a_clone_that_was_installed_is_found_from_the_folder_it_is_in(tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns(".*", "tests", "bench", "*.egg-info")
    shutil.copytree(ROOT, tmp_path / "tetrad", ignore=ignored)
    subprocess.run(
        [sys.executable, "-m", "venv", "--system-site-packages", tmp_path / "env"], check=True
    )
    python = str(tmp_path / "env" / "bin" / "python")
    install = [
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--editable",
        str(tmp_path / "tetrad"),
    ]
    subprocess.run(install, check=True)
    path = os.pathsep.join(p for p in sys.path if p.endswith("site-packages"))
    found = subprocess.run(
        [python, "-c", f"{USED}; print(tetrad.__file__)"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True,
    )  # fmt: skip
    assert found.stdout.splitlines() == [
        "(2,)",
        str(tmp_path / "tetrad" / "tetrad" / "__init__.py"),
    ], found.stderr


# -- make ------------------------------------------------------------------------------------------

OLD_PYTHON = """#!/bin/sh
case "$1" in
  -V*) echo "Python 3.10.4" ;;
  -c) exec {python} -c "import sys; sys.version_info = (3, 10, 4); exec(sys.argv[1])" "$2" ;;
  *) touch was-called; exit 1 ;;
esac
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    old = tmp_path / "python3.10"
    old.write_text(OLD_PYTHON.format(python=sys.executable))
    old.chmod(0o755)
    return tmp_path


def make(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("make") is None:
        pytest.skip("there is no make here")
    return subprocess.run(["make", *words], cwd=folder, capture_output=True, text=True, timeout=30)


@pytest.mark.parametrize("goal", ["run", "demo", "test"])
def test_make_refuses_an_old_python_at_once(checkout: Path, goal: str) -> None:
    done = make(checkout, "PYTHON=./python3.10", goal)
    assert done.returncode != 0
    assert "Python 3.11 or newer with venv is needed, ./python3.10 is: Python 3.10.4" in done.stderr
    assert not (checkout / ".venv").exists() and not (checkout / "was-called").exists()


def test_make_refuses_an_environment_with_an_old_python(checkout: Path) -> None:
    (checkout / ".venv" / "bin").mkdir(parents=True)
    (checkout / "python3.10").rename(checkout / ".venv" / "bin" / "python")
    done = make(checkout, "run")
    assert done.returncode != 0
    assert "Python 3.11 or newer is needed, .venv has: Python 3.10.4" in done.stderr
    assert not (checkout / "was-called").exists()


def test_make_says_what_it_does_before_it_takes_long() -> None:
    """pip is not silenced, and a line comes before it."""
    text = (ROOT / "Makefile").read_text()
    assert (
        "--quiet" not in text
        and 'echo "installing into' in text
        and 'echo "making an environment' in text
    )
