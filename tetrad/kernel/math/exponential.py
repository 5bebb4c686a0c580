"""Kernel language, math, exponential: transcendental functions as compositions of kernel
instructions.

Receives a builder and values of type f32 (or f64 where `kernel.math.ulps` lists it), returns the
value of the function; ops call `exp(k, x)` and others while they lower. No function is an
instruction, so the evaluator and every back end compute the same bits. `kernel.math.ulps` states
the largest error; special values follow C99 annex F. Circular functions are in
`kernel.math.trigonometric`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tetrad.core import lazy
from tetrad.core.dtypes import f32, f64, i64
from tetrad.kernel.build import KernelBuilder, Val
from tetrad.kernel.math import coefficients as c
from tetrad.kernel.math.building_blocks import (
    at_least,
    at_most,
    clamp,
    format_of,
    keep_tiny,
    polynomial,
    power_of_bits,
    power_of_two,
    short_chain,
)
from tetrad.kernel.math.coefficients import F32, F64, FloatFormat

if TYPE_CHECKING:
    from tetrad.kernel.math.trigonometric import acos, asin, atan, atan2, cos, sin, tan
else:

    def __getattr__(name: str) -> Any:
        """A circular function, loaded when it is first asked for."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(lazy.module("tetrad.kernel.math.trigonometric"), name)


__all__ = [
    "exp", "exp2", "exp_nonpositive", "expm1", "tanh", "sigmoid", "silu", "sinh", "cosh",
    "log", "log2", "log10", "log1p", "asinh", "acosh", "atanh", "rsqrt", "pow", "erf", "erfc",
    "sin", "cos", "tan", "asin", "acos", "atan", "atan2",
]  # fmt: skip

INF, NAN = math.inf, math.nan


# -- exponentials ----------------------------------------------------------------------------------


def exp(k: KernelBuilder, x: Val) -> Val:
    fmt = format_of("exp", x)
    return _exp(k, fmt, clamp(k, x, fmt.exp_range))


def _exp(k: KernelBuilder, fmt: FloatFormat, x: Val, plus: int = 0) -> Val:
    """e**x * 2**plus for x inside exp_range.

    Two scalings by about 2**(n/2), because n may exceed the exponent range. The first is exact, so
    a subnormal result is rounded once.
    """
    shifted, r = _nearest_power(k, fmt, x)
    n = k.bitcast(shifted, fmt.bits)
    half = n >> 1
    first = polynomial(k, r, fmt.exp) * power_of_bits(k, fmt, half)
    return first * power_of_bits(k, fmt, n - half, plus)


def exp_nonpositive(k: KernelBuilder, x: Val) -> Val:
    """e**x for x <= 0 (NaN stays NaN): cheaper than `exp`, the same bits.

    The polynomial gives e**r * 2**-far; one scaling by 2**(n + far) gives the result, subnormal or
    not.
    """
    fmt = format_of("exp", x)
    far = fmt.bias - 27
    shifted, r = _nearest_power(k, fmt, at_least(k, x, fmt.exp_range[0]))
    return polynomial(k, r, [c * 2.0**-far for c in fmt.exp]) * power_of_two(
        k, fmt, shifted, plus=far
    )


def _nearest_power(k: KernelBuilder, fmt: FloatFormat, x: Val) -> tuple[Val, Val]:
    """n + fmt.shifter and r, where x = n ln2 + r and |r| <= ln2 / 2, up to rounding."""
    shifted = k.fma(x, 1 / math.log(2), fmt.shifter)
    n = shifted - fmt.shifter
    return shifted, k.fma(n, -fmt.ln2[1], k.fma(n, -fmt.ln2[0], x))


def exp2(k: KernelBuilder, x: Val) -> Val:
    fmt = format_of("exp2", x)
    return _exp2(k, fmt, clamp(k, x, fmt.exp2_range))


def _exp2(k: KernelBuilder, fmt: FloatFormat, x: Val, rest: Val | None = None) -> Val:
    """2**(x + rest) for x inside exp2_range and |rest| far below |x|. x = 2m + r, |r| <= 1: two
    equal scalings by 2**m."""
    shifted = k.fma(x, 0.5, fmt.shifter)
    r = k.fma(shifted - fmt.shifter, -2.0, x)
    scale = power_of_two(k, fmt, shifted)
    return polynomial(k, r if rest is None else r + rest, fmt.exp2) * scale * scale


def expm1(k: KernelBuilder, x: Val) -> Val:
    fmt = format_of("expm1", x)
    return keep_tiny(k, fmt, x, _expm1(k, fmt, clamp(k, x, fmt.expm1_range), scale=-2) * 4.0)


