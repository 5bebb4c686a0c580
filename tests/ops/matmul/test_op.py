"""ops.matmul.op: sums, types and errors of products."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.ops.close import assert_close
from tetrad.core.dtypes import f16, f32, f64, i8, i32, index
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.core.sizes import Dim
from tetrad.core.types import ArrayType
from tetrad.ops.matmul.op import matmul

seq = Dim("seq")
HALVES = pytest.mark.parametrize("half", [np.float16, ml_dtypes.bfloat16])


def type_(*shape, dtype=f32) -> ArrayType:
    return ArrayType(dtype, shape)


@HALVES
def test_products_of_halves_accumulate_in_f32(half) -> None:
    a, b = np.array([[2048, 1, 1, 1, 1]], half), np.ones((5, 1), half)
    assert_close(matmul(a, b), np.array([[2052]], np.float32).astype(half))


def test_products_of_bytes_are_exact() -> None:
    a, b = np.full((1, 1000), -128, np.int8), np.full((1000, 1), -128, np.int8)
    assert_close(matmul(a, b), np.int32([[128 * 128 * 1000]]))


def test_types_of_products() -> None:
    assert matmul.type(type_(2, 1, 3, 4), type_(1, 5, 4, 6)) == type_(2, 5, 3, 6)
    assert matmul.type(type_(seq, 4), type_(4, 6)) == type_(seq, 6)
    assert matmul.type(type_(2, 3, dtype=i8), type_(3, 4, dtype=i8)) == type_(2, 4, dtype=i32)
    assert matmul.type(type_(2, 3, dtype=f16), type_(3, 4, dtype=f16)) == type_(2, 4, dtype=f16)


@pytest.mark.parametrize(
    ("types", "error", "text"),
    [
        (
            [type_(8, 64), type_(32, 16)],
            ShapeError,
            "inner sizes differ: lhs f32[8,64] contracts 64, rhs f32[32,16] contracts 32",
        ),
        ([type_(8, 4), type_(4)], ShapeError, "equal rank, at least 2, got f32[8,4] and f32[4]"),
        ([type_(4), type_(4)], ShapeError, "equal rank, at least 2"),
        (
            [type_(2, 2), type_(2, 2, dtype=f64)],
            DtypeError,
            "different dtypes: f32[2,2], f64[2,2]",
        ),
        ([type_(2, 2, dtype=index)] * 2, DtypeError, "got index"),
        (
            [type_(2, 3, 3), type_(4, 3, 3)],
            ShapeError,
            "shapes do not broadcast: f32[2] and f32[4]",
        ),
    ],
)
def test_type_rules_say_what_is_wrong(types, error, text) -> None:
    with pytest.raises(error) as caught:
        matmul.type(*types)
    assert str(caught.value).startswith("matmul: ")
    assert text in str(caught.value)
