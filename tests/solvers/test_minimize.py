"""Minima: against SciPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.optimize

import tetrad as td
from tetrad.core.errors import SettingError, ShapeError

HOW = pytest.mark.parametrize("how", [lambda f: f, td.jit], ids=["eager", "jit"])


def rosenbrock(x: Any) -> Any:
    return ((1 - x[:-1]) ** 2 + 100 * (x[1:] - x[:-1] ** 2) ** 2).sum()


def himmelblau(x: Any, shift: Any = 0.0) -> Any:
    return (x[0] ** 2 + x[1] - 11 - shift) ** 2 + (x[0] + x[1] ** 2 - 7) ** 2


@HOW
@pytest.mark.parametrize(
    ("function", "start"),
    [(rosenbrock, [-1.2, 1.0]), (rosenbrock, [0.0] * 5), (himmelblau, [1.0, 1.0])],
)
def test_minimum(function: Any, start: list[float], how: Callable[..., Any]) -> None:
    found = how(lambda x: td.minimize(function, x))(td.asarray(start, dtype=td.float64))
    want = scipy.optimize.minimize(function, start, method="BFGS")
    assert bool(found.success) and int(found.status) == 0
    np.testing.assert_allclose(np.asarray(found.x), want.x, atol=1e-4)
    np.testing.assert_allclose(float(found.fun), want.fun, atol=1e-8)
    assert np.abs(np.asarray(found.jac)).max() <= 1e-5
    assert 0 < int(found.nit) < 100 and int(found.nfev) == int(found.njev) >= int(found.nit)


@HOW
def test_the_inverse_of_the_hessian_of_a_square(how: Callable[..., Any]) -> None:
    a = np.diag([1.0, 4.0, 9.0]) + 0.5
    f = how(lambda x: td.minimize(lambda x: x @ td.asarray(a) @ x / 2, x, tol=1e-12))
    found = f(td.asarray([1.0, -2.0, 3.0], dtype=td.float64))
    np.testing.assert_allclose(np.asarray(found.hess_inv), np.linalg.inv(a), atol=1e-3)


def test_settings() -> None:
    x0 = td.asarray([1.0, 1.0], dtype=td.float64)
    stopped = td.minimize(rosenbrock, 3 * x0, options={"maxiter": 2})
    assert not bool(stopped.success) and (int(stopped.status), int(stopped.nit)) == (1, 2)
    there = td.minimize(rosenbrock, x0)
    assert bool(there.success) and int(there.nit) == 0
    shifted = td.minimize(himmelblau, x0, (1.0,), options={"norm": 2, "gtol": 1e-8})
    assert float(himmelblau(np.asarray(shifted.x), 1.0)) < 1e-12
    falls = td.minimize(lambda x: td.sum(x), x0)  # no minimum: steps never are long enough
    assert not bool(falls.success) and int(falls.status) == 3
    nothing = td.minimize(lambda x: td.sum(x * td.nan), x0)
    assert not bool(nothing.success)
    with pytest.raises(SettingError, match="minimize: method"):
        td.minimize(rosenbrock, x0, method="CG")
    with pytest.raises(SettingError, match="minimize: options"):
        td.minimize(rosenbrock, x0, options={"maxfun": 3})
    with pytest.raises(ShapeError, match="minimize: x0 is a vector"):
        td.minimize(rosenbrock, td.ones((2, 2)))


def test_many_at_a_time() -> None:
    starts = td.asarray([[-1.2, 1.0], [0.5, 0.5], [1.0, 1.0]], dtype=td.float64)
    found = td.jit(td.vmap(lambda x: td.minimize(rosenbrock, x)))(starts)
    np.testing.assert_allclose(np.asarray(found.x), np.ones((3, 2)), atol=1e-4)
    assert np.asarray(found.success).all()
    slope = td.jit(lambda x: td.minimize(rosenbrock, x).x)(td.asarray([-1.2, 1.0]))  # in f32
    np.testing.assert_allclose(np.asarray(slope), [1, 1], atol=1e-2)
