"""Signs that follow from how a value is computed, and what the kernels make of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.lower.signs import sign

X = td.asarray(np.linspace(-3, 3, 25, dtype=np.float32).reshape(5, 5))
Y = td.asarray(np.linspace(-1, 2, 25, dtype=np.float32).reshape(5, 5))
KNOWN: list[tuple[str, int, Callable[..., Any]]] = [
    ("a square", 1, lambda x, y: td.square(x)),
    ("a product with itself", 1, lambda x, y: x * x),
    ("a gaussian", -1, lambda x, y: -((x - y) ** 2) / 2),
    ("a scaled gaussian", -1, lambda x, y: -0.5 * ((x - 1) / (y * y)) ** 2),
    ("minus x times x", -1, lambda x, y: -x * x),
    ("a distance", -1, lambda x, y: -td.sum((x - y) ** 2, axis=1, keepdims=True)),
    ("below the largest of a row", -1, lambda x, y: x - td.max(x, axis=1, keepdims=True)),
    ("below the largest of a column", -1, lambda x, y: x - td.max(x, axis=0, keepdims=True)),
    ("below the largest of all", -1, lambda x, y: x - td.max(x, keepdims=True)),
    ("a maximum", 1, lambda x, y: td.maximum(x, 0.0)),
    ("a minimum", -1, lambda x, y: td.minimum(-td.abs(x), y)),
    ("a difference", 1, lambda x, y: td.abs(x) - -td.exp(y)),
    ("a sum", 1, lambda x, y: td.abs(x) + td.exp(y)),
]
UNKNOWN: list[tuple[str, Callable[..., Any]]] = [
    ("an input", lambda x, y: x),
    ("a sum of both signs", lambda x, y: td.abs(x) - td.exp(y)),
    ("the largest of another row", lambda x, y: x - td.max(x, axis=1)),
    ("the largest of another array", lambda x, y: x - td.max(y, axis=1, keepdims=True)),
    ("the smallest", lambda x, y: x - td.min(x, axis=1, keepdims=True)),
    ("not a number", lambda x, y: x * 0 + float("nan")),
    ("integers wrap", lambda x, y: td.abs(td.astype(x, td.int32))),
]


def sign_of(function: Callable[..., Any]) -> int:
    return sign(td.trace(function)(X, Y).outputs[0])


@pytest.mark.parametrize(("name", "want", "function"), KNOWN, ids=[name for name, *_ in KNOWN])
def test_sign_is_known_and_true(name: str, want: int, function: Callable[..., Any]) -> None:
    assert sign_of(function) == want
    assert (np.asarray(function(X, Y)) * want >= 0).all()


@pytest.mark.parametrize(("name", "function"), UNKNOWN, ids=[name for name, _ in UNKNOWN])
def test_sign_is_not_known(name: str, function: Callable[..., Any]) -> None:
    assert sign_of(function) == 0


@pytest.mark.parametrize(("name", "function"), [(n, f) for n, s, f in KNOWN if s < 0] + UNKNOWN[1:5])
def test_exp_is_right_whatever_is_known(name: str, function: Callable[..., Any]) -> None:
    got = td.jit(lambda x, y: td.exp(function(x, y) * 10))(X, Y)
    want = np.exp(np.asarray(function(X, Y), np.float64) * 10)
    np.testing.assert_allclose(np.asarray(got, np.float64), want, rtol=3e-5, atol=1e-40)


def test_bits_do_not_depend_on_what_is_fused() -> None:
    def shifted(x: Any) -> Any:
        return x - td.max(x, axis=1, keepdims=True)

    alone = td.jit(lambda x: td.exp(shifted(x)))(X)
    also_kept = td.jit(lambda x: (td.exp(shifted(x)), shifted(x)))(X)[0]
    assert np.array_equal(np.asarray(alone), np.asarray(also_kept))
