"""Threefry gives JAX's keys and numbers; the numbers below were drawn with JAX 0.10."""

from __future__ import annotations

import numpy as np
import pytest

import tetrad.jax as jax
import tetrad.jax.numpy as jnp

R = jax.random
EXACT = [  # of PRNGKey(42)
    (
        lambda k: R.split(k, 3),
        [[1832780943, 270669613], [64467757, 2916123636], [2465931498, 255383827]],
    ),
    (lambda k: R.fold_in(k, 7), [2547012911, 1371500959]),
    (lambda k: R.bits(k, (5,)), [2098992034, 2919706841, 2646866425, 2409546199, 1935504149]),
    (lambda k: R.randint(k, (8,), 0, 10), [4, 4, 1, 9, 9, 9, 7, 7]),
    (lambda k: R.randint(k, (5,), 0, 200, "uint8"), [44, 114, 71, 169, 109]),
    (lambda k: R.bernoulli(k, 0.3, (8,)), [0, 0, 0, 0, 0, 0, 1, 0]),
    (lambda k: R.rademacher(k, (6,)), [1, -1, -1, -1, 1, -1]),
    (lambda k: R.permutation(k, 10), [7, 4, 2, 5, 3, 6, 8, 9, 0, 1]),
    (lambda k: R.choice(k, 10, (3,), replace=False), [7, 4, 2]),
    (lambda k: R.choice(k, 10, (4,)), [4, 4, 1, 9]),
    (lambda k: R.bits(k, (4,), "uint8"), [162, 217, 249, 215]),
    (lambda k: R.geometric(k, 0.3, (6,)), [3, 2, 2, 2, 3, 2]),
    (lambda k: R.poisson(k, 3.0, (8,)), [6, 2, 2, 1, 5, 2, 3, 3]),
    (lambda k: R.poisson(k, 30.0, (6,)), [34, 35, 24, 26, 22, 25]),
]  # fmt: skip
NEAR = [
    (lambda k: R.uniform(k, (4,)), [0.48871, 0.6798, 0.61627, 0.56102]),
    (lambda k: R.normal(k, (6,)), [-0.0283, 0.46713, 0.2957, 0.15355, -0.12403, 0.21692]),
    (lambda k: R.exponential(k, (3,)), [0.67082, 1.1388, 0.95782]),
    (lambda k: R.gumbel(k, (3,)), [0.33409, 0.95202, 0.72553]),
    (lambda k: R.laplace(k, (3,)), [0.02284, -0.44565, -0.26467]),
    (lambda k: R.logistic(k, (3,)), [-0.04517, 0.75284, 0.47375]),
    (lambda k: R.cauchy(k, (3,)), [-0.03548, 0.63373, 0.38244]),
    (lambda k: R.truncated_normal(k, -1.0, 2.0, (4,)), [0.1477, 0.56844, 0.42103, 0.29997]),
    (lambda k: R.uniform(k, (3,), "bfloat16"), [0.632812, 0.84375, 0.96875]),
    (lambda k: R.uniform(k, (3,), "float16"), [0.0762, 0.1904, 0.9756]),
    (lambda k: R.gamma(k, 2.5, (4,)), [4.37808, 1.50079, 4.19411, 1.56431]),
    (lambda k: R.gamma(k, 0.3, (4,)), [0.43625, 0.3201, 1.03847, 0.00432]),
    (lambda k: R.loggamma(k, 0.05, (3,)), [-9.97271, -4.22736, -4.48363]),
    (lambda k: R.beta(k, 2.0, 3.0, (3,)), [0.43196, 0.31282, 0.63687]),
    (lambda k: R.dirichlet(k, np.float32([1, 2, 3])), [0.26473, 0.1348, 0.60047]),
    (lambda k: R.t(k, 3.0, (3,)), [0.08987, -1.73575, 2.35202]),
    (lambda k: R.chisquare(k, 3.0, shape=(3,)), [5.87071, 1.39785, 5.55942]),
    (lambda k: R.f(k, 3.0, 4.0, shape=(3,)), [0.74487, 0.47861, 0.23295]),
    (lambda k: R.maxwell(k, (3,)), [0.55358, 0.29329, 1.7086]),
    (lambda k: R.rayleigh(k, 2.0, (3,)), [2.3933, 1.75718, 1.96788]),
    (lambda k: R.double_sided_maxwell(k, 0.0, 1.0, (3,)), [-1.38102, -0.67569, 2.22202]),
    (lambda k: R.generalized_normal(k, 3.0, (3,)), [-0.69371, -0.27624, 0.83346]),
    (lambda k: R.ball(k, 3), [0.3234, 0.06134, 0.01824]),
    (lambda k: R.wald(k, 1.0, (3,)), [1.07886, 1.61878, 0.29691]),
]


@pytest.mark.parametrize("how", ["plain", "typed", "jit", "setting"])
@pytest.mark.parametrize(("draw", "wanted"), EXACT)
def test_words_are_those_of_jax(draw: object, wanted: list[int], how: str) -> None:
    found = drawn(draw, how)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("how", ["plain", "typed", "jit"])
@pytest.mark.parametrize(("draw", "wanted"), NEAR)
def test_floats_are_those_of_jax(draw: object, wanted: list[float], how: str) -> None:
    np.testing.assert_allclose(drawn(draw, how).astype(np.float64), wanted, rtol=1e-3, atol=2e-5)


def drawn(draw: object, how: str) -> np.ndarray:
    assert callable(draw)
    if how == "typed":
        found = draw(R.key(42, impl="threefry2x32"))
        return np.asarray(R.key_data(found))
    with jax.default_prng_impl("threefry2x32"):
        key = R.PRNGKey(42)
        return np.asarray(jax.jit(draw)(key) if how == "jit" else draw(key))


@pytest.mark.parametrize(
    ("seed", "words"), [(0, [0, 0]), (-3, [0, 4294967293]), (2**35 + 1, [0, 1])]
)
def test_seeds(seed: int, words: list[int]) -> None:
    assert R.PRNGKey(seed, impl="threefry2x32").tolist() == words


def test_keys_are_ours_unless_asked_for() -> None:
    assert R.PRNGKey(7).tolist() == jax.random.key_data(R.key(7)).tolist()
    assert R.key_impl(R.key(7)) == "philox"


def test_typed_keys() -> None:
    keys = R.split(R.key(0), 4)
    assert keys.shape == (4,)
    assert jax.dtypes.issubdtype(keys.dtype, jax.dtypes.prng_key)
    assert len(list(keys)) == 4
    assert keys[1:3].shape == (2,)
    assert keys.reshape(2, 2).shape == (2, 2)
    assert jnp.stack([keys, keys], axis=-1).shape == (4, 2)
    one_by_one = np.stack([np.asarray(R.normal(k, (3,))) for k in keys])
    np.testing.assert_array_equal(jax.vmap(lambda k: R.normal(k, (3,)))(keys), one_by_one)
    np.testing.assert_array_equal(
        jax.lax.scan(lambda c, k: (c, R.normal(k, (3,))), 0, keys)[1], one_by_one
    )
    words = R.key_data(keys)
    assert bool(jnp.all(R.wrap_key_data(words) == keys))
