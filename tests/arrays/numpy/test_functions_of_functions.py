"""Polynomials, and functions called for parts of arrays, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.arrays.numpy.against import check, floats, same
from tetrad.core.errors import SettingError, ShapeError

P, Q = floats(5), floats(3)
X = floats(3, 4)


def test_polynomials() -> None:
    check("polyval", P, X)
    check("polyval", np.array([1, 2, 3]), np.array([-1, 4]))
    for name in ("polyadd", "polysub", "polymul"):
        check(name, P, Q)
        check(name, Q, P)
        check(name, np.array([1, 2, 3]), np.array([4, 5]))
    for m in (0, 1, 2, 6):
        check("polyder", P, m)
        check("polyint", P, m)
    check("polyder", np.array([3, 2, 1]))
    check("polyint", Q, 2, [1.0, 2.0])
    check("poly", Q)
    check("poly", floats(3, 3), rtol=1e-9, grad=False)
    quotient, rest = td.polydiv(P, Q, trim_leading_zeros=True)
    same((quotient, rest), np.polydiv(P, Q), 1e-9)
    quotient, rest = td.jit(td.polydiv)(P, Q)
    same(td.polyadd(td.polymul(quotient, Q), rest), P)
    with pytest.raises(SettingError, match="polyder: m"):
        td.polyder(P, -1)
    with pytest.raises(ShapeError, match="polyadd: coefficients are vectors"):
        td.polyadd(X, P)


def test_zeros_of_polynomials() -> None:
    for p in (P, np.array([0.0, 0.0, 1.0, -3.0, 2.0, 0.0]), np.array([2.0]), np.zeros(3)):
        same(np.sort_complex(td.roots(p)), np.sort_complex(np.roots(p) + 0j), 1e-9)
    same(np.sort_complex(td.jit(lambda p: td.roots(p, strip_zeros=False))(P)),
         np.sort_complex(np.roots(P)), 1e-9)  # fmt: skip
    with pytest.raises(ShapeError, match="roots: how many leading zeros"):
        td.jit(td.roots)(P)


def test_fits() -> None:
    at, values, weights = np.sort(floats(9)), floats(9), np.abs(floats(9)) + 0.1
    for degree in (0, 1, 3):
        check("polyfit", at, values, degree, rtol=1e-8)
        check("polyfit", at, floats(9, 2), degree, rtol=1e-8, vmap=False)
    same(td.polyfit(at, values, 2, w=weights), np.polyfit(at, values, 2, w=weights), 1e-8)
    for how in (True, "unscaled"):
        same(td.polyfit(at, values, 2, cov=how), np.polyfit(at, values, 2, cov=how), 1e-8)
    got, want = td.polyfit(at, values, 2, full=True), np.polyfit(at, values, 2, full=True)
    same(got[:2], want[:2], 1e-8)
    assert int(got[2]) == want[2] and got[4] == pytest.approx(want[4])
    same(got[3], want[3], 1e-8)


def test_functions_of_elements() -> None:
    @td.vectorize
    def larger(a: Any, b: Any) -> Any:
        """Of two."""
        return td.where(a > b, a, b)

    assert larger.__doc__ == "Of two."
    for a, b in ((X, X[0]), (X[:, None], X), (np.float64(1), X), (X, np.ones((3, 1)))):
        same(larger(a, b), np.maximum(a, b))
        same(td.jit(larger)(a, b), np.maximum(a, b))
    pair = td.vectorize(lambda a, b: (a + b, a - b))
    same(pair(X, 1.0), (X + 1, X - 1))
    power = td.vectorize(lambda x, n: x**n, excluded={1})
    same(power(X, 3), X**3)
    named = td.vectorize(lambda x, scale=1: x * scale, excluded={"scale"})
    same(named(X, scale=2.0), X * 2)
    slope = td.grad(lambda x: td.sum(larger(x, 0.0)))(X)
    same(slope, (X > 0) * 1.0)


def test_functions_of_vectors() -> None:
    product = td.vectorize(td.matmul, signature="(n,m),(m)->(n)")
    for a, b in ((floats(5, 2, 3), floats(3)), (floats(2, 3), floats(4, 3)),
                 (floats(4, 1, 2, 3), floats(5, 3))):  # fmt: skip
        same(product(a, b), np.matvec(a, b))
        same(td.jit(product)(a, b), np.matvec(a, b))
    parts = td.vectorize(lambda x: (td.sum(x), x * 2), signature="(n)->(),(n)")
    same(parts(X), (X.sum(-1), X * 2))
    with pytest.raises(ShapeError, match="axis m has size 3 and 4"):
        product(floats(2, 3), floats(4))
    with pytest.raises(ShapeError, match="fewer axes than"):
        product(floats(3), floats(3))
    with pytest.raises(ShapeError, match="1 arrays for a signature with 2"):
        product(floats(3, 3))
    with pytest.raises(SettingError, match="vectorize: signature"):
        td.vectorize(td.sum, signature="n->m")
    with pytest.raises(SettingError, match="vectorize: excluded"):
        td.vectorize(td.sum, excluded={1.5})


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_functions_of_lines(axis: int) -> None:
    cube = floats(2, 3, 4)
    same(td.apply_along_axis(td.sum, axis, cube), np.apply_along_axis(np.sum, axis, cube))
    same(td.apply_along_axis(lambda x: x * 2, axis, cube), cube * 2)
    outer = lambda x: x[:, None] * x  # noqa: E731
    same(td.apply_along_axis(outer, axis, cube), np.apply_along_axis(outer, axis, cube))
    same(td.apply_along_axis(td.quantile, axis, cube, 0.5), np.median(cube, axis))


def test_functions_over_axes() -> None:
    cube = floats(2, 3, 4)
    same(td.apply_over_axes(td.sum, cube, (0, 2)), np.apply_over_axes(np.sum, cube, (0, 2)))


def test_products_of_matrices_and_vectors() -> None:
    check("matvec", floats(5, 2, 3), floats(3))
    check("vecmat", floats(5, 2), floats(5, 2, 3))
    check("vecmat", X[0] + 1j, floats(4, 2) + 2j)
    with pytest.raises(ShapeError, match="matvec: expected matrices"):
        td.matvec(floats(3), floats(3))
    with pytest.raises(ShapeError, match="vecmat: expected vectors"):
        td.vecmat(floats(3), floats(3))


def test_arrays_as_text_and_in_files(tmp_path: Any) -> None:
    x = td.asarray(X)
    assert td.array_repr(x) == repr(x) and td.array_str(x) == str(x)
    with td.printoptions(precision=1):
        assert str(td.asarray([1.25, 3.0])) == str(np.float32([1.25, 3.0])) == "[1.2 3. ]"
    same(td.frombuffer(X.tobytes(), td.float64), X.ravel())
    X.tofile(tmp_path / "x.bin")
    same(td.fromfile(tmp_path / "x.bin", td.float64), X.ravel())
    same(td.fromiter(iter([1, 2, 3]), td.int32), np.array([1, 2, 3]))
    same(td.fromstring("1, 2.5", td.float64, sep=","), np.array([1, 2.5]))
    td.savez(tmp_path / "x.npz", a=x, b=x * 2)
    with np.load(tmp_path / "x.npz") as read:
        same(read["a"], X)
        same(read["b"], 2 * X)


def test_lines_that_repeat() -> None:
    xp, fp = np.array([190.0, -190, 350, -350]), np.array([5.0, 10, 3, 4])
    at = np.array([-180.0, -170, -185, 185, -10, -5, 0, 365])
    check("interp", at, xp, fp, period=360, vmap=False, grad=False)  # at points are kinks
    check("interp", at + 0.5, xp, fp, None, None, 360.0, vmap=False)
