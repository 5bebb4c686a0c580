"""bounds: the distance allowed is zero where everything is exact, covers real rounding, and is
small."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tetrad as td
from tests.explain.programs import arrays, softmax
from tetrad.explain.bounds import bounded_graph
from tetrad.explain.compare import told_apart


def bounded(
    function: Callable[..., Any], *given: np.ndarray, stated: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    return bounded_graph(td.trace(function)(*map(td.asarray, given)), given, {}, stated)[0]


def test_exact_ops_may_not_differ() -> None:
    x, y = arrays((20,), (20,))
    value, distance = bounded(lambda x, y: td.where(x > y, x * y + 1, -x), x, y)
    assert value.shape == (20,) and not distance.any()
    assert not bounded(td.tanh, x, stated=False)[1].any()


def test_stated_units_pass_through_what_follows() -> None:
    (x,) = arrays((1000,))
    _, once = bounded(td.tanh, x)
    _, later = bounded(lambda x: td.tanh(x) * 1024, x)
    assert (once > 0).all() and (later >= 1024 * once).all() and (later <= 1100 * once + 1e-3).all()


@pytest.mark.parametrize(
    "function",
    [
        softmax,
        lambda x: td.sum(td.exp(x)),
        lambda x: x @ x.T,
        lambda x: td.cumulative_sum(x, axis=0),
    ],
)
def test_rounding_stays_within_the_distance_and_the_distance_stays_small(
    function: Callable[..., Any],
) -> None:
    (x,) = arrays((60, 90))
    value, distance = bounded(function, x)
    wide, _ = bounded(function, x.astype(np.float64))
    assert told_apart(value.astype(np.float64), wide, distance) is None
    assert (distance <= 2e-3 * np.abs(wide).max()).all()


def test_a_decision_on_an_inexact_value_may_go_either_way() -> None:
    x = np.zeros(3, np.float32)
    _, distance = bounded(lambda x: td.where(td.exp(x) > 1, x + 1, x + 2), x)
    assert np.isinf(distance).all()
    _, distance = bounded(lambda x: td.where(td.exp(x) > 0.5, x + 1, x + 2), x)
    assert not distance.any()


@given(st.lists(st.floats(width=32), min_size=1, max_size=8))
def test_an_array_agrees_with_itself_and_with_nothing_else(values: list[float]) -> None:
    x = np.array(values, np.float32)
    assert told_apart(x, x.copy()) is None
    other = x.copy()
    other[-1] = -1.5 if np.isnan(x[-1]) or x[-1] >= 0 else 1.5
    assert told_apart(other, x) is not None
    assert told_apart(-np.zeros(2, np.float32), np.zeros(2, np.float32)) is not None
    assert told_apart(x, x.astype(np.float64)) is not None
