"""Group quantisers: the published vectors, sizes and error texts; bytes of every length."""

from __future__ import annotations

import numpy as np
import pytest

import tetrad as td
from tetrad.quant import groups
from tetrad.quant.groups import MIDPOINTS, NF4

TIES = [7, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, -7]
SPREAD = [-3, -2.5, -0.5, 0, 0.5, 1.5, 11.5, 12]
HIGH = [1, 2, 3.5, 4, 5, 6, 7, 8.5]
NORMAL = [-2, -1, -0.3, 0, 0.1, 0.5, 1, 2, 0.5]
SYMMETRIC, FLOAT = {"symmetric": True}, {"zero_point": "float"}
# name, settings, group, numbers, scales, zero points, codes, bytes, numbers of the codes
VECTORS = [
    ("int4", SYMMETRIC, 8, TIES, [1], None, [15, 8, 10, 10, 8, 6, 6, 1], "8FAA6816",
     [7, 0, 2, 2, 0, -2, -2, -7]),
    ("int4", SYMMETRIC, 4, [14, -7, 3, 0, -2, 1.2, 0.4], [2, 0.2857143], None,
     [15, 4, 10, 8, 1, 12, 9], "4F8AC109", [14, -8, 4, 0, -2, 1.1428572, 0.2857143]),
    ("int4", {}, 8, SPREAD, [1], [3], [0, 1, 3, 3, 3, 5, 15, 15], "103353FF",
     [-3, -2, 0, 0, 0, 2, 12, 12]),
    ("int4", FLOAT, 8, SPREAD, [1], [3], [0, 0, 2, 3, 4, 4, 14, 15], "003244FE",
     [-3, -3, -1, 0, 1, 1, 11, 12]),
    ("int4", FLOAT, 8, HIGH, [0.5], [-2], [0, 2, 5, 6, 8, 10, 12, 15], "2065A8FC", HIGH),
    ("int4", {}, 8, HIGH, [0.56666666], [0], [2, 4, 6, 7, 9, 11, 12, 15], "4276B9FC",
     [1.1333333, 2.2666667, 3.4, 3.9666667, 5.1, 6.2333331, 6.8, 8.5]),
    ("nf4", {}, 8, NORMAL, [2, 0.5], None, [0, 2, 5, 7, 8, 10, 12, 15, 15], "2075A8FC0F",
     [-2, -1.0501461, -0.36954686, 0, 0.1591606, 0.4922246, 0.88141966, 2, 0.5]),
    ("int4", SYMMETRIC, 4, [0, 0, 0], [1], None, [8, 8, 8], "8808", [0, 0, 0]),
    ("nf4", {}, 4, [0, 0, 0], [1], None, [7, 7, 7], "7707", [0, 0, 0]),
    ("int4", {}, 4, [0, 0, 0], [1], [0], [0, 0, 0], "0000", [0, 0, 0]),
]  # fmt: skip


@pytest.mark.parametrize("is_jitted", [False, True], ids=["called", "traced"])
@pytest.mark.parametrize("row", VECTORS, ids=lambda row: f"{row[0]} {row[1]} {row[3][0]}")
def test_the_published_vectors(row: tuple, is_jitted: bool) -> None:
    name, settings, group, x, scale, zero, codes, packed, numbers = row

    def quantized(x: td.Array) -> td.quant.GroupQuantized:
        return td.quant.quantize(x, name, group=group, **settings)

    q = (td.jit(quantized) if is_jitted else quantized)(td.asarray(np.float32(x)))
    np.testing.assert_array_equal(np.asarray(q.scale), np.float32(scale))
    assert (q.zero_point is None) == (zero is None)
    if zero is not None:
        np.testing.assert_array_equal(np.asarray(q.zero_point), np.float32(zero))
    assert q.codes.tolist() == codes
    assert q.codes.to_bytes().hex().upper() == packed
    # seven digits are given, one more than half a step of f32 apart
    np.testing.assert_allclose(np.asarray(q.dequantize()), np.float32(numbers), rtol=6e-8)


def test_rounding_is_to_nearest_and_not_the_floor_of_the_source() -> None:
    """D7, D8, D12: scale absmax / 7 and not / 8; 0.7 at scale 1/7 is code 13, not 12; absmax of
    NF4."""
    q = td.quant.quantize(td.asarray([0.7, 1.0]), "int4", group=2, symmetric=True)
    assert q.codes.tolist() == [13, 15] and q.scale.tolist() == [np.float32(1) / np.float32(7)]
    low = td.quant.quantize(td.asarray([-1.9, 1.9]), "int4", group=2, symmetric=True)
    np.testing.assert_allclose(np.asarray(low.dequantize()), [-1.9, 1.9], rtol=1e-7)
    assert td.quant.quantize(td.asarray([0.5, -4.0]), "nf4", group=2).scale.item() == 4


