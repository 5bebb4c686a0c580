"""quant, every format: the bytes mean what GGUF says, to the bit, and packing is as near as it
should be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.quant.blocks import (
    FLOAT,
    HALVES,
    INTEGER,
    assert_same_bits,
    gguf_pack,
    gguf_unpack,
    random_blocks,
    tame,
    with_halves,
)
from tetrad.quant import Format, formats
from tetrad.quant.fields import F32

EVERY = pytest.mark.parametrize("format", formats.values(), ids=lambda f: f.name)
INTEGERS = pytest.mark.parametrize("format", INTEGER, ids=lambda f: f.name)
FLOATS = pytest.mark.parametrize("format", FLOAT, ids=lambda f: f.name)
IN_GGUF = pytest.mark.parametrize(
    "format", [f for f in formats.values() if f.name != "q8_k"], ids=lambda f: f.name
)
HALF_SCALED = pytest.mark.parametrize(
    "format", [formats[name] for name in HALVES], ids=lambda f: f.name
)
# one scale a block: rounding is given to the letter
PLAIN = ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0"]
SUBNORMAL, LARGEST, INF, NAN = 0x0001, 0x7BFF, 0x7C00, 0x7E00

# -- meaning of the bytes --------------------------------------------------------------------------


@IN_GGUF
@pytest.mark.parametrize("seed", range(4))
def test_unpack_is_ggufs(format: Format, seed: int) -> None:
    packed = random_blocks(format, 512, seed).reshape(32, -1)
    assert_same_bits(format.unpack(packed), gguf_unpack(packed, format))


@HALF_SCALED
def test_unpack_is_ggufs_for_every_scale_there_is(format: Format) -> None:
    """All f16 in blocks of 32 elements; in larger blocks every 16th, and those around special
    values."""
    near = [b + sign for b in (0, 0x03FF, 0x0400, LARGEST, INF, NAN) for sign in (0, 0x8000)]
    bits = np.arange(1 << 16) if format.block == 32 else np.r_[0 : 1 << 16 : 16, near]
    packed = with_halves(
        np.resize(random_blocks(format, 64), (len(bits), format.nbytes)), format, bits
    )
    assert_same_bits(format.unpack(packed), gguf_unpack(packed, format))


@HALF_SCALED
@pytest.mark.parametrize("fill", [0x00, 0xFF])
@pytest.mark.parametrize("scale", [0, 0x8000, SUBNORMAL, 0x03FF, LARGEST, INF, INF + 0x8000, NAN])
def test_uniform_blocks_with_special_scales(format: Format, fill: int, scale: int) -> None:
    packed = with_halves(
        np.full((2, format.nbytes), fill, np.uint8), format, np.array([scale, scale])
    )
    assert_same_bits(format.unpack(packed), gguf_unpack(packed, format))


@INTEGERS
def test_unpack_is_scale_times_integer_minus_min(format: Format) -> None:
    packed = random_blocks(format, 300).reshape(3, -1)
    scales, mins = format.scales(packed)[..., None], format.mins(packed)
    codes = format.codes(packed)
    integers = np.array(format.table)[codes] if format.table else codes.astype(int) - format.offset
    np.testing.assert_array_equal(format.integers(packed), integers)
    with np.errstate(all="ignore"):
        numbers = scales * integers.reshape(*scales.shape[:-1], format.sub_block).astype(np.float32)
        numbers = numbers if mins is None else numbers - mins[..., None]
    assert_same_bits(format.unpack(packed), numbers.reshape(3, -1))


@pytest.mark.parametrize("fill", [0x00, 0xFF, 0x80, 0x3C])
def test_every_power_of_two_of_mxfp4_is_ggufs(fill: int) -> None:
    packed = np.full((256, 17), fill, np.uint8)
    packed[:, 0] = np.arange(256)
    assert_same_bits(formats["mxfp4"].unpack(packed), gguf_unpack(packed, formats["mxfp4"]))


@HALF_SCALED
def test_products_of_scale_and_code_are_exact(format: Format) -> None:
    """So a kernel may multiply and add in one rounding or in two: the bits are the same. Not so in
    q8_k."""
    for packed in (
        tame(random_blocks(format, 500), format),
        tame(np.full((8, format.nbytes), 255, np.uint8), format),
    ):
        signed = format.integers(packed).astype(np.float64)
        scales = np.repeat(format.scales(packed), format.sub_block, axis=-1)
        wide = scales.astype(np.float64) * signed
        np.testing.assert_array_equal(wide, scales * signed.astype(np.float32))


# Blocks whose payload is (37 t + 11) & 255, t counting the bytes that are no scale factor; d = 0.5,
# dmin = 0.25.
PLACES = [0, 1, 15, 16, 31, 32, 63, 64, 127, 128, 200, 255]
VECTORS = {
    "q4_0": ([1.5, -4, -1, -4, -2.5], -15.5),
    "q8_0": ([5.5, 24, 27, 45.5, -61], 8),
    "q2_k": ([16.5, 0, 11, -0.75, -0.75, 3.75, 3.25, 5.25, 21, 3.75, 4, 2.25], 1029.5),
    "q3_k": ([40.5, -54, -27, -48, 32, -11, 5, 17, 36, 1, 12.5, 21], 479),
    "q4_k": ([30.75, 58.25, 3.25, 30.75, 3.25, 287, 95, 63.25, 402.5, 1.75, 203.75, 15.5], 22252),
    "q5_k": (
        [118.75, 58.25, 3.25, 118.75, 3.25, 527, 719, 231.25, 228.5, 1.75, 435.75, 105.5],
        46164,
    ),
    "q6_k": ([-715.5, 848, -159, -216, -48, 115.5, -290, -1520, 750, -175.5, 544.5, -30], 2306),
    "q8_k": ([5.5, 24, 27, 45.5, -61, -42.5, 19, 37.5, 51, -58.5, -6.5, -13], -64),
}


def vector_block(format: Format) -> np.ndarray:
    factors = {0: bytes.fromhex("0000003f"), 260: bytes(32)}  # q8_k: d in f32, sums of no meaning
    if format.name != "q8_k":
        factors = dict(
            zip(HALVES[format.name], (bytes.fromhex("0038"), bytes.fromhex("0034")), strict=False)
        )
    block = np.zeros(format.nbytes, np.uint8)
    payload = np.ones(format.nbytes, bool)
    for start, data in factors.items():
        block[start : start + len(data)] = np.frombuffer(data, np.uint8)
        payload[start : start + len(data)] = False
    block[payload] = (37 * np.arange(payload.sum()) + 11) & 255
    return block


@pytest.mark.parametrize("name", VECTORS)
def test_vectors(name: str) -> None:
    values, total = VECTORS[name]
    numbers = formats[name].unpack(vector_block(formats[name]))
    assert numbers[PLACES[: len(values)]].tolist() == values
    assert numbers.astype(np.float64).sum() == total


def test_q4_0_nibbles_count_up() -> None:
    block = bytes.fromhex("003c") + bytes(17 * i for i in range(16))
    assert formats["q4_0"].unpack(np.frombuffer(block, np.uint8)).tolist() == [*range(-8, 8)] * 2


def test_q6_k_middle_codes_are_zero() -> None:
    block = bytes(128) + b"\xaa" * 64 + b"\x01" * 16 + bytes.fromhex("003c")
    assert not formats["q6_k"].unpack(np.frombuffer(block, np.uint8)).any()


def test_q2_k_largest_codes() -> None:
    block = b"\x01" * 16 + b"\xff" * 64 + bytes.fromhex("003c0000")
    assert set(formats["q2_k"].unpack(np.frombuffer(block, np.uint8)).tolist()) == {3.0}


def test_q4_k_scales_of_the_first_half() -> None:
    block = bytes.fromhex("003c003c") + b"\x01" * 4 + bytes(8) + b"\x77" * 128
    assert (
        formats["q4_k"].unpack(np.frombuffer(block, np.uint8)).tolist() == [7.0] * 128 + [0.0] * 128
    )


# -- packing ---------------------------------------------------------------------------------------


def shared_range(format: Format, x: F32) -> tuple[F32, int]:
    """The range the codes span around every group of numbers with one scale, and the size of a
    group."""
    size = format.block if format.name == "q8_k" else format.sub_block
    groups = x.astype(np.float64).reshape(-1, size)
    if not format.has_mins:
        return 2 * np.abs(groups).max(axis=1, keepdims=True), size
    return groups.max(axis=1, keepdims=True) - groups.min(axis=1, keepdims=True), size


def relative_error(format: Format, x: F32) -> float:
    spans, size = shared_range(format, x)
    errors = format.unpack(format.pack(x)).astype(np.float64) - x
    return float(np.sqrt(np.mean((errors.reshape(-1, size) / spans) ** 2)))


def theory(format: Format) -> float:
    """A range cut into equal steps, errors uniform within a step: 1 / (steps * sqrt(12)).

    A float's step is a power of two times 2^-mantissa; averaged over the binade it lies sqrt(3 / (8
    ln 2)) lower. Entries of a code book lie apart by steps of their own; numbers are taken to be
    spread evenly over them.
    """
    if format.table:
        gaps = np.diff(np.sort(np.array(format.table, np.float64)))
        return float(np.sqrt((gaps**3).sum() / gaps.sum() / 12) / (2 * np.abs(format.table).max()))
    if format.is_integer:
        steps = 254 if format.bits == 8 else (1 << format.bits) - format.has_mins
        return 1 / (steps * np.sqrt(12))
    mantissa = {"f32": 23, "f16": 10, "bf16": 7}[format.name]
    return np.sqrt(3 / (8 * np.log(2))) / (2 * 2**mantissa * np.sqrt(12))


NORMALS = np.random.default_rng(7).standard_normal((128, 2048)).astype(np.float32)
# What ggml's own quantiser leaves, measured in the same way.
GGML = {"q2_k": 0.0817, "q3_k": 0.0357, "q4_k": 0.0170, "q5_k": 0.00866, "q6_k": 0.00416}


SEARCHED = {*GGML, "iq4_nl", "iq4_xs", "mxfp4"}


@EVERY
def test_the_error_is_within_budget_and_the_budget_within_theory(format: Format) -> None:
    error = relative_error(format, NORMALS)
    assert 0.98 * format.budget <= error <= format.budget <= 1.02 * theory(format)


@pytest.mark.parametrize("name", GGML)
def test_the_search_is_no_worse_than_ggmls(name: str) -> None:
    assert relative_error(formats[name], NORMALS) < GGML[name]


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("size", [1e-8, 1e-5, 1, 1e3])
def test_plain_formats_round_as_ggml_does(name: str, size: float) -> None:
    x = (size * np.random.default_rng(3).standard_normal((64, 256))).astype(np.float32)
    np.testing.assert_array_equal(formats[name].pack(x), gguf_pack(x, formats[name]))


@pytest.mark.parametrize("name", PLAIN)
def test_ties_round_as_ggml_does(name: str) -> None:
    """Small multiples of halves, so that most of the quotients are ties."""
    x = np.random.default_rng(4).integers(-16, 17, (512, 32)).astype(np.float32) / 2
    np.testing.assert_array_equal(formats[name].pack(x), gguf_pack(x, formats[name]))


def test_powers_of_two_are_chosen_no_worse_than_ggmls() -> None:
    """It takes the one below the largest number; the one above is often nearer to the others."""
    theirs = gguf_unpack(gguf_pack(NORMALS, formats["mxfp4"]), formats["mxfp4"])
    ours = formats["mxfp4"].unpack(formats["mxfp4"].pack(NORMALS))
    assert np.square(ours - NORMALS).sum() < 0.97 * np.square(theirs - NORMALS).sum()


def test_q8_k_keeps_the_sums_of_16() -> None:
    packed = formats["q8_k"].pack(NORMALS[:4, :256])
    codes = packed[:, 4:260].view(np.int8).astype(int)
    np.testing.assert_array_equal(
        packed[:, 260:].copy().view("<i2"), codes.reshape(4, 16, 16).sum(axis=2)
    )
    assert (np.abs(codes).max(axis=1) == 127).all()


@FLOATS
def test_floats_are_ggufs(format: Format) -> None:
    bits = np.random.default_rng(5).integers(0, 1 << 32, 4096, dtype=np.uint32)
    x = bits.view(np.float32)
    fits = ~np.isfinite(x) | (np.abs(x) < 65504)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 6e-8, 65504], np.float32)
    x = np.concatenate([x[fits], special])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(format.pack(x), gguf_pack(x, format))
    assert_same_bits(format.unpack(format.pack(x)), gguf_unpack(gguf_pack(x, format), format))


@EVERY
@pytest.mark.parametrize("value", [0.0, -0.0])
def test_zeros_stay_zero(format: Format, value: float) -> None:
    packed = format.pack(np.full((2, 256), value, np.float32))
    assert not format.unpack(packed).any()
    assert not format.is_integer or np.isfinite(format.scales(packed)).all()


@EVERY
@pytest.mark.parametrize("value", [1.0, -1.0, 0.375, -1000.0])
def test_constants_are_kept(format: Format, value: float) -> None:
    """To the rounding of their scale to f16 (and, for a constant held by a min alone, of that);
    mxfp4 has a float of one bit and a power of two."""
    x = np.full((2, 256), value, np.float32)
    np.testing.assert_allclose(
        format.unpack(format.pack(x)), x, rtol=1 / 40 if format.name == "mxfp4" else 2**-10
    )


@INTEGERS
def test_numbers_below_every_scale_become_zero_or_the_least_step(format: Format) -> None:
    """Nothing is off by more than the range of the numbers and the least f16."""
    for size in (1e-45, 1e-38, 1e-20, 3e-8):
        x = (size * NORMALS[:8, :256]).astype(np.float32)
        assert np.abs(format.unpack(format.pack(x)) - x).max() <= np.ptp(x) + 2**-24


ORDINARY = st.floats(-1e4, 1e4, width=32)


@INTEGERS
@given(x=arrays(np.float32, (2, 256), elements=ORDINARY))
def test_no_element_is_off_by_more_than_its_steps(format: Format, x: F32) -> None:
    """Steps of the whole block: next to large numbers, small ones share their scale factor.

    One where the end of the range is cut off (q4_0: 8 steps become 7). The search may cut off two
    for the sake of the others, and rounds scales and numbers by half a step each.
    """
    low, high = np.minimum(x.min(axis=1), 0), np.maximum(x.max(axis=1), 0)
    span = high - low if format.has_mins else 2 * np.maximum(-low, high)
    steps = (
        np.ptp(format.table) / np.diff(np.sort(format.table)).max()
        if format.table
        else (1 << format.bits) - 2
    )
    step = span.astype(np.float64) / steps
    allowed = 3 if format.name in SEARCHED else 1.1
    error = np.abs(format.unpack(format.pack(x)).astype(np.float64) - x)
    # 128 codes of a scale off by half the least f16
    assert (error <= allowed * step[:, None] + 128 * 2**-25).all()
