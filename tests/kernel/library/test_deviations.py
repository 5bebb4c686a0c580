"""The deviations D1 to D18 of spec quant 13: where the studied systems and this one differ, one
test for each row. Tests that need the text of GPU code are beside the back end that emits it."""

from __future__ import annotations

import numpy as np
import pytest

import tetrad as td
from tests.kernel.library.oracle import evaluated, f32_of, floats, launched, pack_rows, words
from tests.kernel.library.test_group_quantizers import codes_of, program_of, quantize
from tetrad.core.dtypes import bf16, f16, f32
from tetrad.core.errors import BadInputs, DtypeError, ShapeError, TrapError
from tetrad.kernel.library import int4_ops as ops
from tetrad.kernel.library.group_quantizers import (
    ENTRIES,
    NF4,
    ROLES,
    pack_args,
    scale_args,
)
from tetrad.kernel.library.linear_4bit import (
    QuantizedLinear4BitSpec,
    linear_4bit_affine_grouped,
    linear_4bit_affine_grouped_typed,
)
from tetrad.kernel.library.quantized_type import PerGroup, QuantizedType
from tetrad.kernel.text import fingerprint

TOP1 = ops.int4_batched_matmul_top1_f32_scaled
NAMES = ("weights", "activations", "row_scales", "batch_scales", "out")
LEAST = float(np.finfo(np.float32).min)


def top1(
    w: list[list[int]], a: list[list[int]], rows: list[float], items: list[float]
) -> list[float]:
    program = TOP1.build(*NAMES, len(a), len(w), len(w[0]))
    inputs = (words(pack_rows(w)), words(pack_rows(a)), floats(rows), floats(items))
    return f32_of(launched(program, *inputs, grid=(1, 1, 1)))


def test_d1_rows_that_f32_cannot_number_are_refused() -> None:
    most = 1 << 24
    assert not td.kernel.has_trap(TOP1.build(*NAMES, 1, most, 1))
    with pytest.raises(ShapeError, match=r"exceeds 2\*\*24"):
        TOP1.build_or_raise(*NAMES, 1, most + 1, 1)
    with pytest.raises(TrapError, match="top1_indexed"):
        td.dispatch(TOP1.build(*NAMES, 1, most + 1, 1), [])
    apart = ops.int4_batched_matmul_top1_indexed_f32_scaled
    assert not td.kernel.has_trap(apart.build(rows=most + 1))


def test_d2_no_winner_is_the_least_number_and_row_0() -> None:
    w, a = [[1], [1], [1]], [[1], [1]]
    nan, inf = float("nan"), float("inf")
    assert top1(w, a, [nan, nan, nan], [1, 1]) == [LEAST, LEAST, 0, 0]
    assert top1(w, a, [-inf, -inf, -inf], [1, 1]) == [LEAST, LEAST, 0, 0]
    assert top1(w, a, [nan, 2, -inf], [1, 1]) == [2, 2, 1, 1]
    assert top1(w, a, [1, nan, 2], [1, nan]) == [2, LEAST, 2, 0]


def test_d3_the_first_of_equal_rows_wins() -> None:
    assert top1([[3], [5], [5], [5]], [[1], [-1]], [1] * 4, [1, 1]) == [5, -3, 1, 0]
    assert top1([[5], [5]], [[1]], [1, 1], [0]) == [0, 0]


def one_weight(x: float, nibble: int, zero: int, scale: float) -> bytes:
    """x * ((nibble - zero) * scale), by a layer whose other inputs are 0."""
    program = linear_4bit_affine_grouped.build(in_dim=8, out_dim=1, group_size=8)
    inputs = floats([x] + [0] * 7), words([nibble]), floats([scale]), words([zero]), floats([0])
    (out,) = launched(program, *inputs)
    return out


def test_d4_the_scale_is_multiplied_before_the_input() -> None:
    assert np.frombuffer(one_weight(0.1, 9, 2, 0.3), "<u4").tolist() == [0x3E570A3F]
    x, scale = np.float32(0.1), np.float32(0.3)
    assert np.float32(x * np.float32(7) * scale).view("<u4") == 0x3E570A3E


def test_d5_storage_is_unsigned_and_i4_is_another_spelling() -> None:
    each = PerGroup(8)
    texts = {
        str(
            linear_4bit_affine_grouped_typed.build(
                QuantizedLinear4BitSpec(8, 1, QuantizedType(storage, each, each))
            )
        )
        for storage in ("i4", "u4")
    }
    assert len(texts) == 1
    assert np.frombuffer(one_weight(1.0, 15, 0, 1.0), "<f4").tolist() == [15]


