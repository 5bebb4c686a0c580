"""Short rows and narrow columns: lanes that take one each give the bits of workgroups that do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.backends.cpu.isa import current_target
from tetrad.compiler.pipeline import lower_graph, optimise
from tetrad.lower.lower import Lowerer
from tetrad.lower.short_rows import SHORT

PROGRAMS: dict[str, Callable[[td.Array], Any]] = {
    "sum": lambda x: td.sum(x, axis=-1),
    "product and extremes": lambda x: (
        td.prod(x, axis=-1),
        td.max(x, axis=-1),
        td.min(x, axis=-1, keepdims=True),
    ),
    "of squares": lambda x: x / td.sqrt(td.sum(x * x, axis=-1, keepdims=True)),
    "stages": lambda x: (
        td.var(x, axis=-1),
        td.nn.softmax(x),
        x - td.mean(x, axis=-1, keepdims=True),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_few_rows_have_the_bits_of_many(name: str, dtype: Any) -> None:
    rng = np.random.default_rng(5)
    for size in (1, 3, SHORT):
        x = rng.standard_normal((37, size)).astype(dtype)
        x[0], x[1, 0], x[2, -1] = -0.0, np.inf, np.nan
        compiled = td.jit(PROGRAMS[name])
        for many, few in zip(
            td.tree.leaves(compiled(x)), td.tree.leaves(compiled(x[:5])), strict=True
        ):
            np.testing.assert_array_equal(np.asarray(many)[:5], few)
            np.testing.assert_array_equal(
                np.signbit(np.asarray(many)[:1]), np.signbit(np.asarray(few)[:1])
            )


def test_elements_are_joined_by_halving() -> None:
    x = np.random.default_rng(6).standard_normal((64, 3)).astype(np.float32)
    np.testing.assert_array_equal(
        td.jit(lambda x: td.sum(x, axis=-1))(x), (x[:, 0] + x[:, 2]) + x[:, 1]
    )
    y = np.random.default_rng(7).standard_normal((20, 2, 3)).astype(np.float32)
    flat = y.reshape(20, 6)
    first = flat[:, 0] + flat[:, 4], flat[:, 1] + flat[:, 5], flat[:, 2], flat[:, 3]
    want = (first[0] + first[2]) + (first[1] + first[3])
    np.testing.assert_array_equal(td.jit(lambda x: td.sum(x, axis=(1, 2)))(y), want)


@pytest.mark.parametrize(
    ("rows", "size", "groups"), [(64, 3, 4), (33, 8, 3), (15, 3, 15), (64, 9, 64)]
)
def test_a_workgroup_has_as_many_rows_as_lanes(rows: int, size: int, groups: int) -> None:
    graph = optimise(td.trace(lambda x: td.sqrt(td.sum(x * x, axis=-1)))(td.Spec((rows, size))))
    (launch,) = lower_graph(graph, Lowerer(current_target().machine)).steps
    assert launch.groups == groups


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
def test_few_narrow_columns_have_the_bits_of_many(dtype: Any) -> None:
    x = (10 * np.random.default_rng(9).standard_normal((20, 5, 3))).astype(dtype)
    for function in (td.sum, td.max, td.prod):
        compiled = td.jit(lambda x, f=function: f(x, axis=1))
        np.testing.assert_array_equal(np.asarray(compiled(x))[:2], compiled(x[:2]))
    graph = optimise(td.trace(lambda x: td.sum(x, axis=1))(td.Spec(x.shape)))
    (launch,) = lower_graph(graph, Lowerer(current_target().machine)).steps
    assert launch.groups == 4  # 60 elements


def test_derivatives_and_batches() -> None:
    x = np.random.default_rng(8).standard_normal((20, 3))

    def distances(x: td.Array) -> td.Array:
        return td.sum(td.sqrt(td.sum(td.square(x[:, None] - x[None] + 0.5), axis=-1)))

    slope = td.jit(td.grad(distances))(td.asarray(x))
    np.testing.assert_allclose(slope, td.grad(distances)(td.asarray(x)), rtol=1e-12, atol=1e-12)
    both = td.jit(td.vmap(distances))(np.stack([x, 2 * x]))
    np.testing.assert_allclose(
        both, [distances(td.asarray(x)), distances(td.asarray(2 * x))], rtol=1e-12
    )
