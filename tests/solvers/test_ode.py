"""odeint: solutions known by formula, derivatives in the start, in parameters and in times."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tetrad as td

TIMES = np.array([0.0, 0.3, 1.0, 2.5])


def pendulum(state: Any, t: Any, damping: Any, pull: Any) -> Any:
    angle, speed = state
    return speed, -pull * angle - damping * speed


def exact(damping: float, pull: float, t: np.ndarray) -> np.ndarray:
    """The angle that begins at 1, at rest."""
    slow = np.sqrt(pull - damping**2 / 4)
    wave = np.cos(slow * t) + damping / (2 * slow) * np.sin(slow * t)
    return np.exp(-damping * t / 2) * wave


def angles(damping: Any, pull: Any, t: Any = None) -> Any:
    start = td.asarray(1.0, dtype=td.float64), td.asarray(0.0, dtype=td.float64)
    times = td.asarray(TIMES) if t is None else t
    return td.odeint(pendulum, start, times, damping, pull, rtol=1e-10, atol=1e-10)[0]


DAMPING, PULL = td.asarray(0.5, dtype=td.float64), td.asarray(4.0, dtype=td.float64)


def test_solutions() -> None:
    want = exact(0.5, 4.0, TIMES)
    np.testing.assert_allclose(np.asarray(angles(DAMPING, PULL)), want, atol=1e-8)
    np.testing.assert_allclose(np.asarray(td.jit(angles)(DAMPING, PULL)), want, atol=1e-8)
    pulls = td.asarray(np.array([4.0, 9.0]))
    many = np.asarray(td.vmap(lambda p: angles(DAMPING, p))(pulls))
    np.testing.assert_allclose(many[1], exact(0.5, 9.0, TIMES), atol=1e-8)
    small = td.odeint(lambda y, t: -y, td.ones(3), td.asarray([0.0, 1.0]), rtol=1e-6, atol=1e-6)
    assert small.dtype == td.float32 and small.shape == (2, 3)
    np.testing.assert_allclose(np.asarray(small)[1], np.exp(-1), rtol=1e-5)


def test_derivatives_in_parameters() -> None:
    step = 1e-5
    wants = [
        (exact(0.5 + step, 4.0, TIMES) - exact(0.5 - step, 4.0, TIMES)) / (2 * step),
        (exact(0.5, 4.0 + step, TIMES) - exact(0.5, 4.0 - step, TIMES)) / (2 * step),
    ]
    weights = np.array([0.3, 1.0, -2.0, 0.7])

    def total(damping: Any, pull: Any) -> Any:
        return td.sum(angles(damping, pull) * td.asarray(weights))

    slope = td.grad(total, argnums=(0, 1))
    for found in (slope(DAMPING, PULL), td.jit(slope)(DAMPING, PULL)):
        for got, want in zip(found, wants, strict=True):
            assert abs(float(got) - weights @ want) < 1e-6


def test_derivatives_in_times_and_start() -> None:
    by_times = td.grad(lambda t: td.sum(angles(DAMPING, PULL, t)[1:]))(td.asarray(TIMES))
    step = 1e-5
    want = (exact(0.5, 4.0, TIMES + step) - exact(0.5, 4.0, TIMES - step)) / (2 * step)
    np.testing.assert_allclose(np.asarray(by_times)[1:], want[1:], atol=1e-6)

    def grown(y: Any) -> Any:
        return td.odeint(lambda s, t: s * t, y, td.asarray(TIMES), rtol=1e-9, atol=1e-9)[-1]

    start = td.asarray(2.0, dtype=td.float64)
    assert abs(float(td.grad(grown)(start)) - np.exp(2.5**2 / 2)) < 1e-5


def test_limits_and_errors() -> None:
    few = td.odeint(lambda y, t: -50.0 * y, td.ones(1), td.asarray([0.0, 9.0]), mxstep=3)
    assert np.isnan(np.asarray(few)[1]).all()
    with pytest.raises(td.errors.ShapeError, match="times are a vector"):
        td.odeint(lambda y, t: y, td.ones(1), td.zeros(()))
