"""Compiled loops: the bits of the kernel evaluator for any number of threads, and no more memory
than they need."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tetrad as td
from tests.compiled import run, run_on_evaluator
from tests.modules import ROOT
from tetrad.backends.cpu.executable import Executable
from tetrad.backends.cpu.table import KernelEntry, LoopEntry
from tetrad.compiler.driver import compile_graph
from tetrad.core.tree import flatten
from tetrad.graph.evaluate import evaluate
from tetrad.passes import plan_loop
from tetrad.passes.inline_custom import inline_custom
from tetrad.schedule.nodes import Launch, Loop, Switch, While


def compiled(function: Callable[..., Any], *arrays: np.ndarray) -> Executable:
    return compile_graph(inline_custom(td.trace(function)(*arrays)))


def check(function: Callable[..., Any], *args: Any, rtol: float = 1e-5) -> Executable:
    """Machine code on 1 and 2 threads gives the evaluator's bits, and what the graph means."""
    graph, (arrays, _) = inline_custom(td.trace(function)(*args)), flatten(args)
    made = compile_graph(graph)
    want = run_on_evaluator(made, arrays)
    for threads in (1, 2):
        for got, expected in zip(run(made, arrays, threads=threads), want, strict=True):
            assert got.tobytes() == expected.tobytes()
    for got, meant in zip(want, evaluate(graph, arrays), strict=True):
        np.testing.assert_allclose(
            got.astype(np.float64), meant.astype(np.float64), rtol=rtol, atol=rtol
        )
    return made


