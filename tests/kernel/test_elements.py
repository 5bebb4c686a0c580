"""Nibbles and 8-bit floats in words, against NumPy and ml_dtypes: every code, every rounding."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.backends.llvm.machine import assert_same_as_evaluator
from tetrad.core.dtypes import DType, f32, i32, u8, u16, u32
from tetrad.core.errors import RaceError, VerifyError
from tetrad.kernel import nodes as n
from tetrad.kernel.build import KernelBuilder
from tetrad.kernel.evaluate import evaluate
from tetrad.kernel.verify import verify

WORDS = pytest.mark.parametrize("dtype", [u8, u32], ids=str)
FORMATS = {"e4m3fn": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}


def run(program: n.Program, arrays: dict[str, np.ndarray], groups: int) -> None:
    verify(program)
    evaluate(program, arrays, {}, (groups, 1, 1), races=True)


@WORDS
def test_nibbles_are_read_lowest_first(dtype: DType) -> None:
    k = KernelBuilder("nibbles")
    w = k.buffer("w", dtype)
    y, z = k.buffer("y", u32, "write"), k.buffer("z", i32, "write")
    k.store(y, k.global_id(), k.load_nibble(w, k.global_id()))
    k.store(z, k.global_id(), k.load_nibble(w, k.global_id(), signed=True))
    data = np.arange(256, dtype=np.uint8)
    y_array, z_array = np.zeros(512, np.uint32), np.zeros(512, np.int32)
    program, words = k.finish(), data.view(dtype.np)
    run(program, {"w": words, "y": y_array, "z": z_array}, 32)
    want = np.stack([data & 15, data >> 4], axis=1).ravel()
    assert (y_array == want).all() and (z_array == (want.astype(np.int32) ^ 8) - 8).all()
    assert_same_as_evaluator(
        program, {"w": words, "y": y_array * 0, "z": z_array * 0}, {}, (32, 1, 1)
    )


@WORDS
def test_the_owner_of_a_word_stores_its_nibbles_one_by_one(dtype: DType) -> None:
    per = dtype.bits // 4
    k = KernelBuilder("store", 4)
    x, w = k.buffer("x", i32), k.buffer("w", dtype, "readwrite")
    for j in range(0, per, 2):
        at = k.global_id() * per + j
        k.store_nibble(w, at, k.load(x, at))
    values = np.random.default_rng(1).integers(-8, 8, 8 * per).astype(np.int32)
    held = np.full(8, 0xA5A5A5A5 & (1 << dtype.bits) - 1, dtype.np)
    run(k.finish(), {"x": values, "w": held}, 2)
    low, high = held.view(np.uint8) & 15, held.view(np.uint8) >> 4
    assert (low == values[::2] & 15).all() and (high == 0xA).all()


def test_two_invocations_that_store_to_one_word_race() -> None:
    k = KernelBuilder("race", 4)
    w = k.buffer("w", u32, "readwrite")
    k.store_nibble(w, k.lane(), 3)
    with pytest.raises(RaceError):
        run(k.finish(), {"w": np.zeros(1, np.uint32)}, 1)


@WORDS
def test_a_whole_word_is_written_without_reading(dtype: DType) -> None:
    per = dtype.bits // 4
    k = KernelBuilder("pack", 4)
    x, w = k.buffer("x", i32), k.buffer("w", dtype, "write")
    k.store_nibbles(w, k.lane(), [k.load(x, k.lane() * per + j) for j in range(per)])
    values, held = np.arange(4 * per, dtype=np.int32) - 9, np.zeros(4, dtype.np)
    run(k.finish(), {"x": values, "w": held}, 1)
    assert (held.view(np.uint8) == (values[::2] & 15 | (values[1::2] & 15) << 4)).all()


@pytest.mark.parametrize("signed", [False, True])
def test_a_word_is_unpacked_at_once(signed: bool) -> None:
    k = KernelBuilder("unpack", 1)
    w, y = k.buffer("w", u32), k.buffer("y", i32, "write")
    for i, v in enumerate(k.unpack_nibbles(k.load(w, 0), signed=signed)):
        k.store(y, i, k.cast(v, i32))
    y_array = np.zeros(8, np.int32)
    run(k.finish(), {"w": np.array([0xFEDC8710], np.uint32), "y": y_array}, 1)
    want = [0, 1, 7, 8, 12, 13, 14, 15]
    assert y_array.tolist() == [v - 16 * (signed and v > 7) for v in want]


@WORDS
@pytest.mark.parametrize("format", FORMATS)
def test_every_8_bit_float_is_read_exactly(format: str, dtype: DType) -> None:
    k = KernelBuilder("read")
    w, y = k.buffer("w", dtype), k.buffer("y", f32, "write")
    k.store(y, k.global_id(), k.load_f8(w, k.global_id(), format))
    program, codes, got = k.finish(), np.arange(256, dtype=np.uint8), np.zeros(256, np.float32)
    run(program, {"w": codes.view(dtype.np), "y": got}, 16)
    want = codes.view(FORMATS[format]).astype(np.float32)
    same = got.view(np.uint32) == want.view(np.uint32)
    assert (same | np.isnan(got) & np.isnan(want)).all()
    arrays = {"w": codes.view(dtype.np), "y": np.zeros(256, np.float32)}
    assert_same_as_evaluator(program, arrays, {}, (16, 1, 1))


def around(format: str) -> np.ndarray:
    """Every number, every middle of two, one f32 step to either side of them, and the ends."""
    numbers = np.arange(256, dtype=np.uint8).view(FORMATS[format]).astype(np.float32)
    numbers = np.unique(numbers[np.isfinite(numbers)])
    middles = (numbers[1:] + numbers[:-1]) / np.float32(2)
    steps = np.concatenate([numbers, middles]).view(np.int32)[:, None] + np.array([-1, 0, 1], "i4")
    ends = [np.nan, np.inf, -np.inf, 448, 464, 465, 57344, 61439, 61440, 1e30, 1e-45, -1e-45, 3e38]
    found = np.concatenate([steps.ravel().view(np.float32), np.array(ends, np.float32), [-0.0]])
    return np.resize(found, -(-found.size // 64) * 64).astype(np.float32)


@WORDS
@pytest.mark.parametrize("format", FORMATS)
def test_f32_is_rounded_to_8_bits_once_and_to_even(format: str, dtype: DType) -> None:
    per = dtype.bits // 8
    k = KernelBuilder("write")
    x, w = k.buffer("x", f32), k.buffer("w", dtype, "readwrite")
    for j in range(per):
        at = k.global_id() * per + j
        k.store_f8(w, at, k.load(x, at), format)
    program, values = k.finish(), around(format)
    held = np.full(values.size, 0x5A, np.uint8).view(dtype.np)
    groups = values.size // per // 16
    before = held.copy()
    run(program, {"x": values, "w": held}, groups)
    got, want = held.view(np.uint8).view(FORMATS[format]), values.astype(FORMATS[format])
    same = got.view(np.uint8) == want.view(np.uint8)
    assert (same | np.isnan(got.astype("f4")) & np.isnan(want.astype("f4"))).all()
    assert_same_as_evaluator(program, {"x": values, "w": before}, {}, (groups, 1, 1))


def test_what_is_no_word_is_refused() -> None:
    k = KernelBuilder("wrong")
    with pytest.raises(VerifyError, match="packed elements lie in u8 or u32, w is u16"):
        k.load_nibble(k.buffer("w", u16), 0)
    with pytest.raises(VerifyError, match="no 8-bit float 'e3m4'"):
        k.load_f8(k.buffer("v", u8), 0, "e3m4")
    with pytest.raises(VerifyError, match="a u8 has 2 nibbles, not 8"):
        k.store_nibbles(k.buffer("u", u8, "write"), 0, [0] * 8)
