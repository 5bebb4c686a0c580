"""Plans of checkpointed scans: the numbers that are published for each strategy, and that every
plan is sound."""

from __future__ import annotations

from functools import cache

import pytest

from tetrad.transforms.checkpoint_plans import (
    ADVANCE,
    LEAF,
    CheckpointPlan,
    checkpoint_indices,
    plan,
)

STRATEGIES = [
    "sqrt",
    "none",
    ("every", 1),
    ("every", 3),
    ("bisect", 4),
    ("binomial", 1),
    ("binomial", 3),
]


def run(made: CheckpointPlan) -> list[int]:
    """Carry out a plan on states that are numbers of steps done: in which order are steps walked
    back?"""
    slots: dict[int, int] = {0: 0} | {i + 1: step + 1 for i, step in enumerate(made.stored)}
    state, walked = -1, []
    for action in made.actions:
        state = slots[action.load] if action.load >= 0 else state
        assert state == action.step, "a step works on the state that it found"
        if action.kind == ADVANCE:
            state += 1
        else:
            assert action.kind == LEAF
            walked.append(action.step)
        if action.save >= 0:
            assert action.save < made.slots
            slots[action.save] = state
    return walked


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_every_step_is_walked_back_once_from_the_last_to_the_first(
    strategy: str | tuple[str, int],
) -> None:
    for length in (0, 1, 2, 3, 4, 5, 7, 16, 33, 100):
        assert run(plan(length, strategy)) == list(reversed(range(length)))


@pytest.mark.parametrize(
    ("length", "count", "wanted"),
    [
        (4, 2, [1, 3]),
        (6, 2, [2, 5]),
        (5, 2, [2, 4]),
        (7, 3, [2, 4, 6]),
        (10, 3, [3, 6, 9]),
        (10, 4, [2, 4, 7, 9]),
        (100, 7, [14, 28, 42, 57, 71, 85, 99]),
    ],
)
def test_where_evenly_spaced_states_lie(length: int, count: int, wanted: list[int]) -> None:
    assert checkpoint_indices(length, count) == wanted


HALVED = {
    1: 0,
    2: 1,
    3: 2,
    4: 3,
    5: 5,
    8: 10,
    10: 15,
    16: 28,
    32: 72,
    64: 176,
    100: 312,
    256: 960,
    1000: 4700,
}


@pytest.mark.parametrize("length", HALVED)
def test_computations_of_a_segment_that_is_halved(length: int) -> None:
    assert plan(length, "none").recomputations == HALVED[length]


@pytest.mark.parametrize(
    ("length", "count", "wanted"),
    [(100, 10, 150), (1000, 31, 2248), (1000, 10, 3120), (10000, 100, 31200)],
)
def test_computations_and_states_of_halved_segments(length: int, count: int, wanted: int) -> None:
    made = plan(length, ("bisect", count))
    assert made.recomputations == wanted
    assert made.slots <= count + 10


def test_segments_that_are_kept_are_computed_once() -> None:
    made = plan(100, ("every", 10))
    assert made.recomputations == 100 - 10
    assert made.slots == 10 + 10 - 1
    assert plan(10000, "sqrt").slots <= 200


@cache
def fewest(length: int, states: int) -> int:
    if length <= 1:
        return 0
    if states == 1:
        return length * (length - 1) // 2
    return min(j + fewest(length - j, states - 1) + fewest(j, states) for j in range(1, length))


def test_binomial_plans_are_the_best_there_are() -> None:
    for length in range(1, 40):
        for states in range(1, 8):
            made = plan(length, ("binomial", states))
            assert made.recomputations == fewest(length, states)
            assert made.slots <= states
    published = {(10, 3): 15, (20, 3): 45, (35, 3): 105, (35, 4): 84, (56, 5): 140}
    assert {
        key: plan(key[0], ("binomial", key[1])).recomputations for key in published
    } == published
