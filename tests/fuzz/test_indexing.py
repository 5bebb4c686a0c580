"""tests.fuzz.indexing on fixed seeds, and defects that it must notice."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fuzz.indexing import check, drawn
from tetrad.arrays import indexed_update as at
from tetrad.arrays import indexing
from tetrad.core.op import REGISTRY
from tetrad.tracing.operands import elementwise, run

SEEDS = range(400)


@pytest.mark.parametrize("first", SEEDS[::50])
def test_indices_mean_what_they_mean_in_numpy(first: int) -> None:
    assert [found for seed in range(first, first + 50) if (found := check(seed))] == []


def sums_first(rows: Any, places: Any, updates: Any, name: str, op: Any, **drop: bool) -> Any:
    """x + (the sum of all values for an element)."""
    if op != "add" or not updates.shape[0]:
        return PUT(rows, places, updates, name, op, **drop)
    total = run("scatter_add", updates, places, size=rows.shape[0])
    return elementwise(REGISTRY["add"], (rows, total), {})


PUT = at.put


def test_a_sum_of_sums_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(at, "put", sums_first)
    assert any(check(seed) for seed in SEEDS)


def test_an_ellipsis_that_says_nothing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing, "_apart", lambda parts, at: [])
    with_dots = [seed for seed in range(2000) if any(part is Ellipsis for part in drawn(seed).key)]
    assert any(check(seed) for seed in with_dots)
