"""Kernel language, math, fma: a*b + c with one rounding, on NumPy arrays.

Receives three broadcastable arrays of f32 or of f64, returns RN(a*b + c) with IEEE specials, signed
zeros, subnormals and overflow, on any machine. Method: Boldo and Melquiond, "Emulation of FMA and
correctly rounded sums: proved algorithms using rounding to odd" (IEEE Trans. Computers 57(4),
2008).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tetrad.core import lazy

Array = np.ndarray[Any, Any]
CHUNK = 1 << 15  # elements worked on at a time: the f64 temporaries of one chunk stay in cache
SPLITTER = float((1 << 27) + 1)  # Veltkamp's constant for 53-bit significands
# below this the result may be subnormal, and scaling back would round a second time
TOO_SMALL = 2.0**-1020


def fma(a: Array, b: Array, c: Array) -> Array:
    """a*b + c, rounded once; the three arrays have one dtype, f32 or f64, and broadcast.

    >>> x = np.float32([1 + 2**-12])
    >>> float(fma(x, x, -np.float32([1 + 2**-11]))[0]) == 2**-24
    True
    """
    exact = _fma32 if a.dtype == np.float32 else _fma64
    with np.errstate(all="ignore"):
        return _in_chunks(exact, a, b, c)


def _in_chunks(exact: Any, a: Array, b: Array, c: Array) -> Array:
    shape = np.broadcast_shapes(a.shape, b.shape, c.shape)
    if int(np.prod(shape)) <= CHUNK:
        return exact(a, b, c)  # type: ignore[no-any-return]
    out = np.empty(shape, a.dtype)
    rows = max(1, CHUNK * shape[0] // out.size)
    a, b, c = (np.broadcast_to(x, shape) for x in (a, b, c))
    for i in range(0, shape[0], rows):
        part = slice(i, i + rows)
        out[part] = exact(a[part], b[part], c[part])
    return out


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """s = RN(a+b) and the exact error a+b-s (Knuth)."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """p = RN(a*b) and the exact error a*b-p (Dekker); no overflow, no underflow."""
    p = a * b
    ah = _upper_half(a)
    bh = _upper_half(b)
    al, bl = a - ah, b - bh
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def _upper_half(x: Array) -> Array:
    t = x * SPLITTER
    return t - (t - x)


def _to_odd(s: Array, error: Array) -> Array:
    """s = RN(v) turned into v rounded to odd: an inexact even s moves one unit towards v."""
    bits = s.view(np.int64)
    inexact = (error > 0) | (error < 0)  # false for NaN, which non-finite sums leave here
    step = np.where((error > 0) == (s > 0), np.int64(1), np.int64(-1))
    return np.where(inexact & (bits & 1 == 0), bits + step, bits).view(np.float64)


def _fma32(a: Array, b: Array, c: Array) -> Array:
    """The product is exact in f64; the sum, rounded to odd, keeps what the final rounding to f32
    needs."""
    product = a.astype(np.float64) * b.astype(np.float64)
    return _to_odd(*_two_sum(product, c.astype(np.float64))).astype(np.float32)


def _fma64(a: Array, b: Array, c: Array) -> Array:
    a, b, c = (np.array(x) for x in np.broadcast_arrays(a, b, c))
    product = a * b
    out = np.asarray(product + c)
    # A zero or non-finite operand decides the result; all others take the long way.
    sum_proper = np.isfinite(a) & np.isfinite(b) & (a != 0) & (b != 0)
    out = np.where(sum_proper & (c == 0), product, out)  # a tiny negative product + 0 is -0
    out = np.where(sum_proper & ~np.isfinite(c), c, out)  # the product may overflow, but is finite
    proper = np.nonzero(sum_proper & np.isfinite(c) & (c != 0))
    out[proper] = _fma64_proper(a[proper], b[proper], c[proper])
    return out


def _fma64_proper(a: Array, b: Array, c: Array) -> Array:
    """Finite nonzero operands, scaled so that the product is in [1/4, 1), then the five steps of
    Boldo and Melquiond.

    A summand far below the other only decides the direction of rounding, so the exponent distance
    may be clamped.
    """
    (ma, ea), (mb, eb), (mc, ec) = np.frexp(a), np.frexp(b), np.frexp(c)
    distance = ec - (ea + eb)
    scale = np.where(distance > 120, ec - 120, ea + eb)
    scaled = _fma64_scaled(ma, mb, np.ldexp(mc, np.clip(distance, -200, 120)))
    # In two steps: one factor 2**scale may overflow where the result does not. Exact while the
    # result is normal.
    half = scale // 2
    out: Array = np.ldexp(np.ldexp(scaled, half), scale - half)
    for i in np.nonzero((np.abs(out) < TOO_SMALL) & (scaled != 0))[0]:
        out[i] = _by_fractions(a[i], b[i], c[i])
    return out


def _fma64_scaled(a: Array, b: Array, c: Array) -> Array:
    uh, ul = _two_product(a, b)
    th, tl = _two_sum(c, ul)
    vh, vl = _two_sum(uh, th)
    result: Array = vh + _to_odd(*_two_sum(tl, vl))
    return result


def _by_fractions(a: float, b: float, c: float) -> float:
    """Exact rationals: Python rounds their quotient correctly, to subnormals too. A result of zero
    keeps its sign."""
    a, b, c = (lazy.module("fractions").Fraction(float(x)) for x in (a, b, c))  # seldom needed
    exact = a * b + c
    return float(np.copysign(float(abs(exact)), -1.0 if exact < 0 else 1.0))


def dot2(acc: Array, a: Array, b: Array) -> Array:
    """acc plus the products of two bf16 in each word, the upper halves first: `kernel.nodes.Dot2`.

    >>> dot2(np.float32([1]), np.uint32([0x3F804000]), np.uint32([0x40003F80]))  # (1, 2) . (2, 1)
    array([5.], dtype=float32)
    """
    total = _flushed(np.asarray(acc, np.float32))
    for shift in (0, 16):
        x, y = (_flushed(((w << shift) & np.uint32(0xFFFF0000)).view(np.float32)) for w in (a, b))
        total = _fma_flushed(x, y, total)
    return total


def _fma_flushed(x: Array, y: Array, c: Array) -> Array:
    """x y + c, zero where it would be subnormal if exponents had no end: 2**32 times as large, the
    sum is rounded as if they had none."""
    with np.errstate(all="ignore"):
        raised = fma(x * np.float32(2.0**32), y, c * np.float32(2.0**32))
        made = fma(x, y, c)
    return np.where(np.abs(raised) < np.float32(2.0**-94), np.copysign(np.float32(0), made), made)


def _flushed(x: Array) -> Array:
    """Zeros for subnormal numbers."""
    return np.where(np.abs(x) < np.float32(2.0**-126), np.copysign(np.float32(0), x), x)
