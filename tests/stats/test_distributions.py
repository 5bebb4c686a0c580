"""Distributions against SciPy: values of every function of every one of them, inside and outside
their support, derivatives against differences of SciPy's values."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from scipy import stats

import tetrad as td

RNG = np.random.default_rng(11)
INF, NAN = np.inf, np.nan

# settings without loc and scale
CONTINUOUS: dict[str, list[tuple[float, ...]]] = {
    "norm": [()], "uniform": [()], "expon": [()], "laplace": [()], "logistic": [()],
    "cauchy": [()], "gumbel_l": [()], "gumbel_r": [()],
    "pareto": [(0.3,), (2.5,)], "gennorm": [(0.5,), (1.0,), (2.5,)],
    "gamma": [(0.3,), (1.0,), (2.5,), (40.0,), (1e5,)],
    "chi2": [(0.5,), (2.0,), (7.0,), (300.0,)],
    "beta": [(0.3, 0.6), (1.0, 1.0), (1.0, 3.0), (2.5, 3.5), (50.0, 8.0), (3e3, 9e3)],
    "t": [(0.7,), (3.0,), (50.0,), (1e6,), (INF,)],
    "truncnorm": [(-1.0, 2.0), (2.0, 3.0), (-9.0, -8.0), (-INF, 0.5), (12.0, INF)],
    "vonmises": [(0.0,), (0.5,), (30.0,)], "wrapcauchy": [(0.2,), (0.9,)],
}  # fmt: skip
DISCRETE: dict[str, list[tuple[float, ...]]] = {
    "bernoulli": [(0.3,), (0.0,), (1.0,)],
    "binom": [(7.0, 0.3), (1000.0, 0.01), (4.0, 0.0), (4.0, 1.0), (0.0, 0.5)],
    "nbinom": [(3.0, 0.4), (0.7, 0.1), (200.0, 0.9), (2.0, 1.0)],
    "betabinom": [(7.0, 0.5, 2.0), (100.0, 3.0, 4.0)],
    "geom": [(0.3,), (1.0,), (1e-3,)],
    "poisson": [(0.0,), (0.7,), (12.0,), (900.0,)],
}
PLACED = ((0.0, 1.0), (-1.5, 3.0))
PROBABILITIES = np.array([0.0, 1e-12, 1e-3, 0.2, 0.5, 0.75, 0.999, 1.0, -0.1, 1.1, NAN])


def of_x(name: str) -> list[str]:
    names = set(dir(getattr(td.stats, name))) - {"ppf", "isf", "entropy"}
    return sorted(names)


def points(name: str, shapes: tuple[float, ...]) -> np.ndarray:
    """Quantiles, what is beyond the support, its ends, no numbers."""
    law = getattr(stats, name)(*shapes)
    quantiles = law.ppf(np.array([1e-9, 1e-4, 0.05, 0.3, 0.6, 0.9, 0.9999, 1 - 1e-9]))
    return np.array([*quantiles, *law.support(), -3.7, -1.0, 0.0, 0.25, 1.0, 2.0, 7.5, 1e3, NAN])


def compare(got: Any, want: np.ndarray, bound: float, floor: float = 1e-300) -> None:
    np.testing.assert_allclose(np.asarray(got), want, rtol=bound, atol=floor)


def want_of(name: str, method: str, x: np.ndarray, *settings: Any) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.asarray(getattr(getattr(stats, name), method)(x, *settings))


def laid_out(name: str) -> tuple[np.ndarray, list[np.ndarray]]:
    """Points [settings, points] and settings [settings, 1] that belong together."""
    cases = CONTINUOUS[name]
    x = np.array([points(name, shapes) for shapes in cases])
    return x, [np.array(column)[:, None] for column in zip(*cases, strict=True)]


def given(*arrays: Any) -> list[td.Array]:
    return [td.asarray(np.asarray(v, np.float64)) for v in arrays]


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous(name: str) -> None:
    law, (loc, scale) = getattr(td.stats, name), (-1.5, 3.0)
    plain, shapes = laid_out(name)
    x = loc + scale * plain
    for method in of_x(name):
        function, told = getattr(law, method), np.ones(x.shape, bool)
        want = want_of(name, method, x, *shapes, loc, scale)
        got = np.asarray(function(*given(x, *shapes), loc, scale))
        if method in ("logcdf", "logsf"):  # SciPy has many of them from rounded probabilities
            share = want_of(name, method[3:], x, *shapes, loc, scale)
            told = ((share > 1e-5) & (share < 1 - 1e-5)) | (share == 0.0) & (got == -INF)
            # far out both are differences of large logarithms
            compare(np.exp(got), share, 1e-9, 1e-13 if name == "truncnorm" else 1e-15)
        told &= ~np.isinf(x) & ~((want == -INF) & (got < -700.0))
        compare(got[told], want[told], 2e-9 if name == "gamma" else 2e-10, 3e-14)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_compiled_and_in_single_precision(name: str) -> None:
    x, shapes = laid_out(name)
    near = [np.nan_to_num(v, posinf=1e12, neginf=-1e12).astype(np.float32) for v in (x, *shapes)]
    for method in ("logpdf", *(("cdf",) if "cdf" in of_x(name) else ())):
        function = getattr(getattr(td.stats, name), method)
        exact = function(*given(*near))
        small = td.jit(function)(*(td.asarray(v) for v in near))
        assert small.dtype == td.float32
        compare(small, np.asarray(exact), 2e-7, 1e-37)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_quantiles(name: str) -> None:
    law = getattr(td.stats, name)
    for (loc, scale), method in itertools.product(PLACED, ("ppf", "isf")):
        if method in dir(law):
            for shapes in CONTINUOUS[name]:
                want = want_of(name, method, PROBABILITIES, *shapes, loc, scale)
                got = getattr(law, method)(*given(PROBABILITIES), *shapes, loc, scale)
                compare(got, want, 1e-11, 1e-15)


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete(name: str) -> None:
    k = np.array([-2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 8.0, 40.0, 901.0, 1.5, NAN])
    shapes = [np.array(column)[:, None] for column in zip(*DISCRETE[name], strict=True)]
    for method in of_x(name):
        function = getattr(getattr(td.stats, name), method)
        want = want_of(name, method, k + 2.0, *shapes, 2.0)
        compare(function(*given(k + 2.0, *shapes), 2.0), want, 1e-11, 1e-14)
        compare(td.jit(function)(*given(k + 2.0, *shapes), 2.0), want, 1e-11, 1e-14)


def test_quantiles_and_entropy_of_counts() -> None:
    got = td.stats.bernoulli.ppf(*given(PROBABILITIES), 0.3)
    compare(got, want_of("bernoulli", "ppf", PROBABILITIES, np.float32(0.3)), 1e-15)
    mu = np.array([0.0, 1e-3, 0.5, 3.0, 20.0, 39.9, 40.1, 300.0, 1e6])
    got = td.stats.poisson.entropy(*given(mu))
    want = [stats.poisson.entropy(m) if m < 1e5 else 0.5 * np.log(2 * np.pi * np.e * m) for m in mu]
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_edges(name: str) -> None:
    """Parameters out of range give NaN; infinite numbers have no density."""
    law, shapes = getattr(td.stats, name), CONTINUOUS[name][0]
    for method in of_x(name):
        function = getattr(law, method)
        bad = function(td.asarray(0.5), *shapes, 0.0, td.asarray([0.0, -1.0, NAN]))
        assert np.isnan(np.asarray(bad)).all()
        if shapes:
            assert np.isnan(float(function(td.asarray(0.5), *(-1.0, -2.0)[: len(shapes)])))
    assert (np.asarray(law.logpdf(td.asarray([-INF, INF]), *shapes)) == -INF).all()
    if "cdf" in dir(law):
        assert np.asarray(law.cdf(td.asarray([-INF, INF]), *shapes)).tolist() == [0.0, 1.0]


def slopes_of(name: str, args: list[td.Array], *, compiled: bool = False) -> list[np.ndarray]:
    def total(*args: Any) -> Any:
        return td.sum(getattr(td.stats, name).logpdf(*args))

    slope = td.grad(total, argnums=tuple(range(len(args))))
    return [np.asarray(v) for v in (td.jit(slope) if compiled else slope)(*args)]


@pytest.mark.parametrize("name", CONTINUOUS)
def test_derivatives_of_log_densities(name: str) -> None:
    law = getattr(stats, name)
    cases = [c for c in CONTINUOUS[name] if np.isfinite(c).all() and 1e4 > max(c, default=1) > 0.0]
    cases = cases or [()]
    quantiles = np.array([0.25, 0.4, 0.66, 0.93])
    x = np.array([law(*shapes, 0.3, 1.7).ppf(quantiles) for shapes in cases])
    settings = [*zip(*cases, strict=True), 0.3, 1.7]
    moved = [x, *(np.broadcast_to(np.reshape(s, (-1, 1)), x.shape).astype(float) for s in settings)]
    for place, slope in enumerate(slopes_of(name, given(*moved), compiled=name in ("beta", "t"))):
        step = 1e-4 * np.maximum(np.abs(moved[place]), 1e-2)

        def at(by: float, place: int = place, step: Any = step) -> Any:
            args = [v + by * step if i == place else v for i, v in enumerate(moved)]
            return law.logpdf(*args)

        want = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * step)
        if name == "uniform":  # flat, but where it ends
            want = np.full(x.shape, [0.0, 0.0, -1 / 1.7][place])
        np.testing.assert_allclose(slope, want, rtol=2e-6, atol=2e-7)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_no_derivative_outside_is_nan(name: str) -> None:
    shapes = CONTINUOUS[name][0]
    low, high = getattr(stats, name)(*shapes).support()
    outside = [v for v in (low - 1.0, high + 1.0) if np.isfinite(v)]
    if outside:
        args = given(*np.broadcast_arrays(np.array(outside), *shapes))
        assert all((slope == 0.0).all() for slope in slopes_of(name, args))


def test_vmap_names_and_scalars() -> None:
    a = td.asarray([1.0, 2.0, 3.0])
    mapped = td.vmap(lambda v: td.stats.gamma.logpdf(2.0, a=v, scale=2.0))(a)
    compare(mapped, stats.gamma.logpdf(2.0, np.array([1, 2, 3.0]), scale=2.0), 3e-7)
    assert td.stats.norm.logpdf(0, 1, 2).dtype == td.float32
    assert td.stats.norm.logpdf(td.zeros((0, 3))).shape == (0, 3)
    assert td.stats.norm.pdf(td.asarray(0.0, dtype=td.float16)).dtype == td.float16


def test_errors_say_what_is_expected() -> None:
    with pytest.raises(TypeError, match=r"gamma\.logpdf\(x, a, loc=0, scale=1\): missing.*'a'"):
        td.stats.gamma.logpdf(1.0)
    with pytest.raises(AttributeError, match=r"gamma has no 'ppf'; it has cdf, logcdf"):
        _ = td.stats.gamma.ppf
    with pytest.raises(AttributeError, match="stats"):
        _ = td.stats.nom
    assert "pdf" in dir(td.stats.norm) and "norm(loc=0, scale=1)" in repr(td.stats.norm)
