"""Matrices without an answer: an error, or NaN for them alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.core.errors import FactorError, SettingError
from tetrad.ops.linalg.factors import attempt

linalg = td.linalg
DTYPES = [np.float32, np.float64, np.complex64, np.complex128]
HOW = pytest.mark.parametrize(
    "how",
    [lambda f: f, td.jit, lambda f: td.jit(td.vmap(td.vmap(f)))],
    ids=["eager", "jit", "jit of vmap"],
)
BAD = np.array([[False, True, False], [False, False, True]])


def definite(rows: int, dtype: Any) -> Any:
    rng = np.random.default_rng(rows)
    a = rng.normal(size=(2, 3, rows, rows)).astype(dtype)
    if np.iscomplexobj(a):
        a = a + 1j * rng.normal(size=a.shape).astype(dtype)
    return (a @ np.conj(np.swapaxes(a, -1, -2)) + rows * np.eye(rows)).astype(dtype)


@HOW
@pytest.mark.parametrize("rows", [1, 3, 16, 37])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_factor_of_an_indefinite_matrix_is_nan(
    dtype: Any, rows: int, how: Callable[..., Any]
) -> None:
    good = definite(rows, dtype)
    a = good.copy()
    a[1, 2], a[0, 1, -1, 0] = -np.eye(rows), np.nan
    got = np.asarray(how(lambda x: linalg.cholesky(x, on_failure="nan"))(td.asarray(a)))
    lower = np.tri(rows, dtype=bool)
    assert np.isnan(got[BAD][:, lower]).all() and (got[BAD][:, ~lower] == 0).all()
    want = np.linalg.cholesky(good)[~BAD]
    np.testing.assert_allclose(got[~BAD], want, rtol=1e-4, atol=1e-4 * rows)


@HOW
@pytest.mark.parametrize("rows", [1, 3, 16, 37])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["eigh", "eigvalsh", "svd", "svdvals", "eig", "eigvals"])
def test_what_is_not_finite_has_nan_alone(
    name: str, dtype: Any, rows: int, how: Callable[..., Any]
) -> None:
    good = definite(rows, dtype)
    a = good.copy()
    a[1, 2], a[0, 1, -1, 0] = np.inf, np.nan
    f = how(lambda x: getattr(linalg, name)(x, on_failure="nan"))
    both = (td.tree.leaves(f(td.asarray(x))) for x in (a, good))
    for got, want in zip(*both, strict=True):
        assert np.isnan(np.asarray(got)[BAD]).all()
        np.testing.assert_array_equal(np.asarray(got)[~BAD], np.asarray(want)[~BAD])


@pytest.mark.parametrize("shape", [(2, 5), (5, 2), (20, 30)], ids=str)
@pytest.mark.parametrize("full", [True, False])
def test_singular_values_of_oblong_matrices(full: bool, shape: tuple[int, int]) -> None:
    a = np.random.default_rng(0).normal(size=(3, *shape))
    a[1, -1, -1] = np.nan
    u, s, vh = td.jit(lambda x: linalg.svd(x, full, on_failure="nan"))(td.asarray(a))
    assert all(np.isnan(np.asarray(x)[1]).all() for x in (u, s, vh))
    np.testing.assert_allclose(np.asarray(s)[::2], np.linalg.svd(a[::2])[1], rtol=1e-9)


@pytest.mark.parametrize("rows", [3, 20])
@pytest.mark.parametrize("name", ["cholesky", "eigvalsh", "svdvals", "pinv"])
def test_derivatives_of_the_others_are_as_ever(name: str, rows: int) -> None:
    good = definite(rows, np.float64)
    a = good.copy()
    a[BAD] = np.nan

    def slopes(x: Any) -> Any:
        f = getattr(linalg, name)
        summed = td.vmap(td.vmap(td.grad(lambda m: td.sum(f(m, on_failure="nan")))))
        return np.asarray(td.jit(summed)(td.asarray(x)))

    got, want = slopes(a), slopes(good)
    assert np.isnan(got[BAD]).any(axis=(-1, -2)).all()
    np.testing.assert_allclose(got[~BAD], want[~BAD], rtol=1e-9, atol=1e-12)


def test_the_setting_decides_where_nothing_is_asked_for() -> None:
    indefinite, singular = td.asarray([[-1.0, 0.0], [0.0, 1.0]]), td.zeros((2, 2))
    functions = [
        (linalg.cholesky, indefinite), (lambda x: linalg.cho_factor(x)[0], indefinite),
        (linalg.inv, singular), (lambda x: linalg.solve(x, td.ones(2)), singular),
        (linalg.eigvalsh, singular / 0), (linalg.pinv, singular / 0),
        (lambda x: linalg.lstsq(x, td.ones(2)).x, singular / 0),
    ]  # fmt: skip
    for function, x in functions:
        compiled = td.jit(function)
        with pytest.raises(FactorError):
            compiled(x)
        with td.config.context(linalg_failure="nan"):
            assert np.isnan(np.asarray(compiled(x))).any()
            assert np.isnan(np.asarray(function(x))).any()
        with pytest.raises(FactorError):
            compiled(x)


def test_errors_say_how_to_get_nan_instead() -> None:
    for function, x in ((linalg.cholesky, -td.eye(2)), (linalg.eigh, td.full((2, 2), td.nan))):
        with pytest.raises(FactorError, match='on_failure="nan" gives NaN'):
            function(x)
    for function in (linalg.cholesky, linalg.eigh, linalg.svd, linalg.svdvals, linalg.eigvalsh):
        with pytest.raises(SettingError, match="on_failure"):
            function(td.eye(2), on_failure="ignore")
    with pytest.raises(SettingError, match="linalg_failure"):
        td.config.update("linalg_failure", "ignore")


def test_nothing_fails() -> None:
    nothing = td.zeros((2, 0, 0))
    for function in (linalg.cholesky, linalg.eigvalsh, linalg.svdvals, linalg.pinv):
        for how in (lambda f: f, td.jit):
            got = how(lambda x, f=function: f(x, on_failure="nan"))(nothing)
            assert np.asarray(got).size == 0


def test_an_iteration_that_does_not_end_marks_its_matrix() -> None:
    def halves(a: Any) -> tuple[Any, Any]:
        if (a[..., 0, 0] == 7).any():
            raise np.linalg.LinAlgError
        return a[..., 0], a / 2

    a = np.ones((2, 2, 3, 3))
    a[1, 0, 0, 0], a[0, 1] = 7, np.inf
    first, half = attempt("halves", halves, a, a, "nan")
    failed = np.array([[False, True], [True, False]])
    assert np.isnan(first[failed]).all() and np.isnan(half[failed]).all()
    assert (first[~failed] == 1).all() and (half[~failed] == 0.5).all()
    a[0, 1] = 1
    with pytest.raises(FactorError, match="halves: the iteration did not converge"):
        attempt("halves", halves, a, a, "raise")


@pytest.mark.parametrize("is_complex", [False, True])
def test_the_triangle_that_is_asked_for_is_read(is_complex: bool) -> None:
    rng = np.random.default_rng(1)
    a = rng.normal(size=(5, 5)) + (1j * rng.normal(size=(5, 5)) if is_complex else 0)
    mean = (a + a.conj().T) / 2
    for triangle in ("L", "U"):
        want = np.linalg.eigvalsh(a, triangle)
        for how in (lambda f: f, td.jit):
            values, vectors = how(lambda x, t=triangle: linalg.eigh(x, t))(td.asarray(a))
            np.testing.assert_allclose(np.asarray(values), want, atol=1e-12)
            half = np.tril(a, -1) if triangle == "L" else np.triu(a, 1).conj().T
            whole = half + half.conj().T + np.diag(np.diagonal(a).real)
            v = np.asarray(vectors)
            np.testing.assert_allclose(whole @ v, v * want, atol=1e-12)
        got = linalg.eigvalsh(td.asarray(a), triangle)
        np.testing.assert_allclose(np.asarray(got), want, atol=1e-12)
    got = linalg.eigvalsh(td.asarray(a), symmetrize_input=True)
    np.testing.assert_allclose(np.asarray(got), np.linalg.eigvalsh(mean), atol=1e-12)
    whole = a + 20 * np.eye(5)
    factor = linalg.cholesky(td.asarray(whole), symmetrize_input=True)
    want = np.linalg.cholesky((whole + whole.conj().T) / 2)
    np.testing.assert_allclose(np.asarray(factor), want, atol=1e-12)
    upper = linalg.cholesky(td.asarray(whole), symmetrize_input=True, upper=True)
    np.testing.assert_allclose(np.asarray(upper), want.conj().T, atol=1e-12)
    with pytest.raises(SettingError, match="eigh: UPLO"):
        linalg.eigh(td.asarray(a), "X")


def test_derivatives_follow_the_triangle() -> None:
    a = np.random.default_rng(2).normal(size=(4, 4))
    weights = td.asarray(np.arange(4.0))
    for settings in ({"UPLO": "L"}, {"UPLO": "U"}, {"symmetrize_input": True}):

        def f(x: Any, settings: Any = settings) -> Any:
            return td.sum(weights * linalg.eigvalsh(x, **settings))

        slope, step = np.asarray(td.grad(f)(td.asarray(a))), 1e-6
        t = np.random.default_rng(3).normal(size=(4, 4))
        t = t + t.T
        want = (f(td.asarray(a + step * t)) - f(td.asarray(a - step * t))) / (2 * step)
        np.testing.assert_allclose((slope * t).sum(), float(want), rtol=1e-5)
