"""Krylov methods, custom_linear_solve and custom_root: solutions and derivatives of both modes, of
matrices and trees, alone and in batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tetrad as td

RNG = np.random.default_rng(1)
A = RNG.normal(size=(5, 5))
S = A @ A.T + np.eye(5)
B = RNG.normal(size=5)
METHODS = {"cg": S, "bicgstab": S + 0.3 * A, "gmres": S + 0.3 * A}


@pytest.mark.parametrize("name", METHODS)
def test_solutions(name: str) -> None:
    matrix, method = METHODS[name], getattr(td.linalg, name)
    want = np.linalg.solve(matrix, B)
    for function in (method, td.jit(lambda a, b, tol: method(a, b, tol=tol))):
        x = function(td.asarray(matrix), td.asarray(B), tol=1e-12)[0]
        np.testing.assert_allclose(np.asarray(x), want, rtol=1e-8)
    near = td.asarray(np.diag(1 / np.diag(matrix)))
    start = td.asarray(want + 0.1)
    x, _ = method(td.asarray(matrix), td.asarray(B), start, tol=1e-12, M=lambda v: near @ v)
    np.testing.assert_allclose(np.asarray(x), want, rtol=1e-8)
    assert not np.asarray(method(td.asarray(matrix), td.zeros(5))[0]).any()
    many = td.vmap(lambda b: method(td.asarray(matrix), b, tol=1e-12)[0])
    rows = np.stack([B, 2 * B, 0 * B])
    got = np.asarray(many(td.asarray(rows)))
    np.testing.assert_allclose(got, np.linalg.solve(matrix, rows.T).T, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("mode", [td.jacfwd, td.jacrev])
def test_derivatives(name: str, mode: Any) -> None:
    method = getattr(td.linalg, name)

    def solved(a: Any, b: Any) -> Any:
        return method(lambda x: a @ x, b, tol=1e-13)[0]

    args = td.asarray(METHODS[name]), td.asarray(B)
    want = td.jacfwd(td.linalg.solve, argnums=(0, 1))(*args)
    for got, each in zip(mode(solved, argnums=(0, 1))(*args), want, strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(each), rtol=1e-6, atol=1e-9)


def test_trees_and_complex_numbers() -> None:
    def product(x: Any) -> Any:
        return {"u": 4.0 * x["u"] + x["v"][0], "v": 3.0 * x["v"] + td.sum(x["u"])}

    right = {"u": td.asarray([1.0, 2.0]), "v": td.asarray([3.0])}
    x, _ = td.linalg.gmres(product, right, tol=1e-6)
    for key, value in product(x).items():
        np.testing.assert_allclose(np.asarray(value), np.asarray(right[key]), rtol=1e-5)
    whole = S + 1j * (A - A.T)
    for name in METHODS:
        x, _ = getattr(td.linalg, name)(td.asarray(whole), td.asarray(B + 1j), tol=1e-12)
        np.testing.assert_allclose(np.asarray(x), np.linalg.solve(whole, B + 1j), rtol=1e-7)


def test_few_steps_and_wrong_arguments() -> None:
    x, _ = td.linalg.cg(td.asarray(S), td.asarray(B), maxiter=1)
    assert np.abs(S @ np.asarray(x) - B).max() > 1e-3
    with pytest.raises(td.errors.ShapeError, match="square matrix"):
        td.linalg.cg(td.zeros((2, 3)), td.zeros(3))


def newton(f: Any, x: Any) -> Any:
    return td.fori_loop(0, 20, lambda i, v: v - f(v) / td.grad(f)(v), x)


def test_roots() -> None:
    def root(a: Any) -> Any:
        return td.custom_root(lambda x: x**3 - a, 1.5, newton, lambda g, y: y / g(1.0))

    for derivative in (td.grad, td.jacfwd):
        assert abs(float(derivative(root)(8.0)) - 1 / 12) < 1e-6
        assert abs(float(td.jit(derivative(root))(8.0)) - 1 / 12) < 1e-6
    assert abs(float(td.grad(td.grad(root))(8.0)) + 2 / 9 * 8 ** (-5 / 3)) < 1e-6
    assert np.allclose(np.asarray(td.vmap(td.grad(root))(td.asarray([1.0, 8.0]))), [1 / 3, 1 / 12])


def test_roots_with_more_to_say() -> None:
    def search(f: Any, x: Any) -> Any:
        return newton(f, x), {"steps": td.asarray(20.0)}

    def root(a: Any) -> Any:
        divide = lambda g, y: y / g(1.0)  # noqa: E731
        return td.custom_root(lambda x: x * x - a, 1.0, search, divide, has_aux=True)

    (value, more), (slope, none) = td.jvp(root, (4.0,), (1.0,))
    assert abs(float(value) - 2) < 1e-6 and abs(float(slope) - 0.25) < 1e-6
    assert float(more["steps"]) == 20.0 and float(none["steps"]) == 0.0


def test_without_a_transpose_the_search_is_transposed() -> None:
    def solved(b: Any) -> Any:
        return td.custom_linear_solve(lambda x: 2.0 * x, b, lambda f, v: v / 2.0)

    assert float(td.jvp(solved, (4.0,), (1.0,))[1]) == 0.5
    assert float(td.grad(solved)(4.0)) == 0.5
