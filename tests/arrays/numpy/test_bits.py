"""arrays.numpy.bits: `x.view(dtype)` has NumPy's bits, compiled or not."""

from __future__ import annotations

import numpy as np
import pytest

import tetrad as td
from tetrad.core.dtypes import ARRAY_DTYPES, DType, bf16, bool_, f16

DTYPES = [d for d in ARRAY_DTYPES if d is not bool_]
EACH = pytest.mark.parametrize("source", ARRAY_DTYPES, ids=repr)


def drawn(dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    """Any bits, but few of them NaNs."""
    rng = np.random.default_rng(dtype.bits)
    if dtype is bool_:
        return rng.random(shape) < 0.5
    size = int(np.prod(shape)) * dtype.nbytes
    bits = rng.integers(0, 256, size, np.uint8)
    return bits.view(dtype.np).reshape(shape)


def same_bits(found: td.Array, want: np.ndarray) -> None:
    """NaNs of 16 bits may be others."""
    assert found.dtype.np == want.dtype and found.shape == want.shape
    have = np.asarray(found)
    if want.dtype in (f16.np, bf16.np):
        is_nan = np.isnan(want.astype(np.float32))
        np.testing.assert_array_equal(np.isnan(have.astype(np.float32)), is_nan)
        have, want = have[~is_nan], want[~is_nan]
    assert have.tobytes() == want.tobytes()


@EACH
def test_views_are_those_of_numpy(source: DType) -> None:
    a = drawn(source, (2, 16))
    if source in (f16, bf16):
        a = np.where(np.isnan(a.astype(np.float32)), 1, a).astype(source.np)
    x = td.asarray(a)
    for goal in DTYPES:
        want = a.view(goal.np)
        same_bits(x.view(goal), want)
        same_bits(td.jit(lambda x, goal=goal: x.view(goal))(x), want)


def test_every_f16_and_bf16() -> None:
    every = np.arange(2**16, dtype=np.uint16)
    for goal in (f16, bf16):
        floats = td.jit(lambda x, goal=goal: x.view(goal))(every)
        same_bits(floats, every.view(goal.np))
        back = np.asarray(td.jit(lambda x: x.view(td.uint16))(floats))
        is_number = ~np.isnan(every.view(goal.np).astype(np.float32))
        np.testing.assert_array_equal(back[is_number], every[is_number])


def test_arrays_without_axes_keep_their_width() -> None:
    x = td.asarray(1.0)
    assert int(x.view(td.int32)) == 0x3F800000 and x.view().dtype is td.float32
    with pytest.raises(ValueError, match=r"f32\[\] has one element of 4 bytes, int8 has 1"):
        x.view(td.int8)
    with pytest.raises(ValueError, match=r"f32\[3\] has 12 bytes"):
        td.ones(3).view(td.float64)


def test_rows_and_derivatives() -> None:
    bits = td.vmap(lambda row: row.view(td.int16))(td.ones((2, 3)))
    np.testing.assert_array_equal(np.asarray(bits), np.ones((2, 3), np.float32).view(np.int16))
    assert float(td.grad(lambda x: x * x.view(td.int32).view(td.float32))(3.0)) == 3.0


def test_what_has_no_bits_of_its_own_is_refused() -> None:
    with pytest.raises(TypeError, match="no truth values"):
        td.ones(3, td.uint8).view(bool)
    with pytest.raises(TypeError, match=r"expected a dtype, got \(3, 1\)[^;]*hint: x.reshape"):
        td.ones(3).view(3, 1)
