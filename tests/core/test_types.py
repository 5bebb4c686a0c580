"""core.types: dtype and shape, as every IR prints them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tetrad.core.dtypes import ARRAY_DTYPES, bf16, bool_, f32, f64
from tetrad.core.errors import ShapeError
from tetrad.core.sizes import Dim
from tetrad.core.types import ArrayType, row_strides

shapes = st.lists(st.integers(0, 5), max_size=4).map(tuple)


@given(dtype=st.sampled_from(ARRAY_DTYPES), shape=shapes)
def test_counts_agree_with_numpy(dtype, shape) -> None:
    array, type_ = np.empty(shape, dtype.np), ArrayType(dtype, shape)
    assert (type_.rank, type_.size, type_.nbytes) == (array.ndim, array.size, array.nbytes)
    assert type_.is_static


@given(shape=st.lists(st.integers(1, 5), max_size=4).map(tuple))
def test_row_strides_agree_with_numpy(shape) -> None:
    assert row_strides(shape) == tuple(step // 8 for step in np.empty(shape, np.float64).strides)


def test_strides_of_symbolic_shapes_are_formulas() -> None:
    seq = Dim("seq")
    assert row_strides((2, seq, 8)) == (8 * seq, 8, 1)


def test_symbolic_types_count_in_formulas() -> None:
    seq = Dim("seq")
    type_ = ArrayType(bf16, (seq, 3))
    assert not type_.is_static
    assert type_.nbytes == 6 * seq


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (ArrayType(f32, (8, 16)), "f32[8,16]"),
        (ArrayType(bool_, ()), "bool[]"),
        (ArrayType(f64, (Dim("seq") + 1, 4)), "f64[1+seq,4]"),
    ],
)
def test_prints_as_the_ir_does(type_: ArrayType, text: str) -> None:
    assert str(type_) == repr(type_) == text


def test_equal_by_structure() -> None:
    assert ArrayType(f32, (Dim("n"), 2)) == ArrayType(f32, (Dim("n"), 2))
    assert len({ArrayType(f32, (2,)), ArrayType(f32, (2,)), ArrayType(f64, (2,))}) == 2


def test_one_part_can_be_replaced() -> None:
    type_ = ArrayType(f32, (2, 3))
    assert type_.with_shape((6,)) == ArrayType(f32, (6,))
    assert type_.with_dtype(f64) == ArrayType(f64, (2, 3))


def test_a_type_too_large_for_any_memory_is_refused() -> None:
    with pytest.raises(ShapeError, match="exceed the limit"):
        _ = ArrayType(f32, (1 << 40, 1 << 40)).nbytes
