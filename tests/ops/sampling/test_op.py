"""Choosing tokens: the vectors of the specification, the right shares, ties, masks, errors, the
same draw anywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.core.errors import BoundsError, DtypeError, ShapeError
from tetrad.kernel.math.philox import philox_words
from tetrad.ops.sampling.op import sample, top_tokens

OFF = {
    "temperature": 1.0, "top_p": 1.0, "min_p": 0.0, "repeat": 1.0, "presence": 0.0,
    "frequency": 0.0,
    "top_n_sigma": 0.0, "typical_p": 1.0, "xtc_probability": 0.0, "xtc_threshold": 0.1,
    "dynamic_range": 0.0, "dynamic_exponent": 1.0,
}  # fmt: skip


@td.jit
def compiled(*args: td.Array) -> td.Array:
    return sample(*args)


@td.jit
def compiled_warm_first(*args: td.Array) -> td.Array:
    return sample(*args, warm_first=True)


def operands(
    logits: Any, top_k: int = 0, seed: int = 42, first: int = 0, **settings: float
) -> list[np.ndarray]:
    """Rows of one request: draw number `first`, `first` + 1, ..."""
    values = np.atleast_2d(np.asarray(logits, np.float32))
    rows = len(values)
    numbers = [[top_k, seed & 0xFFFFFFFF, seed >> 32, first + row, 0] for row in range(rows)]
    nothing = (
        np.full((rows, 1, 2), -1, np.int32),
        np.full((rows, 1), -1, np.int32),
        np.zeros((rows, 1, 2), np.float32),
    )
    chain = np.tile(np.float32(list((OFF | settings).values())), (rows, 1))
    return [values, chain, np.array(numbers, np.uint32), *nothing]


def both(args: list[np.ndarray]) -> list[int]:
    """Eager and compiled, which must agree."""
    found = np.asarray(compiled(*args)).tolist()
    assert sample(*args).tolist() == found
    return found


# -- random words ----------------------------------------------------------------------------------

WORDS = {
    0: "6627E8D5 E169C58D BC57AC4C 9B00DBD8",
    1: "E3E80670 E50A0EBC 95F222C0 B615AA27",
    7: "F4607A2D C009F9DC 1D3ABA42 15EDAC82",
    42: "9CEAF053 77F5493B 12BF50AD 5742B3D7",
    0xDEADBEEF: "CAB08791 5FE5FF83 EC61BD87 82A4E06B",
    0x123456789ABCDEF0: "092C9B44 78384BC0 C9FB80BE 2B3BE4DD",
}


@pytest.mark.parametrize(("seed", "words"), WORDS.items())
def test_philox_vectors(seed: int, words: str) -> None:
    assert " ".join(f"{word:08X}" for word in philox_words(seed, 0)) == words


def test_the_next_block() -> None:
    assert [f"{w:08X}" for w in philox_words(42, 1)] == [
        "FCDB2127",
        "53BA6CFD",
        "838F5A6E",
        "744E06FB",
    ]


@pytest.mark.parametrize("seed", [1, 42, 0x123456789ABCDEF0, 2**64 - 1])
@pytest.mark.parametrize("first", [0, 5, 2**32 - 3])
def test_compiled_draws_are_the_words_of_the_stream(seed: int, first: int) -> None:
    vocab = 4096  # of equal chance: the token shows twelve bits of the draw
    args = operands(np.zeros((9, vocab)), seed=seed)
    at = first + np.arange(9)
    args[2][:, 3], args[2][:, 4] = at & 0xFFFFFFFF, at >> 32
    words = [philox_words(seed, int(i) // 4)[int(i) % 4] for i in at]
    assert np.asarray(compiled(*args)).tolist() == [word >> 20 for word in words]


# -- the vectors of the specification --------------------------------------------------------------

ROWS = np.tile(np.float32([1, 2, 3, 4]), (12, 1))
VECTORS = [
    (
        {"top_k": 0, "top_p": 1.0, "temperature": 1.0, "seed": 42},
        [3, 3, 1, 2, 3, 2, 3, 3, 3, 3, 3, 3],
    ),
    (
        {"top_k": 2, "top_p": 1.0, "temperature": 1.0, "seed": 42},
        [3, 3, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3],
    ),
    (
        {"top_k": 0, "top_p": 0.9, "temperature": 1.0, "seed": 42},
        [3, 3, 1, 3, 3, 2, 3, 3, 3, 3, 3, 3],
    ),
    (
        {"top_k": 3, "top_p": 0.8, "temperature": 2.0, "seed": 42},
        [3, 3, 2, 2, 3, 2, 3, 3, 3, 3, 3, 3],
    ),
    (
        {"top_k": 0, "top_p": 1.0, "temperature": 0.5, "seed": 7},
        [3, 3, 2, 2, 3, 3, 3, 3, 1, 1, 3, 3],
    ),
]


@pytest.mark.parametrize(("settings", "tokens"), VECTORS)
def test_specified_draws(settings: dict[str, Any], tokens: list[int]) -> None:
    args = operands(ROWS, **settings)
    assert both(args) == tokens
    assert (
        sample(*args, warm_first=True).tolist()
        == tokens
        == np.asarray(compiled_warm_first(*args)).tolist()
    )


def test_single_vectors() -> None:
    assert both(operands([0.1, 0.2, 0.3, 0.4, 0.5, 9, 0.7, 0.8], temperature=1e-3)) == [5]
    assert both(operands([0.1, 5, 0.3, 0.4], top_k=1, seed=7)) == [1]
    # equals of the second survive
    assert set(both(operands(np.tile([5, 5, 5, 1], (60, 1)), top_k=2))) == {0, 1, 2}


# -- shares ----------------------------------------------------------------------------------------

DRAWS = 20_000


def shares(logits: np.ndarray, top_k: int = 0, **settings: float) -> np.ndarray:
    args = operands(np.tile(logits, (DRAWS, 1)), top_k=top_k, seed=3, **settings)
    return np.bincount(np.asarray(compiled(*args)), minlength=len(logits))


def deviation(found: np.ndarray, expected: np.ndarray) -> float:
    """How many standard deviations chi squared is above what it should be (Wilson and Hilferty's
    approximation)."""
    freedom = len(found) - 1
    chi_squared = float(((found - expected) ** 2 / expected).sum())
    spread = 2 / (9 * freedom)
    return ((chi_squared / freedom) ** (1 / 3) - (1 - spread)) / spread**0.5


@pytest.mark.parametrize("vocab", [12, 2500])
@pytest.mark.parametrize(
    "settings", [{}, {"temperature": 2.0}, {"top_k": 5}, {"top_p": 0.7}, {"min_p": 0.2}], ids=str
)
def test_tokens_come_as_often_as_their_share(vocab: int, settings: dict[str, Any]) -> None:
    logits = np.full(vocab, -60, np.float32)
    logits[:: vocab // 12][:12] = np.log(np.arange(1, 13))
    found = shares(logits, **settings)
    possible = np.flatnonzero(found)
    weights = np.exp(logits[possible].astype(np.float64) / settings.get("temperature", 1.0))
    expected = weights / weights.sum() * DRAWS
    kept = {"top_k": 5, "top_p": 6, "min_p": 10}  # top_p: 12+11+10+9+8+7 = 57 > 0.7 * 78
    assert len(possible) == kept.get(next(iter(settings), ""), 12)
    assert deviation(found[possible], expected) < 4


# -- the filters of taste, against their definitions, in f64 ---------------------------------------


def probabilities(logits: np.ndarray, kept: list[int]) -> dict[int, float]:
    weights = np.exp(logits[kept].astype(np.float64) - logits[kept].max())
    return dict(zip(kept, weights / weights.sum(), strict=True))


def by_sigma(logits: np.ndarray, kept: list[int], n: float) -> list[int]:
    values = logits[kept].astype(np.float64)
    return [i for i in kept if logits[i] >= values.max() - n * values.std()]


def typical(logits: np.ndarray, kept: list[int], share: float) -> list[int]:
    """Nearest to the entropy first, until their share exceeds `share`."""
    p = probabilities(logits, kept)
    entropy = -sum(x * np.log(x) for x in p.values())
    order, total, found = sorted(kept, key=lambda i: abs(-np.log(p[i]) - entropy)), 0.0, list[int]()
    for i in order:
        found.append(i)
        total += p[i]
        if total > share:
            break
    return sorted(found)


def without_top_choices(logits: np.ndarray, kept: list[int], threshold: float) -> list[int]:
    p = probabilities(logits, kept)
    likely = sorted((i for i in kept if p[i] >= threshold), key=lambda i: p[i])
    return [i for i in kept if i not in likely[1:]]


def largest(logits: np.ndarray, kept: list[int], k: int) -> list[int]:
    return sorted(sorted(kept, key=lambda i: -logits[i])[:k])


FILTERS = {
    "top_n_sigma": by_sigma,
    "top_k": largest,
    "typical_p": typical,
    "xtc_threshold": without_top_choices,
}


@pytest.mark.parametrize("vocab", [7, 40, 1500])
@pytest.mark.parametrize(
    "settings",
    [
        {"top_n_sigma": 1.3},
        {"top_n_sigma": 0.4, "top_k": 20},
        {"typical_p": 0.2},
        {"typical_p": 0.7},
        {"top_k": 12, "typical_p": 0.5},
        {"top_n_sigma": 1.5, "typical_p": 0.9},
        {"xtc_threshold": 0.02},
        {"xtc_threshold": 0.3},
        {"top_k": 10, "typical_p": 0.6, "xtc_threshold": 0.05},
    ],
    ids=str,
)
def test_what_the_filters_leave(vocab: int, settings: dict[str, float]) -> None:
    """At a high temperature all that is left comes up; at a low one the largest of it."""
    logits = np.random.default_rng(vocab).standard_normal(vocab).astype(np.float32) * 1.5
    kept = list(range(vocab))
    for name in [name for name in FILTERS if name in settings]:
        kept = FILTERS[name](logits, kept, settings[name])  # type: ignore[operator]
    chain = settings | {"xtc_probability": float("xtc_threshold" in settings)}
    few = operands(logits, temperature=0.005, **chain)  # type: ignore[arg-type]
    assert both(few) == [max(kept, key=lambda i: logits[i])]
    found = np.asarray(
        compiled(*operands(np.tile(logits, (60 * len(kept), 1)), temperature=50.0, **chain))
    )  # type: ignore[arg-type]
    assert set(found.tolist()) <= set(kept) and len(set(found.tolist())) > 0.9 * len(kept)


def test_xtc_takes_part_as_often_as_its_probability() -> None:
    logits = np.log(np.float32([0.6, 0.3, 0.1]))
    found = shares(logits, xtc_probability=0.25, xtc_threshold=0.2)
    expected = DRAWS * (0.75 * np.array([0.6, 0.3, 0.1]) + 0.25 * np.array([0, 0.75, 0.25]))
    assert deviation(found, expected) < 4
    # above 0.5 it is off
    assert shares(logits, xtc_probability=1.0, xtc_threshold=0.51)[0] > 0.55 * DRAWS


def test_filters_of_taste_that_are_off_change_no_draw() -> None:
    logits = np.random.default_rng(5).standard_normal((40, 900)) * 3
    plain = both(operands(logits, top_p=0.9))
    off = {"top_n_sigma": -1.0, "typical_p": 1.0, "xtc_probability": 0.0, "xtc_threshold": 0.0}
    assert both(operands(logits, top_p=0.9, **off)) == plain
    assert both(operands(logits, top_p=0.9, xtc_probability=1.0, xtc_threshold=0.01)) != plain


def test_masked_tokens_do_not_count_for_the_deviation() -> None:
    args = operands([5.0, 4.0, 3.0, -1000.0], temperature=0.001, top_n_sigma=1.0)
    allowed = [*args, np.array([[0b0110]], np.uint32)]
    assert both(allowed) == [1]
    assert both(operands([-np.inf, 4.0, 3.0, -np.inf], top_n_sigma=0.5, temperature=9.0)) == [1]


def followed(logits: np.ndarray, temperature: float, reach: float, exponent: float) -> float:
    """The temperature that follows the entropy, in f64."""
    p = np.exp(logits.astype(np.float64) - logits.max())
    p /= p.sum()
    even = -(p * np.log(p)).sum() / np.log(len(p))
    least = max(temperature - reach, 0.0)
    return least + (temperature + reach - least) * even**exponent


@pytest.mark.parametrize(("reach", "exponent"), [(0.5, 1.0), (2.0, 1.0), (0.5, 0.0), (0.5, 3.0)])
@pytest.mark.parametrize("run", [compiled, compiled_warm_first])
def test_the_temperature_follows_the_entropy(run: Any, reach: float, exponent: float) -> None:
    logits = np.log(np.float32([0.5, 0.2, 0.15, 0.1, 0.05]))
    args = operands(
        np.tile(logits, (DRAWS, 1)), seed=3, dynamic_range=reach, dynamic_exponent=exponent
    )
    weights = np.exp(logits.astype(np.float64) / followed(logits, 1.0, reach, exponent))
    found = np.bincount(np.asarray(run(*args)), minlength=5)
    assert deviation(found, weights / weights.sum() * DRAWS) < 4


def test_the_entropy_is_that_of_what_the_filters_leave() -> None:
    logits = np.log(np.float32([0.4, 0.3, 0.2, 0.1]))
    kept = followed(logits[:2], 1.0, 0.9, 1.0)
    weights = np.exp(logits[:2].astype(np.float64) / kept)
    found = shares(logits, top_k=2, dynamic_range=0.9)
    assert deviation(found[:2], weights / weights.sum() * DRAWS) < 4 and not found[2:].any()
    args = operands(
        [[2.0, 1.0, -np.inf], [-np.inf, -np.inf, 1.0]],
        top_k=1,
        dynamic_range=0.9,
        dynamic_exponent=0.0,
    )
    assert both(args) == [0, 2]  # of one token there is no entropy to follow


# -- the chain -------------------------------------------------------------------------------------


def test_temperature_zero_takes_the_first_of_the_largest() -> None:
    rng = np.random.default_rng(0)
    logits = rng.integers(0, 9, (6, 5000)).astype(np.float32)
    assert both(operands(logits, temperature=0.0)) == logits.argmax(axis=1).tolist()


def test_top_p_keeps_the_entry_that_reaches_it_and_at_least_one() -> None:
    logits = np.log(np.float32([0.5, 0.25, 0.125, 0.125]))
    tokens = {
        p: set(both(operands(np.tile(logits, (50, 1)), top_p=p)))
        for p in (-1.0, 0.0, 0.49, 0.51, 0.76, 0.9)
    }
    assert tokens == {
        -1.0: {0},
        0.0: {0},
        0.49: {0},
        0.51: {0, 1},
        0.76: {0, 1, 2},
        0.9: {0, 1, 2, 3},
    }


def test_of_equals_at_the_edge_top_p_keeps_the_first() -> None:
    assert set(both(operands(np.zeros((200, 100)), top_p=0.055))) == set(range(6))


def test_filters_look_at_logits_before_the_temperature() -> None:
    logits = np.tile(np.log(np.float32([0.6, 0.3, 0.1])), (60, 1))
    args = operands(logits, top_p=0.85, temperature=4.0)
    assert set(both(args)) == {0, 1}
    assert (
        set(np.asarray(compiled_warm_first(*args)).tolist())
        == {0, 1, 2}
        == set(sample(*args, warm_first=True))
    )


def test_min_p_counts_from_the_most_likely() -> None:
    logits = np.tile(np.log(np.float32([0.4, 0.3, 0.19, 0.11])), (80, 1))
    assert set(both(operands(logits, min_p=0.5))) == {0, 1}
    assert set(both(operands(logits, min_p=7.0))) == {0}


def test_penalties() -> None:
    """Of tokens seen, positive logits are divided, others multiplied; count * frequency + presence
    is taken off."""
    args = operands([[3.0, -1.0, 2.0], [3.0, -1.0, -1.5]], temperature=0.0, repeat=2.0)
    args[3] = np.array([[[0, 1], [-1, 9]], [[0, 0], [1, 2]]], np.int32)
    assert both(args) == [2, 0]
    args = operands([3.0, 2.0], temperature=0.0, presence=0.5, frequency=0.25)
    for count, token in ((0, 0), (1, 0), (2, 0), (3, 1)):
        args[3] = np.array([[[0, count]]], np.int32)
        assert both(args) == [token], count


def test_bias() -> None:
    args = operands([1.0, 2.0, 3.0], temperature=0.0)
    args[4], args[5] = (
        np.array([[0, 2]], np.int32),
        np.array([[[1.5, 0], [-np.inf, 0]]], np.float32),
    )
    assert both(args) == [0]


def test_bias_comes_before_the_penalties_or_after_them() -> None:
    args = operands([4.0, 3.5], temperature=0.0, repeat=2.0)
    args[3], args[4] = np.array([[[0, 1]]], np.int32), np.array([[0]], np.int32)
    for bias, token in (
        ((2.5, 0.0), 1),
        ((3.5, 0.0), 0),
        ((0.0, 1.0), 1),
        ((0.0, 2.0), 0),
        ((4.0, -1.0), 1),
    ):
        args[5] = np.array([[bias]], np.float32)
        assert both(args) == [token], bias


@pytest.mark.parametrize("vocab", [1, 31, 32, 33, 70, 2000])
def test_masked_tokens_never_come(vocab: int) -> None:
    rng = np.random.default_rng(vocab)
    allowed = rng.random((40, vocab)) < 0.3
    allowed[:, rng.integers(vocab)] = True
    packed = np.zeros((40, -(-vocab // 32) * 4), np.uint8)
    bits = np.packbits(allowed, axis=1, bitorder="little")
    packed[:, : bits.shape[1]] = bits
    args = [*operands(rng.standard_normal((40, vocab))), packed.view(np.uint32)]
    assert all(allowed[row, token] for row, token in enumerate(both(args)))


def test_a_row_does_not_depend_on_the_rows_beside_it_nor_on_threads() -> None:
    rng = np.random.default_rng(1)
    args = operands(
        rng.standard_normal((16, 3000)) * 4, top_k=40, top_p=0.9, min_p=0.01, temperature=0.7
    )
    together = np.asarray(compiled(*args))
    order = rng.permutation(16)
    assert np.array_equal(np.asarray(compiled(*[a[order] for a in args])), together[order])
    for row in range(16):
        assert np.asarray(compiled(*[a[row : row + 1] for a in args]))[0] == together[row]


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", [sample, compiled])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a[0].__setitem__((1, 2), np.nan), "row 1: the logits hold NaN or infinity"),
        (lambda a: a[0].__setitem__((0, 0), np.inf), "row 0: the logits hold NaN or infinity"),
        (lambda a: a[0].__setitem__(1, -np.inf), "row 1: no token is left to choose"),
        (
            lambda a: a[1].__setitem__((1, 0), -1),
            "row 1: temperature, top_p or min_p is negative or not a number",
        ),
        (lambda a: a[1].__setitem__((0, 0), np.nan), "row 0: temperature"),
        (lambda a: a[1].__setitem__((0, 1), np.nan), "row 0: temperature, top_p"),
        (lambda a: a[3].__setitem__((0, 0), (99, 1)), "token 99 of the bias or of the tokens seen"),
        (lambda a: a[4].__setitem__((0, 0), 99), "token 99 of the bias"),
    ],
)
def test_values_that_are_errors(run: Any, change: Any, message: str) -> None:
    args = operands(np.zeros((2, 99)))
    change(args)
    with pytest.raises(BoundsError, match=message):
        run(*args)


def test_operands_that_do_not_fit() -> None:
    good = operands(np.zeros((2, 5)))
    with pytest.raises(ShapeError, match=r"settings: expected f32\[2,12\], got f32\[2,4\]"):
        compiled(good[0], good[1][:, :4], *good[2:])
    with pytest.raises(DtypeError, match="logits: expected f32, got i32"):
        compiled(good[0].astype(np.int32), *good[1:])
    with pytest.raises(ShapeError, match="one token or more"):
        compiled(np.zeros((2, 0), np.float32), *good[1:])
    with pytest.raises(ShapeError, match=r"mask: expected u32\[2,1\], got u32\[2,2\]"):
        compiled(*good, np.zeros((2, 2), np.uint32))


def test_top_tokens_errors() -> None:
    with pytest.raises(BoundsError, match="row 1: the logits hold NaN"):
        td.jit(lambda x: top_tokens(x, count=2))(np.float32([[1, 2], [np.nan, 1]]))
    with pytest.raises(ShapeError, match="at least 3 logits"):
        td.jit(lambda x: top_tokens(x, count=3))(np.float32([[1, 2]]))
