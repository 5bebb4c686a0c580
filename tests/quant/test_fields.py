"""quant.fields: bits go where the layout says, and come back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tetrad.quant import formats
from tetrad.quant.fields import Factor, Levels, Plane, SixBitPairs, power_of_two

PLANES = sorted({plane for f in formats.values() for plane in f.planes}, key=str)


@pytest.mark.parametrize("plane", PLANES, ids=str)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_plane_reads_what_it_wrote(plane: Plane, seed: int) -> None:
    rng = np.random.default_rng(seed)
    mask = ((1 << plane.bits) - 1) << plane.shift
    codes = rng.integers(0, 256, (3, plane.nbytes * 8 // plane.bits), dtype=np.uint8)
    blocks = np.zeros((3, plane.start + plane.nbytes), np.uint8)
    plane.write(blocks, codes)
    np.testing.assert_array_equal(plane.read(blocks), codes & mask)
    assert not blocks[:, : plane.start].any()


def test_fields_of_a_run_follow_each_other() -> None:
    plane = Plane(start=1, nbytes=4, bits=4, run=2)
    blocks = np.array([[255, 0x21, 0x43, 0x65, 0x87]], np.uint8)
    assert plane.read(blocks).tolist() == [[1, 3, 2, 4, 5, 7, 6, 8]]


def test_bits_are_shifted_to_their_place_in_the_code() -> None:
    plane = Plane(start=0, nbytes=1, bits=1, run=1, shift=4)
    assert plane.read(np.array([[0b10000101]], np.uint8)).tolist() == [[16, 0, 16, 0, 0, 0, 0, 16]]


@given(st.binary(min_size=12, max_size=12))
def test_six_bit_pairs_are_those_of_the_layout(data: bytes) -> None:
    q = list(data)
    low = [(q[s] & 63, q[s + 4] & 63) for s in range(4)]
    high = [
        ((q[s + 4] & 15) | (q[s - 4] >> 6) << 4, q[s + 4] >> 4 | (q[s] >> 6) << 4)
        for s in range(4, 8)
    ]
    pairs = SixBitPairs(2)
    levels = pairs.read(np.frombuffer(b"xx" + data, np.uint8)[None])
    assert list(zip(levels[0, :8].tolist(), levels[0, 8:].tolist(), strict=True)) == low + high
    assert {start: found.tobytes() for start, found in pairs.fields(levels).items()} == {2: data}


LEVELS = sorted({f.levels for f in formats.values() if isinstance(f.levels, Levels)}, key=str)


@pytest.mark.parametrize("levels", LEVELS, ids=str)
def test_levels_come_back(levels: Levels) -> None:
    size = max(plane.start + plane.nbytes for plane in levels.planes)
    blocks = np.random.default_rng(0).integers(0, 256, (40, size), dtype=np.uint8)
    read = levels.read(blocks)
    assert not levels.offset or (np.abs(read.view(np.int8) + 0.5) < levels.offset).all()
    for start, found in levels.fields(read).items():
        np.testing.assert_array_equal(found, blocks[:, start : start + found.shape[1]])


def test_factors_of_each_kind() -> None:
    blocks = np.frombuffer(bytes.fromhex("00 0038 0000403f 7f"), np.uint8)[None]
    kinds = [Factor(1), Factor(3, "f32"), Factor(7, "e8m0")]
    assert [float(factor.read(blocks)[0, 0]) for factor in kinds] == [0.5, 0.75, 0.5]
    every = power_of_two(np.arange(256, dtype=np.uint8))
    assert every.tolist() == [2.0**e for e in range(-128, 128)]
