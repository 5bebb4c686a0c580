"""td.random: published words, the same bits eager and compiled, distributions against SciPy,
independent keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special, stats

import tests.test_conformance as conformance
import tetrad as td
from tests.compiled import run
from tetrad.compiler.driver import compile_graph
from tetrad.core.errors import DtypeError, ShapeError, TetradError
from tetrad.core.op import REGISTRY, Case
from tetrad.kernel.math.philox import philox_numbers, philox_words
from tetrad.kernel.math.reproducible import Numbers, log, normal_quantile
from tetrad.random import PRNGKey

random = td.random
KEY = random.key(42)
MANY = 100_000
UNLIKELY = 1e-3  # a draw of a fixed seed is what it is: this only says how far off it may be

Draw = Callable[[td.Array], td.Array]

# known answers of Philox4x32-10, from the distribution of Random123: counter, key, words
KNOWN = [
    (
        "00000000 00000000 00000000 00000000",
        "00000000 00000000",
        "6627e8d5 e169c58d bc57ac4c 9b00dbd8",
    ),
    (
        "ffffffff ffffffff ffffffff ffffffff",
        "ffffffff ffffffff",
        "408f276d 41c83b0e a20bc7c6 6d5451fd",
    ),
    (
        "243f6a88 85a308d3 13198a2e 03707344",
        "a4093822 299f31d0",
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]

DRAWS: dict[str, Draw] = {
    "bits": lambda k: random.bits(k, (3, 5)),
    "bytes": lambda k: random.bits(k, 33, td.uint8),
    "uniform": lambda k: random.uniform(k, (33, 7)),
    "uniform between": lambda k: random.uniform(k, 1000, td.float32, -3.0, 0.1),
    "uniform f64": lambda k: random.uniform(k, 100, td.float64, 1, 2),
    "uniform f16": lambda k: random.uniform(k, 100, td.float16),
    "normal": lambda k: random.normal(k, 5000),
    "normal f64": lambda k: random.normal(k, 1000, td.float64),
    "normal bf16": lambda k: random.normal(k, (4, 5), td.bfloat16),
    "exponential": lambda k: random.exponential(k, 5000),
    "exponential f64": lambda k: random.exponential(k, 1000, td.float64),
    "gumbel": lambda k: random.gumbel(k, 5000),
    "laplace": lambda k: random.laplace(k, 500),
    "logistic": lambda k: random.logistic(k, 500),
    "truncated": lambda k: random.truncated_normal(k, -1.0, 2.5, 1000),
    "truncated tail": lambda k: random.truncated_normal(k, -9.0, -8, 1000, td.float64),
    "randint": lambda k: random.randint(k, 1000, -5, 1000),
    "randint whole": lambda k: random.randint(k, 100, -(1 << 31), 1 << 31),
    "randint i64": lambda k: random.randint(k, 100, 0, 10**15, td.int64),
    "bernoulli": lambda k: random.bernoulli(k, 0.3, (50,)),
    "categorical": lambda k: random.categorical(
        k, td.asarray([[0.0, 1, 2], [2, 1, 0]]), shape=(20, 2)
    ),
    "split": lambda k: random.split(k, (2, 3)),
    "fold_in": lambda k: random.fold_in(k, 5),
    "permutation": lambda k: random.permutation(k, 300),
    "permutation of an axis": lambda k: random.permutation(
        k, td.reshape(td.arange(60), (4, 15)), axis=1
    ),
    "choice": lambda k: random.choice(k, 7, (2, 3)),
    "choice by chance": lambda k: random.choice(
        k, td.asarray([5.0, 6, 7]), 1000, p=td.asarray([0.2, 0.5, 0.3])
    ),
    "choice once": lambda k: random.choice(k, 10, (3,), replace=False),
    "choice once by chance": lambda k: random.choice(
        k, 4, 3, replace=False, p=td.asarray([0.2, 0.1, 0.3, 0.4])
    ),
}


def bits_of(x: td.Array) -> bytes:
    return np.asarray(x).tobytes()


# -- words -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_published_words(counter: str, key: str, words: str) -> None:
    c, k = ([int(word, 16) for word in text.split()] for text in (counter, key))
    assert " ".join(f"{word:08x}" for word in philox_numbers(c, k)) == words


@pytest.mark.parametrize("seed", [0, 1, 7, 42, 0xDEADBEEF, 0x123456789ABCDEF0])
def test_bits_are_the_stream_of_the_seed(seed: int) -> None:
    words = [philox_words(seed, i // 4)[i % 4] for i in range(50)]
    assert np.asarray(random.bits(random.key(seed), (5, 10))).ravel().tolist() == words


@pytest.mark.parametrize("name", DRAWS)
def test_eager_and_compiled_draws_have_the_same_bits(name: str) -> None:
    eager, compiled = DRAWS[name](KEY), td.jit(DRAWS[name])(KEY)
    assert (eager.dtype, eager.shape) == (compiled.dtype, compiled.shape)
    assert bits_of(eager) == bits_of(compiled)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_any_number_of_threads_draws_the_same(threads: int) -> None:
    graph = td.trace(lambda k: random.normal(k, (7, 3001)))(KEY)
    (got,) = run(compile_graph(graph), [np.asarray(KEY)], threads=threads)
    assert got.tobytes() == bits_of(random.normal(KEY, (7, 3001)))


def test_a_draw_is_part_of_the_kernel_that_uses_it() -> None:
    graph = td.trace(lambda k, x: x + 0.1 * random.normal(k, (64, 64)))(KEY, td.zeros((64, 64)))
    assert len(conformance.programs_of(compile_graph(graph).schedule)) == 1


def test_longer_draws_begin_with_the_shorter() -> None:
    assert bits_of(random.normal(KEY, 10)) == bits_of(random.normal(KEY, 1000)[:10])


# -- keys ------------------------------------------------------------------------------------------


def test_seeds_are_two_words_wherever_they_come_from() -> None:
    assert np.asarray(random.key(-1)).tolist() == [0xFFFFFFFF, 0xFFFFFFFF]
    assert np.asarray(random.key((3 << 32) + 5)).tolist() == [5, 3]
    assert bits_of(random.key(td.asarray(7))) == bits_of(random.key(7))
    assert bits_of(td.jit(PRNGKey)(td.asarray(-2))) == bits_of(random.key(-2))


def test_split_is_fold_in_of_each_number() -> None:
    keys = random.split(KEY, 5)
    assert all(bits_of(keys[i]) == bits_of(random.fold_in(KEY, i)) for i in range(5))
    assert bits_of(random.split(KEY, 3)) == bits_of(keys[:3])


def test_keys_of_keys_are_all_different() -> None:
    level = np.asarray(random.split(KEY, 1000))
    below = np.concatenate([np.asarray(random.split(td.asarray(k), 10)) for k in level[:100]])
    every = np.concatenate([level, below, np.asarray(random.bits(KEY, (1000, 2)))])
    assert len(np.unique(every, axis=0)) == len(every)


def test_streams_of_split_keys_are_independent() -> None:
    first, second = (np.asarray(random.normal(k, MANY)) for k in random.split(KEY))
    assert stats.pearsonr(first, second).pvalue > UNLIKELY
    neighbours = np.asarray(random.normal(random.fold_in(KEY, 1), MANY))
    assert stats.pearsonr(neighbours[1:], neighbours[:-1]).pvalue > UNLIKELY


@pytest.mark.parametrize(
    "name", ["bits", "normal", "split", "permutation", "categorical", "truncated", "randint"]
)
def test_vmap_draws_what_each_key_draws_alone(name: str) -> None:
    keys = random.split(KEY, 3)
    want = np.stack([np.asarray(DRAWS[name](k)) for k in keys])
    assert np.array_equal(np.asarray(td.vmap(DRAWS[name])(keys)), want)
    assert np.array_equal(np.asarray(td.jit(td.vmap(DRAWS[name]))(keys)), want)


@pytest.mark.parametrize("bad", [7, 3.0, np.zeros(2, np.int32), np.zeros(3, np.uint32)])
def test_what_is_no_key_is_refused(bad: object) -> None:
    with pytest.raises(
        DtypeError, match=r"expected a key, u32\[2\](.|\n)*hint: make one with td.random.key"
    ):
        random.normal(bad, 3)


def test_several_keys_where_one_is_needed() -> None:
    keys = random.split(KEY, 3)
    with pytest.raises(
        DtypeError,
        match=r"normal: expected a key, u32\[2\], got u32\[3,2\](.|\n)*keys\[0\].*td\.vmap",
    ):
        random.normal(keys, (2,))
    assert random.normal(keys[0], (2,)).shape == (2,)
    assert td.vmap(lambda key: random.normal(key, (2,)))(keys).shape == (3, 2)


@pytest.mark.parametrize(
    "name", ["bits", "normal", "uniform", "split", "gumbel", "laplace", "cauchy", "rademacher"]
)
def test_the_key_comes_first(name: str) -> None:
    for way in (lambda f: f, td.jit):
        with pytest.raises(
            ShapeError, match=r"expected a shape, got u32\[2\], which is a key(.|\n)*the key comes"
        ):
            way(lambda key: getattr(random, name)((3,), key))(KEY)


# -- distributions ---------------------------------------------------------------------------------


LAWS = [
    ("uniform", lambda k, d: random.uniform(k, MANY, d, -1, 3), stats.uniform(-1, 4)),
    ("normal", lambda k, d: random.normal(k, MANY, d), stats.norm()),
    ("exponential", lambda k, d: random.exponential(k, MANY, d), stats.expon()),
    ("gumbel", lambda k, d: random.gumbel(k, MANY, d), stats.gumbel_r()),
    ("laplace", lambda k, d: random.laplace(k, MANY, d), stats.laplace()),
    ("logistic", lambda k, d: random.logistic(k, MANY, d), stats.logistic()),
    (
        "truncated",
        lambda k, d: random.truncated_normal(k, -0.5, 2.0, MANY, d),
        stats.truncnorm(-0.5, 2),
    ),
    (
        "lower tail",
        lambda k, d: random.truncated_normal(k, -7.0, -6.0, MANY, d),
        stats.truncnorm(-7, -6),
    ),
]


@pytest.mark.parametrize(
    ("draw", "law"), [case[1:] for case in LAWS], ids=[case[0] for case in LAWS]
)
@pytest.mark.parametrize("dtype", [td.float32, td.float64], ids=str)
def test_distributions(draw: Callable[..., td.Array], law: object, dtype: td.DType) -> None:
    x = np.asarray(draw(KEY, dtype)).astype(np.float64)
    assert stats.kstest(x, law.cdf).pvalue > UNLIKELY  # type: ignore[attr-defined]
    mean, variance = law.stats("mv")  # type: ignore[attr-defined]
    assert abs(x.mean() - mean) < 5 * np.sqrt(variance / MANY)
    assert x.var() == pytest.approx(variance, rel=0.05)


def test_normal_numbers_have_tails() -> None:
    x = np.asarray(td.jit(lambda k: random.normal(k, 4_000_000))(KEY)).astype(np.float64)
    for far in (3.0, 4.0, 4.5):
        expected = 2 * special.ndtr(-far) * x.size
        assert abs((np.abs(x) > far).sum() - expected) < 5 * np.sqrt(expected)
    assert abs(stats.skew(x)) < 0.01
    assert abs(stats.kurtosis(x)) < 0.02


def test_normal_numbers_are_the_inverse_of_the_distribution_function() -> None:
    words = np.concatenate(
        [np.random.default_rng(0).integers(0, 1 << 32, 5000), [0, 1, (1 << 31) - 1, 1 << 31]]
    )
    m = (words & 0x7FFFFFFF).astype(np.float64)
    exact = -special.ndtri((m + 0.5) * 2.0**-32) * np.where(words >> 31, -1, 1)
    assert np.allclose(REGISTRY["normal_bits"](words.astype(np.uint32)), exact, rtol=5e-7, atol=0)


def test_steady_functions_are_precise() -> None:
    x = np.exp(np.random.default_rng(1).uniform(-600, 600, 20000))
    assert np.allclose(log(Numbers(), x, td.float64), np.log(x), rtol=3e-16, atol=0)
    p = np.exp(-np.random.default_rng(2).uniform(0.8, 650, 20000))
    q = 1 - p
    z = normal_quantile(Numbers(), p, q, q - p, td.float64, deep=True)
    assert np.allclose(z, -special.ndtri_exp(np.log(p)), rtol=1e-12, atol=0)


def test_uniform_numbers_are_in_the_range_and_fill_it() -> None:
    x = np.asarray(random.uniform(KEY, MANY))
    assert 0 <= x.min() < 1e-4
    assert 1 - 1e-4 < x.max() < 1
    half = np.asarray(random.uniform(KEY, MANY, td.bfloat16)).astype(np.float32)
    assert set(np.unique(half * 256)) == set(range(256))


@pytest.mark.parametrize("dtype", [td.float16, td.bfloat16], ids=str)
def test_uniform_numbers_are_below_their_bound_after_rounding(dtype: td.DType) -> None:
    def draw(key: td.Array) -> td.Array:
        return random.uniform(key, 40000, dtype, 1.0, 2.0)

    x = np.asarray(draw(KEY)).astype(np.float32)
    assert (np.asarray(td.jit(draw)(KEY)).astype(np.float32) == x).all()
    assert x.min() == 1
    assert 1.99 < x.max() < 2


def test_truncated_numbers_are_between_their_bounds() -> None:
    low, high = np.float32([-1, 0, 3, -np.inf]), np.float32([0, 1, np.inf, -2])
    x = np.asarray(random.truncated_normal(KEY, low, high, (2000, 4)))
    assert ((low <= x) & (x <= high)).all()
    for column, a, b in zip(x.T, low, high, strict=True):
        assert stats.kstest(column.astype(np.float64), stats.truncnorm(a, b).cdf).pvalue > UNLIKELY


@pytest.mark.parametrize("dtype", [td.int8, td.uint8, td.int32, td.uint32, td.int64], ids=str)
def test_integers_are_all_equally_likely(dtype: td.DType) -> None:
    x = np.asarray(random.randint(KEY, MANY, 3, 100, dtype))
    assert x.dtype == dtype.np
    counts = np.bincount(x.astype(np.int64), minlength=100)
    assert counts[:3].sum() == 0
    assert stats.chisquare(counts[3:100]).pvalue > UNLIKELY


def test_integers_over_the_whole_range_and_an_empty_one() -> None:
    x = np.asarray(random.randint(KEY, MANY, -(1 << 31), 1 << 31)).astype(np.float64)
    assert stats.kstest(x, stats.uniform(-(2.0**31), 2.0**32).cdf).pvalue > UNLIKELY
    assert np.asarray(random.randint(KEY, 3, 5, 5)).tolist() == [5, 5, 5]
    per_column = np.asarray(
        random.randint(KEY, (1000, 2), td.asarray([0, 10]), td.asarray([2, 13]))
    )
    assert [set(c) for c in per_column.T.tolist()] == [{0, 1}, {10, 11, 12}]
    with pytest.raises(DtypeError, match="minval 300 is out of range for u8"):
        random.randint(KEY, 3, 300, 400, td.uint8)


@pytest.mark.parametrize("low", [-(1 << 63), 0], ids=["all", "half"])
def test_wide_integers_fill_ranges_longer_than_their_dtype(low: int) -> None:
    high = (1 << 63) - 1
    x = np.asarray(random.randint(KEY, MANY, low, high, td.int64))
    assert (
        np.asarray(td.jit(lambda k: random.randint(k, MANY, low, high, td.int64))(KEY)) == x
    ).all()
    assert (
        stats.kstest(x.astype(np.float64), stats.uniform(low, float(high) - low).cdf).pvalue
        > UNLIKELY
    )


def test_small_probabilities_in_halves_are_kept() -> None:
    p = td.asarray(0.001, dtype=td.bfloat16)
    assert 0.0008 < np.asarray(random.bernoulli(KEY, p, (400000,))).mean() < 0.0012


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: random.key(1 << 70), "key: the seed has 64 bits"),
        (lambda: random.fold_in(KEY, 1.5), "fold_in: expected an integer, got f32"),
        (lambda: random.permutation(KEY, -3), "permutation: there are no numbers below -3"),
        (lambda: random.choice(KEY, -3, 2), "choice: there are no numbers below -3"),
        (lambda: random.normal(KEY, 2.5), "normal: a shape holds ints and Dims"),
    ],
)
def test_settings_that_make_no_sense_are_said(call: Callable[[], object], message: str) -> None:
    with pytest.raises(TetradError, match=message):
        call()


def test_bernoulli_and_categorical_draw_by_their_probabilities() -> None:
    chance = np.float32([0.1, 0.5, 0.9])
    x = np.asarray(random.bernoulli(KEY, chance, (MANY, 3)))
    assert np.allclose(x.mean(0), chance, atol=0.01)
    logits = np.log(np.float32([[0.1, 0.2, 0.7], [0.5, 0.25, 0.25]]))
    for axis, given in ((-1, logits), (0, logits.T)):
        drawn = np.asarray(random.categorical(KEY, given, axis=axis, shape=(MANY, 2)))
        for row, p in zip(drawn.T, ([0.1, 0.2, 0.7], [0.5, 0.25, 0.25]), strict=True):
            assert (
                stats.chisquare(np.bincount(row, minlength=3), np.array(p) * MANY).pvalue > UNLIKELY
            )


def test_a_category_that_is_impossible_is_never_drawn() -> None:
    drawn = np.asarray(random.categorical(KEY, np.float32([0, -np.inf, 0]), shape=(1000,)))
    assert set(drawn.tolist()) == {0, 2}
    picked = np.asarray(random.choice(KEY, 4, 1000, p=np.float32([0.5, 0, 0.5, 0])))
    assert set(picked.tolist()) == {0, 2}


def test_permutations_are_fair() -> None:
    orders = np.asarray(
        td.jit(td.vmap(lambda k: random.permutation(k, 4)))(random.split(KEY, 6000))
    )
    assert (np.sort(orders, axis=1) == np.arange(4)).all()
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(counts) == 24
    assert stats.chisquare(counts).pvalue > UNLIKELY
    assert sorted(np.asarray(random.permutation(KEY, 5000)).tolist()) == list(range(5000))


def test_choice_without_drawing_again() -> None:
    drawn = np.asarray(random.choice(KEY, np.arange(10, 60), (5, 10), replace=False))
    assert sorted(drawn.ravel().tolist()) == list(range(10, 60))
    keys = random.split(KEY, 4000)
    p = np.array([0.5, 0.3, 0.2])
    first = np.asarray(td.vmap(lambda k: random.choice(k, 3, 2, replace=False, p=p))(keys))
    assert (first[:, 0] != first[:, 1]).all()
    assert stats.chisquare(np.bincount(first[:, 0], minlength=3), p * 4000).pvalue > UNLIKELY
    with pytest.raises(ShapeError, match="cannot draw 4 of 3"):
        random.choice(KEY, 3, 4, replace=False)


# -- derivatives -----------------------------------------------------------------------------------


def test_draws_are_differentiable_in_their_settings() -> None:
    unit = np.asarray(random.uniform(KEY, 5))
    low = td.grad(lambda a: td.sum(random.uniform(KEY, 5, td.float32, a, 2.0)))(0.5)
    assert float(low) == pytest.approx((1 - unit).sum(), rel=1e-6)
    z = np.asarray(random.normal(KEY, 5))
    mean, scale = td.grad(
        lambda m, s: td.sum(td.square(m + s * random.normal(KEY, 5))), argnums=(0, 1)
    )(1.0, 2.0)
    assert float(mean) == pytest.approx(2 * (1 + 2 * z).sum(), rel=1e-5)
    assert float(scale) == pytest.approx((2 * (1 + 2 * z) * z).sum(), rel=1e-5)


def test_truncated_draws_follow_their_bounds() -> None:
    def f(a: td.Array) -> td.Array:
        return td.sum(
            random.truncated_normal(KEY, a, td.asarray(2.0, dtype=td.float64), (50,), td.float64)
        )

    at, step = td.asarray(-0.5, dtype=td.float64), 1e-6
    apart = (float(f(at + step)) - float(f(at - step))) / (2 * step)
    assert float(td.grad(f)(at)) == pytest.approx(apart, rel=1e-6)


def test_a_long_row_of_words_conforms() -> None:
    conformance.conforms(
        REGISTRY["random_bits"], Case((np.array([3, 9], np.uint32),), {"shape": (2, 2100)})
    )


# -- the ends of dtypes and of distributions -------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int64", "uint64", "int16", "uint8"])
def test_integers_reach_the_ends_of_their_dtype(dtype: str) -> None:
    info = np.iinfo(dtype)
    least, most = int(info.min), int(info.max)
    for low, high in (
        (least, most + 1),
        (most - 1, most + 1),
        (least, least + 2),
        (most // 3, most),
        (least, least),
    ):

        def draw(key: td.Array, low: int = low, high: int = high) -> td.Array:
            return td.random.randint(key, (400,), low, high, dtype)

        x = draw(KEY)
        assert bits_of(x) == bits_of(td.jit(draw)(KEY))
        found = np.asarray(x).astype(object)
        assert (found >= low).all() and (found < max(high, low + 1)).all()
        assert len(set(found)) >= min(high - low, 100)


@pytest.mark.parametrize("share", [1.1, 1.5, 9.22])
def test_wide_ranges_of_integers_are_even(share: float) -> None:
    """The remainder of 63 bits by two thirds of 2**63 would be twice as often in the lower half."""
    span = int(2.0**63 / share)
    for low, high in ((0, span), (td.asarray(0), td.asarray(span, dtype="int64"))):
        x = np.asarray(td.random.randint(KEY, (20000,), low, high, "int64"))
        assert stats.kstest(x / span, "uniform").pvalue > 1e-4


def test_bounds_of_u64_are_compared_without_a_sign() -> None:
    low, high = (td.asarray(np.array(x, np.uint64)) for x in ([0, 2**64 - 3], [2**63, 2**64 - 1]))
    x = np.asarray(td.random.randint(KEY, (500, 2), low, high, "uint64"))
    assert int(x[:, 0].max()) < 2**63 and int(x[:, 0].max()) > 2**62
    assert set(x[:, 1].tolist()) == {2**64 - 3, 2**64 - 2}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "bounds", [(11.5, 12.0), (37.0, 38.0), (-40.0, -39.0), (50.0, np.inf)], ids=str
)
def test_truncated_numbers_where_probabilities_are_too_small(
    bounds: tuple[float, float], dtype: str
) -> None:
    def draw(key: td.Array) -> td.Array:
        return td.random.truncated_normal(key, *bounds, (20000,), dtype)

    x = draw(KEY)
    assert bits_of(x) == bits_of(td.jit(draw)(KEY))
    near, far = sorted(abs(b) for b in bounds)
    log_near, log_far = special.log_ndtr(-near), special.log_ndtr(-far)
    exceeded = np.exp(special.log_ndtr(-np.abs(np.asarray(x, np.float64))) - log_near)
    whole = np.exp(log_far - log_near)
    assert stats.kstest((exceeded - whole) / (1 - whole), "uniform").pvalue > 1e-3
    given = td.random.truncated_normal(
        KEY, *(td.asarray(b, dtype=dtype) for b in bounds), (20000,), dtype
    )
    np.testing.assert_allclose(np.asarray(given), np.asarray(x), rtol=4 * np.finfo(dtype).eps)


def test_a_range_that_a_dtype_cannot_hold_is_refused() -> None:
    with pytest.raises(DtypeError, match="further than f32 reaches"):
        td.random.uniform(KEY, (2,), minval=-3e38, maxval=3e38)


def test_no_dtype_is_the_default_one() -> None:
    assert td.random.normal(KEY, (2,), None).dtype is td.float32
    assert td.random.gamma(KEY, 1.0, (2,), None).dtype is td.float32
    assert td.random.randint(KEY, (2,), 0, 3, None).dtype is td.int32
    assert (
        td.random.poisson(KEY, 1.0, (2,), None).dtype
        is td.random.rademacher(KEY, (2,), None).dtype
        is td.int32
    )
    assert td.random.bits(KEY, (2,), None).dtype is td.uint32


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint64"])
def test_a_bound_gives_the_same_bits_as_a_number_and_as_an_array(dtype: str) -> None:
    def draw(high: Any) -> td.Array:
        return td.random.randint(KEY, (50,), 3, high, dtype)

    want = bits_of(draw(1000))
    assert want == bits_of(draw(td.asarray(1000))) == bits_of(td.jit(draw)(1000))


def test_choices_from_any_number_have_the_same_bits() -> None:
    n = td.Dim("n", max=50)

    def draw(x: td.Array) -> td.Array:
        return td.concat([td.random.permutation(KEY, x), td.random.choice(KEY, x, (5,))])

    x = td.arange(7)
    assert bits_of(draw(x)) == bits_of(td.jit(draw, dims=({0: n},))(x))


def test_words_of_64_bits_are_two_words() -> None:
    high, low = np.asarray(td.random.bits(KEY, (2, 5))).astype(np.uint64)
    assert (
        np.asarray(td.random.bits(KEY, (5,), "uint64")).tolist()
        == (high << np.uint64(32) | low).tolist()
    )


def test_complex_normal_numbers() -> None:
    def draw(key: td.Array) -> td.Array:
        return td.random.normal(key, (20000,), td.complex64)

    z = draw(KEY)
    assert bits_of(z) == bits_of(td.jit(draw)(KEY))
    for part in (np.asarray(z).real, np.asarray(z).imag):
        assert stats.kstest(part, stats.norm(scale=0.5**0.5).cdf).pvalue > 1e-3


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_independent_permutations(axis: int) -> None:
    x = np.arange(600).reshape(20, 6, 5)
    order = np.asarray(td.random.permutation(KEY, td.asarray(x), axis, independent=True))
    np.testing.assert_array_equal(np.sort(order, axis), x)
    first = np.moveaxis(order - x, axis, -1)
    assert len({tuple(row) for row in first.reshape(-1, first.shape[-1]).tolist()}) > 20


def test_categories_that_are_drawn_once() -> None:
    chances = np.array([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]])
    logits = td.asarray(np.log(chances), dtype="float32")
    keys = td.random.split(KEY, 20000)
    x = np.asarray(
        td.vmap(lambda k: td.random.categorical(k, logits, shape=(2, 2), replace=False))(keys)
    )
    assert (x[:, 0] != x[:, 1]).all()
    for row in range(2):
        found = np.bincount(x[:, 0, row], minlength=3)
        assert stats.chisquare(found, chances[row] * len(x)).pvalue > 1e-3
    with pytest.raises(ShapeError, match="cannot draw 4 of 3"):
        td.random.categorical(KEY, logits, shape=(4, 2), replace=False)
