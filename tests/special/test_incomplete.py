"""Incomplete gamma and beta functions, exponential integrals, Spence's function, spherical
harmonics: against SciPy, their derivatives against differences of SciPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import special

import tetrad as td

RNG = np.random.default_rng(5)
COUNT = 200


def gamma_points() -> tuple[np.ndarray, np.ndarray]:
    a = 10 ** RNG.uniform(-3, 4, COUNT)
    x = a * np.exp(RNG.normal(size=COUNT) * np.minimum(1, 3 / np.sqrt(a)))
    return a, np.concatenate([10 ** RNG.uniform(-4, 1, 40), x[40:]])


def beta_points() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    a, b = 10 ** RNG.uniform(-2, 3, (2, COUNT))
    odds = np.log(a / b) + RNG.normal(size=COUNT) * np.minimum(2 * np.sqrt(1 / a + 1 / b), 3)
    return a, b, np.clip(1 / (1 + np.exp(-odds)), 1e-9, 1 - 1e-9)


X = 10 ** np.linspace(-6, 2.5, COUNT)
POINTS: dict[str, tuple[tuple[np.ndarray, ...], float]] = {
    "gammainc": (gamma_points(), 1e-12),
    "gammaincc": (gamma_points(), 1e-12),
    "betainc": (beta_points(), 2e-12),
    "exp1": ((X,), 1e-14),
    "expi": ((np.concatenate([-X, X]),), 5e-14),
    "expn": ((RNG.integers(0, 30, COUNT).astype(float), X), 2e-13),
    "spence": ((X,), 2e-15),
}
OTHERS = {"gammaincc": (1e-250, 1e-14), "gammainc": (1e-250, 1e-14), "betainc": (1e-200, 1e-14)}
EDGES = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 3.0, np.inf, np.nan])
# SciPy gives no number for a limit, or another
LIMITS = {"spence": [np.inf], "expi": []}


@pytest.mark.parametrize("name", POINTS)
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
def test_values(name: str, compiled: bool) -> None:
    args, bound = POINTS[name]
    function = td.jit(getattr(td.special, name)) if compiled else getattr(td.special, name)
    want = getattr(special, name)(*args)
    got = np.asarray(function(*(td.asarray(x) for x in args)))
    assert got.dtype == np.float64
    near_zero = 1e-15 if name in ("expi", "spence") else 1e-300
    np.testing.assert_allclose(got, want, rtol=bound, atol=near_zero)
    args = tuple(np.clip(x, -80.0, 80.0) for x in args) if name == "expi" else args
    small = [x.astype(np.float32) for x in args]
    want32 = getattr(special, name)(*(x.astype(np.float64) for x in small)).astype(np.float32)
    got32 = np.asarray(function(*(td.asarray(x) for x in small)))
    assert got32.dtype == np.float32
    np.testing.assert_allclose(got32, want32, rtol=2e-7, atol=1e-44 + near_zero)


@pytest.mark.parametrize("name", ["exp1", "expi", "spence"])
def test_edges_of_one_argument(name: str) -> None:
    x = np.array([v for v in EDGES if v not in LIMITS.get(name, [])])
    want = getattr(special, name)(x)
    np.testing.assert_allclose(np.asarray(getattr(td.special, name)(td.asarray(x))), want, 1e-14)


@pytest.mark.parametrize("name", ["gammainc", "gammaincc", "expn"])
def test_edges_of_two_arguments(name: str) -> None:
    a, x = (v.ravel() for v in np.meshgrid(EDGES, EDGES))
    if name == "expn":  # of whole orders; SciPy's others are not those of a real order
        keep = np.isin(a, (0.0, 1.0, 3.0))
        a, x = a[keep], x[keep]
    want = getattr(special, name)(a, x)
    got = np.asarray(getattr(td.special, name)(td.asarray(a), td.asarray(x)))
    np.testing.assert_allclose(got, want, rtol=1e-13)


def test_edges_of_the_incomplete_beta_function() -> None:
    a, b, x = (v.ravel() for v in np.meshgrid(EDGES, EDGES, EDGES))
    want = special.betainc(a, b, x)
    got = np.asarray(td.special.betainc(td.asarray(a), td.asarray(b), td.asarray(x)))
    ordinary = (a > 0) & (b > 0) & np.isfinite(a + b)
    np.testing.assert_allclose(got[ordinary], want[ordinary], rtol=1e-13)
    assert np.isnan(got[np.isnan(a + b + x) | (a < 0) | (b < 0)]).all()


def differences(function: Any, args: tuple[np.ndarray, ...], place: int, step: float) -> Any:
    """Of fourth order."""

    def at(by: float) -> Any:
        moved = [x + by * step * x if i == place else x for i, x in enumerate(args)]
        return function(*moved)

    return (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * step * args[place])


@pytest.mark.parametrize(
    ("name", "places"),
    [("gammainc", (0, 1)), ("gammaincc", (0, 1)), ("betainc", (0, 1, 2)), ("expn", (1,)),
     ("exp1", (0,)), ("expi", (0,)), ("spence", (0,))],
)  # fmt: skip
def test_derivatives(name: str, places: tuple[int, ...]) -> None:
    args = tuple(
        {"gammainc": (RNG.uniform(0.3, 30, 50), RNG.uniform(0.3, 30, 50)),
         "betainc": (RNG.uniform(0.3, 20, 50), RNG.uniform(0.3, 20, 50), RNG.uniform(0.1, 0.9, 50)),
         "expn": (RNG.integers(0, 12, 50).astype(float), RNG.uniform(0.1, 9, 50))}.get(
            name.replace("incc", "inc"), (RNG.uniform(0.1, 9, 50),)
        )
    )  # fmt: skip
    function = getattr(td.special, name)
    given = [td.asarray(x) for x in args]
    for compiled in (False, True):
        slopes = td.vmap(td.grad(function, argnums=places))
        got = (td.jit(slopes) if compiled else slopes)(*given)
        for place, slope in zip(places, got, strict=True):
            want = differences(getattr(special, name), args, place, 1e-3)
            np.testing.assert_allclose(np.asarray(slope), want, rtol=1e-7, atol=1e-9)


def test_second_derivatives_are_differences_of_first() -> None:
    for name, args in (("gammainc", (2.5, 1.7)), ("betainc", (2.5, 3.5, 0.4))):
        function, given = getattr(td.special, name), [td.asarray(x, dtype=td.float64) for x in args]
        for i in range(len(args)):
            slope = td.grad(function, argnums=i)
            up, down = ([*given] for _ in range(2))
            up[i], down[i] = given[i] + 1e-5, given[i] - 1e-5
            want = (float(slope(*up)) - float(slope(*down))) / 2e-5
            assert abs(float(td.grad(slope, argnums=i)(*given)) - want) < 1e-8


def test_empty_arrays_and_halves() -> None:
    assert td.special.betainc(td.zeros((0, 3)), 1.0, 0.5).shape == (0, 3)
    half = td.special.gammainc(td.asarray(2.0, dtype=td.float16), 1.0)
    assert half.dtype == td.float16
    assert abs(float(half) - special.gammainc(2, 1)) < 2e-4


def test_spherical_harmonics() -> None:
    n, m = (v.ravel() for v in np.meshgrid(np.arange(9), np.arange(-8, 9)))
    theta, phi = RNG.uniform(0, np.pi, n.size), RNG.uniform(-np.pi, np.pi, n.size)
    want = special.sph_harm_y(n, m, theta, phi)
    args = [td.asarray(v) for v in (n, m, theta, phi)]
    got = np.asarray(td.special.sph_harm_y(*args))
    np.testing.assert_allclose(got, np.where(abs(m) > n, 0, want), rtol=1e-12, atol=1e-14)
    jitted = td.jit(lambda *a: td.special.sph_harm_y(*a, n_max=8))
    np.testing.assert_allclose(np.asarray(jitted(*args)), got, rtol=1e-12, atol=1e-14)
    with pytest.raises(td.errors.DtypeError, match="n_max"):
        td.jit(td.special.sph_harm_y)(*args)