def _expm1(k: KernelBuilder, fmt: FloatFormat, x: Val, scale: int) -> Val:
    """(e**x - 1) * 2**scale for x inside expm1_range. With scale -2, 2**n is finite wherever e**x /
    2 is."""
    q, power = _exp_parts(k, fmt, x, scale)
    return k.fma(q, power, power - 2.0**scale)


def _exp_parts(
    k: KernelBuilder, fmt: FloatFormat, x: Val, scale: int, rest: Val | None = None
) -> tuple[Val, Val]:
    """q and 2**(n + scale) with e**(x + rest) = (1 + q) * 2**n, |q| < 1/2; |rest| is far below
    |x|."""
    shifted = k.fma(x, 1 / math.log(2), fmt.shifter)
    n = shifted - fmt.shifter
    r = k.fma(n, -fmt.ln2[0], x)
    r = k.fma(n, -fmt.ln2[1], r if rest is None else r + rest)
    return k.fma(r * r, short_chain(k, r, fmt.expm1), r), power_of_two(k, fmt, shifted, plus=scale)


def tanh(k: KernelBuilder, x: Val) -> Val:
    """-t / (t + 1) with t = expm1(-2|x|) / 2: no overflow, and t is exactly -|x| for tiny x."""
    fmt = format_of("tanh", x)
    t = _expm1(k, fmt, at_least(k, k.abs(x) * -2.0, fmt.expm1_range[0]), scale=-1)
    return k.copysign(t / (t + 1.0), x)


def sigmoid(k: KernelBuilder, x: Val) -> Val:
    """e**-|x| never overflows; its quotient by 1 + e**-|x| keeps the left tail, down to
    subnormals."""
    format_of("sigmoid", x)
    e = exp_nonpositive(k, -k.abs(x))
    return k.select(x < 0.0, e, 1.0) / (e + 1.0)


def silu(k: KernelBuilder, x: Val) -> Val:
    """x * sigmoid(x). On the left, x is multiplied in before the scaling of e**x, so that a
    subnormal result is rounded once.

    Where the result underflows, x is clamped: infinity times 0 would be NaN. Near 0 nothing may be
    scaled down.
    """
    fmt = format_of("sigmoid", x)
    end, far, near = (-110.0, 34, 2.0**-30) if fmt is F32 else (-756.0, 80, 2.0**-60)
    below = at_least(k, -k.abs(x), end)
    shifted, r = _nearest_power(k, fmt, below)
    e, scale = (
        polynomial(k, r, [c * 2.0**-far for c in fmt.exp]),
        power_of_two(k, fmt, shifted, plus=far),
    )
    return k.select(x < -near, below * e * scale, x) / k.fma(e, scale, 1.0)


def sinh(k: KernelBuilder, x: Val) -> Val:
    """(t + t / (t + 1)) / 2 with t = expm1(|x|), in quarters of t so that only the result
    overflows."""
    fmt = format_of("sinh", x)
    quarter = _expm1(k, fmt, at_most(k, k.abs(x), fmt.expm1_range[1]), scale=-2)
    y = k.fma(quarter, 2.0, quarter / k.fma(quarter, 2.0, 0.5))
    return keep_tiny(k, fmt, x, k.copysign(y, x))


def cosh(k: KernelBuilder, x: Val) -> Val:
    fmt = format_of("cosh", x)
    quarter = _exp(k, fmt, at_most(k, k.abs(x), fmt.expm1_range[1]), plus=-2)
    return k.fma(quarter, 2.0, 0.125 / quarter)


# -- logarithms ------------------------------------------------------------------------------------


def log(k: KernelBuilder, x: Val) -> Val:
    fmt = format_of("log", x)
    e, f = _split(k, fmt, x)
    return _log_edges(k, x, k.fma(e, fmt.ln2[0], _log1p(k, fmt, f)))


def log2(k: KernelBuilder, x: Val) -> Val:
    fmt = format_of("log2", x)
    e, f = _split(k, fmt, x)
    if fmt is F32:
        return _log_edges(k, x, e + k.fma(f, polynomial(k, f, c.LOG2_32), f))
    return _log_edges(k, x, e + _times(k, _log1p(k, fmt, f), c.LOG2_E))


