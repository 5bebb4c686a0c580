"""The interleaved layout: every bit of a file is found where docs/layouts.md draws it, and padding
is empty."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.quant.blocks import random_blocks
from tetrad.core.errors import UnsupportedError
from tetrad.core.record import replace
from tetrad.core.types import ArrayType
from tetrad.quant import formats
from tetrad.quant.fields import U8, Factor, Plane
from tetrad.quant.lanes import BLOCK, DTYPES, LANES, ROWS, Lanes, register
from tetrad.quant.separate import separate

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
        head = ROWS * lanes.factor_bytes * len(lanes.factors)
        return super_block * lanes.super_bytes + head + inside // BLOCK * lanes.block_bytes

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
        if not lanes.factors:
            return self.number(at)
        head = column // lanes.format.block * lanes.super_bytes
        whole = self.number(head + lanes.factor_bytes * (side * ROWS + self.lane))
        if lanes.format.levels is None:
            return whole
        kind = np.int8 if lanes.format.levels.has_signs else np.uint8
        return whole * np.float32(self.data[at : at + 1].view(kind)[0])

    def number(self, at: int) -> np.float32:
        if self.lanes.kind == "e8m0":
            return np.float32(2.0 ** (int(self.data[at]) - 128))
        kind = {"f16": "<f2", "f32": "<f4"}[self.lanes.kind]
        return np.float32(self.data[at : at + self.lanes.factor_bytes].copy().view(kind)[0])

    def rest(self) -> U8:
        """Of the first super-block: two bytes a row, row behind row."""
        lanes, size = self.lanes, self.lanes.format.rest[1]
        end = self.data[lanes.super_bytes - ROWS * size : lanes.super_bytes].reshape(-1, ROWS, 2)
        return end[:, self.lane].reshape(-1)


@EVERY
def test_codes_lie_where_they_are_drawn(lanes: Lanes) -> None:
    rows, supers = 19, 2
    packed = packed_rows(lanes, rows, supers)
    # of the file
    laid, codes = lanes.interleave(packed), lanes.format.codes(packed) ^ np.uint8(lanes.format.flip)
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
                np.testing.assert_array_equal(
                    [drawn.factor(column, side) for column in columns], values[row]
                )


@EVERY
def test_what_nobody_reads_is_kept(lanes: Lanes) -> None:
    packed, (start, size) = packed_rows(lanes, 18, 2), lanes.format.rest
    laid = lanes.interleave(packed)
    for row in range(18):
        np.testing.assert_array_equal(
            Drawn(lanes, laid, row, 2).rest(), packed[row, start : start + size]
        )
    np.testing.assert_array_equal(separate(lanes, laid, 18), packed)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block": 48}, "blocks of 48 elements, expected a multiple of 32"),
        ({"sub_block": 8}, "sub-blocks of 8 elements, expected 16 or 32"),
        ({"sub_block": 16}, "sub-blocks without levels have 32 elements"),
        ({"bits": 5}, r"planes \(shift, bits\) expected: \[\(0, 4\), \(4, 1\)\]"),
        ({"planes": (Plane(2, 16, 4, run=2),)}, "a run of a plane is 1 or a multiple of 4"),
        ({"factors": (Factor(0), Factor(0, "f32"))}, "factors of one kind"),
        ({"factors": (Factor(0, "e8m0"),) * 2, "table": ()}, "e8m0 have no sign"),
        ({"table": (1, 2, 3)}, "a code book has an entry"),
        ({"table": (200,) * 16}, "a code book has an entry"),
    ],
)
def test_formats_that_kernels_could_not_read_are_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UnsupportedError, match=message):
        register(replace(formats["iq4_nl"], name="wrong", number=1000, **changes))
    assert "wrong" not in formats and "wrong" not in LANES


def test_a_name_or_a_number_is_that_of_one_format() -> None:
    for changes in ({"name": "q4_1", "number": 1000}, {"name": "wrong", "number": 3}):
        with pytest.raises(UnsupportedError, match="is that of q4_1"):
            register(replace(formats["iq4_nl"], **changes))


@EVERY
@settings(max_examples=20, deadline=None)
@given(rows=st.integers(1, 40), blocks=st.integers(1, 3), seed=st.integers(0, 99))
def test_a_row_does_not_depend_on_its_neighbours(
    lanes: Lanes, rows: int, blocks: int, seed: int
) -> None:
    packed = packed_rows(lanes, rows, blocks, seed)
    laid = lanes.interleave(packed)
    for first in range(0, rows, ROWS):
        np.testing.assert_array_equal(
            laid[first : first + ROWS], lanes.interleave(packed[first : first + ROWS])
        )


@EVERY
def test_rows_that_are_not_there_are_zero_bytes_of_the_file(lanes: Lanes) -> None:
    packed = packed_rows(lanes, 5, 1)
    padded = np.concatenate([packed, np.zeros((11, packed.shape[1]), np.uint8)])
    np.testing.assert_array_equal(lanes.interleave(packed), lanes.interleave(padded))


@EVERY
def test_sizes_are_those_of_the_type(lanes: Lanes) -> None:
    kind = ArrayType(DTYPES[lanes.format.name], (33, 3 * lanes.format.block))
    assert lanes.interleave(packed_rows(lanes, 33, 3)).shape == kind.storage_shape
