"""Names of `jax.lax`, `jax.tree` and `jax.stages` whose answers are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tetrad.jax as jax
import tetrad.jax.numpy as jnp

lax = jax.lax
X = np.asarray([3, 1, 4, 1, 5, 9, 2], np.float32)


def windows(x: Any, init: float, joined: Any) -> Any:
    return lax.reduce_window(x, init, joined, (3,), (2,), "VALID")


@pytest.mark.parametrize(
    ("joined", "init", "want"),
    [
        (lax.max, -np.inf, [4, 5, 9]),
        (lax.max, 5.0, [5, 5, 9]),
        (lax.min, np.inf, [1, 1, 2]),
        (lax.add, 0.0, [8, 10, 16]),
        (lax.add, 100.0, [108, 110, 116]),
        (lax.mul, 1.0, [12, 20, 90]),
        (lambda a, b: a + 2 * b, 0.0, None),
    ],
)
def test_windows_are_joined_with_the_first_value(joined: Any, init: float, want: Any) -> None:
    parts = [X[i : i + 3] for i in (0, 2, 4)]
    expected = want or [2 * (p[0] + 2 * (p[1] + p[2])) for p in parts]
    for run in (windows, jax.jit(windows, static_argnums=(1, 2))):
        assert run(jnp.asarray(X), init, joined).tolist() == expected


@pytest.mark.parametrize("joined", [lax.max, lax.min])
def test_of_equal_elements_the_first_has_the_gradient(joined: Any) -> None:
    init = -np.inf if joined is lax.max else np.inf

    def total(x: Any) -> Any:
        return lax.reduce_window(x, init, joined, (2, 2), (2, 2), "SAME").sum()

    for gradient in (jax.grad(total), jax.jit(jax.grad(total))):
        assert gradient(jnp.ones((4, 3))).tolist() == [[1, 0, 1], [0, 0, 0], [1, 0, 1], [0, 0, 0]]
    assert np.isnan(windows(jnp.asarray([np.nan, 1.0, 2.0]), init, joined)).all()


def test_trees_are_exchanged_by_names_of_jax() -> None:
    outer, inner = jax.tree.structure([0, 0]), jax.tree.structure((0, 0))
    for transpose in (jax.tree.transpose, jax.tree_util.tree_transpose):
        rows = {"outer_treedef": outer, "pytree_to_transpose": [(1, 2), (3, 4)]}
        assert transpose(inner_treedef=inner, **rows) == ([1, 3], [2, 4])
        assert transpose(inner_treedef=None, **rows) == ([1, 3], [2, 4])


def test_stages_are_types() -> None:
    function = jax.jit(lambda x: x + 1)
    lowered = function.lower(1.0)
    assert isinstance(function, jax.stages.Wrapped)
    assert isinstance(lowered, jax.stages.Lowered)
    assert isinstance(lowered.compile(), jax.stages.Compiled)


@pytest.mark.parametrize("lower", [True, False])
def test_one_triangle_is_read(lower: bool) -> None:
    whole = np.asarray([[4, 2], [2, 5]], np.float32)
    half = jnp.asarray(np.tril(whole) if lower else np.triu(whole))
    vectors, values = lax.linalg.eigh(half, lower=lower, symmetrize_input=False)
    np.testing.assert_allclose(vectors * values @ vectors.T, whole, rtol=1e-5)
    factor = jax.scipy.linalg.cholesky(half, lower=lower)
    np.testing.assert_allclose(factor @ factor.T if lower else factor.T @ factor, whole, rtol=1e-5)


def test_bits_as_another_dtype() -> None:
    x = jnp.asarray(np.float32([1.5, -2.0]))
    for run in (lax.bitcast_convert_type, jax.jit(lax.bitcast_convert_type, static_argnums=1)):
        words = run(x, np.dtype("int32"))
        assert words.tolist() == np.float32([1.5, -2]).view(np.int32).tolist()
        assert run(words, np.dtype("float32")).tolist() == [1.5, -2]


def test_numbers_of_fewer_bits() -> None:
    x = jnp.asarray(np.float32([1.3, 1.5, -2.7]))
    assert lax.reduce_precision(x, 8, 1).tolist() == [1.5, 1.5, -3.0]
    assert lax.reduce_precision(x, 8, 2).tolist() == [1.25, 1.5, -2.5]
