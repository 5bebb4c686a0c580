"""What vjp and linearize return is a tree: it leaves compiled functions, and goes into others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.core.errors import ShapeError, TraceError

X = td.asarray([0.1, 0.2, 0.3])
COTANGENT = td.asarray([1.0, 10.0, 100.0])


def wave(x: Any) -> Any:
    return td.sin(x) * td.exp(x)


def slope(x: Any) -> Any:
    return np.exp(x) * (np.sin(x) + np.cos(x))


def close(got: Any, wanted: Any) -> None:
    np.testing.assert_allclose(np.asarray(got), wanted, rtol=2e-6)


WANTED = slope(np.asarray(X)) * np.asarray(COTANGENT)


def test_a_vjp_function_leaves_jit() -> None:
    forward = td.jit(lambda x: td.vjp(wave, x))
    value, back = forward(X)
    close(value, np.sin(np.asarray(X)) * np.exp(np.asarray(X)))
    close(back(COTANGENT)[0], WANTED)
    close(td.jit(lambda f, c: f(c))(back, COTANGENT)[0], WANTED)
    assert all(isinstance(leaf, td.Array) for leaf in td.tree.leaves(back))


def test_equal_vjp_functions_share_a_program() -> None:
    forward, apply = td.jit(lambda x: td.vjp(wave, x)[1]), td.jit(lambda f, c: f(c)[0])
    for factor in (1.0, 2.0, 3.0):
        close(apply(forward(X * factor), COTANGENT), slope(factor * np.asarray(X)) * [1, 10, 100])
    assert apply.compiles == 1
    assert td.tree.structure(forward(X)) == td.tree.structure(forward(2 * X))


def test_a_linear_map_leaves_jit() -> None:
    _, change = td.jit(lambda x: td.linearize(wave, x))(X)
    close(change(COTANGENT), WANTED)
    close(td.jit(lambda f, t: f(t))(change, COTANGENT), WANTED)
    with pytest.raises(ShapeError, match=r"linearize: tangents of wave\[0\]: expected f32\[3\]"):
        change(td.ones(2))
    with pytest.raises(TraceError, match="linearize: tangents of wave must have the tree"):
        change(COTANGENT, COTANGENT)


def test_vjp_functions_of_a_batch() -> None:
    backs = td.vmap(lambda x: td.vjp(wave, x)[1])(X)
    close(td.vmap(lambda f, c: f(c)[0])(backs, COTANGENT), WANTED)
    close(td.jit(td.vmap(lambda f, c: f(c)[0]))(backs, COTANGENT), WANTED)


def test_a_loop_carries_a_vjp_function() -> None:
    def step(carry: Any, c: Any) -> Any:
        x, back = carry
        gradient = back(c)[0]
        return (x + 1, td.vjp(wave, x + 1)[1]), gradient

    x = td.asarray(0.1)
    _, found = td.scan(step, (x, td.vjp(wave, x)[1]), COTANGENT)
    close(found, slope(0.1 + np.arange(3)) * [1, 10, 100])


def test_trees_integers_and_what_stands_beside() -> None:
    def f(p: Any, n: Any) -> Any:
        return {"y": p["w"] * n, "z": td.sum(p["b"][0])}, {"n": n}

    p = {"w": X, "b": (td.ones(2),), "unused": td.ones(2)}
    forward = td.jit(lambda p, n: td.vjp(f, p, n, has_aux=True))
    _, back, aux = forward(p, 3)
    assert int(aux["n"]) == 3
    grads, _ = back({"y": COTANGENT, "z": td.asarray(2.0)})
    close(grads["w"], 3 * np.asarray(COTANGENT))
    close(grads["b"][0], [2, 2])
    close(grads["unused"], [0, 0])
    with pytest.raises(TraceError, match="must have the tree of what they belong to"):
        back(COTANGENT)


def test_derivatives_of_vjp_functions() -> None:
    back = td.jit(lambda x: td.vjp(wave, x)[1])(X)
    gradient = td.grad(lambda c: td.sum(back(c)[0] ** 2))(COTANGENT)
    close(gradient, 2 * slope(np.asarray(X)) ** 2 * np.asarray(COTANGENT))
    through = td.grad(lambda x: td.sum(td.vjp(wave, x)[1](COTANGENT)[0]))(X)
    close(through, 2 * np.exp(np.asarray(X)) * np.cos(np.asarray(X)) * np.asarray(COTANGENT))


def test_what_is_printed() -> None:
    _, back = td.vjp(wave, X)
    assert "<vjp of wave>" in repr(back)
    assert "<linear map of wave>" in repr(td.linearize(wave, X)[1])
