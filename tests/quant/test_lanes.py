"""The interleaved layout: every bit of a file is found where docs/layouts.md draws it, and padding is empty."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.quant.blocks import random_blocks
from tetrad.core.types import ArrayType
from tetrad.quant.fields import U8
from tetrad.quant.lanes import BLOCK, DTYPES, LANES, ROWS, Lanes

EVERY = pytest.mark.parametrize("lanes", LANES.values(), ids=lambda lanes: lanes.format.name)


def packed_rows(lanes: Lanes, rows: int, blocks: int, seed: int = 0) -> U8:
    return random_blocks(lanes.format, rows * blocks, seed).reshape(rows, -1)


class Drawn:
    """Reads one number at a time from the layout, by the drawing alone."""

    def __init__(self, lanes: Lanes, laid: U8, row: int, supers: int) -> None:
        self.lanes, self.lane = lanes, row % ROWS
        self.data = laid.reshape(-1)[row // ROWS * supers * lanes.super_bytes :]

    def block_at(self, column: int) -> int:
        lanes = self.lanes
        super_block, inside = divmod(column, lanes.format.block)
        return super_block * lanes.super_bytes + 2 * ROWS * lanes.supers + inside // BLOCK * lanes.block_bytes

    def code(self, column: int) -> int:
        at, (word, byte) = self.block_at(column), divmod(column % BLOCK, 4)
        code = shift = 0
        for bits in self.lanes.bits:
            found = int(self.data[at + (word % bits * ROWS + self.lane) * 4 + byte])
            code |= (found >> word // bits * bits & (1 << bits) - 1) << shift
            at, shift = at + 4 * bits * ROWS, shift + bits
        return code

    def factor(self, column: int, side: int) -> np.float32:
        """The scale (side 0) or what is added (side 1), as the exact product in f32."""
        lanes, size = self.lanes, self.lanes.scale_bytes
        sub = side * lanes.sub_blocks + column % BLOCK // lanes.format.sub_block
        at = self.block_at(column) + 4 * ROWS * lanes.format.bits + (sub * ROWS + self.lane) * size
        if not lanes.supers:
            return self.half(at)
        kind = np.int8 if lanes.signed_scales else np.uint8
        head = column // lanes.format.block * lanes.super_bytes
        return self.half(head + 2 * (side * ROWS + self.lane)) * np.float32(self.data[at : at + 1].view(kind)[0])

    def half(self, at: int) -> np.float32:
        return np.float32(self.data[at : at + 2].copy().view("<f2")[0])


@EVERY
def test_codes_lie_where_they_are_drawn(lanes: Lanes) -> None:
    rows, supers = 19, 2
    packed = packed_rows(lanes, rows, supers)
    laid, codes = lanes.interleave(packed), lanes.format.codes(packed) ^ np.uint8(lanes.format.flip)  # of the file
    for row in range(rows):
        drawn = Drawn(lanes, laid, row, supers)
        assert [drawn.code(column) for column in range(codes.shape[1])] == codes[row].tolist()


@EVERY
def test_scales_and_mins_lie_where_they_are_drawn(lanes: Lanes) -> None:
    rows, supers = 18, 2
    packed = packed_rows(lanes, rows, supers)
    laid, sides = lanes.interleave(packed), [lanes.format.scales(packed)]
    mins = lanes.format.mins(packed)
    sides += [] if mins is None else [-mins]
    with np.errstate(invalid="ignore"):  # random bytes make infinities and nans too
        for row in range(rows):
            drawn = Drawn(lanes, laid, row, supers)
            for side, values in enumerate(sides):
                columns = range(0, supers * lanes.format.block, lanes.format.sub_block)
                np.testing.assert_array_equal([drawn.factor(column, side) for column in columns], values[row])


@EVERY
@settings(max_examples=20, deadline=None)
@given(rows=st.integers(1, 40), blocks=st.integers(1, 3), seed=st.integers(0, 99))
def test_a_row_does_not_depend_on_its_neighbours(lanes: Lanes, rows: int, blocks: int, seed: int) -> None:
    packed = packed_rows(lanes, rows, blocks, seed)
    laid = lanes.interleave(packed)
    for first in range(0, rows, ROWS):
        np.testing.assert_array_equal(laid[first : first + ROWS], lanes.interleave(packed[first : first + ROWS]))


@EVERY
def test_rows_that_are_not_there_are_zero_bytes_of_the_file(lanes: Lanes) -> None:
    packed = packed_rows(lanes, 5, 1)
    padded = np.concatenate([packed, np.zeros((11, packed.shape[1]), np.uint8)])
    np.testing.assert_array_equal(lanes.interleave(packed), lanes.interleave(padded))


@EVERY
def test_sizes_are_those_of_the_type(lanes: Lanes) -> None:
    kind = ArrayType(DTYPES[lanes.format.name], (33, 3 * lanes.format.block))
    assert lanes.interleave(packed_rows(lanes, 33, 3)).shape == kind.storage_shape
