"""Kernel language, math, complex: functions of complex numbers, given as real and imaginary part.

Receives a builder and the two parts (f32 or f64), returns the two parts of the result. A caller
that uses one part pays for that one: equal instructions are shared and unused ones dropped. Errors
(`kernel.math.ulps`) are those of each part, in units in the last place of the *magnitude* of the
result.
Infinities and NaN follow C99 annex G. Nothing overflows unless the result does: arguments are
scaled by powers of two where squares would leave the range, and f32 is computed in f64 where that
keeps digits (`in_f64`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tetrad.core.dtypes import f32, f64, i64
from tetrad.kernel.build import KernelBuilder, Val
from tetrad.kernel.math import exponential as km

Pair = tuple[Val, Val]
INF, NAN = math.inf, math.nan
LN2 = math.log(2)

LARGEST_EXPONENT = {f32: 80.0, f64: 700.0}  # e to this power is far from overflow


def in_f64(function: Callable[..., Pair]) -> Callable[..., Pair]:
    """Compute f32 parts in f64 and round once."""

    def wrapped(k: KernelBuilder, *parts: Val) -> Pair:
        re, im = function(k, *(k.cast(x, f64) for x in parts))
        return k.cast(re, parts[0].dtype), k.cast(im, parts[0].dtype)

    return wrapped


def is_infinite(k: KernelBuilder, a: Val, b: Val) -> Val:
    """Is a part infinite? Then the number is, whatever the other part."""
    return k.abs(a).eq(INF) | k.abs(b).eq(INF)


def is_finite(k: KernelBuilder, x: Val) -> Val:
    return k.abs(x) < INF


def larger_and_smaller(k: KernelBuilder, a: Val, b: Val) -> Pair:
    return k.max(k.abs(a), k.abs(b)), k.min(k.abs(a), k.abs(b))


# -- magnitude, quotients --------------------------------------------------------------------------


def hypot(k: KernelBuilder, a: Val, b: Val) -> Val:
    """The square root of a*a + b*b. Squares of f32 fit f64; f64 is scaled where they would not."""
    if a.dtype is f32:
        x, y = k.cast(a, f64), k.cast(b, f64)
        length = k.cast(k.sqrt(k.fma(x, x, y * y)), f32)
    else:
        m, n = larger_and_smaller(k, a, b)
        scale, back, _ = square_scale(k, m)
        length = k.sqrt(k.fma(m * scale, m * scale, (n * scale) * (n * scale))) * back
    return k.select(is_infinite(k, a, b), INF, length)


def square_scale(k: KernelBuilder, m: Val) -> tuple[Val, Val, Val]:
    """A power of four that scales m so that its square neither overflows nor underflows; its
    inverse; the root of the inverse."""
    is_large, is_small = m > 2.0**500, m < 2.0**-500

    def chosen(large: float, small: float) -> Val:
        one = k.const(1.0, m.dtype)
        return k.select(is_large, large, k.select(is_small, small, one))

    return chosen(2.0**-600, 2.0**600), chosen(2.0**600, 2.0**-600), chosen(2.0**300, 2.0**-300)


def absolute(k: KernelBuilder, a: Val, b: Val) -> Pair:
    return hypot(k, a, b), k.const(0.0, a.dtype)


def angle(k: KernelBuilder, a: Val, b: Val) -> Pair:
    return km.atan2(k, b, a), k.const(0.0, a.dtype)


def exponent_of(k: KernelBuilder, m: Val) -> Val:
    """The exponent bits of an f64 m >= 0, limited so that 2**-exponent is normal."""
    bits = k.bitcast(m, i64) >> 52
    return k.max(k.min(bits, 2044), 2) - 1023


def power_of_two(k: KernelBuilder, e: Val) -> Val:
    return k.bitcast((e + 1023) << 52, f64)


@in_f64
def divide(k: KernelBuilder, a: Val, b: Val, c: Val, d: Val) -> Pair:
    """(a c + b d, b c - a d) / (c c + d d), both operands scaled to about 1. Division by 0 divides
    each part by 0; by infinity gives 0."""
    below, above = (exponent_of(k, larger_and_smaller(k, *pair)[0]) for pair in ((c, d), (a, b)))
    down, up = power_of_two(k, -below), power_of_two(k, -above)
    x, y, u, v = a * up, b * up, c * down, d * down
    square = u * u + v * v
    half = (above - below) >> 1
    first, second = power_of_two(k, half), power_of_two(k, above - below - half)
    parts = ((x * u + y * v) / square, (y * u - x * v) / square)
    vanishes = is_infinite(k, c, d) & is_finite(k, a) & is_finite(k, b)
    by_zero = c.eq(0.0) & d.eq(0.0)

    def edge(quotient: Val, part: Val) -> Val:
        ordinary = k.select(by_zero, part / k.abs(c), quotient * first * second)
        return k.select(vanishes, 0.0, ordinary)

    return edge(parts[0], a), edge(parts[1], b)


@in_f64
def reciprocal(k: KernelBuilder, a: Val, b: Val) -> Pair:
    """(a, -b) / (a a + b b), scaled; 1/0 is (inf, nan)."""
    scale = power_of_two(k, -exponent_of(k, larger_and_smaller(k, a, b)[0]))
    x, y = a * scale, b * scale
    square = x * x + y * y
    is_zero, vanishes = a.eq(0.0) & b.eq(0.0), is_infinite(k, a, b)
    re = k.select(
        vanishes, k.copysign(k.const(0.0, f64), a), k.select(is_zero, INF, x / square * scale)
    )
    im = k.select(vanishes, k.copysign(k.const(0.0, f64), -b), -y / square * scale)
    return re, im


@in_f64
def sign(k: KernelBuilder, a: Val, b: Val) -> Pair:
    """z/|z|, and 0 for 0. If one part alone is infinite, it decides."""
    scale = power_of_two(k, -exponent_of(k, larger_and_smaller(k, a, b)[0]))
    x, y = a * scale, b * scale
    length = k.sqrt(x * x + y * y)
    is_zero, alone = a.eq(0.0) & b.eq(0.0), k.abs(a).eq(INF) ^ k.abs(b).eq(INF)

    def part(given: Val, scaled: Val) -> Val:
        one = k.copysign(k.const(1.0, f64), given)
        decided = k.select(k.abs(given).eq(INF), one, 0.0)
        return k.select(is_zero, 0.0, k.select(alone, decided, scaled / length))

    return part(a, x), part(b, y)


# -- roots -----------------------------------------------------------------------------------------


@in_f64
def sqrt(k: KernelBuilder, a: Val, b: Val) -> Pair:
    return root(k, a, b)


def root(k: KernelBuilder, a: Val, b: Val) -> Pair:
    """The larger part from |a| + |z|, where nothing cancels; the other by division (Kahan 1987)."""
    m, n = larger_and_smaller(k, a, b)
    scale, _, back = square_scale(k, m)
    length = k.sqrt(k.fma(m * scale, m * scale, (n * scale) * (n * scale)))
    length = k.select(is_infinite(k, a, b), INF, length)
    large = k.sqrt((k.abs(a) * scale + length) * 0.5) * back
    small = k.select(large.eq(0.0), b, b / (large * 2.0))
    is_left = a < 0.0
    re = k.select(is_left, k.abs(small), large)
    im = k.select(is_left, k.copysign(large, b), small)
    above = k.abs(b).eq(INF)
    return k.select(above, INF, re), k.select(above, b, im)


# -- exponentials ----------------------------------------------------------------------------------


def exp(k: KernelBuilder, a: Val, b: Val) -> Pair:
    """e**a (cos b, sin b)."""
    grown, more = two_factors(k, a, km.exp)
    settled = k.abs(a).eq(INF) & ~is_finite(k, b)  # the angle is unknown, the magnitude is not
    re = k.select(settled, k.select(a > 0.0, a, 0.0), grown * km.cos(k, b) * more)
    im = k.select(settled & (a < 0.0), 0.0, grown * km.sin(k, b) * more)
    return re, k.select(b.eq(0.0), b, im)


def two_factors(k: KernelBuilder, a: Val, function: Callable[[KernelBuilder, Val], Val]) -> Pair:
    """A function that grows like e**a, as a product of two factors. The first is finite, so that a
    cosine can be multiplied in between."""
    limit = LARGEST_EXPONENT[a.dtype]
    rest = k.select(a > limit, a - limit, 0.0)
    return function(k, k.select(a > limit, limit, a)), km.exp(k, rest)


def expm1(k: KernelBuilder, a: Val, b: Val) -> Pair:
    """expm1(a) cos b - 2 sin(b/2)**2, and the imaginary part of exp. For -0 the result is 0."""
    less, more = two_factors(k, a, km.expm1)
    half = km.sin(k, b * 0.5)
    re = (less * km.cos(k, b) + (0.0 - 2.0 * half * half)) * more
    settled = k.abs(a).eq(INF) & ~is_finite(k, b)
    return k.select(settled, k.select(a > 0.0, a, -1.0), re), exp(k, a, b)[1]


def sinh(k: KernelBuilder, a: Val, b: Val) -> Pair:
    """(sinh a cos b, cosh a sin b)."""
    (sines, more), (cosines, _) = (two_factors(k, k.abs(a), f) for f in (km.sinh, km.cosh))
    re = k.copysign(sines, a) * km.cos(k, b) * more
    im = cosines * km.sin(k, b) * more
    unknown = ~is_finite(k, b)
    re = k.select(unknown & a.eq(0.0), a, k.select(unknown & k.abs(a).eq(INF), INF, re))
    return re, k.select(b.eq(0.0), b, im)


def cosh(k: KernelBuilder, a: Val, b: Val) -> Pair:
    """(cosh a cos b, sinh a sin b)."""
    (sines, more), (cosines, _) = (two_factors(k, k.abs(a), f) for f in (km.sinh, km.cosh))
    re = cosines * km.cos(k, b) * more
    im = k.copysign(sines, a) * km.sin(k, b) * more
    re = k.select(~is_finite(k, b) & k.abs(a).eq(INF), INF, re)
    is_zero = a.eq(0.0) | b.eq(0.0)
    return re, k.select(
        is_zero, k.copysign(k.const(0.0, a.dtype), a) * k.copysign(k.const(1.0, a.dtype), b), im
    )


@in_f64
def tanh(k: KernelBuilder, a: Val, b: Val) -> Pair:
    """(sinh a cosh a, sin b cos b) / (sinh(a)**2 + cos(b)**2): the sum has no cancellation. For
    large |a| it is nearly 1."""
    far = k.abs(a) > 20.0
    x = k.select(far, 0.0, a)
    sinh_, cosh_, sin_, cos_ = km.sinh(k, x), km.cosh(k, x), km.sin(k, b), km.cos(k, b)
    square = sinh_ * sinh_ + cos_ * cos_
    faint = 4.0 * sin_ * cos_ * km.exp(k, k.abs(a) * -2.0)
    re = k.select(far, k.copysign(k.const(1.0, f64), a), sinh_ * cosh_ / square)
    im = k.select(far, faint, sin_ * cos_ / square)
    unknown = ~is_finite(k, b)
    re = k.select(a.eq(0.0), a, k.select(unknown & is_finite(k, a), NAN, re))
    im = k.select(unknown & k.abs(a).eq(INF), 0.0, im)
    return re, k.select(b.eq(0.0), b, im)


# -- logarithms ------------------------------------------------------------------------------------


@in_f64
def log(k: KernelBuilder, a: Val, b: Val) -> Pair:
    return logarithm(k, a, b)


def logarithm(k: KernelBuilder, a: Val, b: Val) -> Pair:
    """log|z|: from |z|**2 - 1 where that is small, else log m + log1p((n/m)**2)/2."""
    m, n = larger_and_smaller(k, a, b)
    near = (m >= 0.5) & (m <= 2.0)
    quotient = k.select(m.eq(0.0), 0.0, n / m)
    beyond = k.select(near, k.fma(n, n, (m - 1.0) * (m + 1.0)), quotient * quotient)
    length = k.fma(km.log1p(k, beyond), 0.5, k.select(near, 0.0, km.log(k, m)))
    return k.select(is_infinite(k, a, b), INF, length), km.atan2(k, b, a)


@in_f64
def log1p(k: KernelBuilder, a: Val, b: Val) -> Pair:
    """log(1 + z); near 0, |1 + z|**2 - 1 is a(a + 2) + b*b."""
    re, im = logarithm(k, a + 1.0, b)
    near = (k.abs(a) < 0.5) & (k.abs(b) < 0.5)
    return k.select(near, km.log1p(k, k.fma(b, b, a * (a + 2.0))) * 0.5, re), im


def scaled_log(factor: float) -> Callable[..., Pair]:
    @in_f64
    def function(k: KernelBuilder, a: Val, b: Val) -> Pair:
        re, im = logarithm(k, a, b)
        return re * factor, im * factor

    return function


# -- inverse functions -----------------------------------------------------------------------------


def roots_of_distances(k: KernelBuilder, a: Val, b: Val) -> tuple[Pair, Pair]:
    """sqrt(1 - z) and sqrt(1 + z). Where products of their parts are added, their signs agree
    (Kahan 1987)."""
    return root(k, 1.0 - a, -b), root(k, a + 1.0, b)


def steep(k: KernelBuilder, a: Val, b: Val, given: Val) -> Val:
    """asinh(given), or log(2|z|) for z so large that the roots lose all digits."""
    large = is_large(k, a, b)
    argument = k.select(large, hypot(k, a * 0.5, b * 0.5), given)
    return km.asinh(k, argument) + k.select(large, k.const(LN2, f64), 0.0)


def is_large(k: KernelBuilder, a: Val, b: Val) -> Val:
    return (k.abs(a) > 2.0**40) | (k.abs(b) > 2.0**40)


@in_f64
def asin(k: KernelBuilder, a: Val, b: Val) -> Pair:
    return arcsine(k, a, b)


def arcsine(k: KernelBuilder, a: Val, b: Val) -> Pair:
    (p, q), (r, s) = roots_of_distances(k, a, b)
    beside = k.select(is_large(k, a, b), k.abs(b), p * r - q * s)
    re = km.atan2(k, a, beside)
    im = k.copysign(steep(k, a, b, k.abs(p * s - q * r)), b)
    return k.select(a.eq(0.0), a, re), im


@in_f64
def acos(k: KernelBuilder, a: Val, b: Val) -> Pair:
    return arccosine(k, a, b)


def arccosine(k: KernelBuilder, a: Val, b: Val) -> Pair:
    (p, q), (r, s) = roots_of_distances(k, a, b)
    large = is_large(k, a, b)
    re = km.atan2(k, k.select(large, k.abs(b), p), k.select(large, a, r)) * k.select(
        large, k.const(1.0, f64), 2.0
    )
    im = k.copysign(steep(k, a, b, k.abs(r * q - s * p)), -b)
    return k.select(a.eq(0.0), math.pi / 2, re), im


@in_f64
def acosh(k: KernelBuilder, a: Val, b: Val) -> Pair:
    re, im = arccosine(k, a, b)
    return k.abs(im), k.copysign(re, b)


@in_f64
def atanh(k: KernelBuilder, a: Val, b: Val) -> Pair:
    """(log1p(4a / ((1 - a)**2 + b*b)) / 4, atan2(2b, (1 - a)(1 + a) - b*b) / 2), for |a|, which has
    the sign of a."""
    x = k.abs(a)
    m, n = larger_and_smaller(k, a, b)
    # b*b would underflow: log(2 / |b|) / 2 instead, with b scaled up
    beside = x.eq(1.0) & (k.abs(b) < 2.0**-400)
    above = k.select(beside, k.const(2.0, f64), 4.0 * x)
    below = k.select(beside, k.abs(b) * 2.0**60, k.fma(b, b, (1.0 - x) * (1.0 - x)))
    ordinary = km.log1p(k, above / below) * k.select(beside, k.const(0.5, f64), 0.25)
    ordinary = ordinary + k.select(beside, k.const(30.0 * LN2, f64), 0.0)
    far, quotient = (x > 2.0**60) | (k.abs(b) > 2.0**60), n / m
    faint = k.select(is_infinite(k, a, b), 0.0, x / m / m / k.fma(quotient, quotient, 1.0))
    re = k.copysign(k.select(far, faint, ordinary), a)
    turned = km.atan2(k, 2.0 * b, k.fma(-b, b, (1.0 - x) * (x + 1.0))) * 0.5
    right = k.copysign(k.const(math.pi / 2, f64), b)
    im = k.select(far & b.eq(b) & (a.eq(a) | k.abs(b).eq(INF)), right, turned)
    return k.select(a.eq(0.0), a, re), im


def swapped(function: Callable[..., Pair]) -> Callable[..., Pair]:
    """-i f(i z): for an odd f, f with the parts of argument and result swapped."""

    def made(k: KernelBuilder, a: Val, b: Val) -> Pair:
        re, im = function(k, b, a)
        return im, re

    return made


def cos(k: KernelBuilder, a: Val, b: Val) -> Pair:
    return cosh(k, -b, a)


# -- powers ----------------------------------------------------------------------------------------


@in_f64
def power(k: KernelBuilder, a: Val, b: Val, c: Val, d: Val) -> Pair:
    """exp(w log z). z**0 is 1; 0**w is 0 when the real part of w is positive, else NaN."""
    length, turn = logarithm(k, a, b)
    re, im = exp(k, c * length - d * turn, c * turn + d * length)
    is_zero = a.eq(0.0) & b.eq(0.0)
    nothing = k.select(c > 0.0, k.const(0.0, f64), NAN)
    re, im = (k.select(is_zero, nothing, part) for part in (re, im))
    is_one = c.eq(0.0) & d.eq(0.0)
    return k.select(is_one, 1.0, re), k.select(is_one, 0.0, im)


FUNCTIONS: dict[str, Callable[..., Pair]] = {
    "abs": absolute,
    "acos": acos,
    "acosh": acosh,
    "angle": angle,
    "asin": asin,
    "asinh": swapped(asin),
    "atan": swapped(atanh),
    "atanh": atanh,
    "cos": cos,
    "cosh": cosh,
    "divide": divide,
    "exp": exp,
    "expm1": expm1,
    "log": log,
    "log10": scaled_log(1 / math.log(10)),
    "log1p": log1p,
    "log2": scaled_log(1 / LN2),
    "pow": power,
    "reciprocal": reciprocal,
    "sign": sign,
    "sin": swapped(sinh),
    "sinh": sinh,
    "sqrt": sqrt,
    "tan": swapped(tanh),
    "tanh": tanh,
}
