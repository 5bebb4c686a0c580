"""What the source of the package must never contain, and what every module must have."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

import pytest

from tests.modules import Module, package_modules, parse

UNSAFE_MODULES = {"pickle", "marshal", "shelve"}  # reading their data runs code
UNSAFE_CALLS = {"eval", "exec"}
UNSAFE_SETTINGS = {"shell", "allow_pickle"}

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def unsafe_imports(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        if isinstance(node, ast.Import | ast.ImportFrom) and UNSAFE_MODULES & {
            n.partition(".")[0] for n in names
        }:
            yield f"{module.place(node)}: imports {', '.join(names)}"


def unsafe_names(module: Module) -> Iterator[str]:
    """Any mention of the builtin, called or handed on; a method that happens to have the name is
    another thing."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Name) and node.id in UNSAFE_CALLS:
            yield f"{module.place(node)}: {node.id}"
        if (
            isinstance(node, ast.Attribute)
            and node.attr in UNSAFE_CALLS
            and ast.unparse(node.value) == "builtins"
        ):
            yield f"{module.place(node)}: builtins.{node.attr}"


def unsafe_settings(module: Module) -> Iterator[str]:
    """`shell=` and `allow_pickle=` with anything but a literal False."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.keyword) and node.arg in UNSAFE_SETTINGS:
            off = isinstance(node.value, ast.Constant) and node.value.value is False
            if not off:
                yield f"{module.place(node)}: {node.arg}={ast.unparse(node.value)}"


def missing_docstring(module: Module) -> Iterator[str]:
    if module.tree.body and not ast.get_docstring(module.tree):
        yield f"{module.path}: no docstring"


def parameters(function: Function) -> set[str]:
    a = function.args
    every = [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))]
    return {arg.arg for arg in every} - {"self", "cls"}


def asserts_on_input(module: Module) -> Iterator[str]:
    """An assert that reads a parameter: it is gone under `python -O`, so input must be refused by
    raising."""
    found: dict[str, None] = {}
    for function in ast.walk(module.tree):
        if not isinstance(function, Function):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Assert):
                read = {n.id for n in ast.walk(node.test) if isinstance(n, ast.Name)}
                if read & parameters(function):
                    found[f"{module.place(node)}: {ast.unparse(node)}"] = None
    yield from found


CHECKS = (unsafe_imports, unsafe_names, unsafe_settings, missing_docstring, asserts_on_input)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_package_has_none_of(check: Callable[[Module], Iterator[str]]) -> None:
    assert [line for module in package_modules() for line in check(module)] == []


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (unsafe_imports, "import pickle"),
        (unsafe_imports, "from marshal import loads"),
        (unsafe_imports, "def f():\n    import shelve as s"),
        (unsafe_names, "eval('1')"),
        (unsafe_names, "run = exec"),
        (unsafe_names, "builtins.exec('x = 1')"),
        (unsafe_settings, "run('ls', shell=True)"),
        (unsafe_settings, "np.load(path, allow_pickle=flag)"),
        (missing_docstring, "x = 1"),
        (asserts_on_input, "def f(n):\n    assert n > 0"),
        (asserts_on_input, "def f(n):\n    def g():\n        assert n > 0"),
        (asserts_on_input, "def f(*, xs):\n    assert all(x > 0 for x in xs)"),
    ],
)
def test_an_offence_is_found(check: Callable[[Module], Iterator[str]], text: str) -> None:
    assert len(list(check(parse("tetrad/example.py", text)))) == 1


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (unsafe_names, "model.eval()"),
        (unsafe_settings, "np.load(path, allow_pickle=False)"),
        (missing_docstring, ""),
        (asserts_on_input, "def f(self):\n    assert self.done"),
    ],
)
def test_what_only_looks_similar_is_accepted(
    check: Callable[[Module], Iterator[str]], text: str
) -> None:
    assert list(check(parse("tetrad/example.py", text))) == []