def test_a_zero_point_is_an_integer_and_makes_zero_exact() -> None:
    """D9, D10, D11."""
    x = np.random.default_rng(0).standard_normal(4096).astype(np.float32) + 0.3
    x[::7] = 0
    q = td.quant.quantize(x, "int4", group=32)
    zero = np.asarray(q.zero_point)
    assert (zero == np.rint(zero)).all() and zero.min() >= 0 and zero.max() <= 15
    assert (np.asarray(q.dequantize())[::7] == 0).all()
    back = np.asarray(q.dequantize())
    step = np.repeat(np.asarray(q.scale), 32)
    assert (np.abs(back - x) <= step * np.float32(1.0)).all()  # the ends may be a half step further
    assert (back < 0).any()


def test_nf4_codes_of_the_kernel_page() -> None:
    given = [-1, -0.5, -0.1, 0, 0.03, 0.05, 0.2, 0.5, 0.65, 0.9]
    codes = td.quant.quantize(td.asarray([*given, 1.0]), "nf4", group=16).codes.tolist()
    assert codes == [0, 2, 6, 7, 7, 8, 9, 12, 14, 15, 15]


BITS = (
    "BF800000 BF3239B1 BF066B30 BECA32A0 BE91A24D BE3D353F BDBA7871 00000000 3DA2FAFF 3E24CAE3 "
    "3E7C04DD 3EAD033A 3EE1A4B8 3F1007AB 3F3913B3 3F800000"
)
MIDDLES = (
    -0.8480964004993439, -0.6106329262256622, -0.4599952697753906, -0.33967943489551544,
    -0.23460740596055984, -0.13791173323988914, -0.045525018125772476, 0.03979014977812767,
    0.1202552504837513, 0.2035212516784668, 0.2920137718319893, 0.3893125355243683,
    0.5016634166240692, 0.6427869200706482, 0.8614784181118011,
)  # fmt: skip


def test_the_table_and_its_midpoints() -> None:
    assert " ".join(f"{b:08X}" for b in np.float32(NF4).view(np.uint32)) == BITS
    assert MIDPOINTS == MIDDLES
    assert (np.diff(NF4) > 0).all() and (NF4[0], NF4[-1]) == (-1, 1)


def test_a_tie_between_nf4_codes_is_the_lower() -> None:
    for dtype in (np.float32, np.float64):
        ties = np.array([*MIDPOINTS, 1.0]).astype(dtype)
        for x in (ties, np.tile(ties, 2)):
            q = td.quant.quantize(x, "nf4", group=x.size)
            assert q.codes.tolist()[:15] == list(range(15))
            above = np.nextafter(x, dtype(2))
            above[15::16] = 1
            assert td.quant.quantize(above, "nf4", group=x.size).codes.tolist()[:15] == list(
                range(1, 16)
            )


def test_sizes() -> None:
    assert [groups.group_count(n, 32) for n in (128, 129, 0)] == [4, 5, 0]
    assert [groups.packed_bytes(n) for n in (128, 129, 1, 0)] == [64, 65, 1, 0]


def test_bytes_of_every_length_go_round() -> None:
    rng = np.random.default_rng(0)
    for n in range(257):
        codes = rng.integers(0, 16, n).astype(np.uint8)
        packed = groups.pack_nibbles(codes)
        assert packed.size == -(-n // 2) and not (n % 2 and packed[-1] >> 4)
        np.testing.assert_array_equal(groups.unpack_nibbles(packed, n), codes)
        signed = codes.astype(np.int8) - np.int8(8)  # two's complement: each nibble xor 8
        np.testing.assert_array_equal(groups.pack_nibbles(signed), groups.pack_nibbles(codes ^ 8))


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "shown"), [("int4", "INT4"), ("nf4", "NF4")])
def test_a_group_of_nothing_is_refused_before_anything_else(name: str, shown: str) -> None:
    for x in (np.zeros(4, np.float32), np.zeros(0, np.float32)):
        with pytest.raises(ValueError, match=f"^Fix: {shown} group_size must be non-zero"):
            td.quant.quantize(x, name, group=0)
    with pytest.raises(ValueError, match="group_size must be non-zero"):
        td.quant.from_parts(b"", [], scheme=name, group=0, shape=(0,))
    assert td.quant.quantize(np.zeros(4, np.float32), name, group=np.int64(2)).group == 2
    for wrong in (-3, 2.5, True, np.True_, np.array([2])):
        with pytest.raises(ValueError, match=f"^Fix: {shown} group_size must be a positive int"):
            td.quant.quantize(np.zeros(4, np.float32), name, group=wrong)  # type: ignore[arg-type]


