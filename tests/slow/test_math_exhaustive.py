"""Transcendental functions on 16 million points each, one from every stretch of 256 neighbouring f32 bit patterns."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernel.ulps import BINARY, CASES, HAS_WIDE_OF_F64, hard, spread, worst
from tetrad.core.dtypes import DType, f64
from tetrad.kernel import math as km

POINTS = 1 << 24
BATCH = 1 << 20

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("name", "dtype"), CASES, ids=str)
def test_error_on_16_million_points(name: str, dtype: DType) -> None:
    if dtype is f64 and not HAS_WIDE_OF_F64:
        pytest.skip("longdouble is no wider than f64 here: no oracle")
    points = [spread(dtype, POINTS, seed=11), hard(dtype, POINTS // 16, seed=12)]
    operands = [np.concatenate(points)]
    if name in BINARY:
        operands.append(np.random.default_rng(13).permutation(operands[0]))
    starts = range(0, len(operands[0]), BATCH)
    error, where = max(worst(name, dtype, *(x[i : i + BATCH] for x in operands)) for i in starts)
    print(f"{name} {dtype}: {error:.3f} ulp, {where}")
    assert error <= km.ULPS[name][dtype], where
