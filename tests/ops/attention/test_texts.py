"""Attention inside texts: against NumPy, against attention over arrays, alone and side by side."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.core.errors import BoundsError, DtypeError, ShapeError
from tetrad.ops.attention.texts import text_attention

LENGTHS = [5, 128, 0, 1, 300, 17]
HEADS, CHANNELS = 3, 32


def rows(count: int, seed: int = 0) -> np.ndarray:
    made = np.random.RandomState(seed).standard_normal((count, 3 * HEADS * CHANNELS))
    return made.astype(np.float32)


def starts_of(lengths: list[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def attend(**settings: Any) -> Any:
    """From rows that have queries, keys and values side by side."""
    width = HEADS * CHANNELS

    def run(x: Any, starts: Any, *bias: Any) -> Any:
        parts = (x[:, i * width : (i + 1) * width] for i in range(3))
        return text_attention(*parts, starts, *bias, heads=HEADS, scale=0.2, **settings)

    return run


def compiled(**settings: Any) -> Any:
    dims = {0: {0: td.Dim("tokens", max=1024)}, 1: {0: td.Dim("starts", max=99)}}
    return td.jit(attend(**settings), dims=dims)


@pytest.mark.parametrize("window", [0, 3, 100])
@pytest.mark.parametrize("has_bias", [False, True])
def test_against_numpy_and_the_same_bits_alone(window: int, has_bias: bool) -> None:
    x, starts, run = rows(sum(LENGTHS)), starts_of(LENGTHS), compiled(window=window)
    table = np.random.RandomState(1).standard_normal((HEADS, 65)).astype(np.float32)
    bias = [table] if has_bias else []
    got = np.asarray(run(x, starts, *bias))
    expected = attend(window=window)(x, starts, *bias)
    np.testing.assert_allclose(got, expected, atol=2e-6)
    for first, stop in pairwise(starts):
        if first < stop:
            alone = run(x[first:stop], np.int32([0, stop - first]), *bias)
            np.testing.assert_array_equal(np.asarray(alone), got[first:stop])


def test_the_bits_of_attention_over_arrays() -> None:
    x = rows(290)
    parts = [p.reshape(1, 290, HEADS, CHANNELS) for p in np.split(x, 3, axis=1)]
    dense = td.jit(lambda q, k, v: td.nn.dot_product_attention(q, k, v, scale=0.2))(*parts)
    got = compiled()(x, np.int32([0, 290]))
    np.testing.assert_array_equal(np.asarray(got), np.asarray(dense).reshape(290, -1))


def test_slices_are_read_where_they_lie() -> None:
    assert len(td.explain(attend())(rows(20), np.int32([0, 20])).kernels) == 1


def test_nan_stays_in_its_text() -> None:
    x, starts = rows(30), np.int32([0, 10, 30])
    x[3] = np.nan
    got = np.asarray(compiled()(x, starts))
    assert np.isnan(got[:10]).all() and np.isfinite(got[10:]).all()


@pytest.mark.parametrize("starts", [[0, 5], [1, 20], [0, 30, 20], [0, 8, 4, 20], [-1, 20]])
def test_starts_that_are_not_rows(starts: list[int]) -> None:
    x, given = rows(20), np.array(starts, np.int32)
    for run in (attend(), compiled()):
        with pytest.raises(BoundsError, match="starts must ascend from 0"):
            run(x, given)


def test_types_that_do_not_fit() -> None:
    q, starts = np.zeros((4, 32), np.float32), np.int32([0, 4])
    with pytest.raises(DtypeError, match="starts in i32"):
        td.jit(lambda q, s: text_attention(q, q, q, s, heads=2, scale=1.0))(q, starts.astype("i8"))
    with pytest.raises(ShapeError, match="3 heads do not share"):
        td.jit(lambda q, s: text_attention(q, q, q, s, heads=3, scale=1.0))(q, starts)
    with pytest.raises(ShapeError, match=r"a bias \[2, odd\]"):
        td.jit(lambda q, s, b: text_attention(q, q, q, s, b, heads=2, scale=1.0))(
            q, starts, np.zeros((2, 4), np.float32)
        )
