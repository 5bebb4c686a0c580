"""Roots of matrices and tridiagonal systems: against SciPy; derivatives against differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import tetrad as td
from tetrad.core.errors import ShapeError

linalg = td.linalg
HOW = pytest.mark.parametrize("how", [lambda f: f, td.jit], ids=["eager", "jit"])


def draw(seed: int, *shape: int, is_complex: bool = False) -> Any:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape)
    return x + 1j * rng.normal(size=shape) if is_complex else x


@HOW
@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("rows", [1, 2, 5, 24])
def test_sqrtm(rows: int, is_complex: bool, how: Callable[..., Any]) -> None:
    """Real matrices have negative eigenvalues here too: their roots are complex."""
    a = draw(rows, rows, rows, is_complex=is_complex)
    got = np.asarray(how(linalg.sqrtm)(td.asarray(a)))
    assert got.dtype == np.complex128
    np.testing.assert_allclose(got, scipy.linalg.sqrtm(a), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(got @ got, a, rtol=1e-9, atol=1e-9)


@HOW
def test_sqrtm_of_special_matrices(how: Callable[..., Any]) -> None:
    f = how(linalg.sqrtm)
    np.testing.assert_allclose(np.asarray(f(-td.eye(2))), 1j * np.eye(2), atol=1e-7)
    defective = np.array([[4.0, 1.0], [0.0, 4.0]])
    np.testing.assert_allclose(np.asarray(f(td.asarray(defective))), [[2, 0.25], [0, 2]])
    assert (np.asarray(f(td.zeros((3, 3)))) == 0).all()
    assert np.isnan(np.asarray(f(td.full((2, 2), td.inf)))).all()
    assert np.asarray(f(td.zeros((0, 0)))).shape == (0, 0)
    got = f(td.asarray(draw(1, 3, 3), dtype=td.float32))
    assert got.dtype is td.complex64
    many = draw(2, 2, 3, 4, 4)
    each = [[scipy.linalg.sqrtm(a) for a in row] for row in many]
    for g in (linalg.sqrtm, td.vmap(linalg.sqrtm)):
        np.testing.assert_allclose(np.asarray(how(g)(td.asarray(many))), each, atol=1e-9)


@pytest.mark.parametrize("rows", [1, 3, 6])
def test_derivatives_of_sqrtm(rows: int) -> None:
    a, t = draw(3, rows, rows) + 3 * rows * np.eye(rows), draw(4, rows, rows)
    step = 1e-6
    want = (scipy.linalg.sqrtm(a + step * t) - scipy.linalg.sqrtm(a - step * t)) / (2 * step)
    got = td.jvp(linalg.sqrtm, (td.asarray(a),), (td.asarray(t),))[1]
    np.testing.assert_allclose(np.asarray(got), want, atol=1e-8)
    weights = draw(5, rows, rows)
    slope = td.jit(td.grad(lambda x: td.sum(weights * td.real(linalg.sqrtm(x)))))(td.asarray(a))
    np.testing.assert_allclose(
        (np.asarray(slope) * t).sum(), (weights * want.real).sum(), rtol=1e-6
    )

    def rate(x: Any) -> Any:
        return td.grad(lambda x: td.sum(weights * td.real(linalg.sqrtm(x))))(x)

    second = td.jvp(rate, (td.asarray(a),), (td.asarray(t),))[1]
    ends = [np.asarray(rate(td.asarray(a + sign * step * t))) for sign in (1, -1)]
    np.testing.assert_allclose(np.asarray(second), (ends[0] - ends[1]) / (2 * step), atol=1e-7)
    defective = td.asarray([[4.0, 1.0], [0.0, 4.0]])
    slope = td.grad(lambda x: td.real(linalg.sqrtm(x))[0, 0])(defective)
    np.testing.assert_allclose(np.asarray(slope)[0, 0], 0.25, rtol=1e-6)


def banded(dl: Any, d: Any, du: Any) -> Any:
    return np.diag(d) + np.diag(dl[1:], -1) + np.diag(du[:-1], 1)


@HOW
@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("n", [1, 2, 3, 17])
def test_tridiagonal_solve(n: int, is_complex: bool, how: Callable[..., Any]) -> None:
    """Without a dominant diagonal: rows are exchanged."""
    dl, d, du = draw(n, 3, n, is_complex=is_complex)
    d = 1e-13 * d
    if n % 2:
        d = d + np.eye(n)[0]
    b = draw(n + 1, n, 2, is_complex=is_complex)
    want = np.linalg.solve(banded(dl, d, du), b)
    got = how(linalg.tridiagonal_solve)(*(td.asarray(x) for x in (dl, d, du, b)))
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-7, atol=1e-9 * np.abs(want).max())
    vector = how(linalg.tridiagonal_solve)(*(td.asarray(x) for x in (dl, d, du, b[:, 0])))
    np.testing.assert_allclose(np.asarray(vector), np.asarray(got)[:, 0], rtol=1e-12)


def test_batches_and_derivatives_of_tridiagonal_solve() -> None:
    dl, d, du = draw(1, 3, 4, 5)
    b = draw(2, 4, 5, 3)
    arrays = [td.asarray(x) for x in (dl, d, du, b)]
    want = [np.linalg.solve(banded(*rows), side) for *rows, side in zip(dl, d, du, b, strict=True)]
    for function in (linalg.tridiagonal_solve, td.vmap(linalg.tridiagonal_solve)):
        np.testing.assert_allclose(np.asarray(td.jit(function)(*arrays)), want, rtol=1e-8)

    def size(*args: Any) -> Any:
        return td.sum(linalg.tridiagonal_solve(*args) ** 2)

    slopes = td.grad(size, argnums=(0, 1, 2, 3))(*arrays)
    for k, slope in enumerate(slopes):
        t, step = draw(k, *arrays[k].shape), 1e-6
        ends = [
            float(size(*(x + sign * step * t if i == k else x for i, x in enumerate(arrays))))
            for sign in (1, -1)
        ]
        got = (np.asarray(slope) * t).sum()
        np.testing.assert_allclose(got, (ends[0] - ends[1]) / (2 * step), rtol=1e-5)
    with pytest.raises(ShapeError, match="tridiagonal_solve: expected three diagonals"):
        linalg.tridiagonal_solve(arrays[0], arrays[1], arrays[2], td.ones((4, 3)))