def test_d6_large_zero_points_are_numbers_unless_strict() -> None:
    assert np.frombuffer(one_weight(1.0, 0, 1000, 1.0), "<f4").tolist() == [-1000]
    program = linear_4bit_affine_grouped.build(in_dim=8, out_dim=1, group_size=8, strict=True)
    inputs = [floats([1] * 8), words([0]), floats([1]), words([16]), floats([0])]
    with pytest.raises(TrapError) as trap:
        td.dispatch(program, inputs)
    assert (trap.value.trap, trap.value.value) == (2, 0)
    inputs[3] = words([15])
    assert f32_of(launched(program, *inputs)) == [-120]
    assert f32_of(evaluated(program, *inputs)) == [-120]


def test_d7_the_symmetric_scale_is_absmax_over_7() -> None:
    assert quantize([1.75, -3.5, 0, 0], 4, "symmetric")[0].tolist() == [0.5]


def test_d8_codes_are_rounded_half_to_even() -> None:
    """Truncation would store 12 for 0.7 at scale 1/7, and a step too low for -absmax."""
    _, _, packed, _ = quantize([0.7, 1.0], 2, "symmetric")
    assert codes_of(packed, 2)[0] == 13
    _, _, packed, back = quantize([1.9, -1.9], 2, "symmetric")
    assert codes_of(packed, 2) == [15, 1] and np.allclose(back, [1.9, -1.9], rtol=1e-6)


def test_d9_packing_adds_the_zero_point() -> None:
    _, zero, packed, _ = quantize([-3, 12], 2, "asymmetric")
    assert zero.tolist() == [3] and codes_of(packed, 2) == [0, 15]


def test_d10_unpacking_subtracts_the_zero_point() -> None:
    inputs = [bytes([0x30]), floats([2]), floats([3])]
    for mode in ("asymmetric", "real"):
        (back,) = td.dispatch(program_of("unpack", mode), inputs, (1, 1, 1), args=pack_args(2, 2))
        assert np.frombuffer(back, "<f4").tolist() == [-6, 0]


def test_d11_the_zero_point_is_an_integer_or_real_on_request() -> None:
    x = [-1.0, 2.0]
    assert quantize(x, 2, "asymmetric")[1].tolist() == [5]
    assert quantize([-1.1, 2.0], 2, "asymmetric")[1].tolist() == [5]
    (real,) = quantize([-1.1, 2.0], 2, "real")[1].tolist()
    assert abs(real - 1.1 * 15 / 3.1) < 1e-5 and real != round(real)
    assert quantize([1, 8.5], 2, "real")[1].tolist() == [-2]


def test_d12_the_scale_of_nf4_is_absmax() -> None:
    scale, _, packed, _ = quantize([-3.0, 1.5, 0, 3.0], 4, NF4)
    assert scale.tolist() == [3] and codes_of(packed, 4) == [0, 12, 7, 15]


def test_d13_the_length_of_the_zero_points_is_checked() -> None:
    inputs = [bytes(4), floats([1, 1]), floats([0])]
    with pytest.raises(BadInputs, match="zero_ptr needs 8 bytes, got 4"):
        td.dispatch(program_of("unpack", "asymmetric"), inputs, (1, 1, 1), args=pack_args(8, 4))


def test_d14_nf4_has_a_dequantiser() -> None:
    (back,) = td.dispatch(
        program_of("unpack", NF4), [bytes([0xF0]), floats([2])], (1, 1, 1), args=pack_args(2, 2)
    )
    assert np.frombuffer(back, "<f4").tolist() == [-2, 2]


def test_d15_narrow_floats_get_no_code_of_another_width() -> None:
    for role in ROLES.values():
        for dtype in (f16, bf16):
            with pytest.raises(DtypeError, match=f"not in {dtype}; widen to f32"):
                role(dtype, "symmetric")


def test_d16_counts_are_not_cut_and_a_zero_group_has_scale_one() -> None:
    for sizes in (scale_args, pack_args):
        with pytest.raises(ShapeError, match=r"n=4294967296 must be below 2\*\*32"):
            sizes(1 << 32, 32)
    assert scale_args((1 << 32) - 1, 1 << 20)["num_groups"] == 4096
    for mode in ("symmetric", "asymmetric", "real", NF4):
        assert quantize([0, 0, 0], 3, mode)[0].tolist() == [1]


def test_d17_modes_share_a_name_and_not_an_identity() -> None:
    for role in ("scale", "pack", "unpack"):
        programs = [
            ENTRIES[role, f32, mode].build() for mode in ("symmetric", "asymmetric", "real")
        ]
        assert {p.name for p in programs} == {f"dnn_int4_{role}_f32"}
        assert len({fingerprint(p) for p in programs}) == 3


def test_d18_the_limit_of_threads_is_a_property_of_the_program() -> None:
    """256 invocations of a workgroup, never more: what a launch bound is made from."""
    for entry in ENTRIES.values():
        assert entry.build().workgroup == (256, 1, 1)