def log10(k: KernelBuilder, x: Val) -> Val:
    fmt = format_of("log10", x)
    e, f = _split(k, fmt, x)
    wide = fmt is F64
    log_f = (
        _times(k, _log1p(k, fmt, f), c.LOG10_E)
        if wide
        else k.fma(f, polynomial(k, f, c.LOG10_32), f * 0.5)
    )
    return _log_edges(k, x, k.fma(e, fmt.log10_2[0], k.fma(e, fmt.log10_2[1], log_f)))


def log1p(k: KernelBuilder, x: Val) -> Val:
    """The exponent comes from u = 1 + x, the fraction from x itself, so the rounding of u loses
    nothing."""
    fmt = format_of("log1p", x)
    u = x + 1.0
    offset = _exponent_bits(k, fmt, u)
    # 2**(2-e) is normal for every e; the product with 1/4 is exact.
    scale = k.bitcast(k.const((fmt.bias + 2) << fmt.mantissa, fmt.bits) - offset, fmt.dtype) * 0.25
    f = k.fma(x, scale, scale - 1.0)
    y = k.fma(_exponent(k, fmt, offset), fmt.ln2[0], _log1p(k, fmt, f))
    return k.copysign(_log_edges(k, u, y), x)


def _split(k: KernelBuilder, fmt: FloatFormat, x: Val) -> tuple[Val, Val]:
    """x = 2**e * (1 + f) with 1 + f in [2/3, 4/3); subnormals are scaled into the normal range
    first."""
    is_small = x < fmt.min_normal
    normal = k.select(is_small, x * 2.0**fmt.mantissa, x)
    offset = _exponent_bits(k, fmt, normal)
    f = k.bitcast(k.bitcast(normal, fmt.bits) - offset, fmt.dtype) - 1.0
    return _exponent(k, fmt, offset, is_small), f


def _exponent_bits(k: KernelBuilder, fmt: FloatFormat, x: Val) -> Val:
    """e * 2**mantissa as an integer, where x = 2**e * m with m in [2/3, 4/3)."""
    two_thirds = ((fmt.bias - 1) << fmt.mantissa) + (1 << fmt.mantissa) // 3
    return (k.bitcast(x, fmt.bits) - two_thirds) & (-1 << fmt.mantissa)


def _exponent(k: KernelBuilder, fmt: FloatFormat, offset: Val, is_small: Val | None = None) -> Val:
    """The float e of `_exponent_bits`, minus what `_split` added to it where is_small.

    Converting 32-bit integers is one instruction, converting 64-bit ones is slow: there e is put
    into the low bits of a float.
    """
    extra = k.const(-fmt.mantissa, fmt.dtype), k.const(0.0, fmt.dtype)
    if fmt is F32:
        plus = extra[1] if is_small is None else k.select(is_small, *extra)
        return k.fma(offset.cast(f32), 2.0**-23, plus)
    # the bits of the shifter, 1.5 * 2**52
    shifted = k.bitcast((offset >> 52) + (0x4338 << 48), f64)
    e = shifted - fmt.shifter
    return e if is_small is None else e + k.select(is_small, *extra)


def _log1p(k: KernelBuilder, fmt: FloatFormat, f: Val) -> Val:
    """log(1 + f), f in [-1/3, 1/3]."""
    if fmt is F32:
        return k.fma(f * f, polynomial(k, f, c.LOG1P_32), f)
    # f - (h - s*(h + R)), h = f*f/2, s = f/(2+f): the large terms are exact, s scales small ones.
    s = f / (f + 2.0)
    z, h = s * s, f * f * 0.5
    return f - (h - s * k.fma(z, polynomial(k, z, c.LOG_64), h))


def _times(k: KernelBuilder, x: Val, factor: tuple[float, float]) -> Val:
    """x times a constant in two parts."""
    return k.fma(x, factor[0], x * factor[1])


def _log_edges(k: KernelBuilder, x: Val, y: Val) -> Val:
    """The logarithm of x: y where x is positive and finite; inf, -inf at 0, NaN below."""
    finite = k.select(x < INF, y, x)
    return k.select(x > 0.0, finite, k.select(x.eq(0.0), -INF, k.const(NAN, x.dtype)))


def asinh(k: KernelBuilder, x: Val) -> Val:
    """log1p(a + a*a / (1 + sqrt(a*a + 1))), a = |x|; log(a) + log(2) where a*a could overflow."""
    fmt = format_of("asinh", x)
    a = k.abs(x)
    is_large = a > fmt.large
    u = a + a * a / (k.sqrt(k.fma(a, a, 1.0)) + 1.0)
    y = log1p(k, k.select(is_large, a, u)) + k.select(is_large, fmt.ln2[0], k.const(0.0, x.dtype))
    return k.copysign(y, x)


