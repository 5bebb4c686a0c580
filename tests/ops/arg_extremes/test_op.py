"""ops.arg_extremes.op: positions of extremes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.ops.close import assert_close
from tetrad.core.dtypes import f32, i64
from tetrad.core.errors import ShapeError
from tetrad.core.types import ArrayType
from tetrad.ops.arg_extremes.op import argmax, argmin


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_nan_is_the_extreme_and_the_first_of_equals_wins(dtype) -> None:
    x = np.array([[1, np.nan, 5, np.nan], [2, 7, 7, 2]], dtype)
    assert_close(argmax(x, axis=1), np.array([1, 1]))
    assert_close(argmin(x, axis=1), np.array([1, 0]))
    assert argmax.type(ArrayType(f32, (2, 4)), axis=1) == ArrayType(i64, (2,))


@pytest.mark.parametrize(
    ("op", "kind", "params", "error", "text"),
    [
        (
            argmax,
            ArrayType(f32, (2, 0)),
            {"axis": 1},
            ShapeError,
            "f32[2,0] has no elements along axis 1",
        ),
        (
            argmin,
            ArrayType(f32, (2,)),
            {"axis": -1},
            ShapeError,
            "axis -1 is out of range for f32[2]",
        ),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_type_rules_say_what_is_wrong(op, kind, params, error, text) -> None:
    with pytest.raises(error) as caught:
        op.type(kind, **params)
    assert str(caught.value).startswith(f"{op.name}: ")
    assert text in str(caught.value)
