"""Unrolling: the same results, step by step, and no loop left; fewer steps than there are keep the
loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.compiler.driver import compile_graph
from tetrad.compiler.pipeline import optimise
from tetrad.graph.nodes import Graph
from tetrad.passes import unroll as unrolling

C, XS = np.float32([0.5, -1.0]), np.linspace(-1, 1, 10, dtype=np.float32).reshape(5, 2)


def loop(unroll: int | bool, reverse: bool = False, length: int = 5) -> Any:
    def run(c: Any, xs: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            c, n = carry
            c = td.cumulative_sum(td.tanh(c + x)) * (n + 1)
            return (c, n + 1), {"c": c, "n": n, "sum": td.sum(c)}

        return td.scan(step, (c, 0), xs[:length], reverse=reverse, unroll=unroll)

    return run


def names(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes()]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [1, 2, 5])
def test_unrolled_steps_have_the_bits_of_the_loop(reverse: bool, length: int) -> None:
    wanted, _ = td.tree.flatten(td.jit(loop(1, reverse, length))(C, XS))
    for unroll in (length, 100, True):
        found, _ = td.tree.flatten(td.jit(loop(unroll, reverse, length))(C, XS))
        assert all(
            np.asarray(a).tobytes() == np.asarray(b).tobytes()
            for a, b in zip(found, wanted, strict=True)
        )


def test_only_a_whole_loop_is_unrolled() -> None:
    loops = [
        names(unrolling.unroll(td.trace(loop(unroll))(C, XS))).count("scan")
        for unroll in (1, 4, 5, True)
    ]
    assert loops == [1, 1, 0, 0]
    steps = compile_graph(td.trace(loop(True))(C, XS)).schedule.steps
    assert not any(step.name.startswith("scan") for step in steps)


def test_loops_without_steps_or_of_any_length_stay() -> None:
    final, ys = td.jit(loop(True, length=0))(C, XS)
    assert final[0].tolist() == C.tolist() and ys["c"].shape == (0, 2)
    n = td.Dim("n", max=8)
    run = td.jit(lambda xs: td.scan(lambda c, x: (c + x, c), 0.0, xs, unroll=3), dims=({0: n},))
    assert (
        run(np.float32([1, 2, 3]))[0].item() == 6 and run(np.float32([1, 2, 3, 4]))[0].item() == 10
    )


def test_derivatives_and_inner_loops_are_unrolled_too() -> None:
    def nested(c: Any, unroll: Any) -> Any:
        def inner(c: Any, x: Any) -> Any:
            return td.sin(c) * x, None

        def outer(c: Any, row: Any) -> Any:
            return td.scan(inner, c, row, unroll=unroll)[0], None

        return td.scan(outer, c, td.asarray(XS), unroll=unroll)[0]

    graph = optimise(td.trace(td.grad(lambda c: nested(c, True)))(td.asarray(0.3)))
    assert "scan" not in names(graph)
    found, wanted = (
        td.jit(td.grad(lambda c, u=u: nested(c, u)))(td.asarray(0.3)) for u in (True, 1)
    )
    assert found.item() == wanted.item()