def acosh(k: KernelBuilder, x: Val) -> Val:
    """log1p(t + sqrt(t*(t + 2))), t = x - 1; log(x) + log(2) where t*t could overflow."""
    fmt = format_of("acosh", x)
    t = x - 1.0
    is_large = x > fmt.large
    u = k.select(is_large, t, t + k.sqrt(t * (t + 2.0)))
    y = log1p(k, u) + k.select(is_large, fmt.ln2[0], k.const(0.0, x.dtype))
    return k.select(x < 1.0, k.const(NAN, x.dtype), y)


def atanh(k: KernelBuilder, x: Val) -> Val:
    format_of("atanh", x)
    a = k.abs(x)
    return k.copysign(log1p(k, (a + a) / (1.0 - a)) * 0.5, x)


# -- powers ----------------------------------------------------------------------------------------


def rsqrt(k: KernelBuilder, x: Val) -> Val:
    format_of("rsqrt", x)
    return 1.0 / k.sqrt(x)


def pow(k: KernelBuilder, x: Val, y: Val) -> Val:
    """2**(y * log2|x|), the product with more bits than the type has; then the cases of C99
    F.9.4.4."""
    fmt = format_of("pow", x)
    a = k.abs(x)
    magnitude = _pow_32(k, a, y) if fmt is F32 else _pow_64(k, a, y)
    is_integer = k.floor(y).eq(y)
    half = y * 0.5
    is_odd = is_integer & k.floor(half).ne(half)
    signed = k.select(is_odd, k.copysign(magnitude, x), magnitude)
    # A finite negative base to a power that is not whole is NaN; for 0 and inf only the sign of y
    # counts.
    undefined = (x < 0.0) & (x > -INF) & ~is_integer
    defined = k.select(undefined, k.const(NAN, x.dtype), signed)
    return k.select(x.eq(1.0) | y.eq(0.0), k.const(1.0, x.dtype), defined)


def _pow_32(k: KernelBuilder, a: Val, y: Val) -> Val:
    """a**y for a >= 0, NaN if an operand is; in f64, which holds the 35 bits that are needed."""
    product = y.cast(f64) * _pow_log2_32(k, a.cast(f64))
    exponent = clamp(k, _one_to_any(k, a, y, product), (-160.0, 130.0))
    shifted = exponent + F64.shifter
    r = exponent - (shifted - F64.shifter)
    return (polynomial(k, r, c.POW_EXP2) * power_of_two(k, F64, shifted)).cast(f32)


def _pow_log2_32(k: KernelBuilder, a: Val) -> Val:
    """log2 of an f32 held in an f64, where it is never subnormal."""
    offset = _exponent_bits(k, F64, a)
    f = k.bitcast(k.bitcast(a, i64) - offset, f64) - 1.0
    s = f / (f + 2.0)
    return _log_edges(k, a, k.fma(s, polynomial(k, s * s, c.POW_LOG2), _exponent(k, F64, offset)))


def _pow_64(k: KernelBuilder, a: Val, y: Val) -> Val:
    """As `_pow_32`, in pairs of f64: a value and its rounding error."""
    log_a, rest = _pow_log2_64(k, a)
    product = y * log_a
    low = k.fma(y, log_a, -product) + y * rest
    low = k.select(k.abs(product) < 1100.0, low, k.const(0.0, f64))  # beyond, low may be inf - inf
    return _exp2(k, F64, clamp(k, _one_to_any(k, a, y, product), F64.exp2_range), low)


def _one_to_any(k: KernelBuilder, a: Val, y: Val, product: Val) -> Val:
    """y * log2(a), but 0 if a is 1: an infinite y would give 0 * inf."""
    return k.select(a.eq(1.0) & y.eq(y), k.const(0.0, product.dtype), product)


def _pow_log2_64(k: KernelBuilder, a: Val) -> tuple[Val, Val]:
    """log2(a) as a pair, to 2**-64 relative: s * (1 + w) * 2/ln2 + e, every step a pair."""
    e, f = _split(k, F64, a)
    s, s_low = _pow_quotient(k, f)
    z = s * s
    z_low = k.fma(s, s, -z) + s * s_low * 2.0
    third, third_low = _scale_pair(k, z, z_low, c.THIRD)
    w, w_low = _add_pair(third, z * z * polynomial(k, z, c.POW_64))
    product = s * w
    product_low = k.fma(s, w, -product) + k.fma(s, w_low + third_low, s_low * w)
    h, h_low = _add_pair(s, product)
    g, g_low = _scale_pair(k, h, h_low + (product_low + s_low), c.TWO_OVER_LN2)
    total, total_low = _add_pair(e, g)
    return _log_edges(k, a, total), total_low + g_low


