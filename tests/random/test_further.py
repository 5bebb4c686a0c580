"""Binomial and multinomial counts, balls and further laws against SciPy; gamma numbers move with
their parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special, stats

import tetrad as td

random = td.random
KEY = random.key(7)
MANY = 5_000
UNLIKELY = 1e-3

LAWS: dict[str, tuple[Callable[..., td.Array], Any]] = {
    "generalized_normal": (
        lambda k: random.generalized_normal(k, 1.5, MANY), stats.gennorm(1.5),
    ),
    "double_sided_maxwell": (
        lambda k: abs(random.double_sided_maxwell(k, 0.0, 2.0, MANY)), stats.maxwell(scale=2),
    ),
    "wald": (lambda k: random.wald(k, 2.0, MANY), stats.invgauss(2.0)),
    "wald of a small mean": (lambda k: random.wald(k, 0.1, MANY), stats.invgauss(0.1)),
}  # fmt: skip


@pytest.mark.parametrize("name", LAWS)
def test_laws(name: str) -> None:
    draw, law = LAWS[name]
    drawn = np.asarray(draw(KEY))
    assert stats.kstest(drawn.astype(np.float64), law.cdf).pvalue > UNLIKELY
    assert np.asarray(td.jit(draw)(KEY)).tobytes() == drawn.tobytes()


@pytest.mark.parametrize(
    ("n", "p"), [(10, 0.3), (10, 0.9), (1000, 0.4), (1000, 0.003), (100_000, 0.7), (40, 0.5)]
)
def test_binomial(n: int, p: float) -> None:
    drawn = np.asarray(random.binomial(KEY, n, p, (MANY,)))
    law = stats.binom(n, p)
    edges = np.unique(law.ppf(np.linspace(0.04, 0.96, 13)))
    edges = edges[edges < n]
    places = np.searchsorted(edges, drawn)
    want = np.diff([0.0, *law.cdf(edges), 1.0]) * MANY
    assert stats.chisquare(np.bincount(places, minlength=len(want)), want).pvalue > UNLIKELY
    jitted = td.jit(lambda k: random.binomial(k, n, p, (MANY,)))(KEY)
    assert np.asarray(jitted).tobytes() == drawn.tobytes()


def test_edges_of_binomial() -> None:
    n, p = td.asarray([5.0, 5.0, 0.0, -1.0, 5.0, 5.0]), td.asarray([0.0, 1.0, 0.5, 0.5, 1.5, -0.1])
    drawn = np.asarray(random.binomial(KEY, n, p))
    np.testing.assert_array_equal(drawn, [0, 5, 0, np.nan, np.nan, np.nan])
    many = td.vmap(lambda k: random.binomial(k, 9, 0.5))(random.split(KEY, 3))
    alone = [float(random.binomial(k, 9, 0.5)) for k in random.split(KEY, 3)]
    assert many.tolist() == alone


def test_multinomial() -> None:
    p = np.array([0.1, 0.0, 0.3, 0.6])
    drawn = np.asarray(random.multinomial(KEY, 20, td.asarray(p), shape=(2000,)))
    assert drawn.shape == (2000, 4) and (drawn.sum(axis=-1) == 20).all()
    assert (drawn[:, 1] == 0).all()
    np.testing.assert_allclose(drawn.mean(axis=0), 20 * p, atol=0.25)
    np.testing.assert_allclose(drawn.var(axis=0), 20 * p * (1 - p), rtol=0.15, atol=1e-9)
    per_row = random.multinomial(KEY, td.asarray([3.0, 5.0]), td.asarray(p))
    assert np.asarray(per_row).sum(axis=-1).tolist() == [3.0, 5.0]


@pytest.mark.parametrize("p", [1.0, 2.0, 4.0])
def test_balls_are_filled_evenly(p: float) -> None:
    drawn = np.asarray(random.ball(KEY, 3, p, (MANY,)), np.float64)
    lengths = (np.abs(drawn) ** p).sum(axis=-1) ** (1 / p)
    assert stats.kstest(lengths**3, stats.uniform.cdf).pvalue > UNLIKELY


def test_orthogonal_of_two_sizes() -> None:
    for n, m in ((4, 2), (2, 4)):
        q = np.asarray(random.orthogonal(KEY, n, (3,), td.float64, m=m))
        small = q @ np.swapaxes(q, -1, -2) if n < m else np.swapaxes(q, -1, -2) @ q
        np.testing.assert_allclose(small, np.broadcast_to(np.eye(2), (3, 2, 2)), atol=1e-12)


def test_keys_are_words() -> None:
    keys = random.split(KEY, 3)
    assert random.key_data(keys).tolist() == keys.tolist()
    assert random.clone(KEY).tolist() == KEY.tolist()
    assert random.wrap_key_data(random.key_data(KEY), impl="philox").tolist() == KEY.tolist()
    assert random.key_impl(KEY) == "philox"
    with pytest.raises(td.errors.DtypeError, match="threefry"):
        random.wrap_key_data(KEY, impl="threefry2x32")
    with pytest.raises(td.errors.DtypeError, match="expected keys"):
        random.key_data(td.zeros(2))


@pytest.mark.parametrize("a", [0.05, 0.7, 1.0, 3.0, 80.0])
def test_gamma_numbers_move_with_their_parameter(a: float) -> None:
    """As quantiles do: by differences of SciPy's."""
    draw = lambda v: random.loggamma(KEY, v, (6,), td.float64)  # noqa: E731
    point = td.asarray(a, dtype=td.float64)
    logs, slopes = td.jvp(draw, (point,), (td.ones_like(point),))
    z = np.exp(np.asarray(logs))
    told, step = (z > 1e-290) & (z < 1e3), 1e-5 * a
    share = special.gammainc(a, z)
    upper = special.gammaincc(a, z)
    ends = [
        np.where(share < 0.5, special.gammaincinv(a + by, share),
                 special.gammainccinv(a + by, upper))
        for by in (-step, step)
    ]  # fmt: skip
    want = (np.log(ends[1]) - np.log(ends[0])) / (2 * step)
    np.testing.assert_allclose(np.asarray(slopes)[told], want[told], rtol=2e-6)


