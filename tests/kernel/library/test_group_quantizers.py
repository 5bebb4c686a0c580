"""INT4 and NF4 quantisers: the rows N of spec quant 3.4, the table, the edges, and the errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.kernel.library.oracle import Array
from tetrad.core.dtypes import DType, bf16, f16, f32, f64
from tetrad.core.errors import BadInputs, DtypeError, ShapeError, TrapError
from tetrad.kernel.evaluate import KernelTrap
from tetrad.kernel.harness import evaluate_bytes, inferred
from tetrad.kernel.library.group_quantizers import (
    ENTRIES,
    MIDPOINTS,
    MODES,
    NF4,
    NOT_FINITE,
    TABLE,
    pack_args,
    scale_args,
    scale_kernel,
)
from tetrad.kernel.nodes import Program
from tetrad.kernel.registry import Bytes

FLOATS = pytest.mark.parametrize("dtype", [f32, f64], ids=str)


def program_of(role: str, mode: str, dtype: DType = f32) -> Program:
    return ENTRIES[role, dtype, mode].build()


def launch(program: Program, inputs: Bytes, args: dict[str, int]) -> list[bytes]:
    """On both machines, with the same bits."""
    grid = (-(-args.get("packed_n", args.get("num_groups", 1)) // 256), 1, 1)
    found = td.dispatch(program, inputs, grid, args=args)
    assert found == evaluate_bytes(program, inputs, args, grid)
    return found


def quantize(
    x: Any, group_size: int, mode: str, dtype: DType = f32
) -> tuple[Array, Array, bytes, Array]:
    """Scales, zero points, bytes and decoded values, by three launches."""
    data, sizes = np.asarray(x, dtype.np), (len(x), group_size)
    sidecar = launch(program_of("scale", mode, dtype), [data.tobytes()], scale_args(*sizes))
    args = pack_args(*sizes)
    (packed,) = launch(program_of("pack", mode, dtype), [data.tobytes(), *sidecar], args)
    (back,) = launch(program_of("unpack", mode, dtype), [packed, *sidecar], args)
    numbers = [np.frombuffer(part, dtype.np) for part in (*sidecar, back)]
    return numbers[0], numbers[1] if len(sidecar) > 1 else numbers[0][:0], packed, numbers[-1]


def codes_of(packed: bytes, n: int) -> list[int]:
    halves = [half for byte in packed for half in (byte & 15, byte >> 4)]
    assert all(half == 0 for half in halves[n:])
    return halves[:n]


RAMP, FAR = [-3, -2.5, -0.5, 0, 0.5, 1.5, 11.5, 12], [1, 2, 3.5, 4, 5, 6, 7, 8.5]
# mode, elements, group size, scales, zeros, codes, bytes, decoded
ROWS: list[tuple[str, list[float], int, list[float], list[float], list[int], str, list[float]]] = [
    ("symmetric", [7, .5, 1.5, 2.5, -.5, -1.5, -2.5, -7], 8, [1], [0],
     [15, 8, 10, 10, 8, 6, 6, 1], "8F AA 68 16", [7, 0, 2, 2, 0, -2, -2, -7]),
    ("symmetric", [14, -7, 3, 0, -2, 1.2, .4], 4, [2, 0.2857143], [0, 0],
     [15, 4, 10, 8, 1, 12, 9], "4F 8A C1 09", [14, -8, 4, 0, -2, 1.1428572, .2857143]),
    ("asymmetric", RAMP, 8, [1], [3], [0, 1, 3, 3, 3, 5, 15, 15], "10 33 53 FF",
     [-3, -2, 0, 0, 0, 2, 12, 12]),
    ("real", RAMP, 8, [1], [3], [0, 0, 2, 3, 4, 4, 14, 15], "00 32 44 FE",
     [-3, -3, -1, 0, 1, 1, 11, 12]),
    ("real", FAR, 8, [.5], [-2], [0, 2, 5, 6, 8, 10, 12, 15], "20 65 A8 FC", FAR),
    ("asymmetric", FAR, 8, [.56666666], [0], [2, 4, 6, 7, 9, 11, 12, 15], "42 76 B9 FC",
     [1.1333333, 2.2666667, 3.4, 3.9666667, 5.1, 6.2333331, 6.8, 8.5]),
    (NF4, [-2, -1, -.3, 0, .1, .5, 1, 2, .5], 8, [2, .5], [], [0, 2, 5, 7, 8, 10, 12, 15, 15],
     "20 75 A8 FC 0F",
     [-2, -1.0501461, -.36954686, 0, .1591606, .4922246, .88141966, 2, .5]),
    ("symmetric", [0, 0, 0], 4, [1], [0], [8, 8, 8], "88 08", [0, 0, 0]),
    (NF4, [0, 0, 0], 4, [1], [], [7, 7, 7], "77 07", [0, 0, 0]),
    ("asymmetric", [0, 0, 0], 4, [1], [0], [0, 0, 0], "00 00", [0, 0, 0]),
    ("real", [0, 0, 0], 4, [1], [0], [0, 0, 0], "00 00", [0, 0, 0]),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[6]}")
def test_the_rows_of_the_table(row: Any) -> None:
    mode, x, group_size, scales, zeros, codes, packed, decoded = row
    scale, zero, found, back = quantize(x, group_size, mode)
    assert scale.tolist() == np.float32(scales).tolist()
    assert zero.tolist() == np.float32(zeros).tolist()
    assert found == bytes.fromhex(packed) and codes_of(found, len(x)) == codes
    assert [f"{v:.7g}" for v in back] == [f"{np.float32(v):.7g}" for v in decoded]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[6]}")
def test_the_codes_are_those_of_f64_as_well(row: Any) -> None:
    mode, x, group_size, _, _, _, packed, decoded = row
    _, _, found, back = quantize(x, group_size, mode, f64)
    assert found == bytes.fromhex(packed)
    assert np.allclose(back, decoded, rtol=1e-6, atol=0)


# -- NF4 -------------------------------------------------------------------------------------------

BITS = (
    "BF800000 BF3239B1 BF066B30 BECA32A0 BE91A24D BE3D353F BDBA7871 00000000 "
    "3DA2FAFF 3E24CAE3 3E7C04DD 3EAD033A 3EE1A4B8 3F1007AB 3F3913B3 3F800000"
)
MIDDLE = [
    -0.8480964004993439, -0.6106329262256622, -0.4599952697753906, -0.33967943489551544,
    -0.23460740596055984, -0.13791173323988914, -0.045525018125772476, 0.03979014977812767,
    0.1202552504837513, 0.2035212516784668, 0.2920137718319893, 0.3893125355243683,
    0.5016634166240692, 0.6427869200706482, 0.8614784181118011,
]  # fmt: skip


def test_the_table_of_nf4() -> None:
    assert " ".join(f"{word:08X}" for word in np.float32(TABLE).view("<u4")) == BITS
    assert list(MIDPOINTS) == MIDDLE
    assert list(TABLE) == sorted(set(TABLE)) and TABLE[0] == -1 and TABLE[-1] == 1


@FLOATS
def test_every_code_of_nf4_comes_back(dtype: DType) -> None:
    scale, _, packed, back = quantize(list(TABLE), 16, NF4, dtype)
    assert codes_of(packed, 16) == list(range(16)) and scale.tolist() == [1]
    assert back.tolist() == np.asarray(TABLE, dtype.np).tolist()


def test_codes_of_nf4() -> None:
    told = {-1: 0, -0.5: 2, -0.1: 6, 0: 7, 0.03: 7, 0.05: 8, 0.2: 9, 0.5: 12, 0.65: 14, 0.9: 15}
    _, _, packed, _ = quantize([*told, 1], 11, NF4)
    assert codes_of(packed, 11)[:-1] == list(told.values())


@FLOATS
def test_a_midpoint_takes_the_lower_code(dtype: DType) -> None:
    exact = np.asarray(MIDPOINTS, dtype.np)
    _, _, packed, _ = quantize([*exact, 1], 16, NF4, dtype)
    assert codes_of(packed, 15 + 1)[:-1] == list(range(15))
    above = np.nextafter(exact, dtype.np.type(2))
    _, _, packed, _ = quantize([*above, 1], 16, NF4, dtype)
    assert codes_of(packed, 15 + 1)[:-1] == list(range(1, 16))


def test_beyond_the_scale_the_code_saturates() -> None:
    """The scale is given: elements may exceed it."""
    inputs = [np.float32([-3, 3]).tobytes(), np.float32([1]).tobytes()]
    (packed,) = launch(program_of("pack", NF4), inputs, pack_args(2, 2))
    assert packed == bytes([0xF0])


# -- bounds and edges ------------------------------------------------------------------------------


@FLOATS
@pytest.mark.parametrize("mode", ["symmetric", "asymmetric", "real"])
@pytest.mark.parametrize("group_size", [1, 5, 32, 1000])
def test_the_error_is_half_a_step(mode: str, group_size: int, dtype: DType) -> None:
    x = np.random.default_rng(3).normal(size=333).astype(dtype.np)
    scale, _, _, back = quantize(x, group_size, mode, dtype)
    step = np.repeat(scale, group_size)[: x.size]
    # An integer zero point is rounded by itself, which moves the ends by up to half a step more.
    bound = step if mode == "asymmetric" else step / 2
    assert (np.abs(back - x) <= bound * (1 + 1e-5)).all()


def test_zero_is_exact() -> None:
    for mode in ("symmetric", "asymmetric", NF4):
        _, _, _, back = quantize([0, 0.3, -1.7, 0, 2.2], 5, mode)
        assert back[[0, 3]].tolist() == [0, 0]


def test_equal_elements() -> None:
    assert quantize([2.5] * 4, 4, "real")[3].tolist() == [2.5] * 4
    assert quantize([-2.5] * 4, 4, "symmetric")[3].tolist() == [-2.5] * 4
    assert quantize([2.5] * 4, 4, NF4)[3].tolist() == [2.5] * 4


def test_a_range_that_overflows_has_a_finite_scale() -> None:
    """max - min is beyond f32. With an integer zero point an end may be decoded half a step too
    far, and that is infinite here; nothing is NaN."""
    top = float(np.finfo(np.float32).max)
    for mode in MODES:
        scale, _, _, back = quantize([-top, top, 0, top / 2], 4, mode)
        assert np.isfinite(scale).all() and not np.isnan(back).any()
        assert np.isfinite(back).all() or mode == "asymmetric"


def test_scales_that_underflow_are_one() -> None:
    tiny = float(np.finfo(np.float32).smallest_subnormal)
    scale, _, packed, back = quantize([tiny, -tiny], 2, "symmetric")
    assert scale.tolist() == [1] and packed == bytes([0x88]) and back.tolist() == [0, 0]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_finite_number_traps(mode: str, bad: float) -> None:
    program, data = program_of("scale", mode), np.float32([1, 2, 3, bad, 5]).tobytes()
    args = scale_args(5, 2)
    with pytest.raises(TrapError) as compiled:
        td.dispatch(program, [data], args=args)
    with pytest.raises(KernelTrap) as evaluated:
        evaluate_bytes(program, [data], args, inferred(program, [data], args))
    assert (compiled.value.trap, compiled.value.value) == (NOT_FINITE, 3)
    assert (evaluated.value.code, evaluated.value.value) == (NOT_FINITE, 3)


def test_every_length_comes_back() -> None:
    """Two to a byte, lengths 0 to 256: with a scale of 1 codes are elements."""
    pattern = np.float32([-8, -3, -1, 0, 1, 3, 7, 6, 5, 4, 2, -2, -4, -6, -7, -5])
    pack, unpack = program_of("pack", "symmetric"), program_of("unpack", "symmetric")
    sidecar = [np.float32([1]).tobytes(), np.float32([0]).tobytes()]
    for length in range(257):
        x, args = np.resize(pattern, length), pack_args(length, 256)
        args["num_groups"] = 1
        grid = (-(-length // 512), 1, 1)
        (packed,) = evaluate_bytes(pack, [x.tobytes(), *sidecar], args, grid)
        assert codes_of(packed, length) == (x + 8).astype(int).tolist()
        (back,) = evaluate_bytes(unpack, [packed, *sidecar], args, grid)
        assert back == x.tobytes()


# -- layout and errors -----------------------------------------------------------------------------


@FLOATS
@pytest.mark.parametrize("mode", MODES)
def test_names_parameters_and_workgroups(mode: str, dtype: DType) -> None:
    kind, zero = ("nf4", []) if mode == NF4 else ("int4", ["zero_ptr"])
    for role, outs in (("scale", []), ("pack", ["out_ptr"]), ("unpack", ["out_ptr"])):
        program = program_of(role, mode, dtype)
        assert program.name == f"dnn_{kind}_{role}_{dtype}"
        assert [b.name for b in program.buffers] == ["in_ptr", "scale_ptr", *zero, *outs]
        last = "num_groups" if role == "scale" else "packed_n"
        assert sorted(program.args) == sorted(["n", "group_size", last])
        assert program.workgroup == (256, 1, 1)


def test_sizes_of_groups_and_bytes() -> None:
    assert [scale_args(n, 32)["num_groups"] for n in (128, 129, 0)] == [4, 5, 0]
    assert [pack_args(n, 32)["packed_n"] for n in (128, 129, 1)] == [64, 65, 1]


@pytest.mark.parametrize("kind", ["INT4", "NF4"])
@pytest.mark.parametrize("sizes", [scale_args, pack_args])
def test_group_size_zero_is_refused_even_for_nothing(sizes: Any, kind: str) -> None:
    with pytest.raises(ShapeError, match=f"Fix: {kind}: group_size must be non-zero"):
        sizes(0, 0, kind)


def test_nothing_to_quantise_is_no_launch() -> None:
    found = td.dispatch(program_of("scale", "symmetric"), [b""], args=scale_args(0, 32))
    assert found == [b"", b""]
    empty = td.dispatch(program_of("pack", NF4), [b"", b""], args=pack_args(0, 32))
    assert empty == [b""]


@pytest.mark.parametrize(
    ("role", "lengths", "name", "needed"),
    [
        ("pack", (28, 8, 8), "in_ptr", 32),
        ("pack", (32, 4, 4), "scale_ptr", 8),
        ("pack", (32, 8, 4), "zero_ptr", 8),
        ("unpack", (3, 4, 4), "in_ptr", 4),
        ("unpack", (4, 4, 4), "scale_ptr", 8),
        ("unpack", (4, 8, 4), "zero_ptr", 8),
    ],
)
def test_a_buffer_that_is_too_small_is_named_in_order(
    role: str, lengths: tuple[int, ...], name: str, needed: int
) -> None:
    """Before any kernel runs, with the bytes that are needed and those that came."""
    program, args = program_of(role, "asymmetric"), pack_args(8, 4)
    given = lengths[[b.name for b in program.buffers].index(name)]
    with pytest.raises(BadInputs, match=f"{name} needs {needed} bytes, got {given}"):
        td.dispatch(program, [bytes(n) for n in lengths], (1, 1, 1), args=args)


def test_longer_buffers_are_fine() -> None:
    data = np.float32([7, -7, 3, 1, 99, 99]).tobytes()
    scale, zero = td.dispatch(program_of("scale", "symmetric"), [data], args=scale_args(4, 4))
    assert np.frombuffer(scale, "<f4").tolist() == [1] and len(zero) == 4


@pytest.mark.parametrize("dtype", [f16, bf16], ids=str)
def test_narrow_floats_are_refused(dtype: DType) -> None:
    with pytest.raises(DtypeError, match="widen to f32"):
        scale_kernel(dtype, "symmetric")
