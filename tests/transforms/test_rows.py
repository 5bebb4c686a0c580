"""map and associative_scan against Python's own loops: at once and compiled, differentiated, in
batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.core.errors import DtypeError, ShapeError, TraceError

WAYS = pytest.mark.parametrize("way", [lambda f: f, td.jit], ids=["eager", "compiled"])
RNG = np.random.default_rng(4)


def affine(first: Any, then: Any) -> Any:
    """x -> a x + b, one after the other: associative, and the order matters."""
    return {"a": first["a"] * then["a"], "b": then["a"] * first["b"] + then["b"]}


def by_hand(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Along the first axis."""
    product, sums = a.copy(), b.copy()
    for i in range(1, len(a)):
        product[i], sums[i] = product[i - 1] * a[i], a[i] * sums[i - 1] + b[i]
    return product, sums


@WAYS
@pytest.mark.parametrize("count", [0, 1, 2, 3, 8, 13])
@pytest.mark.parametrize("reverse", [False, True])
def test_rows_are_joined_in_order(way: Any, count: int, reverse: bool) -> None:
    a, b = (RNG.standard_normal((count, 2)) for _ in range(2))
    step = -1 if reverse else 1
    wanted = [w[::step] for w in by_hand(a[::step], b[::step])]
    for axis in (0, 1, -1):
        turned = [np.moveaxis(v, 0, axis) for v in (a, b)]
        run = way(
            lambda a, b, axis=axis: td.associative_scan(affine, {"a": a, "b": b}, reverse, axis)
        )
        found = run(*turned)
        for got, want in zip((found["a"], found["b"]), wanted, strict=True):
            np.testing.assert_allclose(np.moveaxis(np.asarray(got), axis, 0), want, rtol=1e-13)


def test_joined_rows_have_derivatives_and_batches() -> None:
    x = td.asarray([2.0, 0.0, 3.0, -1.0])
    assert td.grad(lambda x: td.sum(td.associative_scan(td.multiply, x)))(x).tolist() == [
        1,
        2 + 6 - 6,
        0,
        0,
    ]
    rows = td.asarray([[1.0, 3.0, 2.0], [5.0, 4.0, 6.0]])
    batched = td.vmap(lambda x: td.associative_scan(td.maximum, x))(rows)
    assert (
        batched.tolist()
        == td.associative_scan(td.maximum, rows, axis=1).tolist()
        == [[1, 3, 3], [5, 5, 6]]
    )


@WAYS
@pytest.mark.parametrize("batch_size", [None, 1, 3, 7, 20])
def test_map_takes_one_row_after_the_other(way: Any, batch_size: int | None) -> None:
    x, y = RNG.standard_normal((7, 3)), np.arange(7)

    def f(row: Any) -> Any:
        return {"sum": td.sum(row["x"]) * row["y"], "rest": (row["x"] * 2, None)}

    found = way(lambda x, y: td.map(f, {"x": x, "y": y}, batch_size=batch_size))(x, y)
    np.testing.assert_allclose(np.asarray(found["sum"]), x.sum(1) * y, rtol=1e-13)
    assert found["rest"][0].tolist() == (2 * x).tolist() and found["rest"][1] is None


def test_map_of_no_rows_and_its_derivative() -> None:
    assert (
        td.map(td.sin, td.zeros((0, 2)), batch_size=2).shape
        == td.map(td.sin, td.zeros((0, 2))).shape
        == (0, 2)
    )
    found = td.grad(lambda x: td.sum(td.map(lambda r: td.sum(r) ** 2, x, batch_size=2)))(
        td.ones((3, 2))
    )
    assert found.tolist() == [[4, 4]] * 3


def test_errors() -> None:
    x = td.ones(4)
    with pytest.raises(
        TraceError,
        match=r"<lambda> is given elems and returns elems\[0\], elems\[1\](.|\n)*test_rows",
    ):
        td.associative_scan(lambda a, b: (a, b), x)
    with pytest.raises(
        ShapeError, match=r"elems as f32\[2\] and returns f32\[1\](.|\n)*test_rows.py"
    ):
        td.associative_scan(lambda a, b: a[:1], x)
    with pytest.raises(DtypeError, match=r"elems as f32\[2\] and returns f64\[2\]"):
        td.associative_scan(lambda a, b: td.astype(a, td.float64), x)
    with pytest.raises(
        ShapeError, match=r"sizes along axis 0 differ: elems\[0\] has 4, elems\[1\] has 3"
    ):
        td.associative_scan(td.add, (x, td.ones(3)))
    with pytest.raises(TraceError, match=r"elems\['k'\] is a str"):
        td.associative_scan(td.add, {"k": "text"})
    with pytest.raises(ShapeError, match="axis 2 is out of range"):
        td.associative_scan(td.add, x, axis=2)
    with pytest.raises(ShapeError, match="must be known, got n"):
        td.jit(lambda x: td.associative_scan(td.add, x), dims=({0: td.Dim("n", max=9)},))(x)
    with pytest.raises(ShapeError, match="batch_size is 0"):
        td.map(td.sin, x, batch_size=0)
    with pytest.raises(ShapeError, match="it needs a leading axis"):
        td.map(td.sin, 1.0)
