"""Distributions of vectors, functions of samples and estimated densities, against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import tetrad as td

RNG = np.random.default_rng(3)


def test_multivariate_normal() -> None:
    root = RNG.normal(size=(3, 3))
    cov, mean, x = root @ root.T + np.eye(3), RNG.normal(size=3), RNG.normal(size=(5, 3))
    want = stats.multivariate_normal.logpdf(x, mean, cov)
    law = td.stats.multivariate_normal
    args = [td.asarray(v) for v in (x, mean, cov)]
    for function in (law.logpdf, td.jit(law.logpdf)):
        np.testing.assert_allclose(np.asarray(function(*args)), want, rtol=1e-12)
    np.testing.assert_allclose(np.asarray(law.pdf(*args)), np.exp(want), rtol=1e-12)
    by_row = td.vmap(law.logpdf, in_axes=(0, None, None))(*args)
    np.testing.assert_allclose(np.asarray(by_row), want, rtol=1e-12)
    np.testing.assert_allclose(
        np.asarray(law.logpdf(args[0], args[1], 2.0)),
        stats.multivariate_normal.logpdf(x, mean, 2.0 * np.eye(3)), rtol=1e-12,
    )  # fmt: skip
    slope = td.grad(lambda m: td.sum(law.logpdf(args[0], m, args[2])))(args[1])
    np.testing.assert_allclose(
        np.asarray(slope), np.linalg.solve(cov, (x - mean).sum(axis=0)), rtol=1e-9
    )
    flat = np.outer([1.0, 2.0], [1.0, 2.0])
    on, off = td.asarray([2.0, 4.0], dtype=td.float64), td.asarray([2.0, -4.0], dtype=td.float64)
    got = law.logpdf(on, td.zeros(2), td.asarray(flat), allow_singular=True)
    want = stats.multivariate_normal.logpdf([2.0, 4.0], [0, 0], flat, allow_singular=True)
    assert abs(float(got) - want) < 1e-10
    assert float(law.pdf(off, td.zeros(2), td.asarray(flat), True)) == 0.0
    assert abs(float(law.logpdf(1.0, 0.0, 4.0)) - stats.norm.logpdf(1, 0, 2)) < 1e-6


def test_dirichlet() -> None:
    alpha = np.array([0.5, 2.0, 3.0])
    x = RNG.dirichlet(alpha, size=4).T
    law = td.stats.dirichlet
    got = law.logpdf(td.asarray(x), td.asarray(alpha))
    np.testing.assert_allclose(np.asarray(got), stats.dirichlet.logpdf(x, alpha), rtol=1e-12)
    short = law.logpdf(td.asarray(x[:-1]), td.asarray(alpha))
    np.testing.assert_allclose(np.asarray(short), np.asarray(got), rtol=1e-9)
    assert float(law.pdf(td.asarray([0.5, 0.2, 0.2]), td.asarray(alpha))) == 0.0
    with pytest.raises(td.errors.ShapeError, match="shares"):
        law.pdf(td.zeros(5), td.asarray(alpha))


def test_multinomial() -> None:
    p, x = np.array([0.2, 0.0, 0.8]), np.array([[1, 0, 4], [0, 1, 4], [2, 0, 4], [5, 0, 0]])
    with np.errstate(divide="ignore"):
        want = stats.multinomial.logpmf(x, 5, p)
    got = td.stats.multinomial.logpmf(td.asarray(x), 5, td.asarray(p))
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("method", ["average", "min", "max", "dense", "ordinal"])
def test_ranks(method: str) -> None:
    x = RNG.integers(0, 4, (3, 9)).astype(np.float32)
    for axis in (None, 0, 1):
        want = stats.rankdata(x, method, axis=axis)
        got = td.stats.rankdata(td.asarray(x), method, axis=axis)
        np.testing.assert_array_equal(np.asarray(got).reshape(want.shape), want)
    jitted = td.jit(lambda v: td.stats.rankdata(v, method))(td.asarray(x))
    np.testing.assert_array_equal(np.asarray(jitted).ravel(), stats.rankdata(x, method).ravel())


def test_ranks_of_nan_and_of_nothing() -> None:
    assert np.isnan(np.asarray(td.stats.rankdata(td.asarray([1.0, np.nan])))).all()
    assert td.stats.rankdata(td.zeros(0)).shape == (0,)
    with pytest.raises(td.errors.UnsupportedError, match="nan_policy"):
        td.stats.rankdata(td.zeros(2), nan_policy="omit")


def test_mode() -> None:
    x = RNG.integers(0, 4, (5, 7))
    for axis in (None, 0, 1):
        for keepdims in (False, True):
            want = stats.mode(x, axis=axis, keepdims=keepdims)
            got = td.stats.mode(td.asarray(x), axis=axis, keepdims=keepdims)
            np.testing.assert_array_equal(np.asarray(got.mode), want.mode)
            np.testing.assert_array_equal(np.asarray(got.count), want.count)
    assert np.isnan(float(td.stats.mode(td.zeros(0)).mode))


def test_sem() -> None:
    x = RNG.normal(size=(4, 6))
    for axis in (None, 0, 1):
        got = td.stats.sem(td.asarray(x), axis=axis)
        np.testing.assert_allclose(np.asarray(got), stats.sem(x, axis=axis), rtol=1e-12)


WIDTHS = {"scott": None, "silverman": "silverman", "number": 0.4, "function": lambda kde: 0.3}


@pytest.mark.parametrize("method", WIDTHS.values(), ids=WIDTHS)
def test_gaussian_kde(method: object) -> None:
    data, weights = RNG.normal(size=(2, 30)), RNG.uniform(0.2, 1, 30)
    points = RNG.normal(size=(2, 8))
    want = stats.gaussian_kde(data, method, weights)
    got = td.stats.gaussian_kde(td.asarray(data), method, td.asarray(weights))  # type: ignore[arg-type]
    np.testing.assert_allclose(np.asarray(got.covariance), want.covariance, rtol=1e-12)
    np.testing.assert_allclose(np.asarray(got.inv_cov), want.inv_cov, rtol=1e-9)
    np.testing.assert_allclose(np.asarray(got(td.asarray(points))), want(points), rtol=1e-10)
    mean, cov = np.array([0.1, 0.2]), np.eye(2)
    np.testing.assert_allclose(
        float(got.integrate_gaussian(td.asarray(mean), td.asarray(cov))),
        want.integrate_gaussian(mean, cov), rtol=1e-10,
    )  # fmt: skip
    np.testing.assert_allclose(float(got.integrate_kde(got)), want.integrate_kde(want), rtol=1e-10)
    one = td.jit(lambda kde, x: kde.logpdf(x))(got, td.asarray(points))
    np.testing.assert_allclose(np.asarray(one), want.logpdf(points), rtol=1e-10)


def test_gaussian_kde_of_numbers() -> None:
    data = RNG.normal(size=50)
    want, got = stats.gaussian_kde(data), td.stats.gaussian_kde(td.asarray(data))
    box = float(got.integrate_box_1d(-0.5, 1.0))
    np.testing.assert_allclose(box, want.integrate_box_1d(-0.5, 1.0), rtol=1e-12)
    drawn = np.asarray(got.resample(td.random.key(0), (4000,)))
    assert drawn.shape == (1, 4000)
    spread = np.sqrt(data.var() + float(got.covariance[0, 0]))
    assert abs(drawn.mean() - data.mean()) < 0.1 and abs(drawn.std() - spread) < 0.06
    with pytest.raises(td.errors.UnsupportedError, match="bw_method"):
        got.set_bandwidth(0.1)
