"""x.at[index]: against NumPy's assignments, at once and compiled; traced places, derivatives, batches, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.core.errors import BoundsError, DtypeError, ShapeError, UnsupportedError

WAYS = pytest.mark.parametrize("way", [lambda f: f, td.jit], ids=["eager", "compiled"])
RNG = np.random.default_rng(6)
X = RNG.standard_normal((4, 5))
NUMPY = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, "min": np.minimum,
    "max": np.maximum,
}  # fmt: skip
PARTS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "a row": (1, (5,)),
    "an element": ((1, -1), ()),
    "rows": (slice(1, 3), (2, 5)),
    "a block": ((slice(None), slice(1, 4)), (4, 3)),
    "repeated values": ((slice(None), slice(1, 4)), (3,)),
    "steps": ((slice(None, None, 2), slice(4, None, -2)), (2, 3)),
    "a column": ((..., 0), (4,)),
    "a new axis": ((None, 1), (1, 5)),
    "nothing": (slice(2, 2), ()),
    "no indices": (np.array([], int), ()),
    "listed rows": (np.array([3, 0]), (2, 5)),
    "listed columns": ((slice(None), np.array([[3], [0]])), (4, 2, 1)),
    "from the end": (np.array([-1, 1]), (5,)),
    "listed elements": ((np.array([0, 1, 0]), np.array([1, 1, 3])), (3,)),
    "a grid": ((np.array([[0], [2]]), np.array([1, 4])), (2, 2)),
    "columns of rows": ((slice(1, 3), np.array([0, 4])), (2, 2)),
    "a mask": (X > 0, ()),
    "a mask of rows": (X[:, 0] > 0, (5,)),
}


@WAYS
@pytest.mark.parametrize("part", PARTS)
def test_parts_are_changed_as_by_assignment(way: Any, part: str) -> None:
    key, shape = PARTS[part]
    values = RNG.standard_normal(shape)
    for name in ("set", *NUMPY):
        want = X.copy()
        want[key] = values if name == "set" else NUMPY[name](X[key], values)
        got = way(lambda x, v, name=name: getattr(x.at[key], name)(v))(td.asarray(X), td.asarray(values))
        np.testing.assert_allclose(np.asarray(got), want, rtol=1e-14)
    assert td.asarray(X).at[key].get().tolist() == X[key].tolist()


@WAYS
def test_elements_that_are_named_twice(way: Any) -> None:
    index, values = np.array([2, 0, -2, 1]), RNG.standard_normal((4, 5))
    last, summed = X.copy(), X.copy()
    last[index] = values
    np.add.at(summed, index, values)
    for given in (lambda i: index, lambda i: i):  # known now, or traced
        got = way(lambda x, i, v, g=given: (x.at[g(i)].set(v), x.at[g(i)].add(v)))(
            td.asarray(X), td.asarray(index), td.asarray(values)
        )
        assert got[0].tolist() == last.tolist()
        np.testing.assert_allclose(np.asarray(got[1]), summed, rtol=1e-14)


@WAYS
@pytest.mark.parametrize("index", [0, 3, -4])
def test_places_that_are_data(way: Any, index: int) -> None:
    want = X.copy()
    want[index, 1:3] = 9
    got = way(lambda x, i: x.at[i, 1:3].set(9))(td.asarray(X), td.asarray(index))
    assert got.tolist() == want.tolist()


@WAYS
def test_places_out_of_range_are_errors(way: Any) -> None:
    for key in (4, -5, np.array([0, 4]), np.array([-5, 0])):
        with pytest.raises(BoundsError, match=r"out of (range|bounds)"):
            way(lambda x, i: x.at[i].set(0.0))(td.asarray(X), td.asarray(key))
        with pytest.raises(BoundsError, match=r"out of (range|bounds)"):
            way(lambda x, key=key: x.at[key].set(0.0))(td.asarray(X))


def test_loops_fill_arrays_in_place() -> None:
    def grow(a: Any) -> Any:
        return td.fori_loop(1, 50, lambda i, a: a.at[i, 3].set(a[i - 1, 3] + 1).at[i].add(1.0), a)

    story = str(td.explain(td.jit(grow, donate_argnums=0))(td.zeros((50, 100))))
    assert "dynamic_update_slice" in story and "copy" not in story
    found = np.asarray(td.jit(grow)(td.zeros((50, 100))))
    assert found[:, 3].tolist() == [2.0 * i for i in range(50)] and (found[1:, 4] == 1).all()


@WAYS
def test_derivatives_and_batches(way: Any) -> None:
    index = td.asarray([2, 0, 2])
    x, v = td.asarray(X), td.asarray(RNG.standard_normal((3, 5)))
    by_x, by_v = way(td.grad(lambda x, v: td.sum(x.at[index].set(v) ** 2), argnums=(0, 1)))(x, v)
    np.testing.assert_allclose(np.asarray(by_x), 2 * X * np.array([[0], [1], [0], [1]]))
    np.testing.assert_allclose(np.asarray(by_v), 2 * np.asarray(v) * np.array([[0], [1], [1]]))
    row = way(td.grad(lambda x, v: td.sum(x.at[1].multiply(v) ** 2), argnums=1))(x, v[0])
    np.testing.assert_allclose(np.asarray(row), 2 * X[1] ** 2 * np.asarray(v)[0])
    places = td.asarray([0, 4, -1, 2])
    rows = way(td.vmap(lambda x, i, v: x.at[i].set(v)))(x, places, td.arange(4, dtype=td.float64))
    want = X.copy()
    want[np.arange(4), np.asarray(places)] = np.arange(4)
    assert rows.tolist() == want.tolist()


@pytest.mark.parametrize("key", [0, -1, slice(1, None), slice(None, -1), "traced"])
def test_axes_of_any_size(key: Any) -> None:
    def change(x: Any, i: Any) -> Any:
        return x.at[i if key == "traced" else key].set(9.0)

    run = td.jit(change, dims=({0: td.Dim("n", max=16)}, None))
    slope = td.jit(td.grad(lambda x, i: td.sum(change(x, i) * x)), dims=({0: td.Dim("n", max=16)}, None))
    for count in (2, 5):
        x, want = np.arange(count, dtype=np.float32) + 1, np.arange(count, dtype=np.float32) + 1
        want[1 if key == "traced" else key] = 9
        assert run(x, np.int32(1)).tolist() == want.tolist()
        assert slope(x, np.int32(1)).tolist() == (want + np.where(want == 9, 0, x)).tolist()


def test_any_dtype_to_the_bit() -> None:
    z = td.asarray([1 + 1j, 2, 3])
    assert z.at[td.asarray([0, 2])].set(td.asarray([-0.0, 1j])).tolist() == [0, 2, 1j]
    assert np.signbit(np.asarray(td.ones(3).at[td.asarray([1])].set(-0.0)))[1]
    assert td.asarray([True, False]).at[1].set(True).tolist() == [True, True]
    assert td.asarray([1, 2]).at[0].apply(lambda e: e * 10).tolist() == [10, 2]
    assert td.asarray([2.0, 3.0]).at[1].power(2).tolist() == [2, 9]


def test_errors() -> None:
    x = td.ones(3)
    with pytest.raises(DtypeError, match=r"at\[...\].set: a float does not fit into i32\[2\](.|\n)*test_at.py"):
        td.asarray([1, 2]).at[0].set(1.5)
    with pytest.raises(DtypeError, match=r"f64\[\] does not fit into f32\[3\]"):
        x.at[0].add(td.asarray(1.0, dtype=td.float64))
    with pytest.raises(ShapeError, match=r"at\[...\].set: values f32\[3\] for a part of shape \[2\]"):
        x.at[:2].set(x)
    with pytest.raises(ShapeError, match=r"a mask bool\[2\] for f32\[3,2\]"):
        td.ones((3, 2)).at[td.asarray([True, False])].set(1.0)
    with pytest.raises(BoundsError, match="2 indices for"):
        x.at[0, 0].set(1.0)
    with pytest.raises(UnsupportedError, match=r"axis 0 of .* is symbolic"):
        td.jit(lambda x: x.at[td.asarray([0])].set(1.0), dims=({0: td.Dim("n", max=9)},))(x)


@WAYS
@pytest.mark.parametrize("method", ["multiply", "divide", "min", "max"])
def test_elements_named_several_times_take_all_values(way: Any, method: str) -> None:
    index, values = np.array([0, 2, 2, -4, 1]), RNG.uniform(0.5, 2, (5, 5))
    want = np.abs(X)
    NUMPY[method].at(want, index, values)
    change = way(lambda x, i, v: getattr(x.at[i], method)(v))
    np.testing.assert_allclose(np.asarray(change(td.asarray(np.abs(X)), index, values)), want, rtol=1e-14)
    columns = np.abs(X).T.copy()
    NUMPY[method].at(columns, index, values[:, :4])
    by_axis = way(lambda x, v: getattr(x.at[:, index], method)(v))
    np.testing.assert_allclose(np.asarray(by_axis(td.asarray(np.abs(X)), values[:, :4].T)), columns.T, rtol=1e-14)


@WAYS
def test_derivatives_where_elements_are_named_several_times(way: Any) -> None:
    index = np.array([1, 1, 0])
    x, v = np.array([1.0, 2.0, 3.0]), np.array([2.0, 5.0, 4.0])
    by_x, by_v = way(td.grad(lambda x, v, i: td.sum(x.at[i].multiply(v)), argnums=(0, 1)))(x, v, index)
    assert by_x.tolist() == [4, 10, 1] and by_v.tolist() == [10, 4, 1]
    by_x, by_v = way(td.grad(lambda x, v, i: td.sum(x.at[i].max(v)), argnums=(0, 1)))(x, v, index)
    assert by_x.tolist() == [0, 0, 1] and by_v.tolist() == [0, 1, 1]
    rows = way(td.vmap(lambda i, v: td.zeros(3, dtype=td.float64).at[i].max(v)))(
        np.array([[0, 0], [1, 2]]), v[:2] * np.ones((2, 1))
    )
    assert rows.tolist() == [[5, 0, 0], [0, 2, 5]]


def test_out_of_range_where_elements_are_named_several_times() -> None:
    with pytest.raises(BoundsError, match=r"index 9 is out of range(.|\n)*test_at\.py"):
        td.jit(lambda x, i: x.at[i].max(1.0))(np.zeros(3), np.array([0, 9]))
    with pytest.raises(BoundsError, match=r"index 9 is out of range(.|\n)*test_at\.py"):
        td.zeros(3).at[np.array([9, 9])].max(1.0)
