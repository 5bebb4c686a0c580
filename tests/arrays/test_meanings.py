"""Names of other libraries are answered by what they mean: what the answer names exists."""

from __future__ import annotations

import re
from operator import attrgetter
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.arrays.meanings import FUNCTIONS, INSIDE, METHODS

X = td.ones((2, 3))


def told(owner: Any, name: str) -> str:
    """What is said of a name that is not there; of one that is by now, nothing."""
    try:
        getattr(owner, name)
    except AttributeError as error:
        return str(error)
    pytest.skip(f"{name} is there")


def check_exists(said: str) -> None:
    for found in re.findall(r"\btd\.([\w.]*\w)", said):
        attrgetter(found)(td)
    for found in re.findall(r"\bnp\.(\w+)", said):
        getattr(np, found)
    for found in re.findall(r"\bx\.(\w+)", said):
        getattr(X, found)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    said = told(td, name)
    assert f"tetrad has no function {name!r}; here it is " in said
    check_exists(said)


@pytest.mark.parametrize("name", METHODS)
def test_methods(name: str) -> None:
    said = told(X, name)
    assert f"an array has no attribute {name!r}; here it is " in said
    check_exists(said)


@pytest.mark.parametrize(
    ("space", "name"), [(space, name) for space, names in INSIDE.items() for name in names]
)
def test_names_of_namespaces(space: str, name: str) -> None:
    said = told(getattr(td, space), name)
    assert f"tetrad.{space} has no function {name!r}; here it is " in said
    check_exists(said)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("conv2d", "td.nn.conv2d"),
        ("backward", "td.grad(f)"),
        ("no_grad", "not needed"),
        ("cat", "td.concat"),
        ("cuda", "everything runs on the CPU"),
        ("Tensor", "td.Array"),
        ("long", "td.int64"),
        ("GradientTape", "td.grad(f)"),
        ("manual_seed", "td.random.key"),
    ],
)
def test_names_that_people_type(name: str, meant: str) -> None:
    assert meant in told(td, name)


def test_a_name_that_is_spelt_otherwise_is_not_meant() -> None:
    assert told(td, "detech").endswith("'detech'")
