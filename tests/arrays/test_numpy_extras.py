"""Functions besides the standard, against NumPy, eager and compiled, with derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.core.errors import ShapeError

WAYS = pytest.mark.parametrize("way", [lambda f: f, td.jit], ids=["eager", "compiled"])
RNG = np.random.default_rng(4)


@WAYS
def test_closeness(way: Any) -> None:
    a = np.array([1.0, 2.0, np.inf, np.nan, -np.inf, 1e-9])
    b = np.array([1.0 + 1e-7, 2.1, np.inf, np.nan, np.inf, 0.0])
    for equal_nan in (False, True):
        got = way(lambda a, b, e=equal_nan: td.isclose(a, b, equal_nan=e))(a, b)
        np.testing.assert_array_equal(got, np.isclose(a, b, equal_nan=equal_nan))
    assert not way(td.allclose)(a, b) and way(td.allclose)(a[:1], b[:1])


@WAYS
@pytest.mark.parametrize("k", [-2, 0, 1, 7])
def test_diagonals(way: Any, k: int) -> None:
    for x in (np.arange(3.0), RNG.standard_normal((3, 4)), np.zeros(0)):
        np.testing.assert_array_equal(way(lambda x: td.diag(x, k))(x), np.diag(x, k))
    with pytest.raises(ShapeError, match="expected a vector or a matrix"):
        td.diag(td.zeros((2, 2, 2)))


@WAYS
def test_parts(way: Any) -> None:
    x = RNG.standard_normal((4, 6))
    for where, axis in ((2, 0), (3, 1), ([1, 4], 1), ([0, 3, 9], -1)):
        got = way(lambda x, w=where, a=axis: td.split(x, w, axis=a))(x)
        for one, other in zip(got, np.split(x, where, axis), strict=True):
            np.testing.assert_array_equal(one, other)
    with pytest.raises(ShapeError, match=r"axis 0 of f32\[4\] has no 3 equal parts"):
        td.split(td.zeros(4), 3)


@WAYS
def test_integrals(way: Any) -> None:
    y, x, grid = (
        RNG.standard_normal((3, 5)),
        np.sort(RNG.standard_normal(5)),
        RNG.standard_normal((3, 5)),
    )
    np.testing.assert_allclose(way(td.trapezoid)(y, x), np.trapezoid(y, x), rtol=1e-12)
    np.testing.assert_allclose(
        way(lambda y: td.trapezoid(y, dx=0.5, axis=0))(y), np.trapezoid(y, dx=0.5, axis=0)
    )
    np.testing.assert_allclose(
        way(lambda y, g: td.trapezoid(y, g, axis=0))(y, grid), np.trapezoid(y, grid, axis=0)
    )


@WAYS
def test_interpolation(way: Any) -> None:
    xp, fp = np.array([0.0, 1.0, 1.0, 3.0]), np.array([2.0, -1.0, 4.0, 0.5])
    x = np.array([-1.0, 0.0, 0.25, 1.0, 2.0, 3.0, 5.0])
    np.testing.assert_allclose(way(td.interp)(x, xp, fp), np.interp(x, xp, fp))
    ends = way(lambda x: td.interp(x, xp, fp, left=-7.0, right=7.0))(x)
    np.testing.assert_allclose(ends, np.interp(x, xp, fp, left=-7.0, right=7.0))
    np.testing.assert_allclose(way(td.interp)(x, xp[:1], fp[:1]), np.interp(x, xp[:1], fp[:1]))
    slope = way(td.grad(lambda x: td.sum(td.interp(x, xp, fp))))(
        td.asarray([-1.0, 0.25, 2.0, 5.0], dtype=td.float64)
    )
    np.testing.assert_allclose(slope, [0, -3, -1.75, 0])
    with pytest.raises(ShapeError, match="vectors of equal size"):
        td.interp(x, xp, fp[:2])


@WAYS
def test_quantiles(way: Any) -> None:
    x, q = RNG.standard_normal((3, 4, 5)), np.array([[0.0, 0.3], [0.5, 1.0]])
    for axis in (None, 0, -1, (0, 2)):
        for keepdims in (False, True):
            settings = {"axis": axis, "keepdims": keepdims}
            for share in (0.25, q):
                got = way(lambda x, s=share, kw=settings: td.quantile(x, s, **kw))(x)
                np.testing.assert_allclose(got, np.quantile(x, share, **settings), rtol=1e-12)  # type: ignore[call-overload]
            middle = way(lambda x, kw=settings: td.median(x, **kw))(x)
            np.testing.assert_allclose(middle, np.median(x, **settings), rtol=1e-12)  # type: ignore[call-overload]
    assert np.isnan(way(td.median)(np.array([1.0, np.nan, 2.0])))
    slope = way(td.grad(lambda x: td.quantile(x, 0.75)))(td.asarray([3.0, 1.0, 4.0, 2.0]))
    np.testing.assert_allclose(slope, [0.75, 0, 0.25, 0])
    with pytest.raises(ShapeError, match="quantile: needs elements"):
        td.quantile(td.zeros(0), 0.5)
