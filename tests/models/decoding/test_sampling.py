"""Settings of a request, and what the sampler remembers from token to token."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tetrad.core.errors import SettingError
from tetrad.models.decoding.sampling import (
    Recent,
    RowChooser,
    Sampler,
    compiled_sample,
    settings_row,
)
from tetrad.models.decoding.settings import checked
from tetrad.ops.sampling.op import sample
from tetrad.tracing.array import Array


@given(st.lists(st.integers(0, 6), max_size=60), st.integers(0, 9))
def test_recent_counts_the_last_tokens(tokens: list[int], size: int) -> None:
    recent = Recent(size)
    for token in tokens:
        recent.add(token)
    held = {int(token): int(count) for token, count in recent.table[0] if token >= 0}
    assert held == Counter(tokens[-size:] if size else [])


def logits(rows: int = 20) -> np.ndarray:
    return np.random.default_rng(3).standard_normal((rows, 500)).astype(np.float32) * 2


def chosen(sampler: Sampler, row: Array) -> int:
    """The next token of one sampler, remembered."""
    token = RowChooser(500).choose([sampler], row)[0].token
    sampler.remember(token)
    return token


def test_the_sampler_is_the_op_with_consecutive_draws() -> None:
    settings = checked(seed=77, temperature=1.5, top_k=0)
    sampler, rows = Sampler(settings, 500), logits()
    found = [chosen(sampler, Array.from_numpy(rows[i : i + 1])) for i in range(20)]
    numbers = np.repeat(sampler.numbers, 20, axis=0)
    numbers[:, 3] = np.arange(20)
    nothing = (
        np.full((20, 1, 2), -1, np.int32),
        np.full((20, 1), -1, np.int32),
        np.zeros((20, 1, 2), np.float32),
    )
    assert (
        found
        == sample(rows, np.repeat(settings_row(settings), 20, axis=0), numbers, *nothing).tolist()
    )


def test_penalties_see_the_prompt_and_the_answer() -> None:
    row = np.full((1, 500), -9, np.float32)
    row[0, :4] = 5, 4.9, 4.8, 4.7
    settings = checked(temperature=0, presence_penalty=1.0, repeat_last_n=2)
    sampler = Sampler(settings, 500, [0, 1, 1])
    assert [chosen(sampler, Array.from_numpy(row)) for _ in range(4)] == [0, 2, 1, 0]


def test_nothing_is_compiled_again_when_settings_change() -> None:
    rows = Array.from_numpy(logits(1))
    chosen(Sampler(checked(), 500), rows)
    before = set(compiled_sample().found)
    for settings in (
        checked(temperature=0),
        checked(top_k=1, top_p=0.3, min_p=0.2, seed=5),
        checked(repeat_penalty=1.3, repeat_last_n=-1),
        checked(logit_bias={3: 1.0, 4: -1.0, 5: float("-inf")}),
        checked(dry_multiplier=1.0, dynatemp_range=0.3),
    ):
        chosen(Sampler(settings, 500, [*range(100)] * 2), rows)
    assert set(compiled_sample().found) == before


def test_a_seed_is_drawn_when_none_is_given() -> None:
    assert checked(seed=None)["seed"] != checked(seed=-1)["seed"]
    assert checked(seed=0)["seed"] == 0


def test_seeds_have_64_bits() -> None:
    assert checked(seed=2**64 - 1)["seed"] == 2**64 - 1
    for seed in (2**64, -2):
        with pytest.raises(SettingError, match="seed"):
            checked(seed=seed)


def test_dry_comes_after_the_other_penalties() -> None:
    """4 is halved for having been said, then 1.75 ^ 1 is taken off: 0.25 is less than 0.3."""
    row = np.full((1, 500), -9, np.float32)
    row[0, 5], row[0, 6] = 4.0, 0.3
    for multiplier, token in ((0.9, 5), (1.0, 6)):
        settings = checked(temperature=0, repeat_penalty=2.0, dry_multiplier=multiplier)
        sampler = Sampler(settings, 500, [1, 2, 3, 5, 1, 2, 3])
        assert chosen(sampler, Array.from_numpy(row)) == token


@pytest.mark.parametrize(
    "wrong",
    [
        {"mirostat": 3},
        {"mirostat_tau": -1},
        {"dry_base": 0.5},
        {"dry_multiplier": float("nan")},
        {"dry_penalty_last_n": -2},
        {"dry_sequence_breakers": "abc"},
        {"dry_sequence_breakers": [""]},
        {"dynatemp_range": -0.1},
        {"presence_penalty": -1e38},
        {"frequency_penalty": -1e38},
        {"frequency_penalty": 1e38},
    ],
    ids=str,
)
def test_settings_that_make_no_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=next(iter(wrong))):
        checked(**wrong)


def test_settings_of_numpy_and_very_large_ones() -> None:
    row = Array.from_numpy(logits(1))
    largest = int(row.memory.argmax())
    for settings in (
        checked(top_k=2**40, temperature=1e-3),
        checked(seed=np.int64(3), temperature=np.float32(1e-3)),
    ):
        assert chosen(Sampler(settings, 500), row) == largest
    biased = checked(logit_bias={np.int32(7): np.float32(99)}, temperature=0)  # type: ignore[dict-item]
    assert chosen(Sampler(biased, 500), row) == 7
