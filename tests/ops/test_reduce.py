"""ops.reduce: neutral elements, accumulation types, positions of extremes, errors."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.ops.close import assert_close
from tests.ops.kernels import run_reduce
from tetrad.core.dtypes import bf16, bool_, f16, f32, i8, i32, i64, u8
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.core.op import REGISTRY, Case
from tetrad.core.types import ArrayType
from tetrad.ops.reduce import SUM, reduce_any, reduce_max, reduce_min, reduce_sum

REDUCTIONS = [o for o in REGISTRY.values() if o.kind == "reduce"]


@pytest.mark.parametrize("op", REDUCTIONS, ids=lambda op: op.name)
def test_init_is_neutral(op) -> None:
    for dtype in [d for d in op.dtypes if not d.is_complex]:  # no kernel folds complex numbers
        if op.name not in ("reduce_max", "reduce_min") or dtype.is_float:
            empty = Case((np.zeros((2, 0), dtype.np),), {"axes": (1,)})
            assert_close(run_reduce(op, empty), op(*empty.args, **empty.params), what=dtype)


@pytest.mark.parametrize("half", [np.float16, ml_dtypes.bfloat16])
def test_halves_accumulate_in_f32(half) -> None:
    case = Case((np.array([2048, 1, 1, 1, 1], half),), {"axes": (0,)})
    want = np.asarray(np.float32(2052).astype(half))
    assert_close(reduce_sum(*case.args, **case.params), want)
    assert_close(run_reduce(reduce_sum, case), want)


def test_accumulation_types() -> None:
    assert [SUM.accumulate(d) for d in (f16, bf16, i8, u8, f32, i64)] == [
        f32,
        f32,
        i32,
        u8,
        f32,
        i64,
    ]


def test_integers_keep_their_type_and_wrap() -> None:
    x = np.int8([100, 100])
    assert_close(reduce_sum(x, axes=(0,)), np.asarray(np.int8(-56)))


def test_signs_of_zeros() -> None:
    zeros = np.float32([[-0.0, -0.0], [0.0, -0.0]])
    assert_close(reduce_sum(zeros, axes=(1,)), np.float32([0.0, 0.0]))
    assert_close(reduce_max(zeros, axes=(1,)), np.float32([-0.0, 0.0]))
    assert_close(reduce_min(zeros, axes=(1,)), np.float32([-0.0, -0.0]))


@pytest.mark.parametrize(
    ("op", "kind", "params", "error", "text"),
    [
        (
            reduce_sum,
            ArrayType(f32, (2,)),
            {"axes": (1,)},
            ShapeError,
            "axis 1 is out of range for f32[2]",
        ),
        (
            reduce_sum,
            ArrayType(f32, ()),
            {"axes": (0,)},
            ShapeError,
            "axis 0 is out of range for f32[], which has no axes",
        ),
        (reduce_sum, ArrayType(f32, (2,)), {"axes": ()}, ShapeError, "axes must be one or more"),
        (
            reduce_sum,
            ArrayType(f32, (2, 2)),
            {"axes": (1, 0)},
            ShapeError,
            "different and ascending, got [1, 0]",
        ),
        (reduce_sum, ArrayType(bool_, (2,)), {"axes": (0,)}, DtypeError, "got bool"),
        (reduce_any, ArrayType(f32, (2,)), {"axes": (0,)}, DtypeError, "takes bool, got f32"),
        (
            reduce_max,
            ArrayType(i32, (2, 0)),
            {"axes": (1,)},
            ShapeError,
            "i32[2,0] has no elements along axes [1]",
        ),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_type_rules_say_what_is_wrong(op, kind, params, error, text) -> None:
    with pytest.raises(error) as caught:
        op.type(kind, **params)
    told = str(caught.value).partition(": ")[0]
    assert told.removeprefix("reduce_") == op.name.removeprefix("reduce_")
    assert text in str(caught.value)
