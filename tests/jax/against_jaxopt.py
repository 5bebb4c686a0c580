"""jaxopt's solvers on small problems."""

from __future__ import annotations

from tests.jax.against_common import choose, told

choose()

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import jaxopt  # noqa: E402
import numpy as np  # noqa: E402
from jaxopt import projection, prox  # noqa: E402

RNG = np.random.default_rng(0)
X = jnp.asarray(RNG.normal(size=(20, 4)).astype(np.float32))
Y = jnp.asarray(RNG.normal(size=20).astype(np.float32))
START = jnp.zeros(4)


def loss(w, x=X, y=Y):
    return jnp.mean((x @ w - y) ** 2) + 0.05 * jnp.sum(w**2)


def ridge(solver):
    return lambda: solver(loss, maxiter=30).run(START).params


def rosenbrock(x):
    return (1 - x[0]) ** 2 + 5.0 * (x[1] - x[0] ** 2) ** 2


def residual(w):
    return X @ w - Y


def plain_loss(w, l2=0.0):
    return jnp.mean((X @ w - Y) ** 2) + l2 * jnp.sum(w**2)


def lasso():
    solver = jaxopt.ProximalGradient(
        lambda w: jnp.mean((X @ w - Y) ** 2), prox.prox_lasso, maxiter=50
    )
    return solver.run(START, hyperparams_prox=0.1).params


def projected():
    solver = jaxopt.ProjectedGradient(lambda w: loss(w), projection.projection_simplex, maxiter=50)
    return solver.run(jnp.full(4, 0.25), hyperparams_proj=1.0).params


def implicit():
    def ridge_of(l2):
        solver = jaxopt.LBFGS(
            lambda w, l2: jnp.mean((X @ w - Y) ** 2) + l2 * jnp.sum(w**2), maxiter=50, tol=1e-6
        )
        return jnp.sum(solver.run(START, l2).params)

    return jax.grad(ridge_of)(0.3)


def bisected():
    solver = jaxopt.Bisection(lambda x, a: x**3 - a, 0.0, 4.0)
    return jax.grad(lambda a: solver.run(None, a).params)(5.0)


def found(solver, *args):
    return lambda: solver.run(*args).params


LEAST = jaxopt.objective.least_squares
PARTS = {
    "GradientDescent": ridge(jaxopt.GradientDescent),
    "LBFGS": ridge(jaxopt.LBFGS),
    "BFGS": ridge(jaxopt.BFGS),
    "NonlinearCG": ridge(jaxopt.NonlinearCG),
    "LBFGS rosenbrock": found(jaxopt.LBFGS(rosenbrock, maxiter=60), jnp.asarray([-1.0, 1.5])),
    "ProximalGradient": lasso,
    "ProjectedGradient": projected,
    "GaussNewton": found(jaxopt.GaussNewton(residual, maxiter=5), START),
    "LevenbergMarquardt": found(jaxopt.LevenbergMarquardt(residual, maxiter=10), START),
    "Bisection": found(jaxopt.Bisection(lambda x, a: x**3 - a, 0.0, 4.0), None, 5.0),
    "Bisection gradient": bisected,
    "FixedPointIteration": found(jaxopt.FixedPointIteration(jnp.cos, maxiter=50), jnp.asarray(0.5)),
    "AndersonAcceleration": found(
        jaxopt.AndersonAcceleration(jnp.cos, maxiter=20), jnp.asarray([0.5])
    ),
    "BlockCoordinateDescent": found(
        jaxopt.BlockCoordinateDescent(LEAST, prox.prox_lasso, maxiter=30), START, 0.1, (X, Y)
    ),
    "implicit differentiation": implicit,
    "isotonic": lambda: jaxopt.isotonic.isotonic_l2_pav(Y),
    "losses": lambda: [
        jaxopt.loss.huber_loss(0.3, 1.7),
        jaxopt.loss.multiclass_logistic_loss(2, Y[:4]),
    ],
    "linear_solve": lambda: jaxopt.linear_solve.solve_cg(lambda v: X.T @ (X @ v), X.T @ Y),
}

if __name__ == "__main__":
    told(PARTS)
