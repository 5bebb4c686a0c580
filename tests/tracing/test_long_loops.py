"""Loops outside jit: long ones are compiled, with the bits of jit; short ones, and those with
effects, are evaluated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.compiler import run_graphs
from tetrad.graph.loops import operations
from tetrad.graph.patience import OutOfPatience, limited, spend

LONG = 5000


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The graphs that were compiled because they are long."""
    found: list[Any] = []
    run = run_graphs.run

    def noted(graph: Any, arrays: Any) -> Any:
        found.append(graph)
        return run(graph, arrays)

    monkeypatch.setattr(run_graphs, "run", noted)
    return found


def rows(count: int) -> np.ndarray:
    return np.random.default_rng(count).random(count, dtype=np.float32)


def scanned(x: Any, xs: Any) -> Any:
    return td.scan(lambda c, x: (c * 0.9 + x, td.tanh(c)), x, xs)


def looped(x: Any, xs: Any) -> Any:
    return td.while_loop(lambda s: s[0] < LONG, lambda s: (s[0] + 1, s[1] * 0.9 + 1), (0, x))[1]


def counted(x: Any, xs: Any) -> Any:
    return td.fori_loop(0, td.asarray(LONG), lambda i, x: x * 0.9 + i, x)


def mapped(x: Any, xs: Any) -> Any:
    return td.map(lambda v: td.tanh(v) * x, xs)


def chosen(x: Any, xs: Any) -> Any:
    return td.cond(x > 0, lambda: scanned(x, xs)[0], lambda: x)


def leaves(made: Any) -> list[np.ndarray]:
    if isinstance(made, tuple):
        return [leaf for part in made for leaf in leaves(part)]
    return [np.asarray(made)]


@pytest.mark.parametrize("function", [scanned, looped, counted, mapped, chosen])
def test_a_long_loop_has_the_bits_of_jit(function: Callable[..., Any], programs: list[Any]) -> None:
    x, xs = td.asarray(np.float32(0.5)), td.asarray(rows(LONG))
    bare = leaves(function(x, xs))
    assert len(programs) == 1
    for got, want in zip(bare, leaves(td.jit(function)(x, xs)), strict=True):
        assert got.tobytes() == want.tobytes()


def test_short_loops_are_evaluated(programs: list[Any]) -> None:
    x, xs = td.asarray(np.float32(0.5)), td.asarray(rows(20))
    for function in (scanned, mapped, chosen):
        function(x, xs)
    assert td.while_loop(lambda x: x < 100, lambda x: x * 2, 3).item() == 192
    assert programs == []


def test_derivatives_and_batches_of_long_loops(programs: list[Any]) -> None:
    x, xs = td.asarray(np.float32(0.5)), td.asarray(rows(LONG))
    gradient = td.grad(lambda x: scanned(x, xs)[0])(x)
    batch = td.vmap(lambda x: scanned(x, xs)[0])(td.asarray(rows(3)))
    assert len(programs) >= 2
    np.testing.assert_allclose(np.asarray(gradient), 0, atol=1e-30)
    want = td.jit(td.vmap(lambda x: scanned(x, xs)[0]))(td.asarray(rows(3)))
    assert np.asarray(batch).tobytes() == np.asarray(want).tobytes()


def over(table: Any, xs: Any) -> Any:
    return td.scan(lambda c, x: (c * table[0] + x, None), 0.0, xs)[0]


def test_what_a_body_closes_over_is_never_stale() -> None:
    xs = td.asarray(rows(LONG))
    for factor in (0.5, 0.25):
        table = td.asarray(np.float32([factor, 1.0]))
        got = over(table, xs)
        want = td.jit(over)(table, xs)
        assert got.item() == want.item()


def test_one_program_serves_every_new_function(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    compiled = run_graphs.compiled
    monkeypatch.setattr(run_graphs, "compiled", lambda graph: made.append(graph) or compiled(graph))
    xs = td.asarray(rows(LONG))
    for start in (0.0, 1.0, 2.0):
        td.scan(lambda c, x: (c * 0.625 + x, None), td.asarray(np.float32(start)), xs)
    assert len(made) == 1


def test_effects_happen_in_every_step(programs: list[Any]) -> None:
    seen: list[int] = []

    def note(x: Any) -> Any:
        seen.append(int(x))
        return np.int32(x)

    def step(c: Any, x: Any) -> Any:
        return c + td.callback(note, td.Spec((), td.int32), x), None

    total, _ = td.scan(step, 0, td.arange(LONG))
    assert total.item() == LONG * (LONG - 1) // 2
    assert seen == list(range(LONG)) and programs == []


def test_an_error_in_a_long_loop_names_the_line() -> None:
    table = td.asarray(rows(10))
    with pytest.raises(IndexError, match="index 4999 is out of range") as caught:
        places = td.arange(LONG - 1, LONG * 2)
        td.scan(lambda c, i: (c + table[td.maximum(i, 0)], None), 0.0, places)
    assert "test_long_loops.py" in str(caught.value)


def test_patience_is_of_one_stretch() -> None:
    spend(10**9)
    with limited(10):
        spend(10)
        with limited(100), pytest.raises(OutOfPatience):
            spend(1)
    spend(10**9)


def test_operations_count_the_steps_of_inner_loops() -> None:
    def f(x: Any) -> Any:
        return td.fori_loop(0, 10, lambda i, x: td.fori_loop(0, 7, lambda j, x: td.tanh(x), x), x)

    assert operations(td.trace(f)(np.float32(1))) >= 70
