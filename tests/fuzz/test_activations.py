"""tests.fuzz.activations on fixed seeds, and defects that it must notice."""

from __future__ import annotations

import pytest

import tetrad as td
from tests.fuzz import activations
from tests.fuzz.activations import ACTIVATIONS, check

SEEDS = range(len(ACTIVATIONS))


@pytest.mark.parametrize(
    "seed", SEEDS, ids=[f"{seed}-{name}" for seed, name in enumerate(ACTIVATIONS)]
)
def test_activations_are_right_at_any_number(seed: int) -> None:
    assert check(seed) is None


@pytest.mark.parametrize(
    ("name", "careless"),
    [
        ("silu", lambda x: x * td.sigmoid(x)),
        ("gelu", lambda x: 0.5 * x * (1 + td.erf(x * 0.5**0.5))),
        ("mish", lambda x: x * td.tanh(td.nn.softplus(x))),
        ("soft_sign", lambda x: x / (1 + td.abs(x))),
    ],
)
def test_a_product_of_zero_and_infinity_is_noticed(
    name, careless, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(activations.ACTIVATIONS, name, (careless, ACTIVATIONS[name][1]))
    first = list(ACTIVATIONS).index(name)
    assert any(check(seed) for seed in range(first, first + 4 * len(ACTIVATIONS), len(ACTIVATIONS)))
