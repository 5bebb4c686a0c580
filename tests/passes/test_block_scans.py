"""Rounds: `unroll=n` gives n steps a trip of the loop, the rest after them, and the bits of one
step a trip."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.compiler.driver import compile_graph
from tetrad.passes import plan_loop
from tetrad.schedule.nodes import Launch, Loop

rng = np.random.default_rng(5)
MATRIX = (rng.standard_normal((6, 6)) * 0.4).astype(np.float32)
START, XS = (
    rng.standard_normal(6).astype(np.float32),
    rng.standard_normal((7, 6)).astype(np.float32),
)


def elements(c: Any, x: Any) -> Any:
    c = td.tanh(c * 0.9 + x)
    return c, c * x


def product(c: Any, x: Any) -> Any:
    c = td.tanh(c @ td.asarray(MATRIX) + x)
    return c, c * 2


def sums(c: Any, x: Any) -> Any:
    c = td.cumulative_sum(td.sin(c + x)) * 0.1
    return c, {"c": c, "sum": td.sum(c)}


def buffer(carry: Any, x: Any) -> Any:
    """A carry that is changed in place, and read before."""
    c, rows, i = carry
    c = td.cumulative_sum(td.sin(c + x)) * 0.1
    return (c, rows.at[i].set(c), i + 1), td.sum(rows)


BODIES = (elements, product, sums, buffer)


def loop(body: Callable[[Any, Any], Any], unroll: int, **settings: Any) -> Any:
    def run(c: Any, xs: Any) -> Any:
        init = (c, td.zeros((xs.shape[0] + 1, 6)), 0) if body is buffer else c
        return td.scan(body, init, xs, unroll=unroll, **settings)

    return run


def loss(run: Any) -> Any:
    return lambda c, xs: sum(
        td.sum(td.astype(leaf, td.float32) ** 2) for leaf in td.tree.flatten(run(c, xs))[0]
    )


def bits(tree: Any) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in td.tree.flatten(tree)[0]]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("body", BODIES, ids=lambda f: f.__name__)
def test_rounds_have_the_bits_of_single_steps(body: Any, reverse: bool) -> None:
    wanted = bits(td.jit(loop(body, 1, reverse=reverse))(START, XS))
    eager = bits(loop(body, 3, reverse=reverse)(START, XS))
    assert eager == bits(loop(body, 1, reverse=reverse)(START, XS))
    for unroll in (2, 3, 6):
        assert bits(td.jit(loop(body, unroll, reverse=reverse))(START, XS)) == wanted
    wanted = bits(td.jit(loop(body, 1, reverse=reverse))(START, XS[:6]))
    assert bits(td.jit(loop(body, 3, reverse=reverse))(START, XS[:6])) == wanted  # none are left


@pytest.mark.parametrize("body", BODIES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("checkpoint", [None, "sqrt", ("binomial", 2)], ids=str)
def test_rounds_of_derivatives(body: Any, checkpoint: Any) -> None:
    wanted, found = (
        td.jit(td.value_and_grad(loss(loop(body, unroll, checkpoint=checkpoint)), argnums=(0, 1)))(
            START, XS
        )
        for unroll in (1, 3)
    )
    assert bits(found) == bits(wanted)


@pytest.mark.parametrize("body", [product, sums], ids=lambda f: f.__name__)
def test_rounds_forward_and_of_batches(body: Any) -> None:
    batch = np.stack([START, 2 * START, START - 1])
    for transform in (
        lambda run: lambda c, xs: td.jvp(run, (c[0], xs), (c[1], xs)),
        lambda run: td.vmap(run, in_axes=(0, None)),
        lambda run: td.vmap(td.grad(loss(run)), in_axes=(0, None)),
    ):
        wanted, found = (td.jit(transform(loop(body, unroll)))(batch, XS) for unroll in (1, 2))
        assert bits(found) == bits(wanted)


def steps_of(body: Any, unroll: int) -> list[Any]:
    return list(compile_graph(td.trace(loop(body, unroll))(START, XS)).schedule.steps)


def test_a_trip_has_so_many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = [step.program.name for step in steps_of(sums, 3) if isinstance(step, Launch)]
    assert sum(name.startswith("scan") for name in blocked) == 2  # each loop is one kernel
    monkeypatch.setattr(plan_loop, "is_small", lambda *bodies: False)
    lengths = [step.length for step in steps_of(sums, 3) if isinstance(step, Loop)]
    assert lengths == [2, 1]  # two rounds of three, and one step
    for body in (elements, product):  # a loop within a kernel
        (one,), (three,) = ([s for s in steps_of(body, n) if isinstance(s, Launch)] for n in (1, 3))
        assert len(str(three.program)) > 2 * len(str(one.program))


def test_rounds_of_any_length() -> None:
    n = td.Dim("n", max=8)
    run = td.jit(
        lambda xs: td.scan(lambda c, x: (c * 0.5 + x, c), 0.0, xs, unroll=3), dims=({0: n},)
    )
    for count in range(1, 8):
        xs = XS[:count, 0]
        wanted = td.jit(lambda xs: td.scan(lambda c, x: (c * 0.5 + x, c), 0.0, xs))(xs)
        assert bits(run(xs)) == bits(wanted)
    assert run.compiles == 1


def test_a_failing_step_of_a_round_names_its_line() -> None:
    def step(c: Any, i: Any) -> Any:
        return c + td.cumulative_sum(td.asarray(START)[i + td.arange(2)])[0], None

    with pytest.raises(IndexError, match=r"test_block_scans\.py"):
        td.jit(lambda i: td.scan(step, 0.0, i, unroll=2))(np.int32([0, 1, 9]))
