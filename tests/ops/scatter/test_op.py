"""ops.scatter.op: scattered sums."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.ops.close import assert_close
from tetrad.core.dtypes import f32, i32
from tetrad.core.errors import BoundsError, DtypeError, ShapeError
from tetrad.core.types import ArrayType
from tetrad.ops.scatter.op import scatter_add

HALVES = pytest.mark.parametrize("half", [np.float16, ml_dtypes.bfloat16])


def type_(*shape, dtype=f32) -> ArrayType:
    return ArrayType(dtype, shape)


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
    ("types", "params", "error", "text"),
    [
        (
            [type_(3), type_(2, dtype=i32)],
            {"size": 4},
            ShapeError,
            "updates f32[3], indices i32[2]",
        ),
        ([type_(3), type_(3)], {"size": 4}, DtypeError, "indices must be integers"),
        (
            [type_(3), type_(3, dtype=i32)],
            {"size": -1},
            ShapeError,
            "size must not be negative, got -1",
        ),
    ],
)
def test_type_rules_say_what_is_wrong(types, params, error, text) -> None:
    with pytest.raises(error) as caught:
        scatter_add.type(*types, **params)
    assert str(caught.value).startswith("scatter_add: ")
    assert text in str(caught.value)
