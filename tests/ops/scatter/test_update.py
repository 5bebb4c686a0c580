"""ops.scatter.update: rows changed where indices say, against NumPy's ufunc.at, to the bit."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tetrad as td
from tetrad.backends.cpu.memory import Storage
from tetrad.compiler.driver import compile_graph
from tetrad.core.errors import BoundsError, DtypeError, ShapeError
from tetrad.core.types import ArrayType
from tetrad.ops.scatter.update import add_at, apart, maximum_at, minimum_at, set_at

WAYS = pytest.mark.parametrize("way", [lambda f: f, td.jit], ids=["eager", "compiled"])
CHANGES = {
    "add": np.add, "multiply": np.multiply, "divide": np.divide, "max": np.maximum,
    "min": np.minimum,
}  # fmt: skip
WIDTHS = pytest.mark.parametrize("width", [(), (1,), (3,), (4,), (5,), (16,), (33,), (7, 20)])


def drawn(size: int, count: int, width: tuple[int, ...], dtype: Any = np.float32) -> Any:
    rng = np.random.default_rng(count + size + len(width))
    x, u = rng.standard_normal((size, *width)), rng.standard_normal((count, *width))
    return x.astype(dtype), u.astype(dtype), rng.integers(-size, size, count)


def wanted(x: Any, u: Any, i: Any, ufunc: Any) -> Any:
    want = x.copy()
    with np.errstate(all="ignore"):
        ufunc.at(want, i, u)
    return want


@WAYS
@WIDTHS
def test_updates_are_made_in_their_order(way: Any, width: tuple[int, ...]) -> None:
    x, u, i = drawn(11, 1500, width)  # more than are prepared at once, and not a multiple
    u = np.where(np.abs(u) < 0.1, np.float32(1), np.sign(u) * np.float32(1.01))
    changed = way(lambda x, u, i: tuple(getattr(x.at[i], name)(u) for name in CHANGES))(
        x_of(x), x_of(u), x_of(i)
    )
    for got, ufunc in zip(changed, CHANGES.values(), strict=True):
        assert np.asarray(got).tobytes() == wanted(x, u, i, ufunc).tobytes()
    last = x.copy()
    last[i] = u
    assert np.asarray(way(lambda x, u, i: x.at[i].set(u))(*map(x_of, (x, u, i)))).tolist() == (
        last.tolist()
    )


def x_of(a: Any) -> Any:
    return td.asarray(a)


@WAYS
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64, np.int8, np.uint32])
def test_results_are_rounded_one_by_one(way: Any, dtype: Any) -> None:
    x, u, i = drawn(5, 40, (), np.float32)
    x, u = (np.round(a * 8) for a in (x, u))
    x, u = (np.abs(a).astype(dtype) if dtype is np.uint32 else a.astype(dtype) for a in (x, u))
    for name in ("add", "multiply", "max", "min"):
        got = way(lambda x, u, i, name=name: getattr(x.at[i], name)(u))(*map(x_of, (x, u, i)))
        assert np.asarray(got).tolist() == wanted(x, u, i, CHANGES[name]).tolist()


@WAYS
@pytest.mark.parametrize("width", [(), (20,)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_zeros_have_an_order_and_nan_wins(way: Any, width: tuple[int, ...], dtype: Any) -> None:
    tiny = float(ml_dtypes.finfo(dtype).smallest_subnormal)
    values = [0.0, -0.0, np.nan, np.inf, -np.inf, tiny, -tiny, 1.0]
    x, u = (a.reshape(-1) for a in np.meshgrid(values, values))
    x, u = (np.broadcast_to(a.reshape(-1, *(1,) * len(width)), (64, *width)) for a in (x, u))
    x, u, i = x.astype(dtype), u.astype(dtype), np.arange(64)
    for name, op in (("max", td.maximum), ("min", td.minimum)):
        got = way(lambda x, u, i, name=name: getattr(x.at[i], name)(u))(*map(x_of, (x, u, i)))
        found, want = (
            np.asarray(a).astype(np.float64) for a in (got, td.jit(op)(x_of(x), x_of(u)))
        )
        np.testing.assert_array_equal(found, want)
        assert (np.signbit(found) == np.signbit(want))[~np.isnan(want)].all()


@pytest.mark.parametrize("special", [np.nan, 0.0, -0.0])
@pytest.mark.parametrize("at", [0, 1023, 1024, 2999])
def test_one_special_number_among_many_updates(special: float, at: int) -> None:
    """Pieces of updates are walked another way if one is NaN or a zero: on the row of one lie zeros
    of both signs before and after it."""
    x, u, i = drawn(50, 3000, ())
    zeros = np.flatnonzero(i % 50 == 7)
    i[at], x[7], u[zeros], u[at] = 7, -0.0, 0.0 if at % 2 else -0.0, special
    for name, op in (("max", maximum_at), ("min", minimum_at)):
        got = td.jit(lambda x, u, i, name=name: getattr(x.at[i], name)(u))(*map(x_of, (x, u, i)))
        want = op.reference(x, u, i)
        assert np.asarray(got).tobytes() == want.tobytes()
        assert np.isnan(want[7]) == np.isnan(special)


def test_the_same_bits_for_any_number_of_threads() -> None:
    x, u, i = drawn(40, 3000, (200,))
    function = td.jit(lambda x, u, i: (x.at[i].add(u), x.at[i].max(u), x.at[i].set(u)))
    made = compile_graph(function.trace(x, u, i).graph)
    storages = [Storage.from_numpy(a) for a in (x, u, i)]
    found = [
        [r.as_numpy(np.dtype(np.float32), x.shape).tobytes() for r in results]
        for results in (made.bound().run(storages, threads=n) for n in (1, 2, 3))
    ]
    assert found[0] == found[1] == found[2]


@WAYS
def test_what_is_out_of_range_is_an_error_or_left_out(way: Any) -> None:
    x, u = np.zeros(4, np.float32), np.arange(1, 7, dtype=np.float32)
    i = np.array([0, 4, -4, -5, 3, 2**31])
    for name in ("set", "add", "multiply", "divide", "max", "min"):
        change = way(lambda x, u, i, name=name: getattr(x.at[i], name)(u, mode="drop"))
        inside = [0, 2, 4]
        safe = way(lambda x, u, i, name=name: getattr(x.at[i], name)(u))
        got = change(*map(x_of, (x, u, i)))
        assert got.tolist() == safe(*map(x_of, (x, u[inside], i[inside]))).tolist()
        with pytest.raises(BoundsError, match=r"at\[\.\.\.\]\.\w+: index 4 is out of range"):
            safe(x_of(x), x_of(u[:3]), x_of(i[:3]))


@WAYS
def test_pairs_of_indices_name_elements(way: Any) -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((6, 5, 3)).astype(np.float32)
    i, j = rng.integers(-6, 6, 50), rng.integers(-5, 5, 50)
    u = rng.standard_normal((50, 3)).astype(np.float32)
    want = x.copy()
    np.add.at(want, (i, j), u)
    got = way(lambda x, i, j, u: x.at[i, j].add(u))(*map(x_of, (x, i, j, u)))
    assert np.asarray(got).tobytes() == want.tobytes()
    want = x.copy()
    np.maximum.at(want, (slice(1, 5), j % 5, i % 3), u[:, 0])
    got = way(lambda x, i, j, u: x.at[1:5, j % 5, i % 3].max(u[:, 0]))(*map(x_of, (x, i, j, u)))
    assert np.asarray(got).tobytes() == want.tobytes()


# -- derivatives -----------------------------------------------------------------------------------


@WAYS
def test_all_that_are_equal_to_the_extreme_share_its_derivative(way: Any) -> None:
    x, u = np.array([2.0, 5.0, 1.0]), np.array([2.0, 2.0, 1.0, 4.0, 4.0])
    i, weight = np.array([0, 0, 0, 2, 2]), np.array([3.0, 5.0, 7.0])

    def loss(x: Any, u: Any, i: Any) -> Any:
        return td.sum(x.at[i].max(u) * weight)

    by_x, by_u = way(td.grad(loss, argnums=(0, 1)))(x, u, i)
    np.testing.assert_allclose(np.asarray(by_x), [1, 5, 0])
    np.testing.assert_allclose(np.asarray(by_u), [1, 1, 0, 3.5, 3.5])


@WAYS
def test_products_with_zeros_have_derivatives(way: Any) -> None:
    x, u = np.array([2.0, 3.0]), np.array([0.0, 5.0, 7.0, 0.0, 0.0])
    i = np.array([0, 0, 1, 1, 9])

    def loss(x: Any, u: Any, i: Any) -> Any:
        return td.sum(x.at[i].multiply(u, mode="drop"))

    by_x, by_u = way(td.grad(loss, argnums=(0, 1)))(x, u, i)
    assert by_x.tolist() == [0, 0] and by_u.tolist() == [10, 0, 0, 21, 0]


@WAYS
@pytest.mark.parametrize("name", ["multiply", "divide"])
def test_second_derivatives_of_chains(way: Any, name: str) -> None:
    i = np.array([1, 0, 1, 1])

    def by_index(v: Any) -> Any:
        return td.sum(getattr(v[:2].at[i], name)(v[2:]) ** 2)

    def by_hand(v: Any) -> Any:
        op = td.multiply if name == "multiply" else td.divide
        return op(v[0], v[3]) ** 2 + op(op(op(v[1], v[2]), v[4]), v[5]) ** 2

    v = np.array([1.5, -2.0, 0.5, 3.0, 1.25, -0.75])
    got, want = (np.asarray(way(td.hessian(f))(v)) for f in (by_index, by_hand))
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


@WAYS
def test_of_several_values_set_the_last_has_the_derivative(way: Any) -> None:
    x, u, i = np.ones(3), np.arange(5.0), np.array([2, 0, -1, 7, 0])

    def loss(x: Any, u: Any, i: Any) -> Any:
        return td.sum(x.at[i].set(u, mode="drop") * np.array([1.0, 2.0, 3.0]))

    by_x, by_u = way(td.grad(loss, argnums=(0, 1)))(x, u, i)
    assert by_x.tolist() == [0, 2, 0] and by_u.tolist() == [0, 0, 3, 0, 1]


@WAYS
def test_batches_keep_to_their_own_rows(way: Any) -> None:
    x, u, i = np.zeros((2, 3)), np.ones((2, 4)), np.array([[0, 3, -1, 5], [2, 2, -3, -4]])
    rows = way(td.vmap(lambda x, u, i: x.at[i].add(u, mode="drop")))(x, u, i)
    assert rows.tolist() == [[1, 0, 1], [1, 0, 2]]


# -- pieces ----------------------------------------------------------------------------------------


def test_parts_name_no_row_twice() -> None:
    rows = np.array([3, 3, 1, 3, 1, 0])
    assert [part.tolist() for part in apart(rows)] == [[5, 2, 0], [4, 1], [3]]
    assert apart(rows[:0]) == []


def test_type_rules_say_what_is_wrong() -> None:
    x, rows, places = (ArrayType(td.float32, (3,)), ArrayType(td.float32, (2,)), (2,))
    at = ArrayType(td.int32, places)
    with pytest.raises(DtypeError, match=r"set_at: f32\[3\] cannot take f64\[2\]"):
        set_at.type(x, ArrayType(td.float64, (2,)), at)
    with pytest.raises(ShapeError, match=r"add_at: rows of f32\[2,1\] are no rows of f32\[3\]"):
        add_at.type(x, ArrayType(td.float32, (2, 1)), at)
    for op in (maximum_at, minimum_at):
        with pytest.raises(DtypeError, match=f"{op.name}: takes"):
            op.type(ArrayType(td.bool_, (3,)), ArrayType(td.bool_, (2,)), at)
    assert set_at.type(x, rows, at) is x
