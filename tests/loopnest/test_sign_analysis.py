"""Signs that follow from how a value is computed, and what the kernels make of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.graph.build import make_graph
from tetrad.graph.evaluate import evaluate
from tetrad.loopnest.sign_analysis import sign

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
    ("a quotient by -0", -1, lambda x, y: td.abs(x) / -0.0),
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
    ("a quotient by what may be +0 or -0", lambda x, y: 1 / (x - td.max(x, axis=1, keepdims=True))),
    ("a quotient by a root", lambda x, y: -1 / td.sqrt(x)),
    (
        "a quotient of integers",
        lambda x, y: td.abs(x) / td.astype(td.abs(td.astype(y, td.int32)), td.float32),
    ),
    ("integers wrap", lambda x, y: td.abs(td.astype(x, td.int32))),
]


def sign_of(function: Callable[..., Any]) -> int:
    return sign(td.trace(function)(X, Y).outputs[0])


@pytest.mark.parametrize(("name", "want", "function"), KNOWN, ids=[name for name, *_ in KNOWN])
def test_sign_is_known_and_true(name: str, want: int, function: Callable[..., Any]) -> None:
    assert sign_of(function) == want
    assert not (np.asarray(function(X, Y)) * want < 0).any()


@pytest.mark.parametrize(("name", "function"), UNKNOWN, ids=[name for name, _ in UNKNOWN])
def test_sign_is_not_known(name: str, function: Callable[..., Any]) -> None:
    assert sign_of(function) == 0


@pytest.mark.parametrize(
    ("name", "function"), [(n, f) for n, s, f in KNOWN if s < 0] + UNKNOWN[1:5]
)
def test_exp_is_right_whatever_is_known(name: str, function: Callable[..., Any]) -> None:
    got = td.jit(lambda x, y: td.exp(function(x, y) * 10))(X, Y)
    want = np.exp(np.asarray(function(X, Y), np.float64) * 10)
    np.testing.assert_allclose(np.asarray(got, np.float64), want, rtol=3e-5, atol=1e-40)


def test_a_group_like_another_has_signs_of_its_own() -> None:
    # The two groups look alike from the arrays in memory on; what is known of the first must not
    # serve the second.
    def both(x: Any, y: Any) -> Any:
        below = -td.sum(x * x, axis=1)
        return below, td.exp(below[:3]), td.exp(y[:3])

    *_, got = td.jit(both)(X, td.full((5,), 50.0))
    np.testing.assert_allclose(np.asarray(got), np.exp(50.0), rtol=1e-6)


@pytest.mark.parametrize("z", [-0.0, 0.0, -1e-45, np.inf, -np.inf, np.nan])
def test_exp_of_quotients_by_zeros(z: float) -> None:
    x = np.array([z, 1.0, 2.0], np.float32)

    def quotients(x: Any) -> Any:
        return (
            1 / (x - td.max(x)),
            -1 / td.sqrt(x),
            -td.abs(x) / -0.0,
            -1 / (x * x),
            td.square(x) / -(x * x),
        )

    got = td.jit(lambda x: [td.exp(q) for q in quotients(x)])(x)
    for g, q in zip(got, quotients(td.asarray(x)), strict=True):
        np.testing.assert_allclose(np.asarray(g), np.exp(np.asarray(q)), rtol=1e-6)


def test_bits_do_not_depend_on_what_is_known() -> None:
    def shifted(x: Any) -> Any:
        return x - td.max(x, axis=1, keepdims=True)

    inner = td.jit(td.exp)  # which knows nothing of its argument
    alone = td.jit(lambda x: td.exp(shifted(x)))(X)
    also_kept = td.jit(lambda x: (td.exp(shifted(x)), shifted(x)))(X)[0]
    called = td.jit(lambda x: inner(shifted(x)))(X)
    assert np.array_equal(np.asarray(alone), np.asarray(also_kept))
    assert np.array_equal(np.asarray(alone), np.asarray(called))


UNARY: list[Callable[[Any], Any]] = [
    td.abs, td.square, td.exp, td.sqrt, td.negative, td.negative, td.nn.sigmoid, td.nn.log_softmax,
    lambda a: td.reshape(td.reshape(a, (6, 2)), (3, 4)),
    lambda a: td.astype(td.astype(a, td.float16), td.float32),
    lambda a: td.astype(td.abs(td.astype(a, td.int32)), td.float32),
    lambda a: td.broadcast_to(td.sum(a, axis=1, keepdims=True), (3, 4)),
    lambda a: a - td.max(a, axis=0, keepdims=True),
    lambda a: a - td.max(a, axis=(0, 1), keepdims=True),
    lambda a: a - td.broadcast_to(td.max(a, axis=0), (3, 4)),
    lambda a: a - td.where(td.max(a, keepdims=True) == -np.inf, 0, td.max(a, keepdims=True)),
]  # fmt: skip
BINARY: list[Callable[[Any, Any], Any]] = [
    td.add, td.subtract, td.multiply, td.divide, td.divide, td.maximum, td.minimum,
    lambda a, b: a * a, lambda a, b: a * -a, lambda a, b: a / a, lambda a, b: a / -a,
    lambda a, b: td.where(a < b, a, b),
]  # fmt: skip
SPECIAL = np.array(
    [0, -0.0, 1, -1, 7, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 3e38, -3e38, 100, -100], "f"
)


def grown(rng: np.random.Generator, leaves: tuple[Any, ...], depth: int) -> Any:
    """A random expression whose ops have signs to be known or to be lost."""
    if depth == 0:
        at = int(rng.integers(len(leaves) + 1))
        return leaves[at] if at < len(leaves) else td.full((3, 4), float(rng.choice(SPECIAL)))
    if rng.random() < 0.5:
        return UNARY[rng.integers(len(UNARY))](grown(rng, leaves, depth - 1))
    left, right = (grown(rng, leaves, depth - 1) for _ in range(2))
    return BINARY[rng.integers(len(BINARY))](left, right)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_is_claimed_of_random_expressions_is_true() -> None:
    claims = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        arrays = [rng.choice(SPECIAL, (3, 4)) for _ in range(2)]
        graph = td.trace(lambda *xs, rng=rng: grown(rng, xs, int(rng.integers(2, 5))))(*arrays)
        nodes = [node for node in graph.nodes() if sign(node)]
        for node, value in zip(
            nodes, evaluate(make_graph("signs", graph.inputs, nodes), arrays), strict=True
        ):
            claims += 1
            assert not (value * float(sign(node)) < 0).any(), f"seed {seed}: {node}"
    assert claims > 500
