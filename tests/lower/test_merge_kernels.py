"""Kernels that differ only in sizes and numbers are one, with the bits that each has alone."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.compiled import difference, run, run_on_evaluator
from tetrad.backends.cpu.isa import current_target
from tetrad.compiler.driver import compile_graph
from tetrad.compiler.pipeline import lower_graph
from tetrad.core.record import replace
from tetrad.kernel.nodes import Program
from tetrad.lower.lower import Lowerer
from tetrad.schedule.nodes import Launch

WIDTHS = (784, 832, 832, 304, 10)  # rows of all but one are copied (`is_worth_staging`)


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32) / np.float32(
        np.sqrt(shape[0])
    )


WEIGHTS = [random(a, b) for a, b in pairwise(WIDTHS)]


def layers(x: Any, *weights: Any) -> Any:
    results = []
    for w in weights:
        x = td.maximum(x @ w, 0)
        results.append(x)
    return results


def loss(weights: list[Any], x: Any) -> Any:
    return td.sum(layers(x, *weights)[-1] ** 2)


def lowered(
    function: Callable[..., Any], *arrays: Any, begin: Callable[[Program], None] = lambda p: None
) -> list[Launch]:
    job = Lowerer(replace(current_target().machine, parallel_groups=2), begin)
    steps = lower_graph(td.trace(function)(*arrays), job).steps
    return [step for step in steps if isinstance(step, Launch)]


def test_layers_of_different_widths_share_a_kernel() -> None:
    launches = lowered(layers, random(24, 784), *WEIGHTS)
    assert launches[0].program is launches[1].program
    assert 784 in launches[0].args.values() and 832 in launches[1].args.values()
    assert not launches[3].args


def test_every_kernel_is_begun_once_and_no_other() -> None:
    begun: list[Program] = []
    launches = lowered(td.grad(loss), WEIGHTS, random(24, 784), begin=begun.append)
    assert len(begun) == len(set(begun)) and set(begun) == {launch.program for launch in launches}


def test_bits_are_those_of_each_product_alone() -> None:
    x = random(24, 784)
    results = td.jit(layers)(x, *WEIGHTS)
    alone = td.jit(lambda x, w: td.maximum(x @ w, 0))
    for w, result in zip(WEIGHTS, results, strict=True):
        x = alone(x, w)
        assert np.asarray(result).tobytes() == np.asarray(x).tobytes()


def test_called_graphs_share_too() -> None:
    layer = td.jit(lambda x, w: td.maximum(x @ w, 0))
    x, (a, b, *_) = random(24, 784), WEIGHTS
    got = td.jit(lambda x, a, b: layer(layer(x, a), b) @ td.ones((832, 3)))(x, a, b)
    np.testing.assert_allclose(
        got, np.maximum(np.maximum(x @ a, 0) @ b, 0) @ np.ones((832, 3)), rtol=2e-5
    )


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_gradients_are_right(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TETRAD_THREADS", str(threads))
    x = random(24, 784)
    compiled, eager = td.jit(td.grad(loss))(WEIGHTS, x), td.grad(loss)(WEIGHTS, x)
    for got, want in zip(compiled, eager, strict=True):
        # sums of up to 832 numbers, layer after layer: 64 of its ULPs
        largest = np.abs(np.asarray(want)).max()
        np.testing.assert_allclose(got, want, rtol=0, atol=64 * np.spacing(largest))


def shrinking(x: Any) -> Any:
    """Each step is one element shorter than the one before."""
    return td.diff(x, n=40)


def numbered(x: Any) -> Any:
    return td.stack([td.exp(x * (i / 7)) for i in range(40)])


def of_many_sizes(x: Any) -> Any:
    return [td.sqrt(x[i:]) + i for i in range(40)]


def summed(x: Any) -> Any:
    return [td.sum(td.linalg.outer(x[i:], x), axis=1) for i in range(40)]


def joined(x: Any) -> Any:
    return td.concat([x[: i + 1] * 2 for i in range(40)])


ALIKE = [(shrinking, 4), (numbered, 2), (of_many_sizes, 3), (summed, 2), (joined, 4)]


@pytest.mark.parametrize(("function", "most"), ALIKE)
def test_many_kernels_that_are_alike_are_few(function: Callable[..., Any], most: int) -> None:
    x = np.abs(random(100))
    launches = lowered(function, x)
    assert len(launches) > 30 and len({launch.program for launch in launches}) <= most
    compiled = compile_graph(td.trace(function)(x))
    results = run(compiled, [x], threads=2)
    for got, evaluated in zip(results, run_on_evaluator(compiled, [x]), strict=True):
        assert difference(got, evaluated) is None
    eager = function(td.asarray(x))
    for got, want in zip(results, eager if isinstance(eager, list) else [eager], strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * np.abs(np.asarray(want)).max())


def test_few_kernels_keep_their_literals() -> None:
    launches = lowered(lambda x: [td.exp(td.sum(x[i:]) + i) for i in range(3)], random(100))
    assert not any(launch.args for launch in launches)
