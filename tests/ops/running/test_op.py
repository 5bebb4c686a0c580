"""ops.running.op: running sums."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tetrad as td
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


@pytest.mark.parametrize("name", ["cumulative_sum", "cumulative_prod"])
@pytest.mark.parametrize("half", [np.float16, ml_dtypes.bfloat16])
def test_running_halves_have_the_same_bits_compiled(half: type, name: str) -> None:
    function, rng = getattr(td, name), np.random.default_rng(109)
    compiled = td.jit(lambda x: function(x, axis=0))
    for _ in range(20):
        x = td.asarray(rng.standard_normal((300, 64)).astype(half))
        got, want = (np.asarray(f(x)) for f in (compiled, lambda x: function(x, axis=0)))
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("way", [lambda f: f, td.jit], ids=["eager", "compiled"])
def test_errors_of_f32_do_not_grow_with_the_length(way) -> None:
    rng = np.random.default_rng(0)
    for x in (rng.standard_normal(100_000), rng.uniform(size=100_000)):
        given = x.astype(np.float32)
        want = np.cumsum(given.astype(np.float64)).astype(np.float32)
        got = np.asarray(way(lambda x: td.cumulative_sum(x))(td.asarray(given)))
        np.testing.assert_array_max_ulp(got, want, 1)
    factors = (1 + 1e-3 * rng.standard_normal(100_000)).astype(np.float32)
    want = np.cumprod(factors.astype(np.float64)).astype(np.float32)
    got = np.asarray(way(lambda x: td.cumulative_prod(x))(td.asarray(factors)))
    np.testing.assert_array_max_ulp(got, want, 1)


def test_running_sums_of_integers_wrap() -> None:
    assert_close(cumsum(np.int8([100, 100]), axis=0), np.int8([100, -56]))


def test_running_sums_of_nothing() -> None:
    assert_close(cumsum(np.zeros((2, 0)), axis=1, exclusive=True), np.zeros((2, 0)))


def test_an_axis_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ShapeError, match=r"^cumsum: axis 1 is out of range for f32\[2\]"):
        cumsum.type(ArrayType(f32, (2,)), axis=1)
