"""Mirostat: what is kept, and that the mean surprise comes to the one asked for."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tetrad.models.decoding.mirostat import Mirostat
from tetrad.models.decoding.sampling import RowChooser, Sampler
from tetrad.models.decoding.settings import checked
from tetrad.tracing.array import Array

VOCAB = 2000


def row(scale: float = 2.0, seed: int = 3) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(VOCAB) * scale).astype(np.float32)


def chosen(sampler: Sampler, logits: Array, mask: np.ndarray | None = None) -> int:
    """The next token of one sampler, remembered."""
    token = RowChooser(VOCAB).choose([sampler], logits, None, [mask])[0].token
    sampler.remember(token)
    return token


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("tau", [2.0, 4.0])
def test_the_mean_surprise_comes_to_what_was_asked_for(version: int, tau: float) -> None:
    sampler = Sampler(checked(mirostat=version, mirostat_tau=tau, temperature=1.0, seed=1), VOCAB)
    bits = []
    for i in range(400):
        logits = row(2.5, seed=i)
        before = sampler.mirostat.limit  # type: ignore[union-attr]
        chosen(sampler, Array.from_numpy(logits[None]))
        bits.append(tau + (before - sampler.mirostat.limit) / 0.1)  # type: ignore[union-attr]
    assert abs(np.mean(bits[50:]) - tau) < 0.4


def test_version_2_keeps_what_is_within_the_limit() -> None:
    logits = np.log(np.float32([0.5, 0.25, 0.125, 0.125]))
    for tau, kept in ((0.4, {0}), (0.5, {0}), (1.01, {0, 1}), (1.6, {0, 1, 2, 3})):
        kept_now = {Mirostat(checked(mirostat=2, mirostat_tau=tau, temperature=1.0)).choose(logits,
        u / 64)
                  for u in range(64)}  # fmt: skip
        assert kept_now == kept, tau


def test_version_1_keeps_as_many_as_the_formula_says() -> None:
    """Chances that are exactly a power of the rank, where the estimate is exact."""
    slope, tau = 1.5, 2.0
    ranks = np.random.default_rng(0).permutation(VOCAB) + 1
    logits = (-slope * np.log(ranks)).astype(np.float32)
    excess = slope - 1
    count = int((excess * 2 ** (2 * tau) / (1 - VOCAB**-excess)) ** (1 / slope))
    found = Mirostat(checked(mirostat=1, mirostat_tau=tau, temperature=1.0))._likeliest(
        logits.astype(np.float64)
    )
    assert found.tolist() == np.flatnonzero(ranks <= count).tolist()


def test_a_seed_gives_it_again_and_zero_is_greedy() -> None:
    settings = {"mirostat": 2, "temperature": 1.0}
    rows = [Array.from_numpy(row(seed=i)[None]) for i in range(20)]
    drawn = [
        [chosen(Sampler(checked(seed=5, **settings), VOCAB), r) for r in rows] for _ in range(2)
    ]  # type: ignore[arg-type]
    assert drawn[0] == drawn[1]
    greedy = Sampler(checked(mirostat=2, temperature=0.0), VOCAB)
    assert [chosen(greedy, r) for r in rows] == [int(r.memory.argmax()) for r in rows]


def test_bias_masks_and_penalties_count() -> None:
    logits = Array.from_numpy(row()[None])
    top = int(logits.memory.argmax())
    settings = checked(mirostat=2, mirostat_tau=0.1, temperature=1.0, logit_bias={7: 100.0})
    assert chosen(Sampler(settings, VOCAB), logits) == 7
    mask = np.zeros((1, math.ceil(VOCAB / 32)), np.uint32)
    mask[0, 0] = 1 << 9
    assert chosen(Sampler(checked(mirostat=1, temperature=1.0), VOCAB), logits, mask) == 9
    repeated = checked(mirostat=2, mirostat_tau=0.1, temperature=1.0, presence_penalty=100.0)
    assert chosen(Sampler(repeated, VOCAB, [top]), logits) != top


def test_a_row_of_one_possible_token() -> None:
    logits = np.full(VOCAB, -np.inf, np.float32)
    logits[4] = 1.0
    for version in (1, 2):
        assert Mirostat(checked(mirostat=version, temperature=1.0)).choose(logits, 0.99) == 4
