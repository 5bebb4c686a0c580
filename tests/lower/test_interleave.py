"""Compiled interleaving: the bytes of NumPy's, for every format, any rows in any order, and nothing beside them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tetrad as td
from tetrad.core.errors import DtypeError, ShapeError, UnsupportedError
from tetrad.models.packed import interleaver
from tetrad.ops.interleave import LINE, interleave
from tetrad.quant.lanes import LANES, ROWS

EVERY = pytest.mark.parametrize("name", LANES)


def random_bytes(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def lines_of(name: str, rows: int, blocks: int) -> int:
    return -(-(-(-rows // ROWS) * blocks * LANES[name].super_bytes) // LINE)


@EVERY
@settings(max_examples=25, deadline=None)
@given(rows=st.integers(1, 70), blocks=st.integers(1, 5), start=st.integers(0, 3), seed=st.integers(0, 1000))
def test_compiled_code_and_numpy_give_the_same_bytes(name: str, rows: int, blocks: int, start: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    raw = random_bytes(rows, blocks, LANES[name].format.nbytes, seed=seed)
    order = rng.integers(0, rows, rng.integers(1, 40)).astype(np.int32)
    target = random_bytes(start + lines_of(name, len(order), blocks) + 2, LINE, seed=seed + 1)
    given = (raw, order, np.int64(start))
    want = interleave(target, *given, format=name)
    np.testing.assert_array_equal(np.asarray(interleaver(name)(td.asarray(target), *given)), want)


@EVERY
def test_many_rows_on_every_processor(name: str) -> None:
    raw = random_bytes(3001, 2, LANES[name].format.nbytes)
    order = np.random.default_rng(1).permutation(3001).astype(np.int32)
    target = np.zeros((lines_of(name, 3001, 2), LINE), np.uint8)
    found = np.asarray(interleaver(name)(td.asarray(target), raw, order, np.int64(0)))
    want = LANES[name].interleave(raw[order].reshape(3001, -1))
    np.testing.assert_array_equal(found.reshape(-1)[: want.size], want.reshape(-1))


@cache
def both() -> list[Callable[..., Any]]:
    return [interleaver("q4_0"), lambda *given: interleave(*given, format="q4_0")]


@pytest.mark.parametrize("which", [0, 1], ids=["compiled", "eager"])
@pytest.mark.parametrize(("row", "start"), [(3, 0), (-1, 0), (0, 1), (0, -1)])
def test_rows_and_lines_out_of_range_are_refused(which: int, row: int, start: int) -> None:
    raw = random_bytes(3, 2, 18)
    target = td.asarray(np.zeros((lines_of("q4_0", 2, 2), LINE), np.uint8))
    with pytest.raises(IndexError, match="interleave"):
        both()[which](target, raw, np.array([0, row], np.int32), np.int64(start))


def test_what_does_not_fit_together_is_refused() -> None:
    target, raw = td.asarray(np.zeros((9, LINE), np.uint8)), td.asarray(np.zeros((16, 1, 18), np.uint8))
    order, start = td.asarray(np.zeros(16, np.int32)), td.asarray(np.int64(0))
    with pytest.raises(UnsupportedError, match="q9_9"):
        td.jit(lambda *given: interleave(*given, format="q9_9"))(target, raw, order, start)
    with pytest.raises(ShapeError, match="blocks,34"):
        td.jit(lambda *given: interleave(*given, format="q8_0"))(target, raw, order, start)
    with pytest.raises(DtypeError, match="i32 and i64"):
        td.jit(lambda *given: interleave(*given, format="q4_0"))(target, raw, start, order)
