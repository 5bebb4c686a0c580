"""Further distributions of td.random: laws against SciPy, the same bits eager and compiled, edges,
derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

import tetrad as td
from tetrad.core.errors import DtypeError, ShapeError, UnsupportedError
from tetrad.core.op import REGISTRY

random = td.random
KEY = random.key(42)
MANY = 20_000
UNLIKELY = 1e-3  # a draw of a fixed seed is what it is: this only says how far off it may be

LAWS: dict[str, tuple[Callable[..., td.Array], Any]] = {
    "cauchy": (lambda k, d: random.cauchy(k, MANY, d), stats.cauchy()),
    "maxwell": (lambda k, d: random.maxwell(k, MANY, d), stats.maxwell()),
    "rayleigh": (lambda k, d: random.rayleigh(k, 2.0, MANY, d), stats.rayleigh(scale=2)),
    "weibull_min": (
        lambda k, d: random.weibull_min(k, 2.0, 1.5, MANY, d),
        stats.weibull_min(1.5, scale=2),
    ),
    "pareto": (lambda k, d: random.pareto(k, 3.0, MANY, d), stats.pareto(3)),
    "lognormal": (lambda k, d: random.lognormal(k, 0.5, MANY, d), stats.lognorm(0.5)),
    "triangular": (
        lambda k, d: random.triangular(k, -1.0, 0.5, 3.0, MANY, d),
        stats.triang(0.375, -1, 4),
    ),
    "gamma": (lambda k, d: random.gamma(k, 3.0, MANY, d), stats.gamma(3)),
    "gamma of a small parameter": (lambda k, d: random.gamma(k, 0.3, MANY, d), stats.gamma(0.3)),
    "loggamma": (lambda k, d: random.loggamma(k, 0.7, MANY, d), stats.loggamma(0.7)),
    "chisquare": (lambda k, d: random.chisquare(k, 5, MANY, d), stats.chi2(5)),
    "t": (lambda k, d: random.t(k, 4.0, MANY, d), stats.t(4)),
    "f": (lambda k, d: random.f(k, 5.0, 7.0, MANY, d), stats.f(5, 7)),
    "beta": (lambda k, d: random.beta(k, 2.0, 0.5, MANY, d), stats.beta(2, 0.5)),
    "dirichlet": (
        lambda k, d: random.dirichlet(k, td.asarray([1.0, 2.0, 3.0]), (MANY,), d)[:, 1],
        stats.beta(2, 4),
    ),
}


def bits_of(x: td.Array) -> bytes:
    return np.asarray(x).tobytes()


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("dtype", [td.float32, td.float64], ids=str)
def test_laws_and_bits(name: str, dtype: td.DType) -> None:
    draw, law = LAWS[name]
    eager = draw(KEY, dtype)
    assert eager.dtype is dtype and eager.shape == (MANY,)
    assert stats.kstest(np.asarray(eager).astype(np.float64), law.cdf).pvalue > UNLIKELY
    assert bits_of(td.jit(lambda k: draw(k, dtype))(KEY)) == bits_of(eager)


@pytest.mark.parametrize("name", ["gamma", "beta", "t", "weibull_min"])
def test_vmap_draws_what_each_key_draws_alone(name: str) -> None:
    keys = random.split(KEY, 3)
    together = td.vmap(lambda k: LAWS[name][0](k, td.float32))(keys)
    assert bits_of(together) == b"".join(bits_of(LAWS[name][0](k, td.float32)) for k in keys)


@pytest.mark.parametrize("lam", [0.5, 3.0, 9.9, 10.0, 35.0, 1000.0, 1e6])
def test_poisson_numbers(lam: float) -> None:
    x = random.poisson(KEY, lam, (MANY,))
    assert bits_of(td.jit(lambda k: random.poisson(k, lam, (MANY,)))(KEY)) == bits_of(x)
    law, counts = stats.poisson(lam), np.asarray(x)
    edges = np.unique(law.ppf(np.linspace(0.02, 0.98, 12)).astype(int))
    seen = np.diff([0, *((counts <= edge).sum() for edge in edges), MANY])
    expected = np.diff([0.0, *law.cdf(edges), 1.0]) * MANY
    assert stats.chisquare(seen, expected).pvalue > UNLIKELY
    assert abs(counts.mean() - lam) < 4 * np.sqrt(lam / MANY)


def test_counts_at_their_edges() -> None:
    found = random.poisson(KEY, td.asarray([0.0, -1.0, np.nan, np.inf, 1e30]))
    assert found.tolist() == [0, -1, -1, 2**31 - 1, 2**31 - 1]
    assert random.poisson(KEY, 300.0, (100,), td.uint8).tolist() == [255] * 100
    trials = np.asarray(random.geometric(KEY, td.asarray([1.0, 0.3, 1e-12]), (MANY, 3), td.int64))
    assert (trials[:, 0] == 1).all() and trials[:, 1].min() == 1
    assert trials.mean(0) == pytest.approx([1, 1 / 0.3, 1e12], rel=0.03)


def test_gamma_numbers_at_their_edges() -> None:
    found = np.asarray(random.gamma(KEY, td.asarray([-1.0, 0.0, np.nan, np.inf, 1e-3, 1e7])))
    np.testing.assert_array_equal(found[:4], [np.nan, 0, np.nan, np.inf])
    assert found[4] >= 0 and found[5] == pytest.approx(1e7, rel=2e-3)
    tiny = np.asarray(random.beta(KEY, 1e-3, 1e-3, (1000,)))
    assert ((tiny >= 0) & (tiny <= 1)).all() and 0.4 < tiny.mean() < 0.6
    parts = np.asarray(random.dirichlet(KEY, td.asarray([[1e-3, 1e-3], [5.0, 1.0]]), (50, 2)))
    assert parts.shape == (50, 2, 2) and np.allclose(parts.sum(-1), 1)


def test_signs_are_fair() -> None:
    signs = np.asarray(random.rademacher(KEY, (MANY,), td.int8))
    assert (
        set(signs.tolist()) == {-1, 1}
        and abs(signs.mean()) < 4 / np.sqrt(MANY)
        and signs.dtype == np.int8
    )


@pytest.mark.parametrize("method", ["cholesky", "eigh", "svd"])
def test_normal_vectors(method: str) -> None:
    cov = np.float32([[2, 0.5], [0.5, 1]])
    settings: Any = td.asarray([1.0, -1.0]), td.asarray(cov), (MANY,)
    x = np.asarray(td.jit(lambda k: random.multivariate_normal(k, *settings, method=method))(KEY))
    np.testing.assert_allclose(x.mean(0), [1, -1], atol=0.05)
    np.testing.assert_allclose(np.cov(x.T), cov, atol=0.08)
    batches = random.multivariate_normal(
        KEY, td.zeros((4, 1, 2)), td.eye(2) * td.ones((3, 1, 1)), method=method
    )
    assert batches.shape == (4, 3, 2)


def test_normal_vectors_of_a_singular_covariance() -> None:
    x = np.asarray(
        random.multivariate_normal(KEY, td.zeros(2), td.ones((2, 2)), (5,), method="svd")
    )
    np.testing.assert_allclose(x[:, 0], x[:, 1], atol=1e-5)


def test_orthogonal_matrices() -> None:
    q = np.asarray(random.orthogonal(KEY, 3, (200,), td.float64))
    np.testing.assert_allclose(
        q @ q.transpose(0, 2, 1), np.broadcast_to(np.eye(3), q.shape), atol=1e-14
    )
    assert np.abs(q.mean(0)).max() < 0.2 and 0.3 < (np.linalg.det(q) > 0).mean() < 0.7


def test_halves_are_rounded_from_f32() -> None:
    for dtype in (td.float16, td.bfloat16):
        wide = random.gamma(KEY, 3.0, (20,))
        assert random.gamma(KEY, 3.0, (20,), dtype).tolist() == wide.astype(dtype).tolist()


def test_draws_are_differentiable_in_their_scales() -> None:
    slope = td.grad(lambda s: td.sum(random.rayleigh(KEY, s, (3,))))(2.0)
    assert slope.item() == pytest.approx(float(td.sum(random.rayleigh(KEY, 1.0, (3,)))), rel=1e-6)
    assert td.grad(lambda c: random.weibull_min(KEY, 1.0, c, ()))(2.0).item() != 0
    cov = td.asarray([[2.0, 0.5], [0.5, 1.0]])
    assert td.grad(lambda c: td.sum(random.multivariate_normal(KEY, td.zeros(2), c, (3,))))(
        cov
    ).shape == (2, 2)


def test_settings_that_make_no_sense_are_said() -> None:
    with pytest.raises(ShapeError, match=r"gamma: .*shape"):
        random.gamma(KEY, td.ones(3), (2,))
    with pytest.raises(ShapeError, match=r"beta: settings of shape \[3\] do not broadcast to \[\]"):
        random.beta(KEY, td.ones(3), 1.0, ())
    with pytest.raises(DtypeError, match="poisson: expected an integer dtype, got f32"):
        random.poisson(KEY, 1.0, dtype=td.float32)
    with pytest.raises(DtypeError, match="geometric: expected an integer dtype"):
        random.geometric(KEY, 0.5, dtype=td.float32)
    with pytest.raises(DtypeError, match="t: expected a real float dtype, got i32"):
        random.t(KEY, 3.0, dtype=td.int32)
    with pytest.raises(ShapeError, match="dirichlet: alpha needs an axis"):
        random.dirichlet(KEY, 1.0)
    with pytest.raises(ShapeError, match=r"covariance \[..., n, n\], got f32\[2\] and f32\[3,3\]"):
        random.multivariate_normal(KEY, td.zeros(2), td.eye(3))
    with pytest.raises(UnsupportedError, match="there is no method 'lu'"):
        random.multivariate_normal(KEY, td.zeros(2), td.eye(2), method="lu")
    with pytest.raises(AttributeError, match=r"tetrad.random has no function 'nothing'"):
        random.nothing  # noqa: B018


def test_the_steady_exponential_is_precise() -> None:
    for dtype, low, high in ((np.float32, -87, 88), (np.float64, -700, 700)):
        x = np.random.default_rng(3).uniform(low, high, 20000).astype(dtype)
        exact = np.exp(x.astype(np.longdouble))
        found = REGISTRY["steady_exp"](x)
        assert (np.abs(found - exact) / np.spacing(np.abs(found))).max() < 2
    ends = REGISTRY["steady_exp"](np.float32([-np.inf, np.inf, np.nan, -200, 200, -103.5]))
    np.testing.assert_array_equal(ends, np.float32([0, np.inf, np.nan, 0, np.inf, 1e-45]))


@pytest.mark.parametrize("a", [1.0, 1.5])
def test_gamma_numbers_that_are_refused_are_drawn_again(a: float) -> None:
    """One in twenty is: whether it matters which shows only in many numbers."""
    drawn = np.asarray(random.gamma(KEY, a, (200_000,), td.float64))
    assert stats.kstest(drawn, stats.gamma(a).cdf).pvalue > UNLIKELY
