"""ops.movement and ops.gather: symbolic sizes, traps and the errors of type rules."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.close import assert_close
from tests.ops.kernels import TRAP, run_kernel, run_movement
from tetrad.core.dtypes import bf16, bool_, f32, f64, i32, u8
from tetrad.core.errors import BoundsError, DtypeError, ShapeError
from tetrad.core.op import Case
from tetrad.core.sizes import Dim
from tetrad.core.types import ArrayType
from tetrad.kernel.evaluate import KernelTrap
from tetrad.ops.gather import gather
from tetrad.ops.movement import after, concat, expand, pad, reshape, slice_, transpose

seq = Dim("seq", max=100)
X = np.arange(6, dtype=np.float32)


def type_(*shape, dtype=f32) -> ArrayType:
    return ArrayType(dtype, shape)


# -- symbolic sizes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "params"),
    [
        (slice_, {"starts": (1,), "sizes": (seq - 1,), "steps": (1,)}),
        (slice_, {"starts": (seq - 1,), "sizes": (seq,), "steps": (-1,)}),
        (expand, {"shape": (2, seq)}),
        (pad, {"low": (seq,), "high": (1,), "value": 7}),
        (gather, {"axis": 0}),
        (concat, {"axis": 0}),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_read_rules_take_symbolic_sizes(op, params) -> None:
    args = (X, np.array([-1, 0, 5])) if op is gather else (X, X) if op is concat else (X,)
    shapes = [(seq,), (3,) if op is gather else (seq,)][: len(args)]
    kinds = [ArrayType(f32, (seq,)), type_(3, dtype=i32) if op is gather else type_(seq)][
        : len(args)
    ]
    known = {name: bound(value) for name, value in params.items()}
    got = run_kernel(
        op.name,
        args,
        shapes,
        op.type(*kinds, **params),
        {"seq": 6},
        lambda k, flat, at, r: op.read_rule(k, at, *r, **params),
    )
    assert_close(got, op(*args, **known))


def bound(value):
    if not isinstance(value, tuple):
        return value
    return tuple(n if isinstance(n, int) else n.max - 94 if n == seq else 5 for n in value)


def test_a_slice_must_lie_inside_for_every_value_of_a_dim() -> None:
    assert slice_.type(type_(seq), starts=(1,), sizes=(seq - 1,), steps=(1,)) == type_(seq - 1)
    with pytest.raises(
        ShapeError,
        match=r"slice: 3 elements from 0 in steps of 1 leave axis 0 of f32\[seq\]\n  hint:",
    ):
        slice_.type(type_(seq), starts=(0,), sizes=(3,), steps=(1,))


def test_sizes_add_and_multiply() -> None:
    assert concat.type(type_(seq, 2), type_(3, 2), axis=0) == type_(seq + 3, 2)
    assert pad.type(type_(seq), low=(1,), high=(2,), value=0.5) == type_(seq + 3)
    assert reshape.type(type_(seq, 2, 3), shape=(6 * seq,)) == type_(6 * seq)
    assert gather.type(type_(seq, 4), type_(2, 5, dtype=u8), axis=1) == type_(seq, 2, 5)


# -- indices ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint32, np.int64])
def test_indices_of_every_integer_type(dtype) -> None:
    indices = np.array([0, 5, 3], dtype)
    assert_close(run_movement(gather, Case((X, indices), {"axis": 0})), X[[0, 5, 3]])


@pytest.mark.parametrize("index", [6, -7, 2**31 - 1, -(2**31)])
def test_an_index_out_of_range_stops_eager_and_compiled_code(index) -> None:
    case = Case((X, np.int32([0, index])), {"axis": 0})
    with pytest.raises(
        BoundsError, match=rf"gather: index {index} is out of range for axis 0 of size 6"
    ):
        gather(*case.args, **case.params)
    with pytest.raises(KernelTrap) as caught:
        run_movement(gather, case)
    assert (caught.value.code, caught.value.value) == (TRAP, index)


# -- values ----------------------------------------------------------------------------------------


def test_a_fill_value_is_rounded_to_the_type() -> None:
    case = Case((np.zeros(1, bf16.np),), {"low": (1,), "high": (0,), "value": 0.1})
    assert_close(run_movement(pad, case), pad(*case.args, **case.params))
    assert_close(pad(*case.args, **case.params), np.array([0.1, 0], bf16.np))


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, -0.0])
def test_special_fill_values(value) -> None:
    case = Case((X,), {"low": (1,), "high": (1,), "value": value})
    assert_close(run_movement(pad, case), pad(*case.args, **case.params))


def test_parts_may_be_empty() -> None:
    parts = np.zeros((0, 2), np.int32), np.int32([[1, 2]]), np.zeros((0, 2), np.int32)
    assert_close(run_movement(concat, Case(parts, {"axis": 0})), np.int32([[1, 2]]))
    case = Case((np.zeros((0,), np.int32),), {"low": (2,), "high": (1,), "value": 4})
    assert_close(run_movement(pad, case), np.int32([4, 4, 4]))


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "types", "params", "error", "text"),
    [
        (
            transpose,
            [type_(2, 3)],
            {"perm": (0, 0)},
            ShapeError,
            r"perm [0, 0] is not a permutation of the 2 axes of f32[2,3]",
        ),
        (reshape, [type_(2, 3)], {"shape": (4,)}, ShapeError, "f32[2,3] has 6 elements, [4] has 4"),
        (
            reshape,
            [type_(0)],
            {"shape": (-1, 0)},
            ShapeError,
            "sizes must not be negative, got [-1,0]",
        ),
        (expand, [type_(2, 3)], {"shape": (3,)}, ShapeError, "f32[2,3] does not broadcast to [3]"),
        (expand, [type_(3)], {"shape": (seq,)}, ShapeError, "f32[3] does not broadcast to [seq]"),
        (
            slice_,
            [type_(4)],
            {"starts": (), "sizes": (1,), "steps": (1,)},
            ShapeError,
            "got 0 starts, 1 sizes, 1 steps",
        ),
        (
            slice_,
            [type_(4)],
            {"starts": (0,), "sizes": (2,), "steps": (0,)},
            ShapeError,
            "steps must not be 0",
        ),
        (
            slice_,
            [type_(4)],
            {"starts": (0,), "sizes": (-1,), "steps": (1,)},
            ShapeError,
            "sizes not negative",
        ),
        (
            slice_,
            [type_(4)],
            {"starts": (-1,), "sizes": (1,), "steps": (1,)},
            ShapeError,
            "1 elements from -1",
        ),
        (
            slice_,
            [type_(4)],
            {"starts": (1,), "sizes": (3,), "steps": (-1,)},
            ShapeError,
            "leave axis 0 of f32[4]",
        ),
        (concat, [], {"axis": 0}, ShapeError, "needs at least one array"),
        (
            concat,
            [type_(2), type_(2, dtype=f64)],
            {"axis": 0},
            DtypeError,
            "different dtypes: f32[2], f64[2]",
        ),
        (
            concat,
            [type_(2, 3), type_(2, 4)],
            {"axis": 0},
            ShapeError,
            "equal except along axis 0, got f32[2,3], f32[2,4]",
        ),
        (concat, [type_(2), type_(2, 1)], {"axis": 0}, ShapeError, "got f32[2], f32[2,1]"),
        (
            concat,
            [type_(2)],
            {"axis": 1},
            ShapeError,
            "axis 1 is out of range for f32[2], which has axes 0 to 0",
        ),
        (
            pad,
            [type_(2)],
            {"low": (-1,), "high": (0,), "value": 0},
            ShapeError,
            "must not be negative, got [-1] and [0]",
        ),
        (
            pad,
            [type_(2)],
            {"low": (1,), "high": (), "value": 0},
            ShapeError,
            "got 1 before and 0 after",
        ),
        (
            pad,
            [type_(2, dtype=u8)],
            {"low": (1,), "high": (0,), "value": 256},
            DtypeError,
            "256 is not one of u8",
        ),
        (
            pad,
            [type_(2, dtype=u8)],
            {"low": (1,), "high": (0,), "value": np.nan},
            DtypeError,
            "nan is not one of u8",
        ),
        (
            pad,
            [type_(2, dtype=bool_)],
            {"low": (1,), "high": (0,), "value": 2},
            DtypeError,
            "2 is not one of bool",
        ),
        (gather, [type_(2), type_(2)], {"axis": 0}, DtypeError, "indices must be integers"),
        (
            gather,
            [type_(2), type_(2, dtype=i32)],
            {"axis": 1},
            ShapeError,
            "axis 1 is out of range for f32[2]",
        ),
        (
            gather,
            [type_(0), type_(2, dtype=i32)],
            {"axis": 0},
            ShapeError,
            "axis 0 of f32[0] is empty",
        ),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_type_rules_say_what_is_wrong(op, types, params, error, text) -> None:
    with pytest.raises(error) as caught:
        op.type(*types, **params)
    assert str(caught.value).startswith(f"{op.name}: ")
    assert text in str(caught.value)


def test_after_is_its_first_operand() -> None:
    x, y = np.arange(3), np.ones((2, 2))
    assert np.array_equal(after(x, y, x), x)
    assert after.type(ArrayType(f32, (3,)), ArrayType(f64, (2,))) == ArrayType(f32, (3,))
