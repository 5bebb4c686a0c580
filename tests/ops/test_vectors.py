"""The vectors of the specification (core, sections 2 to 6), at the level of ops.

Where another standard wins (docs/numerics.md), the value here is ours and the line says so.
Broadcasting is the expand op; relu, gelu and the like are compositions, tested where they are
composed.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.close import assert_close
from tetrad.core.dtypes import bool_, f32, i32, i64
from tetrad.core.errors import BoundsError, ShapeError
from tetrad.core.types import ArrayType
from tetrad.ops.arithmetic import (
    abs_,
    add,
    maximum,
    minimum,
    multiply,
    pow_,
    round_,
    rsqrt,
    subtract,
)
from tetrad.ops.compare import greater, greater_equal, less, not_equal, where
from tetrad.ops.convert import cast
from tetrad.ops.gather import gather
from tetrad.ops.movement import concat, expand, reshape, slice_, transpose
from tetrad.ops.quotients import floor_divide
from tetrad.ops.reduce import reduce_max, reduce_min, reduce_prod, reduce_sum
from tetrad.ops.running.op import cumsum
from tetrad.ops.scatter.op import scatter_add
from tetrad.ops.transcendental import atan, sigmoid, tanh

nan, inf = np.nan, np.inf
F32 = np.float32
GRID = F32([-3, -1, -0.5, 0, 0.5, 1, 3])
MATRIX = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
CUBE = np.arange(1, 9, dtype=np.float32).reshape(2, 2, 2)


# -- conversions -----------------------------------------------------------------------------------


def test_cast_1_float_to_int_truncates_and_saturates() -> None:
    x = F32([0.5, -0.5, 1.5, 2.5, -2.5, 2.4, 1e30, -1e30, nan])
    # The reference rounds ties away from zero: [1, -1, 2, 3, -3, 2, ...]; overruled.
    want = np.array([0, 0, 1, 2, -2, 2, 9223372036854775807, -9223372036854775808, 0])
    assert_close(cast(x, dtype=i64), want)


def test_cast_2_and_3_int_to_float_rounds_to_even() -> None:
    assert_close(cast(np.array([0, -7, 16777217]), dtype=f32), F32([0, -7, 16777216]))
    assert_close(cast(np.int32([16777219]), dtype=f32), F32([16777220]))


def test_cast_4_bool_to_int() -> None:
    x = cast(np.uint8([0, 1, 255]), dtype=bool_)
    assert_close(cast(x, dtype=i32), np.int32([0, 1, 1]))


# -- functions -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "want"),
    [
        (sigmoid, [0.04742587, 0.26894142, 0.37754067, 0.5, 0.62245933, 0.73105858, 0.95257413]),
        (tanh, [-0.99505475, -0.76159416, -0.46211716, 0, 0.46211716, 0.76159416, 0.99505475]),
        (atan, [-1.24904577, -0.78539816, -0.46364761, 0, 0.46364761, 0.78539816, 1.24904577]),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_forward_table(op, want, dtype) -> None:
    np.testing.assert_allclose(op(GRID.astype(dtype)), want, atol=1e-6)


def test_act_2_rsqrt() -> None:
    assert_close(rsqrt(F32([0.25, 1, 4])), F32([2, 1, 0.5]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_act_5_round_to_even(dtype) -> None:
    x = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5], dtype)
    # The reference's F32 rounds ties away from zero; overruled.
    assert_close(round_(x), np.array([-2, -2, -0.0, 0, 2, 2], dtype))


def test_act_7_maximum_with_zero_is_relu_and_keeps_nan() -> None:
    # The reference gives 0 for NaN; overruled.
    assert_close(maximum(F32([nan, -1, 2]), F32([0, 0, 0])), F32([nan, 0, 2]))


# -- binary ----------------------------------------------------------------------------------------


def test_bc_1_to_4_broadcast() -> None:
    column, row = np.array([[1], [2], [3]]), np.array([10, 20])
    shape = (3, 2)
    assert_close(
        add(expand(column, shape=shape), expand(row, shape=shape)),
        np.array([[11, 21], [12, 22], [13, 23]]),
    )
    left, right = (
        expand(np.array([[1], [2]]), shape=(2, 3)),
        expand(np.array([[10, 20, 30]]), shape=(2, 3)),
    )
    assert_close(multiply(left, right), np.array([[10, 20, 30], [20, 40, 60]]))
    square = np.array([[1, 2], [3, 4]])
    assert_close(
        subtract(square, expand(np.array(5), shape=(2, 2))), np.array([[-4, -3], [-2, -1]])
    )
    x, y = np.array([[1, 2, 3], [4, 5, 6]]), expand(np.array([10, 20, 30]), shape=(2, 3))
    assert_close(add(x, y), np.array([[11, 22, 33], [14, 25, 36]]))


def test_bc_5_an_inner_axis_of_one() -> None:
    shape = (2, 3, 4, 3, 4)
    x = np.arange(288).reshape(shape) * 0.01
    y = (np.arange(96).reshape(2, 3, 4, 1, 4) + 100) * 0.01
    got = add(x, expand(y, shape=shape))
    places = [(0, 0, 0, 0, 0), (0, 0, 0, 1, 0), (0, 0, 0, 2, 3), (0, 0, 1, 0, 0), (1, 2, 3, 2, 3)]
    np.testing.assert_allclose([got[p] for p in places], [1.00, 1.04, 1.14, 1.16, 4.82])


def test_bin_1_integer_division() -> None:
    # The reference truncates (-7/2 = -3); the array API floors.
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        assert_close(floor_divide(np.array([7, -7, 5]), np.array([2, 2, 0])), np.array([3, -4, 0]))


def test_bin_2_nan_in_extremes() -> None:
    # The reference prefers numbers ([2, 1, nan]); overruled.
    x, y = F32([nan, 1, nan]), F32([2, nan, nan])
    assert_close(maximum(x, y), F32([nan, nan, nan]))
    assert_close(minimum(x, y), F32([nan, nan, nan]))


def test_bin_3_pow() -> None:
    assert_close(pow_(F32([2, 0, -8, 1]), F32([3, 0, 1 / 3, nan])), F32([8, 1, nan, 1]))


# -- comparisons, choice ---------------------------------------------------------------------------


def test_cmp_1_to_5() -> None:
    assert_close(less(F32([1, 2, nan]), F32([2, 2, 1])), np.array([True, False, False]))
    assert_close(not_equal(F32([nan, 0]), F32([nan, -0.0])), np.array([True, False]))
    assert_close(greater(np.array([-1, 2**40]), np.array([0, 2**40 - 1])), np.array([False, True]))
    assert_close(
        greater_equal(np.array([1.0, 2.0]), np.array([1.0, 2.0000000001])), np.array([True, False])
    )
    assert_close(less(np.int8([-1]), np.int8([1])), np.array([True]))


def test_wh_1_to_3() -> None:
    t, f = F32([1, 2, 3]), F32([9, 8, 7])
    assert_close(where(cast(np.uint8([1, 0, 2]), dtype=bool_), t, f), F32([1, 8, 3]))
    assert_close(where(cast(F32([0, -0.0, nan]), dtype=bool_), t, f), F32([9, 8, 3]))
    cond, on_true = (
        expand(np.array([[True], [False]]), shape=(2, 2)),
        expand(F32([1, 2]), shape=(2, 2)),
    )
    assert_close(where(cond, on_true, expand(F32(0), shape=(2, 2))), F32([[1, 2], [0, 0]]))


# -- movement --------------------------------------------------------------------------------------


def test_reshape_and_transpose() -> None:
    assert_close(reshape(MATRIX, shape=(3, 2)), F32([[1, 2], [3, 4], [5, 6]]))
    assert_close(transpose(MATRIX, perm=(1, 0)), F32([[1, 4], [2, 5], [3, 6]]))
    x = np.arange(6).reshape(2, 1, 3)
    assert_close(transpose(x, perm=(2, 0, 1)), np.array([0, 3, 1, 4, 2, 5]).reshape(3, 2, 1))


def test_expand() -> None:
    assert_close(expand(np.array([[1], [2]]), shape=(2, 3)), np.array([[1, 1, 1], [2, 2, 2]]))
    assert_close(expand(np.array(7), shape=(2, 2)), np.full((2, 2), 7))
    assert_close(expand(np.array([1, 2]), shape=(3, 2)), np.array([[1, 2]] * 3))
    with pytest.raises(ShapeError, match=r"expand: f32\[3\] does not broadcast to \[2\]"):
        expand.type(ArrayType(f32, (3,)), shape=(2,))


def test_narrow_is_slice() -> None:
    x = np.array([[1, 2, 3, 4], [5, 6, 7, 8]])
    assert_close(slice_(x, starts=(0, 1), sizes=(2, 2), steps=(1, 1)), np.array([[2, 3], [6, 7]]))
    assert_close(slice_(x, starts=(1, 0), sizes=(1, 4), steps=(1, 1)), np.array([[5, 6, 7, 8]]))
    with pytest.raises(ShapeError, match="leave axis 1"):
        slice_.type(ArrayType(i64, (2, 4)), starts=(0, 3), sizes=(2, 2), steps=(1, 1))


def test_concat() -> None:
    pieces = np.array([[1, 2], [3, 4]]), np.array([[5], [6]])
    assert_close(concat(*pieces, axis=1), np.array([[1, 2, 5], [3, 4, 6]]))
    assert_close(concat(np.array([1, 2]), np.array([3]), axis=0), np.array([1, 2, 3]))


def test_gather() -> None:
    table = np.array([[1, 2], [3, 4], [5, 6]])
    assert_close(gather(table, np.array([2, 0, 2]), axis=0), np.array([[5, 6], [1, 2], [5, 6]]))
    assert_close(gather(table, np.array([1]), axis=1), np.array([[2], [4], [6]]))
    assert_close(gather(table, np.array([[1], [0]]), axis=0), np.array([[[3, 4]], [[1, 2]]]))
    # The reference clamps negative indices to 0; overruled.
    assert_close(gather(table, np.array([-1]), axis=0), np.array([[5, 6]]))
    with pytest.raises(BoundsError, match="index 3"):
        gather(table, np.array([3]), axis=0)


def test_scatter_add() -> None:
    updates, rows = F32([[1, 2], [3, 4], [5, 6]]), np.array([1, 0, 1])
    assert_close(scatter_add(updates, rows, size=3), F32([[3, 4], [6, 8], [0, 0]]))


# -- reductions ------------------------------------------------------------------------------------


def test_red_1_3_4_5() -> None:
    assert_close(reduce_sum(MATRIX, axes=(0,)), F32([5, 7, 9]))
    assert_close(reduce_prod(MATRIX, axes=(0, 1)), np.asarray(F32(720)))
    assert_close(reduce_sum(CUBE, axes=(0, 2)), F32([14, 22]))
    assert_close(reduce_sum(CUBE, axes=(1,)), F32([[4, 6], [12, 14]]))


def test_red_6_7_8_extremes() -> None:
    x = F32([nan, 1, -2])
    # The reference ignores NaN (1; -2); overruled.
    assert_close(reduce_max(x, axes=(0,)), np.asarray(F32(nan)))
    assert_close(reduce_min(x, axes=(0,)), np.asarray(F32(nan)))
    assert_close(reduce_max(np.array([1.0, 2.0, 3.0]), axes=(0,)), np.asarray(3.0))
    assert_close(reduce_max(np.array([[1, 2], [3, 4]]), axes=(1,)), np.array([2, 4]))


@pytest.mark.parametrize(
    "op", [reduce_sum, reduce_prod, reduce_max, reduce_min], ids=lambda op: op.name
)
def test_a_reduction_over_nothing_gives_the_neutral_element(op) -> None:
    want = {"reduce_sum": 0, "reduce_prod": 1, "reduce_max": -inf, "reduce_min": inf}[op.name]
    assert_close(op(np.zeros((2, 0), np.float32), axes=(1,)), F32([want, want]))


def test_cumsum() -> None:
    x = F32([[1, 2, 3, 4], [10, 20, 30, 40]])
    assert_close(cumsum(x, axis=1), F32([[1, 3, 6, 10], [10, 30, 60, 100]]))
    assert_close(cumsum(x, axis=1, exclusive=True), F32([[0, 1, 3, 6], [0, 10, 30, 60]]))
    assert_close(cumsum(x, axis=0), F32([[1, 2, 3, 4], [11, 22, 33, 44]]))


def test_act_4_abs() -> None:
    assert_close(abs_(F32([-2, 0, 5])), F32([2, 0, 5]))
