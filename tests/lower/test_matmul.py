"""Products whose sides lie the other way round, and what an epilogue reads: the same bits, however they are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.codegen.targets.x86_64 import LEVELS
from tetrad.compiler.driver import current_target, programs_of
from tetrad.compiler.interpret import interpret
from tetrad.core.dtypes import f32
from tetrad.core.target import Target
from tetrad.lower.frame import Memory
from tetrad.lower.lower import Lowerer
from tetrad.lower.matmul import choose_tile
from tetrad.passes.pipeline import optimise


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def texts(function: Callable[..., Any], *shapes: tuple[int, ...]) -> list[str]:
    graph = optimise(td.trace(function)(*map(td.Spec, shapes)))
    return [str(p) for p in programs_of(Lowerer(current_target()).lower(graph))]


# Each of them is a product of matrices that NumPy can write down: function, its left side, its right side.
TURNED = {
    "left": (lambda x, y: x.T @ y, lambda x: x.T, lambda y: y),
    "left of work": (lambda x, y: td.maximum(x, 0).T @ y, lambda x: np.maximum(x, 0).T, lambda y: y),
    "left, work on the right": (lambda x, y: x.T @ td.maximum(y, 0), lambda x: x.T, lambda y: np.maximum(y, 0)),
}


@pytest.mark.parametrize("name", TURNED)
@pytest.mark.parametrize(("k", "m", "n"), [(256, 512, 64), (300, 130, 70), (70, 9, 33), (1100, 40, 90)])
def test_a_side_that_lies_otherwise_gives_the_same_bits(name: str, k: int, m: int, n: int) -> None:
    function, left, right = TURNED[name]
    x, y = random(k, m), random(k, n, seed=1)
    plain = td.jit(lambda a, b: a @ b)(np.ascontiguousarray(left(x)), right(y))
    assert np.asarray(td.jit(function)(x, y)).tobytes() == np.asarray(plain).tobytes()


@pytest.mark.parametrize(("m", "k", "n"), [(20, 256, 512), (65, 70, 33), (33, 1100, 40)])
def test_a_right_side_turned_in_memory_or_in_place(m: int, k: int, n: int) -> None:
    x, w = random(m, k), random(n, k, seed=1)
    plain = td.jit(lambda a, b: a @ b)
    in_place, in_memory = td.jit(lambda x, w: x @ w.T), td.jit(lambda x, w: x @ td.maximum(w, 0).T)
    assert np.asarray(in_place(x, w)).tobytes() == np.asarray(plain(x, np.ascontiguousarray(w.T))).tobytes()
    want = plain(x, np.ascontiguousarray(np.maximum(w, 0).T))
    assert np.asarray(in_memory(x, w)).tobytes() == np.asarray(want).tobytes()


def test_what_an_epilogue_reads_is_fetched_ahead() -> None:
    """A line for each row of the tile, of every array as large as the product; a bias is near anyway."""
    shapes = (64, 128), (128, 64)
    (plain,) = texts(lambda x, w: x @ w, *shapes)
    (with_bias,) = texts(lambda x, w, b: x @ w + b, *shapes, (64,))
    (with_two,) = texts(lambda x, w, y, z: x @ w * y + z, *shapes, (64, 64), (64, 64))
    assert "prefetch" not in plain and "prefetch" not in with_bias
    tile = choose_tile(Memory({}, current_target()), f32, 64)
    assert with_two.count("prefetch") == 2 * tile.rows * tile.vectors


@pytest.mark.parametrize("target", LEVELS.values(), ids=lambda target: target.name)
@pytest.mark.parametrize("n", [16, 32, 48, 80, 144])
def test_the_last_tile_of_columns_ends_inside_a_vector_or_between_two(n: int, target: Target) -> None:
    """A tile has two vectors on AVX-512; the second may lie beyond the last column, and is not stored."""
    x, w = random(14, 5), random(5, n, seed=1)
    for function in (lambda x, w: x @ w, lambda x, w: x @ w * 2 + 1):
        graph = optimise(td.trace(function)(x, w))
        (got,) = interpret(Lowerer(target).lower(graph), [x, w], {})  # the evaluator refuses what lies outside
        assert got.tobytes() == np.asarray(td.jit(function)(x, w)).tobytes()