def numbers(*shape: int, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def only_step(made: Executable) -> Any:
    (step,) = made.schedule.steps
    return step


@pytest.fixture
def stepped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops of the schedule, where kernels of a small step would be linked into one."""
    monkeypatch.setattr(plan_loop, "is_small", lambda *bodies: False)


# -- one kernel with the loop inside ---------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (1,), (3,), (16,), (50,), (2, 9)])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_recurrence_of_elements_is_one_kernel(shape: tuple[int, ...], reverse: bool) -> None:
    def f(c: Any, xs: Any) -> Any:
        return td.scan(lambda c, x: ((n := td.tanh(c) * 0.9 + x), (n, c)), c, xs, reverse=reverse)

    made = check(f, numbers(*shape), numbers(7, *shape, seed=1))
    assert isinstance(only_step(made), Launch)


@pytest.mark.parametrize(
    "dtype", [np.float16, ml_dtypes.bfloat16, np.float64, np.int32, np.int64, np.uint8, np.bool_]
)
def test_elements_of_any_type(dtype: Any) -> None:
    xs = (np.arange(35).reshape(5, 7) % 3).astype(dtype)

    def f(c: Any, xs: Any) -> Any:
        if dtype is np.bool_:
            return td.scan(lambda c, x: (c ^ x, c), c, xs)
        return td.scan(lambda c, x: (c * 2 + x, c - x), c, xs)

    assert isinstance(only_step(check(f, xs[0], xs)), Launch)


def test_counters_and_constants_beside_wide_carries() -> None:
    table = numbers(4, 6)

    def f(table: Any, c: Any, xs: Any) -> Any:
        def step(state: Any, x: Any) -> Any:
            i, c = state
            return (i + 1, c * 0.5 + td.sum(x[:1]) + table[1] * i), (i, c)

        return td.scan(step, (0, c), xs)

    check(f, table, numbers(6), numbers(5, 3))


@settings(max_examples=25, deadline=None)
@given(
    width=st.integers(0, 40),
    steps=st.integers(0, 6),
    reverse=st.booleans(),
    swap=st.booleans(),
    seed=st.integers(0, 9),
)
def test_carries_that_change_places(
    width: int, steps: int, reverse: bool, swap: bool, seed: int
) -> None:
    def f(a: Any, b: Any, xs: Any) -> Any:
        def step(state: Any, x: Any) -> Any:
            a, b = state
            return ((b, a + x) if swap else (a - b, b * x)), a

        return td.scan(step, (a, b), xs, reverse=reverse)

    check(
        f,
        numbers(width, seed=seed),
        numbers(width, seed=seed + 1),
        numbers(steps, width, seed=seed + 2),
    )


# -- a cell: small products in one kernel ----------------------------------------------------------


def cell(w: Any, u: Any, b: Any, h: Any, xs: Any) -> Any:
    return td.scan(lambda h, x: ((n := td.tanh(w @ h + u @ x + b)), n), h, xs)


def weights(n: int, m: int, dtype: Any) -> list[np.ndarray]:
    shapes = [(n, n), (n, m), (n,), (n,), (6, m)]
    return [numbers(*shape, seed=i, dtype=dtype) / 4 for i, shape in enumerate(shapes)]


@pytest.mark.parametrize("n, m", [(64, 64), (16, 3), (5, 40), (33, 17)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_recurrent_cell_is_one_kernel_with_the_bits_of_many(
    n: int, m: int, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = weights(n, m, dtype)
    made = check(cell, *arrays)
    launches = [step for step in made.schedule.steps if step.name.startswith("scan")]
    assert len(launches) == 1 and isinstance(launches[0], Launch)
    monkeypatch.setattr(plan_loop, "workgroup_groups", lambda loop, groups: None)
    linked = compiled(cell, *arrays)
    assert all(isinstance(step, Launch) for step in linked.schedule.steps)
    monkeypatch.setattr(plan_loop, "is_small", lambda *bodies: False)
    several = compiled(cell, *arrays)
    assert any(isinstance(step, Loop) for step in several.schedule.steps)
    ways = (run(way, arrays) for way in (made, linked, several))
    for one, second, other in zip(*ways, strict=True):
        assert one.tobytes() == second.tobytes() == other.tobytes()


@pytest.mark.parametrize("reverse", [False, True])
def test_a_cell_with_gates_and_two_carries(reverse: bool) -> None:
    def lstm(w: Any, state: Any, xs: Any) -> Any:
        def step(state: Any, x: Any) -> Any:
            h, c = state
            i, f, o, g = td.unstack(td.reshape(td.concat([h, x]) @ w, (4, 9)))
            c = td.sigmoid(f) * c + td.sigmoid(i) * td.tanh(g)
            return (td.sigmoid(o) * td.tanh(c), c), h

        return td.scan(step, state, xs, reverse=reverse)

    check(lstm, numbers(13, 36), (numbers(9), numbers(9, seed=1)), numbers(5, 4, seed=2))


def test_a_cell_with_several_rows_and_a_wide_projection() -> None:
    def f(w: Any, v: Any, h: Any, xs: Any) -> Any:
        return td.scan(lambda h, x: (td.tanh(h @ w + x), (h @ w) @ v), h, xs)

    check(f, numbers(20, 20) / 5, numbers(20, 150), numbers(3, 20), numbers(4, 3, 20))


# -- a loop of the schedule ------------------------------------------------------------------------


@pytest.mark.usefixtures("stepped")
@pytest.mark.parametrize("length", [0, 1, 2, 5])
@pytest.mark.parametrize("reverse", [False, True])
def test_reductions_in_the_body(length: int, reverse: bool) -> None:
    def f(c: Any, xs: Any) -> Any:
        return td.scan(
            lambda c, x: (td.nn.softmax(c + x), (td.sum(c * x), x)), c, xs, reverse=reverse
        )

    made = check(f, numbers(33), numbers(length, 33, seed=1))
    assert isinstance(only_step(made), Loop)


@pytest.mark.usefixtures("stepped")
def test_a_carry_that_is_a_result_lives_in_its_rows() -> None:
    def f(c: Any, xs: Any) -> Any:
        return td.scan(lambda c, x: ((n := td.nn.softmax(c + x)), n), c, xs)

    made = check(f, numbers(33), numbers(6, 33, seed=1))
    step = only_step(made)
    assert step.rows == (1,) and step.spares == (None,)
    assert len(step.body.steps) == 1


@pytest.mark.usefixtures("stepped")
def test_an_odd_and_an_even_number_of_steps_end_in_the_same_place() -> None:
    for length in range(5):
        check(
            lambda c, xs: td.scan(lambda c, x: (td.nn.softmax(c + x), None), c, xs)[0],
            numbers(9),
            numbers(length, 9),
        )


def test_a_body_with_large_kernels_is_run_by_all_workers() -> None:
    def f(c: Any) -> Any:
        return td.scan(lambda c, _: (td.nn.softmax(c * 3), td.sum(c)), c, length=3)

    made = check(f, numbers(60, 400))
    entry = made.bound().table.entries[0]
    assert isinstance(entry, LoopEntry) and not entry.alone


@pytest.mark.usefixtures("stepped")
def test_a_short_body_is_run_by_one_worker() -> None:
    made = compiled(
        lambda c, xs: td.scan(lambda c, x: (td.nn.softmax(c + x), None), c, xs)[0],
        numbers(9),
        numbers(4, 9),
    )
    entry = made.bound().table.entries[0]
    assert isinstance(entry, LoopEntry) and entry.alone


def test_small_kernels_need_no_other_worker() -> None:
    for rows, is_small in ((6, True), (600, False)):
        (entry,) = compiled(lambda x: td.nn.softmax(x), numbers(rows, 9)).bound().table.entries
        assert isinstance(entry, KernelEntry) and entry.groups == rows and entry.serial is is_small


@pytest.mark.usefixtures("stepped")
def test_scans_inside_scans() -> None:
    def f(c: Any, xs: Any) -> Any:
        return td.scan(
            lambda c, rows: td.scan(lambda c, x: ((n := td.nn.softmax(c) + x), n), c, rows), c, xs
        )

    check(f, numbers(5), numbers(3, 4, 5))


@pytest.mark.usefixtures("stepped")
def test_the_length_may_be_a_dim() -> None:
    f = td.jit(
        lambda c, xs: td.scan(lambda c, x: (td.nn.softmax(c + x), td.sum(c)), c, xs),
        dims={"xs": {0: td.Dim("time", max=100)}},
    )
    for length in (3, 8, 1):
        xs = numbers(length, 6)
        for got, want in zip(
            f(numbers(6), xs),
            td.scan(lambda c, x: (td.nn.softmax(c + x), td.sum(c)), numbers(6), xs),
            strict=True,
        ):
            np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-5)
    assert f.compiles == 1


# -- while and switch ------------------------------------------------------------------------------


@pytest.mark.usefixtures("stepped")
@pytest.mark.parametrize("limit", [0.0, 1.0, 1.5, 3.0, 50.0])
def test_while_loops(limit: float) -> None:
    def f(x: Any, limit: Any) -> Any:
        return td.while_loop(
            lambda s: td.sum(s[0]) < limit, lambda s: (s[0] * 1.5 + 0.1, s[1] + 1), (x, 0)
        )

    made = check(f, np.full(5, 0.1, np.float32), np.array(limit, np.float32))
    assert isinstance(made.schedule.steps[-1], While)


@pytest.mark.parametrize("index", [-3, 0, 1, 2, 9])
def test_switches(index: int) -> None:
    def f(i: Any, x: Any, y: Any) -> Any:
        return td.switch(
            i, [lambda: (x + y, x), lambda: (td.nn.softmax(x), y), lambda: (y, td.sum(x) + y)]
        )

    made = check(f, np.array(index, np.int32), numbers(7), numbers(7, seed=1))
    assert any(isinstance(step, Switch) for step in made.schedule.steps)


@pytest.mark.usefixtures("stepped")
def test_a_switch_inside_a_scan_inside_a_while_loop() -> None:
    def inner(c: Any, i: Any) -> Any:
        return td.switch(
            i, [lambda c: c + 1, lambda c: td.nn.softmax(c), lambda c: c * 2], c
        ), td.sum(c)

    def f(x: Any, order: Any) -> Any:
        return td.while_loop(
            lambda s: s[1] < 3, lambda s: (td.scan(inner, s[0], order)[0], s[1] + 1, td.scan(inner,
            s[0], order)[1]),
            (x, 0, td.zeros(4)),
        )  # fmt: skip

    check(f, numbers(6), np.array([2, 0, 1, 1], np.int32))


# -- trouble ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("stepped")
@pytest.mark.parametrize("width", [3, 40])
def test_an_index_out_of_range_inside_a_loop_names_the_line(width: int) -> None:
    table = td.asarray(numbers(10, width))

    @td.jit
    def f(c: Any, indices: Any) -> Any:
        return td.scan(
            lambda c, i: (td.nn.softmax(c + td.take(table, i, axis=0)), None), c, indices
        )[0]

    good = np.array([[1], [2], [3]], np.int32)
    assert f(numbers(1, width), good).shape == (1, width)
    good[1] = 77
    with pytest.raises(td.errors.BoundsError, match="index 77 is out of range") as caught:
        f(numbers(1, width), good)
    assert "test_control.py" in str(caught.value)


@pytest.mark.parametrize("body", ["x * 1.0", "td.nn.softmax(x)"])
def test_an_endless_loop_is_ended_by_ctrl_c(body: str) -> None:
    text = f"""
import os, signal, threading, numpy as np, tetrad as td
f = td.jit(lambda x: td.while_loop(lambda x: td.sum(x) < 9, lambda x: {body}, x))
f(np.full(4, 9, np.float32))
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    f(np.ones(4, np.float32) / 4)
except KeyboardInterrupt:
    print("stopped")
"""
    settings = {"cwd": ROOT, "timeout": 60, "stdout": subprocess.PIPE, "text": True, "check": True}
    assert subprocess.run([sys.executable, "-c", text], **settings).stdout == "stopped\n"  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("body", "start"),
    [("c * 0.999 + 0.1", "np.float32(0.5)"), ("td.tanh(c @ w)", "np.ones((1, 64), np.float32)")],
)
def test_a_long_loop_inside_one_kernel_is_ended_by_ctrl_c(body: str, start: str) -> None:
    """And what runs after it is whole."""
    text = f"""
import os, signal, threading, time, numpy as np, tetrad as td
w = np.eye(64, dtype=np.float32)
f = td.jit(lambda c, w: td.scan(lambda c, _: ({body}, None), c, length=1 << 36)[0])
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    f({start}, w)
except KeyboardInterrupt:
    print("stopped", td.jit(lambda x: x + 1)(np.float32(1)))
"""
    settings = {"cwd": ROOT, "timeout": 60, "stdout": subprocess.PIPE, "text": True, "check": True}
    assert subprocess.run([sys.executable, "-c", text], **settings).stdout == "stopped 2.0\n"  # type: ignore[call-overload]


def test_an_index_out_of_range_inside_a_kernel_with_the_loop() -> None:
    f = td.jit(
        lambda table, c, indices: td.scan(lambda c, i: (c * 0.5 + table[i], None), c, indices)[0]
    )
    table, indices = numbers(10, 4), np.array([1, 2, -1], np.int32)
    want = (table[1] * 0.5 + table[2]) * 0.5 + table[-1]
    np.testing.assert_allclose(
        np.asarray(f(table, np.zeros(4, np.float32), indices)), want, rtol=1e-6
    )
    indices[1] = 99
    with pytest.raises(
        td.errors.BoundsError, match="index 99 is out of range for axis 0 of size 10"
    ):
        f(table, np.zeros(4, np.float32), indices)


@pytest.mark.parametrize("name", ["array", "table", "keys", "cell", "nested"])
def test_arrays_made_in_a_body(name: str) -> None:
    table, key = np.float32([1, 2, 3]), td.random.key(1)
    weights = np.float32([[0.1, 0.2, 0.3], [0.3, -0.2, 0.1], [0.5, 0.1, -0.4]])

    def noise(t: Any) -> Any:
        return td.random.normal(td.random.split(td.random.fold_in(key, t))[1], (3,))

    def inner(c: Any, t: Any) -> Any:
        return (
            td.fori_loop(0, 2, lambda i, v: v * 0.5 + td.asarray(table) * i, c)
            + td.asarray(table) * t
        )

    steps: dict[str, Callable[[Any, Any], Any]] = {
        "array": lambda c, t: c * t + td.asarray(table),
        "table": lambda c, t: c * td.take(td.asarray(table), t % 3),
        "keys": lambda c, t: c * 0.5 + noise(t),
        "cell": lambda c, t: (
            td.tanh(c[None] @ td.asarray(weights) + td.asarray(table))[0] + noise(t)
        ),
        "nested": inner,
    }

    check(lambda x: td.scan(lambda c, t: (steps[name](c, t), c), x, td.arange(5)), table)
