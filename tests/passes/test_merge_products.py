"""passes.merge_products: one product in place of several, with the same bits; where it must not
fire, and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.compiler.pipeline import optimise
from tetrad.graph.nodes import Graph
from tetrad.graph.text import to_text
from tetrad.ops.matmul.op import matmul
from tetrad.passes.merge_products import candidates

RNG = np.random.default_rng(1)
H, N = 32, 4
W = [RNG.standard_normal((H, H)).astype(np.float32) for _ in range(4)]
BIAS = [w[0] for w in W]
X = RNG.standard_normal((2, 5, H)).astype(np.float32)


def heads(x: Any) -> Any:
    return td.reshape(x, (*x.shape[:-1], N, H // N))


def attend(q: Any, k: Any, v: Any, **settings: Any) -> Any:
    return td.nn.dot_product_attention(heads(q), heads(k), heads(v), **settings)


def block(x: Any) -> Any:
    return attend(*(td.nn.linear(x, w, b) for w, b in zip(W[:3], BIAS, strict=False)))


def products(graph: Graph) -> int:
    return sum(node.op is matmul for node in graph.nodes())


def traced(f: Callable[..., Any]) -> Graph:
    return optimise(td.trace(f)(td.Spec(X.shape)))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("turned", [True, False])
def test_one_product_and_the_same_bits(bias: bool, turned: bool) -> None:
    def layer(x: Any, w: Any, b: Any) -> Any:
        y = td.nn.linear(x, w) if turned else td.matmul(x, w)
        return y + b if bias else y

    def made(x: Any, weights: Any, biases: Any) -> Any:
        return attend(*(layer(x, w, b) for w, b in zip(weights, biases, strict=True)))

    def known(x: Any) -> Any:
        return made(x, W[:3], BIAS[:3])

    assert products(traced(known)) == 1
    apart = td.jit(made)(X, W[:3], BIAS[:3])  # weights that are arguments are not known yet
    together = td.jit(known)(X)
    assert np.asarray(together).tobytes() == np.asarray(apart).tobytes()


def test_heads_in_groups_and_rotations_take_slices() -> None:
    cos, sin = td.nn.rope_tables(5, H // N)

    def grouped(x: Any) -> Any:
        q = heads(x @ W[0])
        k, v = (td.reshape(x @ w[:, :16], (2, 5, 2, 8)) for w in W[1:3])
        return td.nn.dot_product_attention(td.nn.rope(q, cos, sin), td.nn.rope(k, cos, sin), v)

    assert products(traced(grouped)) == 1
    np.testing.assert_allclose(np.asarray(td.jit(grouped)(X)), grouped(X), atol=1e-4)


CASES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "gated": (
        lambda x: td.nn.silu(x @ W[0]) * (x @ W[1]),
        "works on one of the results",
    ),
    "an output": (
        lambda x: (x @ W[0], td.permute_dims(x @ W[1], (1, 0, 2))),
        "a result is an output of the program",
    ),
    "biases differ": (
        lambda x: attend(td.nn.linear(x, W[0], BIAS[0]), *(td.nn.linear(x, w) for w in W[1:3])),
        "some have a bias, some have none",
    ),
    "another reader": (
        lambda x: (block(x), td.tanh(td.nn.linear(x, W[0], BIAS[0]))),
        "works on one of the results",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_where_it_does_not_fire(name: str) -> None:
    function, why = CASES[name]
    graph = traced(function)
    assert products(graph) > 1
    reasons = [merge.why_not for merge in candidates(graph)]
    assert len(reasons) == 1 and why in reasons[0], reasons
    got, want = td.jit(function)(X), function(X)
    for a, b in zip(td.tree.leaves(got), td.tree.leaves(want), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), atol=1e-4)


def test_arrays_that_differ_stay_apart() -> None:
    def cross(x: Any) -> Any:
        return attend(x @ W[0], td.tanh(x) @ W[1], td.tanh(x) @ W[2])

    assert products(traced(cross)) == 2
    np.testing.assert_allclose(np.asarray(td.jit(cross)(X)), cross(X), atol=1e-4)


def test_before_and_after_are_on_file(golden: Callable[[str, str], None]) -> None:
    small = [np.eye(4, dtype=np.float32), np.ones((4, 4), np.float32)]

    def two(x: Any) -> Any:
        parts = [td.reshape(td.nn.linear(x, w, w[0]), (2, 3, 2, 2)) for w in small]
        return td.nn.dot_product_attention(parts[0], parts[1], parts[1])

    before = td.trace(two)(td.Spec((2, 3, 4)))
    golden(
        "merge_products",
        "# ->\n".join(to_text(g, sources=False) for g in (before, optimise(before))),
    )
