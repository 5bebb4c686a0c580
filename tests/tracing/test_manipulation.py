"""Tracing, manipulation: compiled arrangements of many parts against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import tetrad as td


@pytest.mark.parametrize("axis", [0, 1])
def test_very_many_parts_are_joined(axis: int) -> None:
    rng = np.random.default_rng(3)
    parts = [np.asarray(rng.random((n, 3) if axis == 0 else (3, n)), np.float32) for n in [2, 0, 5, 1, 17] * 9]
    joined = td.jit(lambda *x: td.concat(x, axis=axis) * 2)(*parts)
    np.testing.assert_array_equal(joined, np.concatenate(parts, axis) * 2)


def test_many_parts_of_symbolic_size_are_joined() -> None:
    rows = td.Dim("rows", max=9)
    join = td.jit(lambda x: td.concat([x + i for i in range(20)]), dims=({0: rows},))
    for n in (1, 3, 9):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(join(x), np.concatenate([x + np.float32(i) for i in range(20)]))
    assert join.compiles == 1
