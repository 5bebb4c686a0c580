"""The rules of the house: where a processor may be named, how large a folder may be, who imports by
name, and that a class name means one thing."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

import pytest

from tests.modules import Module, package_modules, parse

PROCESSOR = re.compile(r"x86|avx|neon|aarch64|znver|amd64", re.I)
MOST_FILES = 25  # of a folder, without what its folders hold and without __init__.py
LAZY = "tetrad/core/lazy.py"


def code_of(module: Module) -> str:
    """The source without comments and docstrings."""
    tree = ast.parse(ast.unparse(module.tree))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and is_text(body[0]):
            body[0] = ast.Pass()
    return ast.unparse(tree)


def is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def named_processors(module: Module) -> Iterator[str]:
    if not module.path.startswith("tetrad/backends/") and PROCESSOR.search(module.text):
        for line in code_of(module).splitlines():
            if PROCESSOR.search(line):
                yield f"{module.path}: {line.strip()}"


def imports_by_name(module: Module) -> Iterator[str]:
    """`importlib.util` looks for packages and loads none."""
    if module.path == LAZY:
        return
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Name) and node.id in ("__import__", "import_module"):
            yield f"{module.place(node)}: {node.id}"
        if isinstance(node, ast.Attribute) and node.attr == "import_module":
            yield f"{module.place(node)}: {ast.unparse(node)}"


def crowded_folders(modules: Iterable[Module]) -> list[str]:
    paths = (PurePosixPath(module.path) for module in modules)
    files = Counter(str(path.parent) for path in paths if path.name != "__init__.py")
    return [f"{folder}: {count} files" for folder, count in files.items() if count > MOST_FILES]


def repeated_classes(modules: Iterable[Module]) -> dict[str, list[str]]:
    found = defaultdict(list)
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(module.place(node))
    return {name: places for name, places in found.items() if len(places) > 1}


def test_no_processor_is_named_outside_the_back_ends() -> None:
    assert [line for module in package_modules() for line in named_processors(module)] == []


def test_nothing_but_lazy_imports_by_name() -> None:
    assert [line for module in package_modules() for line in imports_by_name(module)] == []


def test_no_folder_is_crowded() -> None:
    assert crowded_folders(package_modules()) == []


def test_a_class_name_stands_once_in_the_package() -> None:
    found = repeated_classes(package_modules())
    assert found == {}


@pytest.mark.parametrize(
    "text", ["name = 'x86-64-v3'", "def avx2(): ...", "f(neon=True)", "a = f'{b}-AArch64'"]
)
def test_the_name_of_a_processor_is_found(text: str) -> None:
    assert len(list(named_processors(parse("tetrad/ops/example.py", text)))) == 1
    assert list(named_processors(parse("tetrad/backends/cpu/example.py", text))) == []


@pytest.mark.parametrize(
    "text", ["x = 1  # of x86-64", "'''AVX2.'''", "def f():\n    '''For NEON.'''\n    return 1"]
)
def test_prose_may_name_a_processor(text: str) -> None:
    assert list(named_processors(parse("tetrad/ops/example.py", text))) == []


@pytest.mark.parametrize(
    "text",
    ["importlib.import_module('os')", "__import__('os')", "from x import y; import_module(y)"],
)
def test_an_import_by_name_is_found(text: str) -> None:
    assert len(list(imports_by_name(parse("tetrad/ops/example.py", text)))) == 1
    assert list(imports_by_name(parse(LAZY, text))) == []


def test_looking_for_a_package_is_no_import() -> None:
    text = "importlib.util.find_spec('onnx')"
    assert list(imports_by_name(parse("tetrad/ops/example.py", text))) == []


def test_a_crowded_folder_is_found() -> None:
    files = [parse(f"tetrad/a/{i}.py", "") for i in range(MOST_FILES)]
    inner = [parse("tetrad/a/b/c.py", ""), parse("tetrad/a/__init__.py", "")]
    assert crowded_folders([*files, *inner]) == []
    assert crowded_folders([*files, parse("tetrad/a/z.py", "")]) == ["tetrad/a: 26 files"]


def test_a_repeated_class_is_found() -> None:
    files = [parse(f"tetrad/{name}.py", "class Same: ...") for name in "ab"]
    assert repeated_classes(files) == {"Same": ["tetrad/a.py:1", "tetrad/b.py:1"]}
    assert repeated_classes(files[:1]) == {}
