"""Schedules against their formulas, with counts as Python numbers and as traced arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

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
    (optim.exponential_decay(1.0, 3, 0.5, 4, end_value=0.4), lambda t: max(0.4, 0.5 ** (max(t - 4, 0) / 3))),
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
        optim.join_schedules([lambda t: 1, optim.linear_schedule(1.0, 0.0, 4), lambda t: 7 + t], [2, 8]),
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
    assert [float(both[0](step)) for step in range(6)] == [float(both[1](step)) for step in range(6)]
    with pytest.raises(ShapeError, match="warmup_steps must be positive"):
        optim.warmup_cosine_decay_schedule(0.0, 1.0, -1, 4)