def test_more_elements_than_32_bits_count_are_refused() -> None:
    """D16. Nothing is allocated."""
    large = np.broadcast_to(np.float32(1), (1 << 16, 1 << 16))
    with pytest.raises(ValueError, match=r"^Fix: INT4 takes fewer than 2\^32 elements"):
        groups.check_settings("int4", 64, large.size)
    groups.check_settings("int4", 64, large.size - 1)
    with pytest.raises(ValueError, match=r"^Fix: NF4 takes fewer than 2\^32 elements"):
        td.quant.from_parts(b"", [], scheme="nf4", group=64, shape=(1 << 16, 1 << 16))


PARTS = [
    ({"codes": bytes(3)}, "packed input too small: expected 4, actual 3"),
    ({"scale": [1.0]}, "scales too small: expected 2, actual 1"),
    ({"zero_point": [1.0]}, "zeros too small: expected 2, actual 1"),  # D13
    ({"codes": bytes(3), "scale": [1.0]}, "packed input"),
    ({"scale": [1.0], "zero_point": [1.0]}, "scales"),
]


@pytest.mark.parametrize(("short", "text"), PARTS, ids=lambda p: str(p)[:40])
def test_parts_that_are_cut_short(short: dict, text: str) -> None:
    whole = {"codes": bytes(4), "scale": [1.0, 2.0], "zero_point": [3.0, 4.0]}
    with pytest.raises(ValueError, match=f"Fix: INT4 .*{text}"):
        td.quant.from_parts(**(whole | short), group=4, shape=(7,))
    made = td.quant.from_parts(bytes(9), [1.0, 2.0, 5.0], [3.0, 4.0, 6.0], group=4, shape=(7,))
    assert made.scale.shape == (2,) and made.codes.nbytes == 4  # what is too much is left out


def test_settings_that_exclude_each_other() -> None:
    x = np.ones(8, np.float32)
    for settings in ({"symmetric": True, "zero_point": "float"}, {"zero_point": "real"}):
        with pytest.raises(td.errors.UnsupportedError, match="zero"):
            td.quant.quantize(x, "int4", **settings)
    with pytest.raises(td.errors.UnsupportedError, match="nf4 has no zero points"):
        td.quant.quantize(x, "nf4", zero_point="integer")
    with pytest.raises(td.errors.UnsupportedError, match="q4_0 has no setting group"):
        td.quant.quantize(np.ones((1, 32), np.float32), "q4_0", group=32)
    with pytest.raises(td.errors.UnsupportedError, match="unknown format 'int5'"):
        td.quant.quantize(np.ones((1, 32), np.float32), "int5")
    for name in ("int5", "INT4", None):
        with pytest.raises(td.errors.UnsupportedError, match=r"known formats: .*, int4, nf4"):
            td.quant.quantize(x, name, group=4)  # type: ignore[arg-type]
    with pytest.raises(td.errors.UnsupportedError, match="int4 has no setting blocks"):
        td.quant.from_bytes(bytes(4), "int4", shape=(8,), blocks=4)
    for wrong in ("no", 0):
        with pytest.raises(td.errors.SettingError, match="symmetric: expected True or False"):
            td.quant.quantize(x, "int4", symmetric=wrong)  # type: ignore[arg-type]
    with pytest.raises(td.errors.UnsupportedError, match="nf4 has no zero points"):
        td.quant.from_parts(bytes(4), [1.0], [0.0], scheme="nf4", group=8, shape=(8,))
    with pytest.raises(td.errors.ShapeError, match="give the shape"):
        td.quant.from_parts(bytes(4), [1.0], group=8)


@pytest.mark.parametrize("name", ["int4", "nf4"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("n", [7, 128])
def test_nan_and_infinity_are_refused(name: str, bad: float, n: int) -> None:
    x = np.ones(n, np.float32)
    x[5] = bad
    for dtype in (np.float32, np.float16, np.float64):
        for run in (lambda x: x, td.jit(lambda x: x)):
            with pytest.raises(td.errors.DtypeError, match="finite numbers only, group 0"):
                td.quant.quantize(run(x.astype(dtype)), name, group=32)
    with pytest.raises(td.errors.DtypeError, match="finite"):
        td.jit(lambda x: td.quant.quantize(x, name, group=32).dequantize())(x)


def test_a_range_that_no_scale_holds_is_refused() -> None:
    x = np.float32([3e38, -3e38, 0])
    with pytest.raises(td.errors.DtypeError, match="range of a group is too large"):
        td.quant.quantize(x, "int4", group=4)
    back = td.quant.quantize(x, "int4", group=4, symmetric=True).dequantize()
    np.testing.assert_allclose(np.asarray(back), x, rtol=1e-6)


def test_what_is_not_a_float() -> None:
    assert td.quant.quantize(td.asarray([1, 2, 3]), "int4", group=4).dtype is td.float32
    for x in (td.asarray([True]), td.asarray([1j])):
        with pytest.raises(td.errors.DtypeError, match="takes floats"):
            td.quant.quantize(x, "int4")
