"""Loops of small steps are one kernel, of any ops: the bits of the evaluator and what the graph
means, with loops and branches inside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tetrad as td
from tests.compiled import run, run_on_evaluator
from tetrad.compiler.driver import compile_graph
from tetrad.core.tree import flatten
from tetrad.graph.evaluate import evaluate
from tetrad.passes.inline_custom import inline_custom
from tetrad.schedule.nodes import Launch, Switch

FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {}


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def whole(value: int, dtype: Any = np.int32) -> np.ndarray:
    return np.array(value, dtype)


def case(*args: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def note(function: Callable[..., Any]) -> Callable[..., Any]:
        FUNCTIONS[function.__name__] = (function, args)
        return function

    return note


@case(whole(27))
def collatz(n: Any) -> Any:
    def step(s: Any) -> Any:
        return td.cond(s[0] % 2 == 0, lambda n: n // 2, lambda n: 3 * n + 1, s[0]), s[1] + 1

    return td.while_loop(lambda s: s[0] != 1, step, (n, 0))[1]


@case(whole(123, np.uint32), whole(50))
def xorshift(x: Any, n: Any) -> Any:
    by = [td.asarray(np.array(k, np.uint32)) for k in (13, 17, 5)]

    def step(i: Any, x: Any) -> Any:
        x = x ^ (x << by[0])
        x = x ^ (x >> by[1])
        return x ^ (x << by[2])

    return td.fori_loop(0, n, step, x)


@case(np.abs(numbers(5)) + 1)
def roots(x: Any) -> Any:
    return td.while_loop(
        lambda s: td.sqrt(td.sum((s * s - 2) ** 2)) > 1e-4, lambda s: s - (s * s - 2) / (2 * s), x
    )


@case(numbers(6, 2))
def filtered(zs: Any) -> Any:
    move = td.asarray(np.eye(4, dtype=np.float32) + 0.1 * np.eye(4, k=2, dtype=np.float32))
    see, noise = td.eye(2, 4), 0.1 * td.eye(2)

    def step(state: Any, z: Any) -> Any:
        x, p = state
        x, p = move @ x, move @ p @ move.T + 0.01 * td.eye(4)
        gain = td.linalg.solve(see @ p @ see.T + noise, see @ p).T
        return (x + gain @ (z - see @ x), p - gain @ see @ p), x

    return td.scan(step, (td.zeros(4), td.eye(4)), zs)


@case(whole(5), numbers(3))
def steps_of_euler(n: Any, s: Any) -> Any:
    def slope(s: Any) -> Any:
        return td.stack([10 * (s[1] - s[0]), s[0] * (5 - s[2]) - s[1], s[0] * s[1] - s[2]])

    return td.fori_loop(0, n, lambda i, s: s + 0.01 * slope(s), s)


@case(whole(4), np.array(0.5, np.float32))
def loops_inside(n: Any, x: Any) -> Any:
    def outer(i: Any, x: Any) -> Any:
        x = td.fori_loop(0, 3, lambda j, x: x * 1.5 + j, x)
        return td.while_loop(lambda x: x > 2, lambda x: x * 0.5, x) + i

    return td.fori_loop(0, n, outer, x)


@case(whole(10), np.array(1, np.float32))
def branches(n: Any, x: Any) -> Any:
    ways = [lambda x: x + 1.5, lambda x: x * 2, lambda x: -x]
    return td.fori_loop(0, n, lambda i, x: td.switch(i % 3, ways, x), x)


@case(whole(7), np.array(0.1 + 0.2j, np.complex64), np.array(0.1 + 0.2j, np.complex128))
def complex_numbers(n: Any, a: Any, b: Any) -> Any:
    return td.fori_loop(0, n, lambda i, s: (s[0] * s[0] + 0.5, s[1] * s[1] - s[1]), (a, b))


@case(whole(9), numbers(1).astype(ml_dtypes.bfloat16), whole(100, np.int8), whole(1, np.bool_))
def narrow_numbers(n: Any, a: Any, b: Any, c: Any) -> Any:
    three = td.asarray(np.array(3, np.int8))
    return td.fori_loop(0, n, lambda i, s: (s[0] * s[0], s[1] + three, ~s[2]), (a, b, c))


@case(whole(4), numbers(5), numbers(5) + 1, numbers(5) + 2)
def changing_places(n: Any, a: Any, b: Any, c: Any) -> Any:
    return td.fori_loop(0, n, lambda i, s: (s[1], s[2], s[0]), (a, b, c))


@case(numbers(17, 17) / 9, whole(3))
def products(x: Any, n: Any) -> Any:
    return td.fori_loop(0, n, lambda i, x: x @ x * 0.5 + td.sum(x, axis=0), x)


@case(numbers(20), whole(3))
def sorted_again(x: Any, n: Any) -> Any:
    return td.fori_loop(0, n, lambda i, x: td.sort(x * 1.7 % 3), x)


@case(np.ones(100, np.bool_))
def sieve(flags: Any) -> Any:
    def strike(i: Any, flags: Any) -> Any:
        return td.while_loop(
            lambda s: s[0] < 100, lambda s: (s[0] + i, s[1].at[s[0]].set(False)), (i * i, flags)
        )[1]

    def step(i: Any, flags: Any) -> Any:
        return td.cond(flags[i], lambda f: strike(i, f), lambda f: f, flags)

    return td.fori_loop(td.asarray(2), td.asarray(10), step, flags)


@case(np.array(1, np.float32))
def a_condition_of_nan(x: Any) -> Any:
    return td.while_loop(lambda x: x < 10, lambda x: x * td.nan, x)


@case(whole(2), numbers(0))
def no_steps(n: Any, xs: Any) -> Any:
    scanned = td.scan(lambda c, x: (td.cond(c > 1, lambda c: c, lambda c: c + x, c), c), 0.5, xs)
    return scanned, td.fori_loop(5, n, lambda i, c: c + 1, 1.5)


@case((numbers(2, 37)[0] + 1j * numbers(2, 37)[1]).astype(np.complex64))
def mandelbrot(c: Any) -> Any:
    def one(c: Any) -> Any:
        return td.while_loop(
            lambda s: (td.abs(s[0]) < 2) & (s[1] < 9),
            lambda s: (s[0] ** 2 + c, s[1] + 1),
            (c * 0, 0),
        )[1]

    return td.vmap(one)(c)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_loop_of_small_steps_is_one_kernel(name: str) -> None:
    function, args = FUNCTIONS[name]
    graph, (arrays, _) = inline_custom(td.trace(function)(*args)), flatten(args)
    made = compile_graph(graph)
    assert all(isinstance(step, Launch) for step in made.schedule.steps)
    want = run_on_evaluator(made, arrays)
    for threads in (1, 2):
        for got, expected in zip(run(made, arrays, threads=threads), want, strict=True):
            np.testing.assert_array_equal(got, expected)  # the payload of a NaN is free
    for got, meant in zip(want, evaluate(graph, arrays), strict=True):
        np.testing.assert_allclose(
            got.astype(np.complex128), meant.astype(np.complex128), rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize("flag", [False, True])
@pytest.mark.parametrize("reads_later", [False, True])
def test_a_branch_may_give_an_array_back_as_it_came(flag: bool, reads_later: bool) -> None:
    """Then the other branch changes it where it lies, unless it is still needed."""

    def f(flag: Any, x: Any) -> Any:
        y = x * 2
        made = td.cond(flag, lambda y: (y.at[3].set(9.0), y[3]), lambda y: (y, y[4]), y)
        return (*made, y) if reads_later else made

    args = (np.array(flag), numbers(1000))
    made = compile_graph(inline_custom(td.trace(f)(*args)))
    (chosen,) = (step for step in made.schedule.steps if isinstance(step, Switch))
    assert reads_later or chosen.outputs[0] in chosen.inputs
    y = args[1] * 2
    changed = y.copy()
    changed[3] = 9.0
    want = (changed, y[3]) if flag else (y, y[4])
    for got, expected in zip(run(made, args), (*want, y) if reads_later else want, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_an_index_out_of_range_inside_a_branch_inside_a_loop_names_the_line() -> None:
    @td.jit
    def f(table: Any, n: Any) -> Any:
        def step(i: Any, c: Any) -> Any:
            return td.cond(i > 2, lambda c: c + table[i], lambda c: c + 1, c)

        return td.fori_loop(0, n, step, 0.0)

    table = numbers(10)
    assert np.isfinite(f(table, whole(10)).item())
    with pytest.raises(IndexError, match="index 10 is out of range") as caught:
        f(table, whole(12))
    assert "test_linked_loop.py" in str(caught.value)
