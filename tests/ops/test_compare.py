"""ops.compare and ops.bits: booleans have an order, choices are checked, shifts know the width."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.close import assert_close
from tests.ops.kernels import run_elementwise
from tetrad.core.dtypes import bool_, f32, f64, i32
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.core.op import Case
from tetrad.core.types import ArrayType
from tetrad.ops.bits import bitwise_left_shift, bitwise_right_shift
from tetrad.ops.compare import less, logical_and, where


def test_false_is_below_true() -> None:
    x, y = np.array([False, False, True, True]), np.array([False, True, False, True])
    assert_close(less(x, y), np.array([False, True, False, False]))
    assert_close(run_elementwise(less, Case((x, y))), less(x, y))


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint8, np.uint32])
def test_shifts_by_the_width_and_beyond_lose_every_bit(dtype) -> None:
    width = np.dtype(dtype).itemsize * 8
    counts = [0, 1, width - 1, width, width + 1, 100] + (
        [-1] if np.dtype(dtype).kind == "i" else []
    )
    y = np.array(counts, dtype)
    for value in [np.iinfo(dtype).min, np.iinfo(dtype).max, 5]:
        x = np.full(len(counts), value, dtype)
        for op, exact in ((bitwise_left_shift, value << 200), (bitwise_right_shift, value >> 200)):
            got = op(x, y)
            assert_close(run_elementwise(op, Case((x, y))), got)
            assert got[3:].tolist() == [0 if op is bitwise_left_shift else exact] * (
                len(counts) - 3
            )


@pytest.mark.parametrize(
    ("types", "error", "text"),
    [
        (
            [(f32, (2,)), (f32, (2,)), (f32, (2,))],
            DtypeError,
            "where: the condition must be bool, got f32[2]",
        ),
        (
            [(bool_, (3,)), (f32, (2,)), (f32, (2,))],
            ShapeError,
            "condition bool[3] and the choices f32[2] differ in shape",
        ),
        (
            [(bool_, (2,)), (f32, (2,)), (f64, (2,))],
            DtypeError,
            "where: operands have different dtypes: f32[2], f64[2]",
        ),
    ],
)
def test_where_says_what_is_wrong(types, error, text) -> None:
    with pytest.raises(error) as caught:
        where.type(*(ArrayType(*t) for t in types))
    assert text in str(caught.value)


def test_logic_is_for_bool() -> None:
    with pytest.raises(DtypeError, match="logical_and: takes bool, got i32"):
        logical_and.type(ArrayType(i32, ()), ArrayType(i32, ()))
