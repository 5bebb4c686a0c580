"""The names of JAX that programs use: which share is here, and what those are that are not."""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from tests.modules import ROOT
from tetrad.core.errors import UnsupportedError

sys.path.insert(0, str(ROOT / "bench"))
import port_names

WANTED = 0.95
MODULES = (
    "", "numpy", "numpy.linalg", "numpy.fft", "lax", "lax.linalg", "nn", "nn.initializers",
    "random", "scipy.special", "scipy.linalg", "scipy.optimize", "scipy.stats", "tree", "tree_util",
    "ops", "dtypes", "errors", "experimental", "sharding", "debug", "profiler", "core",
)  # fmt: skip


def test_nearly_all_uses_of_names_are_here() -> None:
    assert port_names.coverage() >= WANTED


def test_a_name_that_is_nowhere_is_missing() -> None:
    assert not port_names.is_here("jax.numpy.no_such_function")
    assert not port_names.is_here("Array.no_such_method()")
    assert port_names.is_here("jax.numpy.sin")


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m or "jax")
def test_an_unknown_name_is_an_error_that_says_where(module: str) -> None:
    path = f"tetrad.jax.{module}".rstrip(".")
    found = port_names.lazy.module(path)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = found.no_such_name


@pytest.mark.parametrize("name", ["experimental.sparse", "experimental.pallas", "export", "ffi"])
def test_what_is_not_offered_is_an_error(name: str) -> None:
    with pytest.raises((AttributeError, ImportError, UnsupportedError), match=name.split(".")[-1]):
        port_names.lazy.module(f"tetrad.jax.{name}")


def modules(path: str = "tetrad.jax") -> Iterator[ModuleType]:
    """The module of this path, and all below it."""
    found = port_names.lazy.module(path)
    yield found
    for each in pkgutil.iter_modules(getattr(found, "__path__", ())):
        yield from modules(f"{path}.{each.name}")


@pytest.mark.parametrize("module", list(modules()), ids=lambda m: m.__name__)
def test_every_name_that_a_module_lists_is_there(module: ModuleType) -> None:
    assert [name for name in dir(module) if not hasattr(module, name)] == []


def test_private_modules_are_the_public_ones() -> None:
    private = port_names.lazy.module("tetrad.jax._src.core")
    assert private is port_names.lazy.module("tetrad.jax").core
    absent = port_names.lazy.module("tetrad.jax.interpreters.mlir")
    with pytest.raises(UnsupportedError, match=r"jax\.interpreters\.mlir\.register_lowering"):
        absent.register_lowering()
