"""Products that differ only in sizes run one kernel, with the bits that each has alone."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.compiler.driver import current_target
from tetrad.kernel.nodes import Program
from tetrad.lower.launch import Launch
from tetrad.lower.lower import Lowerer
from tetrad.passes.pipeline import optimise

WIDTHS = (784, 832, 832, 304, 10)  # rows of all but one are copied (lower.matmul, SHORT_ROW)


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32) / np.float32(np.sqrt(shape[0]))


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
    steps = Lowerer(current_target(), begin, threads=2).lower(optimise(td.trace(function)(*arrays))).steps
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
    np.testing.assert_allclose(got, np.maximum(np.maximum(x @ a, 0) @ b, 0) @ np.ones((832, 3)), rtol=2e-5)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_gradients_are_right(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TETRAD_THREADS", str(threads))
    x = random(24, 784)
    compiled, eager = td.jit(td.grad(loss))(WEIGHTS, x), td.grad(loss)(WEIGHTS, x)
    for got, want in zip(compiled, eager, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * np.abs(np.asarray(want)).max())
