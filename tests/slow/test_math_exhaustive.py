"""Compiled functions on 16 million points each: those tests/kernel/math/test_points.py leaves out,
and all in f64."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kernel.ulps import (
    BINARY,
    CASES,
    HAS_WIDE_OF_F64,
    OFTEN,
    many,
    many_pairs,
    worst_compiled,
)
from tetrad.core.dtypes import DType, f32, f64
from tetrad.kernel.math.ulps import ULPS

REST = [(name, dtype) for name, dtype in CASES if not (dtype is f32 and name in (*OFTEN, "pow"))]
HARD = 1 << 20

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("name", "dtype"), REST, ids=str)
def test_error_on_16_million_points(
    name: str, dtype: DType, record_property: Callable[[str, object], None]
) -> None:
    if dtype is f64 and not HAS_WIDE_OF_F64:
        pytest.skip("longdouble is no wider than f64 here: no oracle")
    operands = many_pairs(dtype, HARD) if name in BINARY else (many(dtype, HARD),)
    error, where = worst_compiled(name, dtype, *operands)
    print(f"{name} {dtype}: {error:.3f} ulp, {where}")
    record_property("ulps", error)
    assert error <= min(ULPS[name][dtype], 4), where
