"""ops.special: matrix product, running sum, scattered sum."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.ops.close import assert_close
from tetrad.core.dtypes import f16, f32, f64, i8, i32, index
from tetrad.core.errors import BoundsError, DtypeError, ShapeError
from tetrad.core.sizes import Dim
from tetrad.core.types import ArrayType
from tetrad.ops.special import cumsum, matmul, scatter_add

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


@HALVES
def test_running_sums_of_halves_accumulate_in_f32(half) -> None:
    x = np.array([2048, 1, 1, 1, 1], half)
    assert_close(
        cumsum(x, axis=0), np.array([2048, 2049, 2050, 2051, 2052], np.float32).astype(half)
    )


def test_running_sums_of_integers_wrap() -> None:
    assert_close(cumsum(np.int8([100, 100]), axis=0), np.int8([100, -56]))


def test_running_sums_of_nothing() -> None:
    assert_close(cumsum(np.zeros((2, 0)), axis=1, exclusive=True), np.zeros((2, 0)))


@HALVES
def test_scattered_halves_accumulate_in_f32(half) -> None:
    got = scatter_add(np.array([2048, 1, 1], half), np.array([0, 0, -2]), size=2)
    assert_close(got, np.array([2050, 0], np.float32).astype(half))


def test_scattered_rows_stay_inside() -> None:
    with pytest.raises(
        BoundsError, match=r"scatter_add: index 2 is out of range for axis 0 of size 2"
    ):
        scatter_add(np.zeros(2), np.array([0, 2]), size=2)


@pytest.mark.parametrize(
    ("op", "types", "params", "error", "text"),
    [
        (matmul, [type_(8, 64), type_(32, 16)], {}, ShapeError,
         "inner sizes differ: lhs f32[8,64] contracts 64, rhs f32[32,16] contracts 32"),
        (matmul, [type_(8, 4), type_(4)], {}, ShapeError, "equal rank, at least 2, got f32[8,4] "
"and "
"f32[4]"),
        (matmul, [type_(4), type_(4)], {}, ShapeError, "equal rank, at least 2"),
        (matmul, [type_(2, 2), type_(2, 2, dtype=f64)], {}, DtypeError, "different dtypes: "
"f32[2,2], "
"f64[2,2]"),
        (matmul, [type_(2, 2, dtype=index)] * 2, {}, DtypeError, "got index"),
        (matmul, [type_(2, 3, 3), type_(4, 3, 3)], {}, ShapeError, "shapes do not broadcast: "
"f32[2] "
"and "
"f32[4]"),
        (cumsum, [type_(2)], {"axis": 1}, ShapeError, "axis 1 is out of range for f32[2]"),
        (scatter_add, [type_(3), type_(2, dtype=i32)], {"size": 4}, ShapeError, "updates f32[3], "
"indices "
"i32[2]"),
        (scatter_add, [type_(3), type_(3)], {"size": 4}, DtypeError, "indices must be integers"),
        (scatter_add, [type_(3), type_(3, dtype=i32)], {"size": -1}, ShapeError, "size must not be "
"negative, "
"got -1"),
    ],
    ids=lambda value: getattr(value, "name", None),
)  # fmt: skip
def test_type_rules_say_what_is_wrong(op, types, params, error, text) -> None:
    with pytest.raises(error) as caught:
        op.type(*types, **params)
    assert str(caught.value).startswith(f"{op.name}: ")
    assert text in str(caught.value)
