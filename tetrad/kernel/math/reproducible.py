"""Kernel language, math, reproducible: one formula for kernel values and NumPy arrays, with the
same bits.

Formulas use additions, products, quotients, roots, selections and bit patterns only. NumPy and
kernels round each of them once, and nothing is fused. A formula receives `k`, either a
`KernelBuilder` or the NumPy stand-in `Numbers`, and values that belong to it. Random numbers use
these functions, because eager and compiled draws are promised to be equal (docs/random.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tetrad.core.dtypes import DType, f32, f64, i32, i64
from tetrad.core.record import record

Number = Any  # a Val of a kernel builder, or a NumPy array
World = Any  # KernelBuilder | Numbers: what a formula asks for besides operators


class Numbers:
    """The methods of a kernel builder that formulas use, on NumPy arrays."""

    def select(self, cond: Number, a: Number, b: Number) -> Number:
        a, b = (np.asarray(x, y.dtype) if isinstance(x, float) else x for x, y in ((a, b), (b, a)))
        return np.where(cond, a, b)

    def cast(self, x: Number, dtype: DType) -> Number:
        return np.asarray(x).astype(dtype.np)

    def bitcast(self, x: Number, dtype: DType) -> Number:
        return np.asarray(x).view(dtype.np)

    def sqrt(self, x: Number) -> Number:
        return np.sqrt(x)


@record
class FloatLayout:
    """A float type as its bits: fields, the integer it is seen as, the smallest normal number,
    terms of a logarithm."""

    dtype: DType
    bits: DType
    mantissa: int
    root_half: int  # the bits of sqrt(1/2)
    smallest: float
    terms: int


LAYOUTS = {
    f32: FloatLayout(f32, i32, 23, 0x3F3504F3, 2.0**-126, 5),
    f64: FloatLayout(f64, i64, 52, 0x3FE6A09E667F3BCD, 2.0**-1022, 11),
}
# log(2) in two parts; the first is so short that its products with exponents are exact
LN2 = {
    f32: (0.693145751953125, 1.4286068203094172e-06),
    f64: (0.6931471803691238, 1.9082149292705877e-10),
}


def log(k: World, x: Number, dtype: DType) -> Number:
    """Natural logarithm of f32 or f64; -inf at 0, NaN below.

    x = 2**e (1 + f) with 1 + f from sqrt(1/2) to sqrt(2); log(1 + f) = 2 atanh(s) at s = f / (2 +
    f), by its series in s*s, arranged so that the large part, f, is added last.
    """
    layout = LAYOUTS[dtype]
    is_small = x < layout.smallest
    lift = layout.mantissa + 1
    bits = k.bitcast(k.select(is_small, x * 2.0**lift, x), layout.bits)
    e = (bits - layout.root_half) >> layout.mantissa
    f = k.bitcast(bits - (e << layout.mantissa), dtype) - 1.0
    s = f / (f + 2.0)
    z = s * s
    rest = z * polynomial(z, [2 / (2 * n + 3) for n in range(layout.terms)])
    half = f * f * 0.5
    scale = k.select(is_small, k.cast(e, dtype) - float(lift), k.cast(e, dtype))
    high, low = LN2[dtype]
    y = scale * high + (f - (half - (s * (half + rest) + scale * low)))
    y = k.select(x < math.inf, y, x)  # infinity and NaN stay
    return k.select(
        x > 0.0, y, k.select(x < 0.0, x * math.nan, k.select(x >= 0.0, x - math.inf, x))
    )


EXP_RANGE = {f32: (-104.0, 89.0), f64: (-746.0, 710.0)}  # beyond it the result is 0 or infinite
EXP_TERMS = {f32: 8, f64: 14}


def exp(k: World, x: Number, dtype: DType) -> Number:
    """The exponential of f32 or f64: 2**n times the series of the remainder of x, in [-log(2)/2,
    log(2)/2]."""
    layout, (least, most), (high, low) = LAYOUTS[dtype], EXP_RANGE[dtype], LN2[dtype]
    # clamps NaN too, which has no integer
    inside = k.select(x > least, k.select(x < most, x, most), least)
    turns = inside * (1 / math.log(2))
    n = k.cast(k.select(turns < 0.0, turns - 0.5, turns + 0.5), layout.bits)
    whole = k.cast(n, dtype)
    r = (inside - whole * high) - whole * low
    series = polynomial(r, [1 / math.factorial(i) for i in range(1, EXP_TERMS[dtype])]) * r + 1.0
    first = n >> 1  # in two factors: one alone may be out of range where the result is not
    y = (series * power_of_two(k, first, layout)) * power_of_two(k, n - first, layout)
    return k.select(x < math.inf, y, x)  # infinity and NaN stay


def power_of_two(k: World, n: Number, layout: FloatLayout) -> Number:
    bias = (1 << layout.bits.bits - layout.mantissa - 2) - 1
    return k.bitcast((n + bias) << layout.mantissa, layout.dtype)


def polynomial(x: Number, coefficients: Sequence[float]) -> Number:
    """Lowest coefficient first, by Horner's rule."""
    total = x * coefficients[-1] + coefficients[-2]
    for c in coefficients[-3::-1]:
        total = total * x + c
    return total


