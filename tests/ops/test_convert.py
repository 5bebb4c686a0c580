"""ops.convert: every pair of types, against exact arithmetic where NumPy's own conversion is not
the meaning."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ops.close import assert_close
from tests.ops.kernels import run_elementwise
from tetrad.core.dtypes import bf16, bool_, f16, f32, f64, i8, i32, i64, index, u8, u32
from tetrad.core.errors import DtypeError
from tetrad.core.op import Case
from tetrad.core.types import ArrayType
from tetrad.ops.convert import cast

INTS = (i8, u8, i32, u32, i64)
HALVES = pytest.mark.parametrize("half", [f16, bf16], ids=str)


def both(x: np.ndarray, dtype) -> np.ndarray:
    """Eager; compiled code on the evaluator must agree."""
    want = cast(x, dtype=dtype)
    assert_close(run_elementwise(cast, Case((x,), {"dtype": dtype})), want)
    return want


def nearest(value: Fraction, half) -> np.ndarray:
    """The float of a small format nearest to an exact number, ties to even, by looking at its
    neighbours."""
    guess = np.array(float(value)).astype(half.np)
    bits = guess.view(np.uint16)
    around = np.array([max(int(bits) - 1, 0), bits, min(int(bits) + 1, 0xFFFF)], np.uint16).view(
        half.np
    )
    finite = [c for c in around if np.isfinite(c)]
    return min(
        finite,
        key=lambda c: (abs(Fraction(float(c)) - value), int(np.array(c).view(np.uint16)) & 1),
    )


@HALVES
@given(data=st.data())
@settings(max_examples=60)
def test_f64_to_half_rounds_once(half, data) -> None:
    # Numbers just beside a tie of the half format: rounding to f32 first would land on the tie.
    base = data.draw(st.floats(2**-6, 1000, width=16))
    exact = np.array(base).astype(half.np)
    up = np.array(exact.view(np.uint16) + 1, np.uint16).view(half.np)
    tie = (float(exact) + float(up)) / 2
    x = tie * (1 + data.draw(st.sampled_from([-1, 0, 1])) * 2.0**-40)
    assert_close(both(np.array([x]), half), np.array([nearest(Fraction(x), half)], half.np))


@given(st.integers(-(2**63), 2**63 - 1))
def test_i64_to_bf16_rounds_once(n) -> None:
    assert_close(both(np.array([n]), bf16), np.array([nearest(Fraction(n), bf16)], bf16.np))


@pytest.mark.parametrize(
    "n",
    [(1 << 30) + (1 << 22) + 1, (1 << 62) + (1 << 54) + 1, -(1 << 62) - (1 << 54) - 1, 2**31 - 1],
)
def test_integers_just_above_a_tie_of_bf16(n) -> None:
    assert_close(both(np.array([n]), bf16), np.array([nearest(Fraction(n), bf16)], bf16.np))


@HALVES
def test_specials_survive_the_way_to_a_half(half) -> None:
    x = np.array([np.inf, -np.inf, np.nan, -0.0, 1e300, -1e300, 1e-300])
    inf = np.inf
    assert_close(both(x, half), np.array([inf, -inf, np.nan, -0.0, inf, -inf, 0.0]).astype(half.np))


@pytest.mark.parametrize("source", [f16, bf16, f32, f64], ids=str)
@pytest.mark.parametrize("goal", INTS, ids=str)
def test_floats_to_integers_truncate_and_saturate(source, goal) -> None:
    limits = np.iinfo(goal.np)
    x = np.array([1.9, -1.9, np.nan, np.inf, -np.inf, 3e4, -3e4, 0.5], source.np)
    want = [min(max(int(v), limits.min), limits.max) for v in (1.9, -1.9)]
    got = both(x, goal)
    assert got[:2].tolist() == want
    assert (got[2], got[3], got[4], got[7]) == (0, limits.max, limits.min, 0)
    big = [int(np.clip(int(float(v)), limits.min, limits.max)) for v in x[5:7]]
    assert got[5:7].tolist() == big


@pytest.mark.parametrize("goal", INTS, ids=str)
def test_integers_wrap(goal) -> None:
    x = np.array([300, -1, 2**40 + 5, -(2**33)])
    assert_close(both(x, goal), x.astype(goal.np))


def test_to_bool_tests_for_nonzero() -> None:
    assert both(np.array([0.0, -0.0, np.nan, 0.1]), bool_).tolist() == [False, False, True, True]
    assert both(np.array([0, 0.5], ml_dtypes.bfloat16), bool_).tolist() == [False, True]
    assert both(np.array([True, False]), i8).tolist() == [1, 0]


def test_types_that_are_not_compiled_are_named() -> None:
    with pytest.raises(DtypeError, match=r"cast: takes .*bool, c64, c128, got index"):
        cast.type(ArrayType(f32, (2,)), dtype=index)
