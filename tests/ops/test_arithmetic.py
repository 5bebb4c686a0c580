"""ops.arithmetic: the corners that random cases seldom reach."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tetrad as td
from tests.ops.close import assert_close
from tests.ops.kernels import run_elementwise
from tetrad.core.dtypes import as_dtype, i32
from tetrad.core.errors import BadInputs, DtypeError
from tetrad.core.op import Case
from tetrad.core.types import ArrayType
from tetrad.ops.arithmetic import add, maximum, minimum, negative, pow_, sqrt

I32 = np.int32
MIN = np.iinfo(np.int32).min


def test_integers_wrap_without_a_warning() -> None:
    assert_close(add(I32([2**31 - 1]), I32([1])), I32([MIN]))
    assert_close(negative(I32([MIN])), I32([MIN]))


@given(base=st.integers(-(2**31), 2**31 - 1), exponent=st.integers(0, 2**31 - 1))
@example(base=0, exponent=0)
@example(base=-1, exponent=2**31 - 1)
@settings(max_examples=30)
def test_integer_powers_wrap(base, exponent) -> None:
    want = (pow(base, exponent, 2**32) + 2**31) % 2**32 - 2**31
    case = Case((I32([base]), I32([exponent])))
    assert_close(pow_(*case.args), I32([want]))
    assert_close(run_elementwise(pow_, case), I32([want]))


def test_negative_integer_exponents() -> None:
    x, y = I32([2, 1]), I32([3, -1])
    with pytest.raises(
        BadInputs, match=r"pow: exponents of i32 must not be negative, got -1 at position \[1\]"
    ):
        pow_(x, y)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_negative_integer_exponents_are_errors_in_compiled_code_too(dtype) -> None:
    base, power = np.arange(1, 100, dtype=dtype), np.full(99, 3, dtype)
    run = td.jit(lambda x, y: x**y)
    assert_close(np.asarray(run(base, power)), base**power)
    power[70] = -2
    name = as_dtype(dtype)
    for call in (run, lambda x, y: td.pow(td.asarray(x), td.asarray(y)), td.vmap(td.pow)):
        with pytest.raises(
            BadInputs, match=rf"pow: exponents of {name} must not be negative, got -2"
        ):
            call(base, power)
    # a Python number, known when traced
    for call in (td.jit(lambda x: x**-2), lambda x: td.asarray(x) ** -2):
        with pytest.raises(
            BadInputs,
            match=rf"exponents of {name} must not be negative, got -2(.|\n)*test_arithmetic",
        ):
            call(base)
    assert td.jit(lambda x, y: x ** td.abs(y))(base, power)[70] == base[70] ** 2


def test_extremes_of_zeros() -> None:
    zeros, other = np.float32([0.0, -0.0]), np.float32([-0.0, 0.0])
    assert_close(maximum(zeros, other), np.float32([0.0, 0.0]))
    assert_close(minimum(zeros, other), np.float32([-0.0, -0.0]))


def test_a_missing_kernel_is_a_clear_error() -> None:
    with pytest.raises(DtypeError, match="sqrt: takes f32, f64, f16, bf16, c64, c128, got i32"):
        sqrt.type(ArrayType(i32, (3,)))
