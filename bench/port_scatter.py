"""Bench, programs from elsewhere: indexed updates, folds by segment, lookups and running sums, with
their gradients, against JAX.

Both are jitted; the eager rows are one call of ours outside jit against JAX with its compiling,
which is what somebody waits for who calls once. The error of running sums is its own row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import numpy as np
from common import Budget, Options, Row, measure
from core import agree, jax, normal

import tetrad as td

Arrays = list[np.ndarray]
Function = Callable[..., Any]
Case = tuple[str, Function, Arrays]  # what both libraries do alike, and with what

METHODS = ("set", "add", "multiply", "max", "min")
EAGER_CALLS = 3


def updates(op: str, rows: int, width: int, number: int, order: str) -> Case:
    """x.at[i].op(u): rows are scalars, or vectors of this width."""
    index = np.random.default_rng(1).integers(0, rows, number).astype(np.int32)
    index = {"random": index, "sorted": np.sort(index), "equal": np.full_like(index, rows // 2)}[
        order
    ]
    tail = () if width == 1 else (width,)
    values = normal(number, *tail, seed=2)
    if op == "multiply":
        values = np.sign(values)  # products of many others leave f32
    name = f"at[i].{op} {number} into {rows}x{width}, {order}"
    return name, lambda x, i, u: getattr(x.at[i], op)(u), [normal(rows, *tail), index, values]


def pairs(op: str) -> Case:
    i, j = np.random.default_rng(3).integers(0, 1000, (2, 100_000)).astype(np.int32)
    arrays = [normal(1000, 1000), i, j, normal(100_000, seed=4)]
    name = f"at[i, j].{op} 100000 into 1000x1000"
    return name, lambda x, i, j, u: getattr(x.at[i, j], op)(u), arrays


def slopes(op: str, rows: int, number: int) -> tuple[str, Callable[[Any, Any], Function], Arrays]:
    """The gradient by the array, and by the updates where JAX has it."""
    index = np.random.default_rng(5).integers(0, rows, number).astype(np.int32)
    values = normal(number, seed=6)
    by = (0,) if op == "multiply" else (0, 1)  # JAX has none by factors that meet

    def make(lib: Any, grad: Any) -> Function:
        return grad(lambda x, u, i, w: lib.sum(getattr(x.at[i], op)(u) * w), by)  # type: ignore[no-any-return]

    arrays = [normal(rows), np.sign(values) if op == "multiply" else values, index]
    return f"gradient of at[i].{op} {number} into {rows}", make, [*arrays, normal(rows, seed=7)]


def both_ways(ours: Function, theirs: Function, arrays: Arrays) -> tuple[Function, Function]:
    left = [td.asarray(a) for a in arrays]
    right = [jax().device_put(a) for a in arrays]
    mine, other, wait = td.jit(ours), jax().jit(theirs), jax().block_until_ready
    return lambda: mine(*left), lambda: wait(other(*right))


def compiled(name: str, ours: Function, theirs: Function, arrays: Arrays, budget: Budget) -> Row:
    mine, other = both_ways(ours, theirs, arrays)
    is_right = agree(mine(), other())
    timing = measure({"ours": mine, "theirs": other}, budget)
    ours_s, theirs_s = timing.best["ours"], timing.best["theirs"]
    return Row(name, ours_s, "s", theirs_s / ours_s, 1.0, "JAX", theirs_s, timing.foreign, is_right)


_fresh = count()


def eager(name: str, function: Function, arrays: Arrays) -> Row:
    """The best of a few calls; JAX compiles each time, as it does for who calls once."""
    left, right = [td.asarray(a) for a in arrays], [jax().device_put(a) for a in arrays]
    ours = min(seconds(lambda: np.asarray(function(*left))) for _ in range(EAGER_CALLS))

    def once() -> Any:
        number = next(_fresh)  # a function nobody has compiled
        jitted = jax().jit(lambda *a: function(*a) + np.float32(0 * number))
        return jax().block_until_ready(jitted(*right))

    theirs = min(seconds(once) for _ in range(EAGER_CALLS))
    is_right = agree(function(*left), once())
    return Row(f"{name}, eager", ours, "s", theirs / ours, 1.0, "JAX", theirs, 0.0, is_right)


def seconds(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def error_of_sums() -> Row:
    """The largest error of 100,000 running sums against f64; ratio = theirs / ours."""
    x = normal(100_000, seed=8)
    exact = np.cumsum(x.astype(np.float64))
    ours, theirs = (
        float(np.abs(np.asarray(f(x), np.float64) - exact).max())
        for f in (td.jit(td.cumulative_sum), jax().jit(jax().numpy.cumsum))
    )
    return Row("cumulative_sum 100000: error", ours, "", theirs / ours, 0.5, "JAX", theirs)


def plain_cases() -> Iterator[tuple[str, Function, Function, Arrays]]:
    """Cases whose function is written in both libraries."""
    jnp = jax().numpy
    line, table, matrix = normal(100_000), normal(100_000, 64), normal(1000, 1000)
    places = np.random.default_rng(9).integers(0, 100_000, 1_000_000).astype(np.int32)
    ids = (places % 1000).astype(np.int32)
    mask = line > 0
    columns = np.random.default_rng(10).integers(0, 1000, (1000, 1000)).astype(np.int32)
    values = normal(1_000_000, seed=11)
    segments = jax().ops
    some = places[:100_000]
    yield "x[i] 1M of 100000", lambda x, i: x[i], lambda x, i: x[i], [line, places]
    yield (
        "x[i] 100000 of 100000x64",
        lambda x, i: x[i],
        lambda x, i: x[i],
        [table, some],
    )
    yield (
        "gradient of x[i], 1M of 100000",
        td.grad(lambda x, i: td.sum(x[i] ** 2)),
        jax().grad(lambda x, i: jnp.sum(x[i] ** 2)),
        [line, places],
    )
    yield (
        "where(mask, 0, x) as at[mask].set",
        lambda x, m: x.at[m].set(0.0),
        lambda x, m: jnp.where(m, 0.0, x),
        [line, mask],
    )
    for axis in (0, 1):
        yield (
            f"take_along_axis 1000x1000, axis {axis}",
            lambda x, i, axis=axis: td.take_along_axis(x, i, axis=axis),
            lambda x, i, axis=axis: jnp.take_along_axis(x, i, axis=axis),
            [matrix, columns],
        )
    for how in ("sum", "max"):
        yield (
            f"segment_{how} 1M into 1000",
            lambda v, i, how=how: getattr(td, f"segment_{how}")(v, i, 1000),
            lambda v, i, how=how: getattr(segments, f"segment_{how}")(v, i, 1000),
            [values, ids],
        )
    for shape, axis in (((100_000,), 0), ((1000, 1000), 0), ((1000, 1000), 1)):
        yield (
            f"cumulative_sum {'x'.join(map(str, shape))}, axis {axis}",
            lambda x, axis=axis: td.cumulative_sum(x, axis=axis),
            lambda x, axis=axis: jnp.cumsum(x, axis=axis),
            [normal(*shape, seed=12)],
        )


def update_cases() -> Iterator[Case]:
    for rows in (1000, 100_000):
        for number in (100_000, 1_000_000):
            for op in METHODS:
                yield updates(op, rows, 1, number, "random")
        for width in (16, 64):
            for op in ("add", "max", "set"):
                yield updates(op, rows, width, 100_000, "random")
    for order in ("sorted", "equal"):
        for op in ("add", "max"):
            yield updates(op, 1000, 1, 1_000_000, order)
    yield from map(pairs, ("set", "add", "max"))


def rows(chosen: Options) -> Iterator[Row]:
    for name, function, arrays in update_cases():
        if chosen.wants(name):
            yield compiled(name, function, function, arrays, chosen.budget)
        if chosen.wants(f"{name}, eager") and "x1, random" in name:
            yield eager(name, function, arrays)
    for op in ("max", "min", "multiply", "add", "set"):
        for size, number in ((1000, 100_000), (100_000, 1_000_000)):
            name, make, arrays = slopes(op, size, number)
            if op == "set":  # each row once: of several values JAX keeps any
                arrays[2] = np.random.default_rng(5).permutation(size).astype(np.int32)
                arrays[1] = arrays[1][:size]
            if chosen.wants(name):
                ours, theirs = make(td, td.grad), make(jax().numpy, jax().grad)
                yield compiled(name, ours, theirs, arrays, chosen.budget)
    for name, ours, theirs, arrays in plain_cases():
        if chosen.wants(name):
            yield compiled(name, ours, theirs, arrays, chosen.budget)
    if chosen.wants("cumulative_sum 100000: error"):
        yield error_of_sums()
