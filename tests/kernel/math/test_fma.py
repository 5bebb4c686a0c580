"""fma against the C library, on random bits, on every pair of specials, and where double rounding
would show."""

from __future__ import annotations

import ctypes
import ctypes.util
import itertools
import time

import numpy as np
import pytest

from tests.kernel.programs import edges, same_bits
from tetrad.core.dtypes import f32, f64
from tetrad.kernel.math.fma import fma

DTYPES = [np.float32, np.float64]


def libm_fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    libm = ctypes.CDLL(ctypes.util.find_library("m"))
    function, kind = (
        (libm.fmaf, ctypes.c_float) if a.dtype == np.float32 else (libm.fma, ctypes.c_double)
    )
    function.restype, function.argtypes = kind, [kind] * 3
    return np.fromiter(map(function, a.tolist(), b.tolist(), c.tolist()), a.dtype, len(a))


def check(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    wrong = ~same_bits(fma(a, b, c), libm_fma(a, b, c))
    assert not wrong.any(), [(a[i], b[i], c[i]) for i in np.nonzero(wrong)[0][:3]]


@pytest.mark.parametrize("dtype", DTYPES)
def test_random_bit_patterns(dtype: type) -> None:
    rng = np.random.default_rng(1)
    words = np.dtype(f"u{np.dtype(dtype).itemsize}")
    check(
        *(
            rng.integers(0, np.iinfo(words).max, 1_000_000, words, endpoint=True).view(dtype)
            for _ in range(3)
        )
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_summands_of_like_size(dtype: type) -> None:
    """Cancellation down to the last bits: c is minus the product, off by a few units and shifted by
    a few binades."""
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((2, 500_000)).astype(dtype)
    off = 1 + rng.integers(-3, 4, a.size) * np.finfo(dtype).eps
    shift = np.exp2(
        rng.choice([0, 0, 1, -1, 23, 24, 25, 52, 53, 54, 105, 106, -24, -53, -106], a.size)
    )
    check(a, b, (-(a * b) * off * shift).astype(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_just_beside_a_tie(dtype: type) -> None:
    """(1+e)(1-e) = 1 - e*e half a unit away from c: rounding the sum twice would land on the
    tie."""
    rng = np.random.default_rng(3)
    bits = np.finfo(dtype).nmant
    e = rng.integers(0, 200, 200_000) * 2.0**-bits
    sign = rng.choice([-1, 1], e.size)
    c = (rng.integers(0, 2**bits, e.size, np.int64) * 2.0**-bits + 1).astype(dtype)
    for scale in (0, 100, -120, 1 - np.finfo(dtype).maxexp + bits):
        half_unit = sign * 2.0 ** (-bits - 1)
        check(((1 + e) * half_unit).astype(dtype), (1 - e).astype(dtype), c)
        check(
            (1 + e).astype(dtype),
            ((1 - e) * half_unit * 2.0**scale).astype(dtype),
            (c * 2.0**scale).astype(dtype),
        )


@pytest.mark.parametrize("dtype", DTYPES)
def test_results_near_underflow_and_overflow(dtype: type) -> None:
    rng = np.random.default_rng(4)
    info = np.finfo(dtype)
    a, b, c = rng.standard_normal((3, 50_000)).astype(dtype)
    half = info.minexp // 2
    c_exponent = rng.integers(info.minexp - info.nmant, info.minexp + 3, a.size)
    shift = rng.integers(-info.nmant - 3, 3, a.size)
    check(np.ldexp(a, half + shift), np.ldexp(b, half), np.ldexp(c, c_exponent))
    top = info.maxexp // 2
    check(
        np.ldexp(a, top),
        np.ldexp(b, top - 1),
        np.ldexp(c, info.maxexp - rng.integers(4, 60, a.size)),
    )


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
def test_every_triple_of_specials(dtype: object) -> None:
    triples = np.array(list(itertools.product(edges(dtype), repeat=3)), dtype.np)  # type: ignore[attr-defined, arg-type]
    check(*np.ascontiguousarray(triples.T))


def test_operands_broadcast() -> None:
    a, b = np.float32([[1.5], [2.5]]), np.float32([[1, 2, 3]])
    np.testing.assert_array_equal(fma(a, b, np.float32([[1]])), a * b + 1)
    wide = fma(np.ones((300, 1), np.float32), np.ones((1, 200), np.float32), np.float32([[1]]))
    assert wide.shape == (300, 200) and (wide == 2).all()


def test_a_million_f32_take_less_than_60_ms() -> None:
    x = np.random.default_rng(5).standard_normal((3, 1_000_000)).astype(np.float32)
    times = []
    for _ in range(5):
        start = time.thread_time()
        fma(*x)
        times.append(time.thread_time() - start)
    assert min(times) < 0.060
