"""Compiled f32 functions on 16 million points each, one from every stretch of 256 neighbouring bit
patterns.

The functions that programs lean on most; the others, and f64, are in
tests/slow/test_math_exhaustive.py.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tetrad as td
from tests.kernel.programs import same_bits
from tests.kernel.ulps import CHUNK, OFTEN, Array, errors, many, many_pairs, worst_compiled
from tetrad.core.dtypes import f32
from tetrad.kernel.math.ulps import ULPS


@pytest.fixture(scope="module")
def points() -> Array:
    return many(f32, hard_count=1 << 18)


@pytest.mark.parametrize("name", OFTEN)
def test_error_on_16_million_points(
    name: str, points: Array, record_property: Callable[[str, object], None]
) -> None:
    error, where = worst_compiled(name, f32, points)
    print(f"{name} f32: {error:.3f} ulp, {where}")
    record_property("ulps", error)
    assert error <= min(ULPS[name][f32], 4), where


def test_error_of_exp_below_zero_on_16_million_points(points: Array) -> None:
    run = td.jit(lambda x: td.exp(-td.abs(x)))
    for i in range(0, len(points), CHUNK):
        x = points[i : i + CHUNK]
        with np.errstate(invalid="ignore"):
            error = errors(np.asarray(run(td.asarray(x))), np.exp(-np.abs(x.astype(np.float64))))
        assert error.max() <= 1, x[error.argmax()]


def test_error_of_pow_on_22_million_pairs(record_property: Callable[[str, object], None]) -> None:
    error, where = worst_compiled("pow", f32, *many_pairs(f32, hard_count=1 << 18))
    print(f"pow f32: {error:.3f} ulp, {where}")
    record_property("ulps", error)
    assert error <= min(ULPS["pow"][f32], 4), where


def test_sqrt_is_correctly_rounded(points: Array) -> None:
    run = td.jit(td.sqrt)
    for i in range(0, len(points), CHUNK):
        x = points[i : i + CHUNK]
        with np.errstate(invalid="ignore"):
            # 53 bits: rounding twice does no harm
            true = np.sqrt(x.astype(np.float64)).astype(np.float32)
        wrong = ~same_bits(np.asarray(run(td.asarray(x))), true)
        assert not wrong.any(), x[wrong]
