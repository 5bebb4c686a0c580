"""ops.rules: what floats mean in references, and how sizes and indices are checked."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.ops.close import assert_close
from tetrad.core.dtypes import f32, i8, i64
from tetrad.core.errors import BoundsError, DtypeError, ShapeError
from tetrad.core.sizes import Dim
from tetrad.core.types import ArrayType
from tetrad.ops.rules import broadcast_shapes, ieee, lowest, precise, same_type, wrapped_indices

HALVES = pytest.mark.parametrize("half", [np.float16, ml_dtypes.bfloat16])


@HALVES
def test_halves_are_computed_in_f32_and_rounded_once(half) -> None:
    seen = []
    triple = ieee(lambda x: seen.append(x.dtype) or x * 3)
    x = np.array([0.1, 1.5, 2000.0], half)
    assert_close(triple(x), (x.astype(np.float32) * 3).astype(half))
    assert seen == [np.float32]


@HALVES
def test_what_is_not_a_float_is_not_rounded(half) -> None:
    assert ieee(lambda x: x > 1)(np.array([0.5, 2.0], half)).dtype == np.bool_


def test_precise_computes_in_f64() -> None:
    x = np.float32([0.1, 0.2])
    assert_close(precise(np.exp)(x), np.exp(x.astype(np.float64)).astype(np.float32))


def test_floats_do_not_warn() -> None:
    assert_close(
        ieee(np.divide)(np.array([1.0, 0.0]), np.array([0.0, 0.0])), np.array([np.inf, np.nan])
    )


def test_scalars_stay_arrays() -> None:
    assert isinstance(ieee(np.add)(np.float32(1), np.float32(2)), np.ndarray)


def test_broadcasting_takes_the_literal_1_only() -> None:
    seq = Dim("seq")
    assert broadcast_shapes("add", ArrayType(f32, (seq, 1)), ArrayType(f32, (4,))) == (seq, 4)
    with pytest.raises(ShapeError, match=r"add: shapes do not broadcast: f32\[seq\] and f32\[4\]"):
        broadcast_shapes("add", ArrayType(f32, (seq,)), ArrayType(f32, (4,)))


def test_errors_of_types_name_op_and_operands() -> None:
    rule = same_type("sqrt", (f32,))
    with pytest.raises(DtypeError, match="sqrt: takes f32, got i8\n  hint: convert with astype"):
        rule(ArrayType(i8, (2,)))
    with pytest.raises(DtypeError, match=r"different dtypes: f32\[2\], i8\[2\]"):
        rule(ArrayType(f32, (2,)), ArrayType(i8, (2,)))
    with pytest.raises(ShapeError, match=r"different shapes: f32\[2\], f32\[3\]"):
        rule(ArrayType(f32, (2,)), ArrayType(f32, (3,)))


def test_lowest_value_of_a_size() -> None:
    seq = Dim("seq", max=10)
    assert (lowest(3), lowest(seq), lowest(2 * seq - 1), lowest(7 - seq), lowest(seq * seq)) == (
        3,
        1,
        1,
        -3,
        1,
    )


def test_indices_count_from_the_end_and_stay_inside() -> None:
    assert wrapped_indices("gather", np.int8([-3, 2, 0]), 0, 3).tolist() == [0, 2, 0]
    with pytest.raises(BoundsError) as caught:
        wrapped_indices("gather", np.array([[0, 1], [-4, 3]]), 1, 3)
    assert str(caught.value) == (
        "gather: index -4 is out of range for axis 1 of size 3\n  hint: indices go from -3 to 2"
    )


def test_an_index_error_is_pythons_too() -> None:
    with pytest.raises(IndexError, match="the axis is empty"):
        wrapped_indices("gather", np.array([0], i64.np), 0, 0)
