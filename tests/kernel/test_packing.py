"""Numbers to little-endian bytes and back: the vectors of spec kernel-ir 10; what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import tetrad as td
from tetrad.core.dtypes import DType, f32, f64, i32, u8, u16, u32, u64
from tetrad.core.errors import BadInputs

VECTORS: list[tuple[list[float], DType, str]] = [
    ([0x12345678, 0xDEADBEEF], u32, "78 56 34 12 EF BE AD DE"),
    ([0.5, -1.0], f32, "00 00 00 3F 00 00 80 BF"),
    ([-8], i32, "F8 FF FF FF"),
    ([0x1234], u16, "34 12"),
    ([1 << 40], u64, "00 00 00 00 00 01 00 00"),
    ([1.0], f64, "00 00 00 00 00 00 F0 3F"),
    ([], f32, ""),
]


@pytest.mark.parametrize(("values", "dtype", "wanted"), VECTORS)
def test_both_ways(values: list[float], dtype: DType, wanted: str) -> None:
    data = td.kernel.pack(values, dtype)
    assert data == bytes.fromhex(wanted)
    back = td.kernel.unpack(data, dtype)
    assert back.tolist() == values and back.dtype == dtype.np and back.dtype.isnative


def test_a_buffer_is_used_again() -> None:
    out = bytearray(b"stale content that is longer")
    held = out
    td.kernel.pack_into([1, 2], u32, out)
    assert out is held and out == bytes.fromhex("0100000002000000")
    td.kernel.pack_into([3], u32, out)
    assert out == bytes.fromhex("03000000")


def test_a_count_takes_the_front() -> None:
    data = td.kernel.pack([1, 2, 3], u32) + b"\1"
    assert td.kernel.unpack(data, u32, 2).tolist() == [1, 2]
    assert td.kernel.unpack(memoryview(bytearray(data)), u32, 3).tolist() == [1, 2, 3]
    assert td.kernel.unpack(b"", f32, 0).tolist() == []


def test_too_few_bytes_name_the_data() -> None:
    with pytest.raises(BadInputs, match="scores: 3 elements of f32 need 12 bytes, got 8"):
        td.kernel.unpack(bytes(8), f32, 3, label="scores")


def test_a_partial_element_is_an_error() -> None:
    with pytest.raises(BadInputs, match="scores: 7 bytes are no whole number of u32"):
        td.kernel.unpack(bytes(7), u32, label="scores")


@pytest.mark.parametrize(("value", "dtype"), [(1 << 32, u32), (-1, u8), (1 << 31, i32)])
def test_a_number_out_of_range_is_an_error(value: int, dtype: DType) -> None:
    with pytest.raises(BadInputs, match="out of range"):
        td.kernel.pack([value], dtype)


def test_bytes_as_words() -> None:
    assert td.kernel.pack_bytes_as_u32(b"AB") == bytes.fromhex("4100000042000000")
    assert td.kernel.pack_bytes_as_u32(b"A", least=3) == bytes.fromhex("41" + "00" * 11)
    assert td.kernel.pack_bytes_as_u32(b"", least=0) == b""
    assert np.frombuffer(td.kernel.pack_bytes_as_u32(bytes([255])), "<u4").tolist() == [255]
