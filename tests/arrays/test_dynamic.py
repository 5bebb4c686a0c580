"""Parts of arrays whose place is data, against NumPy: at once, traced and evaluated, compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tetrad as td
from tests.compiler.engine import jit
from tetrad.compiler.driver import compile_graph
from tetrad.core.errors import DtypeError, ShapeError

WAYS: dict[str, Callable[..., Any]] = {"eager": lambda f: f, "traced": jit, "compiled": td.jit}
ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
TABLE = np.arange(60.0).reshape(5, 4, 3)


def part(
    shape: tuple[int, ...], starts: tuple[int, ...], sizes: tuple[int, ...]
) -> tuple[slice, ...]:
    """Negative starts count from the end; then the part is moved inside."""
    counted = [s + n if s < 0 else s for s, n in zip(starts, shape, strict=True)]
    low = [min(max(s, 0), n - size) for s, n, size in zip(counted, shape, sizes, strict=True)]
    return tuple(slice(s, s + size) for s, size in zip(low, sizes, strict=True))


@ways
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_reading_and_writing_a_part(way: Any, data: st.DataObject) -> None:
    sizes = tuple(data.draw(st.integers(0, n)) for n in TABLE.shape)
    starts = tuple(data.draw(st.integers(-9, 9)) for _ in sizes)
    where = part(TABLE.shape, starts, sizes)
    got = way(lambda x, *s: td.dynamic_slice(x, s, sizes))(TABLE, *map(np.int32, starts))
    np.testing.assert_array_equal(np.asarray(got), TABLE[where])
    update, want = -np.ones(sizes), TABLE.copy()
    want[where] = update
    got = way(td.dynamic_update_slice)(TABLE, update, np.array(starts))
    np.testing.assert_array_equal(np.asarray(got), want)


@ways
def test_along_one_axis(way: Any) -> None:
    i = np.int32(2)
    same = np.testing.assert_array_equal
    same(np.asarray(way(lambda x, i: td.dynamic_index_in_dim(x, i, 1))(TABLE, i)), TABLE[:, 2:3])
    same(
        np.asarray(way(lambda x, i: td.dynamic_index_in_dim(x, i, 1, keepdims=False))(TABLE, i)),
        TABLE[:, 2],
    )
    same(
        np.asarray(way(lambda x, i: td.dynamic_slice_in_dim(x, i, 2, axis=-1))(TABLE, i)),
        TABLE[..., 1:],
    )
    want = TABLE.copy()
    want[:, 2] = 7
    for update in (np.full((5, 3), 7.0), np.full((5, 1, 3), 7.0)):
        same(
            np.asarray(
                way(lambda x, u, i: td.dynamic_update_index_in_dim(x, u, i, 1))(TABLE, update, i)
            ),
            want,
        )


@ways
def test_a_loop_writes_rows(way: Any) -> None:
    def powers(n: int) -> Any:
        def step(i: Any, rows: Any) -> Any:
            return td.dynamic_update_index_in_dim(
                rows, td.dynamic_index_in_dim(rows, i - 1) * 2, i, 0
            )

        return lambda rows: td.fori_loop(1, n, step, rows)

    got = way(powers(9))(np.ones((9, 4)))
    np.testing.assert_array_equal(np.asarray(got), np.repeat(2.0 ** np.arange(9), 4).reshape(9, 4))


@ways
def test_parts_of_complex_arrays(way: Any) -> None:
    x, update, i = TABLE[0] + 2j, TABLE[1, :2] * 1j, np.int32(1)
    want = x.copy()
    want[1:3] = update
    got = way(td.dynamic_update_slice)(x, update, np.array([1, 0]))
    np.testing.assert_array_equal(np.asarray(got), want)
    got = way(lambda x, i: td.dynamic_slice_in_dim(x, i, 2))(x, i)
    np.testing.assert_array_equal(np.asarray(got), x[1:3])
    places = np.array([[0], [2]])
    got = way(td.vmap(td.dynamic_update_slice))(x[:2], update[:, :1], places)
    np.testing.assert_array_equal(np.asarray(got)[[0, 1], [0, 2]], update[:, 0])

    def energy(x: Any, i: Any) -> Any:
        return td.sum(td.abs(td.dynamic_slice_in_dim(x, i, 2)) ** 2)

    expected = np.zeros_like(x)
    expected[1:3] = 2 * x[1:3].conj()
    np.testing.assert_allclose(np.asarray(way(td.grad(energy))(x, i)), expected, rtol=1e-12)


def test_what_is_written_is_computed_in_the_same_kernel() -> None:
    graph = td.trace(lambda x, u, i: td.dynamic_update_slice(x, td.tanh(u) * 2, (i + 1,)))(
        td.Spec((100,)), td.Spec((8,)), td.Spec((), td.int32)
    )
    assert [step.name for step in compile_graph(graph).schedule.steps] == ["dynamic_update_slice"]


def test_errors() -> None:
    with pytest.raises(ShapeError, match=r"f32\[2,3\] needs 2 indices, got 1"):
        td.dynamic_slice(td.zeros((2, 3)), (0,), (1, 1))
    with pytest.raises(ShapeError, match="does not fit"):
        td.dynamic_slice(td.zeros((2, 3)), (0, 0), (1, 4))
    with pytest.raises(DtypeError, match=r"an index is an integer without axes, got f32\[\]"):
        td.dynamic_slice(td.zeros(3), (1.5,), (1,))
    with pytest.raises(DtypeError, match=r"f32\[3\] cannot take f64\[1\]"):
        td.dynamic_update_slice(td.zeros(3), np.ones(1), (0,))
