"""Hoisting: what a loop computes from constants alone is computed once, with the same result."""

from __future__ import annotations

from typing import Any

import numpy as np

import tetrad as td
from tetrad.graph.evaluate import evaluate
from tetrad.graph.nodes import Graph
from tetrad.graph.verify import verify
from tetrad.passes.hoist import hoist
from tetrad.passes.pipeline import optimise, simplify


def names(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes()]


def loop_in(graph: Graph) -> Any:
    return next(node for node in graph.nodes() if node.op.name in ("scan", "while_loop"))


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def check(function: Any, *arrays: np.ndarray) -> Graph:
    graph = td.trace(function)(*arrays)
    better = hoist(graph, simplify.apply)
    verify(better)
    for a, b in zip(evaluate(better, arrays), evaluate(graph, arrays), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    assert hoist(better, simplify.apply) is better
    return better


def test_costly_work_on_constants_leaves_the_loop() -> None:
    def f(w: Any, c: Any, xs: Any) -> Any:
        return td.scan(lambda c, x: (c * td.sum(td.exp(w), axis=0) + x, td.sin(c)), c, xs)

    better = check(f, numbers(3, 4), numbers(4), numbers(5, 4))
    assert {"exp", "reduce_sum"} <= set(names(better))
    assert not {"exp", "reduce_sum"} & set(names(loop_in(better).param("body")))
    assert "sin" in names(loop_in(better).param("body"))


def test_cheap_work_and_broadcasts_stay() -> None:
    graph = td.trace(lambda w, c: td.scan(lambda c, _: (c + (w + 1), None), c, length=3))(numbers(), numbers(4))
    assert hoist(graph, simplify.apply) is graph


def test_a_matrix_is_turned_around_once() -> None:
    better = check(lambda w, c: td.scan(lambda c, _: (w @ c, None), c, length=3)[0], numbers(4, 4), numbers(4))
    assert "transpose" in names(better)
    assert "transpose" not in names(loop_in(better).param("body"))


def test_while_loops_and_loops_inside_loops() -> None:
    def f(w: Any, c: Any) -> Any:
        def step(s: Any) -> Any:
            return td.scan(lambda c, _: (td.tanh(w @ c), None), s[0], length=2)[0], s[1] + 1

        return td.while_loop(lambda s: (s[1] < 3) & (td.sum(w) < 100), step, (c, 0))

    arrays = numbers(4, 4), numbers(4)
    graph = td.trace(f)(*arrays)
    better = optimise(graph)
    assert "transpose" in names(better)
    assert "transpose" not in names(loop_in(better).param("body"))
    for a, b in zip(evaluate(better, arrays), evaluate(graph, arrays), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_moved_nodes_keep_the_users_line() -> None:
    better = check(lambda w, c: td.scan(lambda c, _: (w @ c, None), c, length=3)[0], numbers(4, 4), numbers(4))
    (turned,) = [node for node in better.nodes() if node.op.name == "transpose"]
    assert turned.source is not None and turned.source.file.endswith("test_hoist.py")