def test_means_have_the_derivatives_they_should() -> None:
    a, b = 2.0, 3.0
    mean = lambda f: lambda *v: td.mean(f(*v))  # noqa: E731
    gamma = td.jit(td.grad(mean(lambda v: random.gamma(KEY, v, (MANY,)))))(a)
    assert abs(float(gamma) - 1.0) < 0.05
    by_a, by_b = td.grad(mean(lambda v, w: random.beta(KEY, v, w, (MANY,))), argnums=(0, 1))(a, b)
    assert abs(float(by_a) - b / (a + b) ** 2) < 0.01
    assert abs(float(by_b) + a / (a + b) ** 2) < 0.01
    chi = td.grad(mean(lambda v: random.chisquare(KEY, v, (MANY,))))(5.0)
    assert abs(float(chi) - 1.0) < 0.05
    alpha = td.asarray([1.0, 2.0, 3.0])
    share = td.grad(lambda v: td.mean(random.dirichlet(KEY, v, (MANY,))[:, 1]))(alpha)
    np.testing.assert_allclose(np.asarray(share), [-2 / 36, 4 / 36, -2 / 36], atol=6e-3)
    t = td.grad(mean(lambda v: td.abs(random.t(KEY, v, (MANY,)))))(6.0)
    step = stats.t(6.01).expect(np.abs) - stats.t(5.99).expect(np.abs)
    assert abs(float(t) - step / 0.02) < 0.01
    each = td.vmap(td.grad(lambda v: random.gamma(KEY, v)))(alpha)
    assert np.isfinite(np.asarray(each)).all()
