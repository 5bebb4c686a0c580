"""ops.running.op: running sums."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.ops.close import assert_close
from tetrad.core.dtypes import f32
from tetrad.core.errors import ShapeError
from tetrad.core.types import ArrayType
from tetrad.ops.running.op import cumsum

HALVES = pytest.mark.parametrize("half", [np.float16, ml_dtypes.bfloat16])


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


def test_an_axis_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ShapeError, match=r"^cumsum: axis 1 is out of range for f32\[2\]"):
        cumsum.type(ArrayType(f32, (2,)), axis=1)