def normal_quantile(
    k: World, p: Number, q: Number, v: Number, dtype: DType, *, deep: bool
) -> Number:
    """The z that a normal number exceeds with probability p, where q = 1 - p and v = q - p.

    z / v is smooth in w = -log(4 p q), and in its root farther out: polynomials, fitted to 1e-7
    (f32) and 1e-13 (f64). Not `deep`: p and q are at least 2**-33 (f32) or 2**-64 (f64).
    """
    w = -log(k, p * 4.0 * q, dtype)
    w = k.select(w > 0.0, w, w * 0.0)  # 4 p q may be rounded to more than 1
    root = k.sqrt(w)
    near, *far = PIECES[dtype] if deep else PIECES[dtype][:-1]
    ratio = near.value(w)
    for piece in far:
        ratio = k.select(root < piece.low, ratio, piece.value(root))
    return v * ratio


@record
class Polynomial:
    """A polynomial for arguments from `low` to `high`, seen as -1 to 1."""

    low: float
    high: float
    coefficients: tuple[float, ...]

    def value(self, x: Number) -> Number:
        half = (self.high - self.low) / 2
        return polynomial(x * (1 / half) - (self.low + half) / half, self.coefficients)


# z / v for arguments w up to 6.25, then sqrt(w). Chebyshev fits to scipy.special.erfinv and
# ndtri_exp.
PIECES_32: tuple[Polynomial, ...] = (
    Polynomial(0.0, 6.25, (
        2.3386209, 1.06135857, -0.083337605, -0.0319581442, 0.0252556391, -0.00588598195,
        -0.00200764812,
        0.00179594185, -0.000111546833, -0.000204704163,
    )),
    Polynomial(2.5, 4.7, (
        4.85959625, 1.56802714, 0.00465504546, -0.00316890632, 0.0016417189, -0.0010634145,
        0.000830435543,
        -0.000477421825, 0.000119966346,
    )),
    Polynomial(4.7, 9.5, (
        9.85688972, 3.42293549, -0.00414941693, 0.000201223156, 0.000217292851, -0.000227005032,
        0.000111815876,
    )),
)  # fmt: skip
PIECES_64: tuple[Polynomial, ...] = (
    Polynomial(0.0, 6.25, (
        2.3386207100265706, 1.0613592459413679, -0.08332909352297481, -0.03196751617771256,
        0.02518482664882006,
        -0.00585104572974844, -0.001798442475369211, 0.001742994379644495, -0.00037392180874462854,
        -0.00016528840827008978, 0.00013208846809112235, -2.130578237043012e-05,
        -1.6026365571520415e-05,
        1.0187431841677053e-05, -8.194217269207251e-07, -1.6283234377785274e-06,
        6.407618776937541e-07,
        8.871989045120707e-08, -8.642136082533821e-08, 6.522928981417998e-09,
    )),
    Polynomial(2.5, 4.0, (
        4.361272855165323, 1.0662381493574038, 0.00427253636555687, -0.002238051058224326,
        0.0011148356395476965,
        -0.000566584622719224, 0.000239942684126428, -6.702101173896303e-05, 3.4020076236244827e-06,
        7.247267310241216e-06, -3.767754761020786e-06, 7.519102574993667e-07, 1.303189472526338e-07,
        -1.4209330187400563e-07, 3.8173740293600166e-08, 4.459054550685849e-09,
        -3.928282188172443e-09,
    )),
    Polynomial(4.0, 6.62, (
        7.301698407149663, 1.8714436522390874, -0.0007284908101266776, -0.0004365214711619089,
        0.00021284680324897337, -7.064248622918612e-05, 2.0438817372458782e-05,
        -5.505485050629702e-06,
        1.432433987513803e-06, -3.8467714062795235e-07, 1.302011042145499e-07,
        -6.467841988338673e-08,
        3.527664330901986e-08, -2.256805089567391e-08, 1.9525488319047928e-08,
        -1.1609257128824664e-08,
        2.7462745151370297e-09,
    )),
    Polynomial(6.62, 27.0, (
        23.659160039509228, 14.454402434252598, -0.018738241857745624, 0.008267637414462181,
        -0.003609772827889546,
        0.0015099829207471892, -0.0005736480242804625, 0.0001718587499605138,
        -1.2807572152049718e-05,
        -4.715412867116802e-05, 6.348377877596926e-05, -3.1244453775147775e-05,
        3.319829688700847e-06,
        -6.494831534879723e-05, 8.585395181047987e-05, 4.955223356221948e-05,
        -8.237606362951263e-05,
        -6.7910009370726e-05, 8.09869242667715e-05, 3.478908536605524e-05, -3.7756523255106306e-05,
        -1.1307652081115645e-05, 9.930379008800364e-06,
    )),
)  # fmt: skip

PIECES = {f32: PIECES_32, f64: PIECES_64}