def _pow_quotient(k: KernelBuilder, f: Val) -> tuple[Val, Val]:
    """f / (2 + f) as a pair."""
    d = f + 2.0
    d_low = f - (d - 2.0)
    s = f / d
    return s, k.fma(-s, d_low, k.fma(-s, d, f)) / d


def _add_pair(a: Val, b: Val) -> tuple[Val, Val]:
    """a + b and its rounding error, for |a| >= |b| or a = 0."""
    total = a + b
    return total, (a - total) + b


def _scale_pair(k: KernelBuilder, x: Val, low: Val, factor: tuple[float, float]) -> tuple[Val, Val]:
    """A pair times a constant in two parts."""
    product = x * factor[0]
    return product, k.fma(x, factor[0], -product) + k.fma(x, factor[1], low * factor[0])


# -- error function --------------------------------------------------------------------------------


def erf(k: KernelBuilder, x: Val) -> Val:
    """Near 0 an odd polynomial, farther out 1 minus a small number."""
    fmt = format_of("erf", x)
    a = k.abs(x)
    far = _erf_far_32(k, a) if fmt is F32 else 1.0 - _erfc_far(k, fmt, at_most(k, a, 6.0))
    return k.copysign(k.select(a < 0.65, _erf_near(k, fmt, a), far), x)


def erfc(k: KernelBuilder, x: Val) -> Val:
    fmt = format_of("erfc", x)
    a = at_most(k, k.abs(x), fmt.erfc_end)
    far = _erfc_far(k, fmt, a)
    return k.select(a < 0.65, 1.0 - _erf_near(k, fmt, x), k.select(x < 0.0, 2.0 - far, far))


def gelu_32(k: KernelBuilder, x: Val) -> Val:
    """x times the normal distribution function. Its tail is e**(-a*a/2) * t * polynomial(t) with a
    = |x| and t = 1 / (a + centre), to a few units everywhere: one quotient, no cases."""
    a = at_most(k, k.abs(x), c.GELU_END_32)
    half = a * 0.5
    square = half * a
    scale = F32.bias // 2
    q, power = _exp_parts(k, F32, -square, scale, rest=k.fma(-half, a, square))
    t = 1.0 / (a + c.GELU_CENTRE_32)
    tail = polynomial(k, t, c.GELU_32) * t * k.fma(q, power, power)
    near = at_least(k, x, -c.GELU_END_32)
    return k.select(x < 0.0, near * tail * 2.0**-scale, near * k.fma(tail, -(2.0**-scale), 1.0))


def _erf_near(k: KernelBuilder, fmt: FloatFormat, x: Val) -> Val:
    """erf(x) for |x| < 0.65."""
    return k.fma(x, polynomial(k, x * x, fmt.erf), x)


def _erf_far_32(k: KernelBuilder, a: Val) -> Val:
    """1 - 2**h(a), a >= 0.65: h is a short polynomial, since 2**h is small."""
    h = polynomial(k, at_most(k, a, 3.93), c.ERF_FAR_32)
    shifted = h + F32.shifter
    fraction = h - (shifted - F32.shifter)
    return k.fma(-polynomial(k, fraction, c.EXP2_FRACTION_32), power_of_two(k, F32, shifted), 1.0)


def _erfc_far(k: KernelBuilder, fmt: FloatFormat, a: Val) -> Val:
    """exp(-a*a) * polynomial(q) / (1 + 2a), q = (a - centre) / (a + centre), for a in [0.65,
    erfc_end]."""
    square = a * a
    # -a*a is exactly the rounding error minus the square. The scale keeps the power of two normal.
    scale = fmt.bias // 2
    q, power = _exp_parts(k, fmt, -square, scale, rest=k.fma(-a, a, square))
    p = polynomial(k, (a - fmt.erfc_centre) / (a + fmt.erfc_centre), fmt.erfc)
    return _erfc_quotient(k, p, a) * k.fma(q, power, power) * 2.0**-scale


def _erfc_quotient(k: KernelBuilder, p: Val, a: Val) -> Val:
    """p / (1 + 2a), a > 1/2, corrected for the rounding error of the sum."""
    double = a + a
    d = double + 1.0
    d_low = 1.0 - (d - double)
    inverse = 1.0 / d
    y = p * inverse
    return k.fma(k.fma(-y, d_low, k.fma(-y, d, p)), inverse, y)
