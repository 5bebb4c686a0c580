"""Hoisting: what a loop computes from constants alone is computed once, with the same result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.compiler.pipeline import optimise
from tetrad.graph.evaluate import evaluate
from tetrad.graph.nodes import Graph
from tetrad.graph.verify import verify
from tetrad.passes.hoist import hoist
from tetrad.passes.simplify import simplify


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
    graph = td.trace(lambda w, c: td.scan(lambda c, _: (c + (w + 1), None), c, length=3))(
        numbers(), numbers(4)
    )
    assert hoist(graph, simplify.apply) is graph


def test_a_matrix_is_turned_around_once() -> None:
    better = check(
        lambda w, c: td.scan(lambda c, _: (w @ c, None), c, length=3)[0], numbers(4, 4), numbers(4)
    )
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
    # Sizes of its own: equal nodes are one node, with the line that made it first.
    better = check(
        lambda w, c: td.scan(lambda c, _: (w @ c, None), c, length=3)[0],
        numbers(41, 41),
        numbers(41),
    )
    (turned,) = [node for node in better.nodes() if node.op.name == "transpose"]
    assert turned.source is not None and turned.source.file.endswith("test_hoist.py")


def test_a_carry_that_is_handed_on_is_a_constant() -> None:
    def f(w: Any, c: Any, xs: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            w, c, n = carry
            return (w, td.tanh(c @ w + x), n + 1), c

        return td.scan(step, (w, c, 0), xs)

    better = check(f, numbers(4, 4), numbers(4), numbers(5, 4))
    loop = loop_in(better)
    assert (loop.param("consts"), loop.param("carries")) == (1, 2)
    assert better.outputs[0] is better.inputs[0]


def test_a_carry_of_a_while_loop_that_is_handed_on_is_a_constant() -> None:
    def f(limit: Any, x: Any) -> Any:
        return td.while_loop(
            lambda s: td.sum(s[1]) < s[0], lambda s: (s[0], s[1] * 2 + s[0]), (limit, x)
        )

    better = check(f, np.array(100.0), np.ones(3))
    loop = loop_in(better)
    assert (loop.param("condition_consts"), loop.param("body_consts"), len(loop.types)) == (1, 1, 1)
    assert better.outputs[0] is better.inputs[0]


def test_what_may_fail_stays_in_a_loop_that_may_not_run() -> None:
    def f(table: Any, i: Any, x: Any) -> Any:
        picked = td.while_loop(lambda x: td.sum(x) < 0, lambda x: x + td.sum(td.take(table, i)), x)
        return td.scan(lambda c, _: (c + td.sum(td.take(table, i)), None), picked, length=2)[0]

    better = check(f, numbers(6), np.array([0, 2]), np.ones(2))
    bodies = [
        node.param("body") for node in better.nodes() if node.op.name in ("while_loop", "scan")
    ]
    assert ["gather" in names(body) for body in bodies] == [True, False]


def test_a_refused_element_stops_only_a_loop_that_runs() -> None:
    """Integers to a negative power are an error, in a step that runs."""

    def f(x: Any, y: Any, n: Any) -> Any:
        def step(carry: Any) -> Any:
            return carry[0] + 1, carry[1] + td.pow(x, y)

        return td.while_loop(lambda carry: carry[0] < n, step, (0, td.zeros_like(x)))[1]

    x, y = np.full(3, 2, np.int32), np.full(3, -1, np.int32)
    assert np.asarray(td.jit(f)(x, y, np.int32(0))).tolist() == [0, 0, 0]
    with pytest.raises(td.errors.BadInputs, match="exponents of i32 must not be negative"):
        td.jit(f)(x, y, np.int32(1))
