"""Bench, coming from JAX, names: which of the names that JAX programs use are here, by JAX's name.

Receives the table of names with the number of files that use each; a name of a module is looked up
in `tetrad.jax`, a method on an array, and what is said of a behaviour is tried.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import tetrad.jax as jax
import tetrad.jax.numpy as jnp
from tetrad.core import lazy
from tetrad.jax.interpreters.absent import AbsentPart

NAMES = Path(__file__).parents[1] / "tests" / "data" / "jax-names.csv"


def table() -> list[tuple[int, str]]:
    """(files, name), the most used first."""
    with NAMES.open(encoding="utf-8", newline="") as file:
        return [(int(row["files"]), row["name"]) for row in csv.DictReader(file)]


def coverage() -> float:
    """The share of uses whose name is here."""
    rows = table()
    here = sum(weight for weight, name in rows if is_here(name))
    return here / sum(weight for weight, _ in rows)


def missing() -> Iterator[tuple[int, str]]:
    return ((weight, name) for weight, name in table() if not is_here(name))


def is_here(name: str) -> bool:
    if name.startswith("behaviour: "):
        return behaves(name.removeprefix("behaviour: "))
    if name.startswith("Array."):
        return hasattr(jnp.ones((2, 2)), name.removeprefix("Array.").removesuffix("()"))
    return resolves(name.split(".")[1:])


def resolves(parts: list[str]) -> bool:
    """Is there an attribute at the end of this path from `tetrad.jax`?"""
    found: object = jax
    path = "tetrad.jax"
    for part in parts:
        path = f"{path}.{part}"
        try:
            found = getattr(found, part)
        except (AttributeError, NotImplementedError, ImportError):
            try:
                found = lazy.module(path)
            except ImportError:
                return False
    return not is_stand_in(found)


def is_stand_in(found: object) -> bool:
    """Does it only stand for a part of JAX that is not here?"""
    return isinstance(found, AbsentPart) or getattr(found, "is_absent", False) is True


def behaves(name: str) -> bool:
    word = name.partition(" ")[0]
    try:
        return bool(PROBES[word]())
    except (TypeError, ValueError, AttributeError, NotImplementedError):
        return False


def is_int32(x: object) -> bool:
    return getattr(x, "dtype", None) == np.int32


X = jnp.asarray([3.0, 1.0, 2.0])
M = jnp.asarray([[2.0, 0.0], [1.0, 3.0]])
PROBES: dict[str, Callable[[], bool]] = {  # by the first word of what is said
    "positional": lambda: (
        jnp.zeros(2, jnp.int32).dtype == np.int32 and jnp.array([1], jnp.float32).dtype == "float32"
    ),
    "linalg.norm": lambda: abs(float(jnp.linalg.norm(X)) - 14**0.5) < 1e-6,
    "argmax/argmin/argsort/searchsorted": lambda: all(
        map(is_int32, (jnp.argmax(X), jnp.argmin(X), jnp.argsort(X), jnp.searchsorted(X, 2.0)))
    ),
    "arithmetic": lambda: (X * np.sqrt(2.0)).dtype == np.float32,
    "precision=": lambda: (
        jnp.dot(M, M, precision="highest", preferred_element_type=jnp.float32).shape == (2, 2)
    ),
    "repeat(total_repeat_length=)": lambda: (
        jnp.repeat(X, jnp.asarray([1, 2, 0]), total_repeat_length=3).shape == (3,)
    ),
    "x.dtype": lambda: X.dtype == np.float32,
    "std/var(ddof=)": lambda: abs(float(jnp.std(X, ddof=1)) - 1.0) < 1e-6,
    "size=": lambda: (
        jnp.nonzero(X > 1.5, size=3)[0].shape == (3,)
        and jnp.where(X > 1.5, size=2)[0].shape == (2,)
        and jnp.unique(X, size=4).shape == (4,)
    ),
    "svd(compute_uv=)": lambda: jnp.linalg.svd(M, compute_uv=False).shape == (2,),
    "round(decimals)": lambda: float(jnp.round(jnp.asarray(1.26), 1)) == np.float32(1.3),
}
