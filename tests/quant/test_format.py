"""quant.format: shapes, lengths, the registry, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.quant.blocks import FLOAT, INTEGER, assert_same_bits, random_blocks, tame
from tetrad import quant
from tetrad.core.errors import DtypeError, ShapeError, TetradError, UnsupportedError
from tetrad.quant import Format, format_named, formats, pack, unpack
from tetrad.quant.format import CHUNK

EVERY = pytest.mark.parametrize("format", formats.values(), ids=lambda f: f.name)
INTEGERS = pytest.mark.parametrize("format", INTEGER, ids=lambda f: f.name)
NAMES = {
    "q4_0",
    "q4_1",
    "q5_0",
    "q5_1",
    "q8_0",
    "q2_k",
    "q3_k",
    "q4_k",
    "q5_k",
    "q6_k",
    "q8_k",
    "f16",
    "bf16",
    "f32",
}
NAMES |= {"iq4_nl", "iq4_xs", "mxfp4"}


def test_the_registry_is_complete_and_cannot_be_changed() -> None:
    assert set(formats) == NAMES
    assert all(format_named(name) is formats[name] and formats[name].name == name for name in NAMES)
    with pytest.raises(TypeError):
        formats["q9_9"] = formats["f32"]  # type: ignore[index]


@INTEGERS
def test_the_planes_hold_every_bit_of_every_code(format: Format) -> None:
    assert sum(plane.nbytes * 8 for plane in format.planes) == format.block * format.bits
    assert all(plane.nbytes * 8 // plane.bits == format.block for plane in format.planes)
    assert format.sub_block in (16, 32) and format.block % format.sub_block == 0
    assert 0 <= format.offset < 1 << format.bits


@INTEGERS
def test_all_bits_set_is_the_largest_code(format: Format) -> None:
    packed = np.full(format.nbytes, 255, np.uint8)
    largest = (1 << format.bits) - 1
    assert set(format.codes(packed).tolist()) == {largest ^ format.flip}


@EVERY
@pytest.mark.parametrize("lead", [(), (1,), (3,), (2, 3), (0,), (2, 0, 3)], ids=str)
@pytest.mark.parametrize("n", [0, 1, 2])
def test_leading_axes_are_kept(format: Format, lead: tuple[int, ...], n: int) -> None:
    x = np.random.default_rng(0).standard_normal((*lead, n * format.block)).astype(np.float32)
    packed = pack(x, format.name)
    assert packed.dtype == np.uint8
    assert packed.shape == format.packed_shape(x.shape) == (*lead, n * format.nbytes)
    numbers = format.unpack(packed)
    assert_same_bits(numbers, unpack(packed.tobytes(), format.name, x.shape))
    assert numbers.shape == x.shape


@INTEGERS
def test_parts_have_one_number_per_sub_block(format: Format) -> None:
    packed = random_blocks(format, 6).reshape(3, 2 * format.nbytes)
    groups = 2 * format.block // format.sub_block
    mins = format.mins(packed)
    assert format.codes(packed).shape == (3, 2 * format.block)
    assert format.scales(packed).shape == (3, groups)
    assert (mins is None) == (not format.has_mins)
    assert mins is None or mins.shape == (3, groups)


@EVERY
def test_rows_are_packed_alone(format: Format) -> None:
    """The result does not depend on neighbours, nor on where a chunk of the work ends."""
    x = np.random.default_rng(0).standard_normal((3, CHUNK // 2 + 256)).astype(np.float32)
    packed = format.pack(x)
    np.testing.assert_array_equal(packed, np.stack([format.pack(row) for row in x]))
    assert_same_bits(format.unpack(packed), np.stack([format.unpack(row) for row in packed]))


@EVERY
def test_any_strides_will_do(format: Format) -> None:
    wide = np.zeros((4, 2 * format.nbytes), np.uint8)
    wide[::2, ::2] = random_blocks(format, 2)
    assert_same_bits(format.unpack(wide[::2, ::2]), format.unpack(wide[::2, ::2].copy()))
    x = np.random.default_rng(0).standard_normal((format.block, 4)).astype(np.float32)
    np.testing.assert_array_equal(format.pack(x.T), format.pack(x.T.copy()))


@EVERY
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64, np.int32, np.int8])
def test_numbers_of_any_kind_are_packed_as_f32(format: Format, dtype: Any) -> None:
    x = (100 * np.random.default_rng(0).standard_normal((2, 256))).astype(dtype)
    np.testing.assert_array_equal(format.pack(x), format.pack(x.astype(np.float32)))


@pytest.mark.parametrize(
    "kind", [bytes, bytearray, memoryview, lambda b: np.frombuffer(b, np.uint8)]
)
def test_any_buffer_is_unpacked(kind: Callable[[bytes], Any]) -> None:
    data = tame(random_blocks(formats["q4_0"], 6), formats["q4_0"]).tobytes()
    np.testing.assert_array_equal(
        unpack(kind(data), "q4_0", (2, 3, 32)).ravel(), unpack(data, "q4_0", [192])
    )


ZERO = np.zeros(256, np.float32)
U8S = np.zeros(144, np.uint8)
ERRORS: list[tuple[Callable[[], Any], type[TetradError], str]] = [
    (
        lambda: format_named("iq2_xxs"),
        UnsupportedError,
        "unknown block format 'iq2_xxs'(.|\n"
        ")*known formats: bf16, f16, f32, iq4_nl, iq4_xs, mxfp4, q2_k",
    ),
    (lambda: format_named("Q4_K"), UnsupportedError, "unknown block format 'Q4_K'"),
    (lambda: pack(ZERO, ""), UnsupportedError, "unknown block format ''"),
    (
        lambda: pack(ZERO[:100], "q4_k"),
        ShapeError,
        r"q4_k: rows of whole blocks of 256 elements .* shape \[100\]",
    ),
    (
        lambda: pack(ZERO.reshape(8, 32), "q6_k"),
        ShapeError,
        r"shape \[8, 32\](.|\n)*multiple of 256",
    ),
    (lambda: pack(np.float32(1), "f32"), ShapeError, r"f32: .* shape \[\]"),
    (lambda: pack(ZERO.astype(bool), "q4_0"), DtypeError, "q4_0: numbers expected, got bool"),
    (
        lambda: pack(ZERO.astype(complex), "q4_0"),
        DtypeError,
        "q4_0: numbers expected, got complex128",
    ),
    (lambda: pack(["a"] * 32, "q4_0"), DtypeError, "no dtype for"),
    (
        lambda: unpack(bytes(143), "q4_k", (1, 256)),
        ShapeError,
        r"shape \[1, 256\] takes 144 bytes, got 143",
    ),
    (
        lambda: unpack(bytes(145), "q4_k", (256,)),
        ShapeError,
        "takes 144 bytes, got 145(.|\n)*144 bytes hold 256",
    ),
    (
        lambda: unpack(bytes(144), "q4_k", (4, 64)),
        ShapeError,
        r"q4_k: .*blocks of 256 elements .* \[4, 64\]",
    ),
    (lambda: unpack(bytes(144), "q4_k", ()), ShapeError, r"shape \[\]"),
    (lambda: unpack(bytes(144), "q4_k", (-1, -256)), ShapeError, r"\[-1, -256\]"),
    (
        lambda: formats["q4_k"].unpack(U8S[1:]),
        ShapeError,
        r"q4_k: .*blocks of 144 bytes .* \[143\](.|\n)*cut short",
    ),
    (lambda: formats["q4_k"].codes(U8S.reshape(2, 72)), ShapeError, r"shape \[2, 72\]"),
    (lambda: formats["q4_k"].scales(U8S[0]), ShapeError, r"shape \[\]"),
    (lambda: formats["q4_k"].mins(U8S.view(np.int8)), DtypeError, "packed bytes are u8, got int8"),
]


@pytest.mark.parametrize(("run", "error", "text"), ERRORS, ids=range(len(ERRORS)))
def test_what_does_not_fit_is_refused(
    run: Callable[[], Any], error: type[TetradError], text: str
) -> None:
    with pytest.raises(error, match=text):
        run()


@pytest.mark.parametrize("format", FLOAT, ids=lambda f: f.name)
@pytest.mark.parametrize("part", ["codes", "scales", "mins"])
def test_floats_have_no_parts(format: Format, part: str) -> None:
    with pytest.raises(UnsupportedError, match=f"{format.name}: a float format has no {part}"):
        getattr(format, part)(np.zeros(4, np.uint8))


@INTEGERS
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_only_finite_numbers_have_codes(format: Format, bad: float) -> None:
    x = np.zeros((3, 256), np.float32)
    x[1, 7] = bad
    with pytest.raises(DtypeError, match=f"{format.name}: holds finite numbers only, got {bad}"):
        format.pack(x)


@EVERY
def test_numbers_too_large_are_refused(format: Format) -> None:
    x = np.zeros((3, 256), np.float32)
    x[1, 7] = -3.3e38
    if format.name in ("f32", "bf16", "q8_k"):  # their exponent is that of f32
        assert abs(quant.unpack(format.pack(x), format.name, x.shape)[1, 7] / -3.3e38 - 1) < 0.01
    elif format.name == "mxfp4":  # so is that of its powers of two, and codes have one bit more
        assert quant.unpack(format.pack(x), format.name, x.shape)[1, 7] == -12 * 2.0**124
    else:
        with pytest.raises(
            DtypeError, match=rf"{format.name}: numbers as large as 3.3e\+38 do not fit"
        ):
            format.pack(x)


def test_rounding_up_to_inf_is_too_large() -> None:
    with pytest.raises(DtypeError, match=r"bf16: numbers as large as 3\.40282e"):
        pack([3.4028235e38], "bf16")
    with pytest.raises(DtypeError, match="q4_0: holds finite numbers only, got inf"):
        pack(np.full(32, 1e300), "q4_0")
