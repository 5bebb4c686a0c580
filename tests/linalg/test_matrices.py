"""Factors with their solvers, functions of matrices and matrices of parts: against SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg

import tetrad as td

linalg = td.linalg
RNG = np.random.default_rng(0)
A, B = RNG.normal(size=(5, 5)), RNG.normal(size=(5, 2))
S = A @ A.T + np.eye(5)


def close(got: Any, want: Any, bound: float = 1e-9) -> None:
    assert np.asarray(got).shape == np.shape(want)
    np.testing.assert_allclose(np.asarray(got), want, rtol=bound, atol=bound)


@pytest.mark.parametrize("size", [0.01, 1.0, 30.0])
def test_expm(size: float) -> None:
    want = scipy.linalg.expm(size * A)
    for function in (linalg.expm, td.jit(linalg.expm)):
        got = np.asarray(function(td.asarray(size * A)))
        np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-9 * np.abs(want).max())
    slope = td.grad(lambda x: td.sum(linalg.expm(x)))(td.asarray(A))
    want = scipy.linalg.expm_frechet(A.T, np.ones((5, 5)), compute_expm=False)
    np.testing.assert_allclose(np.asarray(slope), want, rtol=1e-8)
    many = linalg.expm(td.asarray(np.stack([A, 9 * A, 0 * A])))
    np.testing.assert_allclose(np.asarray(many)[2], np.eye(5), atol=1e-15)
    assert np.isnan(np.asarray(linalg.expm(td.asarray(1e9 * A)))).all()


@pytest.mark.parametrize("shape", [(5, 5), (6, 4), (3, 5), (1, 1)])
def test_lu(shape: tuple[int, int]) -> None:
    x = RNG.normal(size=shape)
    for got, want in zip(linalg.lu(td.asarray(x)), scipy.linalg.lu(x), strict=True):
        close(got, want)
    both, pivots = td.jit(linalg.lu_factor)(td.asarray(x))
    want_both, want_pivots = scipy.linalg.lu_factor(x)
    close(both, want_both)
    assert np.asarray(pivots).tolist() == want_pivots.tolist()
    left, upper = linalg.lu(td.asarray(x), permute_l=True)
    close(left @ upper, x)


@pytest.mark.parametrize("trans", [0, 1, 2])
@pytest.mark.parametrize("is_complex", [False, True])
def test_lu_solve(trans: int, is_complex: bool) -> None:
    a, b = (A + 1j * A.T, B + 1j) if is_complex else (A, B)
    want = scipy.linalg.lu_solve(scipy.linalg.lu_factor(a), b, trans)
    got = linalg.lu_solve(linalg.lu_factor(td.asarray(a)), td.asarray(b), trans)
    close(got, want)
    close(linalg.lu_solve(linalg.lu_factor(td.asarray(a)), td.asarray(b[:, 0]), trans), want[:, 0])


def test_derivatives_and_batches_of_lu() -> None:
    def through_lu(x: Any) -> Any:
        return td.sum(linalg.lu_solve(linalg.lu_factor(x), td.asarray(B)))

    direct = td.grad(lambda x: td.sum(linalg.solve(x, td.asarray(B))))(td.asarray(A))
    close(td.grad(through_lu)(td.asarray(A)), np.asarray(direct), 1e-8)
    stacked = td.asarray(np.stack([A, S]))
    many = td.vmap(lambda x: linalg.lu_solve(linalg.lu_factor(x), td.asarray(B)))(stacked)
    close(many, np.stack([np.linalg.solve(m, B) for m in (A, S)]))


@pytest.mark.parametrize("lower", [False, True])
def test_cho_solve(lower: bool) -> None:
    close(linalg.cho_solve(linalg.cho_factor(td.asarray(S), lower), td.asarray(B)),
          np.linalg.solve(S, B))  # fmt: skip


@pytest.mark.parametrize("lower", [True, False])
def test_cho_factor_reads_one_triangle(lower: bool) -> None:
    half = np.tril(S) if lower else np.triu(S)
    close(linalg.cho_factor(td.asarray(half), lower)[0], linalg.cholesky(S, upper=not lower))


@pytest.mark.parametrize("trans", [0, 1, "T", "C"])
@pytest.mark.parametrize("lower", [False, True])
def test_solve_triangular(trans: Any, lower: bool) -> None:
    for unit in (False, True):
        want = scipy.linalg.solve_triangular(A, B, trans, lower, unit)
        close(linalg.solve_triangular(td.asarray(A), td.asarray(B), trans, lower, unit), want)


@pytest.mark.parametrize("shape", [(6, 3), (3, 6), (4, 4)])
def test_lstsq(shape: tuple[int, int]) -> None:
    a, b = RNG.normal(size=shape), RNG.normal(size=(shape[0], 2))
    for right in (b, b[:, 0]):
        want = np.linalg.lstsq(a, right, rcond=None)
        for got, each in zip(linalg.lstsq(td.asarray(a), td.asarray(right)), want, strict=True):
            close(got, each)
    flat = np.outer(a[:, 0], a[0])
    got = linalg.lstsq(td.asarray(flat), td.asarray(b))
    assert int(got.rank) == 1
    close(got.x, np.linalg.lstsq(flat, b, rcond=None)[0])
    slope = td.grad(lambda v: td.sum(linalg.lstsq(td.asarray(a), v).x))(td.asarray(b))
    close(slope, np.linalg.pinv(a).T @ np.ones((shape[1], 2)))


@pytest.mark.parametrize("p", [None, 2, -2, 1, -1, np.inf, "fro"])
def test_cond(p: Any) -> None:
    close(linalg.cond(td.asarray(A), p), np.linalg.cond(A, p), 1e-8)


def test_polar() -> None:
    for side in ("right", "left"):
        for got, want in zip(
            linalg.polar(td.asarray(A), side), scipy.linalg.polar(A, side), strict=True
        ):
            close(got, want)


def test_matrices_of_parts() -> None:
    close(linalg.block_diag(td.asarray(A), td.asarray(B)), scipy.linalg.block_diag(A, B))
    assert linalg.block_diag().shape == (1, 0)
    c, r = B[:, 0], A[0]
    close(linalg.toeplitz(td.asarray(c), td.asarray(r)), scipy.linalg.toeplitz(c, r))
    z = c + 1j * r
    close(linalg.toeplitz(td.asarray(z)), scipy.linalg.toeplitz(z))
    parts = [A, B, B.T, A[0]]
    close(linalg.multi_dot([td.asarray(x) for x in parts]), np.linalg.multi_dot(parts))


def test_tensors() -> None:
    a, b = RNG.normal(size=(4, 6, 8, 3)), RNG.normal(size=(4, 6))
    close(linalg.tensorinv(td.asarray(a)), np.linalg.tensorinv(a))
    close(linalg.tensorsolve(td.asarray(a), td.asarray(b)), np.linalg.tensorsolve(a, b))
    with pytest.raises(td.errors.ShapeError, match="no square matrix"):
        linalg.tensorinv(td.zeros((2, 3, 4)))
