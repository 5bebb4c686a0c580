"""Compiled interleaving: the bytes of NumPy's, for every format, any rows in any order, and nothing
beside them."""

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
from tetrad.models.weight_layout import interleaver
from tetrad.ops.weight_layout.op import interleave
from tetrad.quant.lanes import LANES, LINE, ROWS

EVERY = pytest.mark.parametrize("name", LANES)


def random_bytes(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def places_in(name: str, groups: int, blocks: int, start: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Memory for so many groups of sixteen rows from a byte on, and where each begins: the last
    comes first."""
    size = blocks * LANES[name].super_bytes
    memory = random_bytes(-(-(start + groups * size) // LINE) + 1, LINE, seed=9)
    return memory, np.arange(start, start + groups * size, size)[::-1].copy()


@EVERY
@settings(max_examples=25, deadline=None)
@given(
    groups=st.integers(1, 4),
    blocks=st.integers(1, 5),
    start=st.integers(0, 99),
    seed=st.integers(0, 1000),
)
def test_compiled_code_and_numpy_give_the_same_bytes(
    name: str, groups: int, blocks: int, start: int, seed: int
) -> None:
    rng, nbytes = np.random.default_rng(seed), blocks * LANES[name].format.nbytes
    raw = random_bytes(nbytes + 4 * int(rng.integers(0, 99)) + int(rng.integers(0, 4)), seed=seed)
    starts = rng.integers(-1, (raw.size - nbytes) // 4 + 1, (groups, ROWS)) * 4
    starts[starts < 0] = -1
    memory, places = places_in(name, groups, blocks, start * 4)
    given = (raw, starts, places, np.array(blocks, np.int64))
    want = interleave(memory, *given, format=name)
    np.testing.assert_array_equal(
        np.asarray(interleaver(name).jitted(td.asarray(memory), *given)), want
    )


@EVERY
def test_many_rows_on_every_processor(name: str) -> None:
    raw = random_bytes(3200, 2 * LANES[name].format.nbytes)
    order = np.random.default_rng(1).permutation(3200)
    memory, places = places_in(name, 200, 2)
    starts = (order * raw.shape[1]).reshape(200, ROWS)
    given = (raw.reshape(-1), starts, places[::-1].copy(), np.array(2, np.int64))
    found = np.asarray(interleaver(name).jitted(td.asarray(memory), *given))
    want = LANES[name].interleave(raw[order])
    np.testing.assert_array_equal(found.reshape(-1)[: want.size], want.reshape(-1))


@cache
def both() -> list[Callable[..., Any]]:
    return [interleaver("q4_0").jitted, lambda *given: interleave(*given, format="q4_0")]


@pytest.mark.parametrize("which", [0, 1], ids=["compiled", "eager"])
@pytest.mark.parametrize(("start", "place"), [(38, 0), (-2, 0), (1, 0), (0, 544), (0, -4), (0, 2)])
def test_places_out_of_range_or_between_words_are_refused(
    which: int, start: int, place: int
) -> None:
    starts = np.full((1, ROWS), -1)
    starts[0, 7] = start
    memory, raw = td.asarray(np.zeros((17, LINE), np.uint8)), random_bytes(73)
    with pytest.raises(IndexError, match="interleave"):
        both()[which](memory, raw, starts, np.array([place]), np.array(2, np.int64))
    starts[0, 7] = 36
    both()[which](
        td.asarray(np.zeros((17, LINE), np.uint8)),
        raw,
        starts,
        np.array([512]),
        np.array(2, np.int64),
    )


def test_what_does_not_fit_together_is_refused() -> None:
    memory, raw = np.zeros((9, LINE), np.uint8), np.zeros(99, np.uint8)
    starts, places, blocks = (
        np.zeros((1, ROWS), np.int64),
        np.zeros(1, np.int64),
        np.array(1, np.int64),
    )
    with pytest.raises(UnsupportedError, match="q9_9"):
        td.jit(lambda *given: interleave(*given, format="q9_9"))(
            memory, raw, starts, places, blocks
        )
    with pytest.raises(ShapeError, match="groups,16"):
        td.jit(lambda *given: interleave(*given, format="q8_0"))(
            memory, raw, places, places, blocks
        )
    with pytest.raises(DtypeError, match="i64 and i64"):
        td.jit(lambda *given: interleave(*given, format="q4_0"))(memory, raw, raw, places, blocks)
