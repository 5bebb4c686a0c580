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


# Ops may know each other by name, in text a name is a name, and these are kernels of single ops.
NAMES_ARE_NAMES = (
    "tetrad/ops/",
    "tetrad/graph/text.py",
    "tetrad/kernel/text.py",
)


def is_op_name(node: ast.AST) -> bool:
    """x.op.name, or op.name."""
    if not isinstance(node, ast.Attribute) or node.attr != "name":
        return False
    owner = node.value
    return getattr(owner, "attr", getattr(owner, "id", "")) == "op"


def aliases_of_op_names(module: Module) -> set[str]:
    """Variables that hold the name of an op."""
    found: set[str] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                pairs = [(target, node.value)]
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = list(zip(target.elts, node.value.elts, strict=False))
                found |= {
                    t.id for t, value in pairs if isinstance(t, ast.Name) and is_op_name(value)
                }
    return found


def compared_op_names(module: Module) -> Iterator[str]:
    """Comparisons with the name of an op, and look-ups under it but for the registry of names."""
    if module.path.startswith(NAMES_ARE_NAMES):
        return
    known = aliases_of_op_names(module)

    def holds_name(node: ast.AST) -> bool:
        return is_op_name(node) or (isinstance(node, ast.Name) and node.id in known)

    for node in ast.walk(module.tree):
        asked: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            asked = [node.left, *node.comparators]
        elif isinstance(node, ast.Subscript) and ast.unparse(node.value) != "REGISTRY":
            asked = [node.slice]
        elif isinstance(node, ast.Match):
            asked = [node.subject]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = ast.unparse(node.func.value)
            if node.func.attr in ("get", "index") and owner not in ("REGISTRY", "params"):
                asked = list(node.args)
            elif node.func.attr in ("startswith", "endswith"):
                asked = [node.func.value]
        if any(map(holds_name, asked)):
            yield f"{module.place(node)}: {ast.unparse(node)}"  # type: ignore[arg-type]


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


CHECKS = (
    unsafe_imports,
    unsafe_names,
    unsafe_settings,
    compared_op_names,
    missing_docstring,
    asserts_on_input,
)


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
        (compared_op_names, "node.op.name == 'reshape'"),
        (compared_op_names, "node.op.name not in LEAVES"),
        (compared_op_names, "KINDS[node.op.name]"),
        (compared_op_names, "KINDS.get(op.name)"),
        (compared_op_names, "kind, name = node.op.kind, node.op.name\nif name == 'add': pass"),
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
        (compared_op_names, "node.op is reshape or node.op.kind == 'reduce'"),
        (compared_op_names, "REGISTRY.get(node.op.name)"),
        (compared_op_names, "message = f'{node.op.name} is not compiled yet'"),
        (missing_docstring, ""),
        (asserts_on_input, "def f(self):\n    assert self.done"),
    ],
)
def test_what_only_looks_similar_is_accepted(
    check: Callable[[Module], Iterator[str]], text: str
) -> None:
    assert list(check(parse("tetrad/example.py", text))) == []
