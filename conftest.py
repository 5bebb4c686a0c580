"""What the tests of the package and its examples share: `tetrad.jax` gives a process JAX's
conventions when it is imported, and only its own tests want them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

FOLDERS = ("tests/jax/", "tetrad/jax/", "docs/jax.md")
CONVENTIONS = "tetrad.jax.conventions"


def leave() -> None:
    if CONVENTIONS in sys.modules:
        sys.modules[CONVENTIONS].leave()


def enter(place: str) -> None:
    """JAX's conventions for its own tests."""
    if any(folder in place for folder in FOLDERS):
        __import__(CONVENTIONS)
        sys.modules[CONVENTIONS].use()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[Any]:
    """Modules make arrays while they are imported: each under the conventions of its tests."""
    enter(collector.nodeid)
    try:
        return (yield)
    finally:
        leave()


@pytest.fixture(autouse=True)
def conventions(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Those of JAX for its own tests; afterwards those of `td`, whatever was imported."""
    enter(request.node.nodeid)
    yield
    leave()
