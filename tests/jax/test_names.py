"""The names of JAX that programs use: which share is here, and what those are that are not."""

from __future__ import annotations

import sys

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


def test_all_folders_that_are_listed_are_there() -> None:
    for module in ("tetrad.jax", "tetrad.jax.scipy", "tetrad.jax.experimental"):
        found = port_names.lazy.module(module)
        assert all(getattr(found, folder) for folder in found.FOLDERS)
    assert not hasattr(port_names.lazy.module("tetrad.jax"), "export")


FILES = sorted(
    str(path.relative_to(ROOT).with_suffix("")).replace("/", ".").removesuffix(".__init__")
    for path in (ROOT / "tetrad" / "jax").rglob("*.py")
)


@pytest.mark.parametrize("path", FILES)
def test_all_names_that_are_listed_are_there(path: str) -> None:
    found = port_names.lazy.module(path)
    assert not [name for name in dir(found) if not hasattr(found, name)]
