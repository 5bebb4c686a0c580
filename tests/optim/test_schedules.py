"""Schedules against their formulas, with counts as Python numbers and as traced arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.core.errors import ShapeError

optim = td.optim
Formula = Callable[[int], float]


def cosine(count: int, steps: int) -> float:
    return 0.5 * (1 + math.cos(math.pi * min(count, steps) / steps))


CASES: list[tuple[Any, Formula]] = [
    (optim.constant_schedule(0.1), lambda t: 0.1),
    (optim.linear_schedule(1.0, 0.2, 4, 2), lambda t: 1 - 0.2 * min(max(t - 2, 0), 4)),
    (optim.polynomial_schedule(1.0, 0.1, 2.0, 5), lambda t: 0.9 * (1 - min(t, 5) / 5) ** 2 + 0.1),
    (optim.exponential_decay(1.0, 3, 0.5), lambda t: 0.5 ** (t / 3)),
    (optim.exponential_decay(1.0, 3, 0.5, staircase=True), lambda t: 0.5 ** (t // 3)),
    (optim.exponential_decay(1.0, 3, 0.5, 4, end_value=0.4), lambda t: max(0.4, 0.5 ** (max(t - 4,
    0) / 3))),
    (optim.exponential_decay(1.0, 3, 2.0, end_value=5.0), lambda t: min(5.0, 2.0 ** (t / 3))),
    (optim.cosine_decay_schedule(2.0, 7), lambda t: 2 * cosine(t, 7)),
    (optim.cosine_decay_schedule(2.0, 7, 0.1, 2.0), lambda t: 2 * (0.9 * cosine(t, 7) ** 2 + 0.1)),
    (
        optim.warmup_cosine_decay_schedule(0.1, 1.0, 3, 9, 0.05),
        lambda t: 0.1 + 0.3 * t if t < 3 else 0.95 * cosine(t - 3, 6) + 0.05,
    ),
    (optim.warmup_cosine_decay_schedule(0.0, 0.0, 3, 9), lambda t: 0.0),
    (
        optim.piecewise_constant_schedule(1.0, {5: 0.1, 2: 0.5}),
        lambda t: 1.0 if t < 2 else 0.5 if t < 5 else 0.05,
    ),
    (optim.piecewise_constant_schedule(0.3), lambda t: 0.3),
    (
        optim.join_schedules([lambda t: 1, optim.linear_schedule(1.0, 0.0, 4), lambda t: 7 + t], [2,
        8]),
        lambda t: 1.0 if t < 2 else 1 - min(t - 2, 4) / 4 if t < 8 else 7.0 + t - 8,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("schedule", "formula"), CASES, ids=range(len(CASES)))
def test_formula(schedule: Any, formula: Formula) -> None:
    compiled = td.jit(schedule)
    for count in range(13):
        want = pytest.approx(formula(count), rel=1e-6, abs=1e-7)
        assert float(schedule(count)) == want
        value = compiled(td.asarray(count))
        assert float(value) == want and value.dtype is td.float32
    assert compiled.compiles == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: optim.linear_schedule(1.0, 0.0, 0),
        lambda: optim.exponential_decay(1.0, 0, 0.5),
        lambda: optim.cosine_decay_schedule(1.0, 0),
        lambda: optim.warmup_cosine_decay_schedule(0.0, 1.0, 5, 5),
    ],
)  # fmt: skip
def test_lengths_are_positive(make: Callable[[], Any]) -> None:
    with pytest.raises(ShapeError, match="must be positive, got 0"):
        make()


def test_one_boundary_less_than_schedules() -> None:
    with pytest.raises(ShapeError, match="2 schedules have one boundary less, got 2"):
        optim.join_schedules([lambda t: t, lambda t: t], [1, 2])


def test_without_a_warmup_a_schedule_begins_at_its_peak() -> None:
    both = optim.warmup_cosine_decay_schedule(0.0, 1.0, 0, 4), optim.cosine_decay_schedule(1.0, 4)
    assert [float(both[0](step)) for step in range(6)] == [
        float(both[1](step)) for step in range(6)
    ]
    with pytest.raises(ShapeError, match="warmup_steps must be positive"):
        optim.warmup_cosine_decay_schedule(0.0, 1.0, -1, 4)


WIDE = {
    "linear": (optim.linear_schedule(0.1, 0.01, 20), lambda n: 0.1 - 0.09 * n / 20),
    "cosine": (optim.cosine_decay_schedule(0.1, 20), lambda n: 0.05 * (1 + np.cos(np.pi * n / 20))),
    "exponential": (optim.exponential_decay(0.1, 10, 0.5), lambda n: 0.1 * 0.5 ** (n / 10)),
    "constant": (optim.constant_schedule(0.1), lambda n: 0.1),
    "warmup": (
        optim.warmup_cosine_decay_schedule(0.01, 0.1, 3, 20),
        lambda n: 0.01 + 0.03 * n if n < 3 else 0.05 * (1 + np.cos(np.pi * (n - 3) / 17)),
    ),
}


@pytest.mark.parametrize("name", WIDE)
def test_updates_in_f64_get_rates_in_f64(name: str) -> None:
    schedule, by_hand = WIDE[name]
    assert schedule(3).dtype == td.float32
    step = optim.scale_by_learning_rate(schedule)
    state = step.init(td.ones(1))
    for count in range(8):
        wide, _ = step.update(
            {"x": td.ones(2, dtype=td.float64), "h": td.ones(1, dtype=td.float16)}, state
        )
        narrow, state = step.update(td.ones(1), state)
        np.testing.assert_allclose(np.asarray(wide["x"]), -by_hand(count), rtol=1e-14)
        assert wide["h"].dtype == td.float16 and narrow.dtype == td.float32


def test_a_schedule_of_a_user_is_given_whole_numbers() -> None:
    table = td.asarray([0.5, 0.25])
    for schedule in (
        lambda n: table[n],
        optim.join_schedules([optim.constant_schedule(1.0), lambda n: table[n]], [0]),
    ):
        step = optim.scale_by_schedule(schedule)
        assert step.update(td.ones(1, dtype=td.float64), step.init(td.ones(1)))[0].tolist() == [0.5]
