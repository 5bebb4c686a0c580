"""Loops grown at random: compiled code gives the kernel evaluator's bits, and what the graph
means."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tetrad as td
from tests.compiled import run, run_on_evaluator
from tetrad.compiler.driver import compile_graph
from tetrad.graph.evaluate import evaluate
from tetrad.passes import plan_loop
from tetrad.passes.inline_custom import inline_custom

WORK = (
    "tanh",
    "softmax",
    "product",
    "running sum",
    "update",
    "choice",
    "exchange",
    "sum",
    "inner loop",
)


def work(name: str, a: Any, b: Any, i: Any, x: Any, w: Any) -> tuple[Any, Any]:
    match name:
        case "tanh":
            return td.tanh(a) + x, b
        case "softmax":
            return a, td.nn.softmax(a + b)
        case "product":
            return w @ a + x, b
        case "running sum":
            return a, td.cumulative_sum(b) * 0.5
        case "update":
            return td.dynamic_update_index_in_dim(a, td.dynamic_index_in_dim(b, i) * 2, i + 1, 0), b
        case "choice":
            return td.cond(td.sum(a) > td.sum(b), lambda: (b, a), lambda: (a * 2, b))
        case "exchange":
            return b, a
        case "sum":
            return a, b + td.sum(a) * 0.1
        case _:
            return a, td.scan(lambda c, v: (c * 0.5 + v, None), b, td.stack([a, b]))[0]


@settings(max_examples=60, deadline=None)
@given(
    names=st.lists(st.sampled_from(WORK), min_size=1, max_size=3),
    kind=st.sampled_from(["scan", "reverse", "while", "fori"]),
    width=st.sampled_from([1, 3, 16, 20]),
    steps=st.integers(0, 4),
)
@example(names=["tanh"], kind="scan", width=3, steps=1)  # all lanes write a carry without axes
def test_random_loops(names: list[str], kind: str, width: int, steps: int) -> None:
    rng = np.random.default_rng(width + 10 * steps)
    w, a, b = (
        rng.normal(size=shape).astype(np.float32) / 2 for shape in ((width, width), width, width)
    )
    xs = rng.normal(size=(steps, width)).astype(np.float32)

    def step(state: Any, x: Any) -> Any:
        a, b, i = state
        for name in names:
            a, b = work(name, a, b, i, x, td.asarray(w))
        return (a, b, i + 1), (a, td.sum(b), state[1])

    def f(a: Any, b: Any, xs: Any) -> Any:
        if kind in ("scan", "reverse"):
            return td.scan(step, (a, b, 0), xs, reverse=kind == "reverse")
        if kind == "fori":
            return td.fori_loop(0, steps, lambda i, s: step(s, b)[0], (a, b, 0))
        return td.while_loop(lambda s: s[2] < steps, lambda s: step(s, b)[0], (a, b, 0))

    graph = inline_custom(td.trace(f)(a, b, xs))
    made = compile_graph(graph)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan_loop, "is_small", lambda *bodies: False)
        stepped = compile_graph(graph)
    for got, expected in zip(run(made, (a, b, xs)), run(stepped, (a, b, xs)), strict=True):
        assert got.tobytes() == expected.tobytes()
    want, meant = run_on_evaluator(made, (a, b, xs)), evaluate(graph, (a, b, xs))
    for threads in (1, 2):
        for got, expected in zip(run(made, (a, b, xs), threads=threads), want, strict=True):
            assert got.tobytes() == expected.tobytes()
    for got, value in zip(want, meant, strict=True):
        np.testing.assert_allclose(
            got.astype(np.float64), value.astype(np.float64), rtol=2e-4, atol=2e-4
        )
