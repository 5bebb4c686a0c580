"""Concats of many parts: values of every type and axis, and few kernels for parts that are
alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.compiled import difference, run, run_on_evaluator
from tetrad.compiler.driver import compile_graph
from tetrad.core.errors import BoundsError
from tetrad.kernel.text import to_text
from tetrad.passes.questions import PARTS
from tetrad.schedule.nodes import Launch

DTYPES = [
    "float32",
    "float64",
    "float16",
    "int8",
    "int32",
    "uint64",
    "bool",
    "complex64",
    "complex128",
]


def arrays_of(
    count: int, shape: tuple[int, ...], axis: int, dtype: str = "float32"
) -> list[np.ndarray]:
    """Of three sizes along the axis, one of them 0; unsigned numbers are not made of negative ones,
    which processors convert each in their own way."""
    rng = np.random.default_rng(count)
    sizes = [(*shape[:axis], int(rng.choice([0, 3, 17])), *shape[axis + 1 :]) for _ in range(count)]
    drawn = [rng.standard_normal(size) * 50 for size in sizes]
    return [(abs(x) if dtype == "uint64" else x).astype(dtype) for x in drawn]


def kernels_of(function: Callable[..., Any], arrays: list[np.ndarray]) -> int:
    compiled = compile_graph(td.trace(function)(arrays))
    assert all(isinstance(step, Launch) for step in compiled.schedule.steps)
    return len(
        {to_text(step.program) for step in compiled.schedule.steps if isinstance(step, Launch)}
    )


@pytest.mark.parametrize(("axis", "dtype"), [(i % 3, dtype) for i, dtype in enumerate(DTYPES)])
def test_values(axis: int, dtype: str) -> None:
    arrays = arrays_of(PARTS + 5, (2, 3, 5), axis, dtype)
    compiled = compile_graph(td.trace(lambda xs: td.concat(xs, axis=axis))(arrays))
    (got,) = run(compiled, arrays, threads=2)
    np.testing.assert_array_equal(got, np.concatenate(arrays, axis))
    (evaluated,) = run_on_evaluator(compiled, arrays)
    assert difference(got, evaluated) is None


def test_parts_that_are_computed_and_work_on_the_whole() -> None:
    arrays = arrays_of(PARTS + 4, (4, 3), 1)

    def joined(xs: list[Any]) -> Any:
        computed = [td.sqrt(td.abs(x)) if i % 2 else x for i, x in enumerate(xs)]
        whole = td.concat([*computed, td.zeros((4, 2)), xs[0][:, ::-1]], axis=1)
        return whole, td.sum(whole, axis=1), whole[:, 5:9] * 2

    for got, want in zip(
        td.jit(joined)(arrays), joined([td.asarray(a) for a in arrays]), strict=True
    ):
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-6)


def test_in_a_loop_and_differentiated() -> None:
    x = np.linspace(0.1, 1, 6, dtype=np.float32)

    def loss(x: Any) -> Any:
        def step(carry: Any, i: Any) -> tuple[Any, Any]:
            whole = td.concat([carry * (i + 1) for _ in range(PARTS + 3)])
            return td.tanh(whole[:6] + whole[-6:]), td.sum(whole)

        last, sums = td.scan(step, x, td.arange(3.0))
        return td.sum(last) + td.sum(sums)

    np.testing.assert_allclose(
        np.asarray(td.jit(loss)(x)), np.asarray(loss(td.asarray(x))), rtol=1e-5
    )
    got, want = td.jit(td.grad(loss))(x), td.grad(loss)(td.asarray(x))
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-5)


def test_parts_of_any_size() -> None:
    n = td.Dim("n", max=40)
    f = td.jit(lambda x: td.concat([x, *[x[1:] + i for i in range(PARTS)], x]), dims=({0: n},))
    for size in (1, 3, 40):
        x = np.arange(size * 3, dtype=np.float32).reshape(size, 3)
        np.testing.assert_array_equal(
            f(x), np.concatenate([x, *[x[1:] + i for i in range(PARTS)], x])
        )
    assert f.compiles == 1


def test_an_index_out_of_range_in_a_part_is_said() -> None:
    x, at = np.arange(6, dtype=np.float32), np.array([1, 7], np.int32)
    with pytest.raises(BoundsError, match="7"):
        td.jit(lambda x, at: td.concat([x] * (PARTS + 1) + [td.take(x, at)]))(x, at)


def test_parts_that_are_alike_share_a_kernel() -> None:
    arrays = [np.full((4, 3), i, np.float32) for i in range(100)]
    assert kernels_of(lambda xs: td.concat(xs, axis=1), arrays) == 1
    assert kernels_of(lambda xs: td.stack([td.sin(x) for x in xs]), arrays) == 1
    assert (
        kernels_of(
            lambda xs: td.concat([td.concat(xs[i : i + 20]) for i in range(0, 100, 20)]), arrays
        )
        == 2
    )


def test_parts_of_many_kinds_are_one_kernel() -> None:
    functions = [
        td.abs,
        td.negative,
        td.square,
        td.sqrt,
        td.floor,
        td.ceil,
        td.trunc,
        td.sign,
        td.round,
    ]
    assert (
        kernels_of(
            lambda xs: td.concat([f(xs[0]) for f in functions]), [np.ones((50, 3), np.float32)]
        )
        == 1
    )


def test_parts_from_many_places_share_a_kernel() -> None:
    assert (
        kernels_of(
            lambda xs: td.concat([xs[0][i : i + 2] for i in range(40)]),
            [np.ones((50, 3), np.float32)],
        )
        == 2
    )
