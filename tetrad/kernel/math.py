"""The kernel language, math: transcendental functions as compositions of kernel instructions.

Receives a builder and values of type f32 (or f64 where `ULPS` lists it), returns the value of the function; ops call
`exp(k, x)` and the like while they lower. Nothing here is an instruction of its own: the evaluator and every back end
compute the same bits. `ULPS` states the largest error; special values follow C99 annex F. Straight-line code, except
that rare arguments (huge angles) sit in a branch that is skipped when no lane needs it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from tetrad.core.dtypes import DType, f32, f64, i32, i64, u32
from tetrad.core.errors import DtypeError
from tetrad.kernel import coefficients as c
from tetrad.kernel.build import KernelBuilder, Val
from tetrad.kernel.coefficients import F32, F64, Format

INF, NAN = math.inf, math.nan

# Largest error in units in the last place of the result, and with it the types each function is compiled for.
ULPS: dict[str, dict[DType, int]] = {
    "exp": {f32: 2, f64: 2},
    "exp2": {f32: 2, f64: 2},
    "expm1": {f32: 2, f64: 2},
    "log": {f32: 2, f64: 2},
    "log2": {f32: 2, f64: 3},
    "log10": {f32: 2, f64: 3},
    "log1p": {f32: 2, f64: 2},
    "tanh": {f32: 3, f64: 3},
    "sigmoid": {f32: 4, f64: 4},
    "rsqrt": {f32: 2, f64: 2},
    "sin": {f32: 2, f64: 2},
    "cos": {f32: 2, f64: 2},
    "tan": {f32: 4, f64: 4},
    "erf": {f32: 2, f64: 3},
    "erfc": {f32: 4, f64: 4},
    "pow": {f32: 1, f64: 3},
    "sinh": {f32: 3, f64: 3},
    "cosh": {f32: 3, f64: 3},
    "asin": {f32: 3, f64: 3},
    "acos": {f32: 2, f64: 2},
    "atan": {f32: 2, f64: 3},
    "atan2": {f32: 2, f64: 3},
    "asinh": {f32: 3, f64: 3},
    "acosh": {f32: 3, f64: 3},
    "atanh": {f32: 3, f64: 3},
}


def _format(name: str, x: Val) -> Format:
    """The format of x, or an error that lists what the function takes."""
    if x.dtype not in ULPS[name]:
        known = ", ".join(d.name for d in ULPS[name])
        raise DtypeError(f"{name}: no kernel for {x.dtype}", hint=f"cast to one of: {known}")
    return F32 if x.dtype is f32 else F64


# -- pieces -----------------------------------------------------------------------------------------------------------


def _short_chain(k: KernelBuilder, x: Val, coefficients: Sequence[float]) -> Val:
    """c0 + c1 x + ... with all but the first two terms in pairs of pairs: the processor waits for half as many results.

    The first two terms, which decide the rounding, are still added last.
    """
    first, second, *rest = coefficients
    parts = [k.const(c, x.dtype) for c in rest]
    power = x
    while len(parts) > 1:
        odd = parts[len(parts) // 2 * 2 :]
        parts = [k.fma(high, power, low) for low, high in zip(parts[::2], parts[1::2], strict=False)] + odd
        power = power * power if len(parts) > 1 else power
    return k.fma(k.fma(parts[0], x, second), x, first)


def _polynomial(k: KernelBuilder, x: Val, coefficients: Sequence[float]) -> Val:
    """Horner's rule, constant term first."""
    *rest, last = coefficients
    value: Val = k.const(last, x.dtype)
    for coefficient in reversed(rest):
        value = k.fma(value, x, coefficient)
    return value


def _at_most(k: KernelBuilder, x: Val, limit: float) -> Val:
    """min(x, limit) that keeps NaN; unlike the instruction `min` it is one machine instruction."""
    return k.select(x > limit, limit, x)


def _at_least(k: KernelBuilder, x: Val, limit: float) -> Val:
    return k.select(x < limit, limit, x)


def _clamp(k: KernelBuilder, x: Val, limits: tuple[float, float]) -> Val:
    return _at_least(k, _at_most(k, x, limits[1]), limits[0])


def _power_of_two(k: KernelBuilder, fmt: Format, shifted: Val, plus: int = 0) -> Val:
    """2**(n + plus), where `shifted` is n + fmt.shifter: n lies in its low bits, everything else is shifted out."""
    exponent = (k.bitcast(shifted, fmt.bits) << fmt.mantissa) + ((fmt.bias + plus) << fmt.mantissa)
    return k.bitcast(exponent, fmt.dtype)


def _keep_tiny(k: KernelBuilder, fmt: Format, x: Val, y: Val) -> Val:
    """x where f(x) rounds to x: keeps -0 and subnormals exact."""
    return k.select(k.abs(x) < fmt.tiny, x, y)


def _odd(k: KernelBuilder, x: Val, z: Val, coefficients: Sequence[float]) -> Val:
    """x + x*z*polynomial(z), z = x*x: an odd function near 0, with one rounding at the end that matters."""
    return k.fma(x * z, _polynomial(k, z, coefficients), x)


# -- exponentials -----------------------------------------------------------------------------------------------------


def exp(k: KernelBuilder, x: Val) -> Val:
    fmt = _format("exp", x)
    return _exp(k, fmt, _clamp(k, x, fmt.exp_range))


def _exp(k: KernelBuilder, fmt: Format, x: Val, factor: float = 1.0) -> Val:
    """e**x * factor for x inside exp_range, factor a power of two.

    x = 2m ln2 + r, |r| <= ln2: two equal scalings by 2**m cost less than two different ones by 2**(n//2), 2**(n-n//2),
    for one more coefficient. The first is exact, so a subnormal result is rounded once.
    """
    shifted = k.fma(x, 0.5 / math.log(2), fmt.shifter)
    m = shifted - fmt.shifter
    r = k.fma(m, -2 * fmt.ln2[1], k.fma(m, -2 * fmt.ln2[0], x))
    scale = _power_of_two(k, fmt, shifted)
    first = _short_chain(k, r, fmt.exp) * scale
    return first * (scale if factor == 1.0 else scale * factor)


def exp_nonpositive(k: KernelBuilder, x: Val) -> Val:
    """e**x for x that is not above 0, a quarter cheaper than `exp` and no less precise. (NaN stays NaN.)

    The polynomial gives e**r * 2**-far and one scaling by 2**(n + far) the result, subnormal or not: with results above
    1 as well, there would be more powers than a number has exponents.
    """
    fmt = _format("exp", x)
    x, far = _at_least(k, x, fmt.exp_range[0]), fmt.bias - 27
    shifted = k.fma(x, 1 / math.log(2), fmt.shifter)
    n = shifted - fmt.shifter
    r = k.fma(n, -fmt.ln2[1], k.fma(n, -fmt.ln2[0], x))
    return _polynomial(k, r, [c * 2.0**-far for c in fmt.exp_near]) * _power_of_two(k, fmt, shifted, plus=far)


def exp2(k: KernelBuilder, x: Val) -> Val:
    fmt = _format("exp2", x)
    return _exp2(k, fmt, _clamp(k, x, fmt.exp2_range))


def _exp2(k: KernelBuilder, fmt: Format, x: Val, rest: Val | None = None) -> Val:
    """2**(x + rest) for x inside exp2_range, a rest far below x; scaled as in `_exp`."""
    shifted = k.fma(x, 0.5, fmt.shifter)
    r = k.fma(shifted - fmt.shifter, -2.0, x)
    scale = _power_of_two(k, fmt, shifted)
    return _polynomial(k, r if rest is None else r + rest, fmt.exp2) * scale * scale


def expm1(k: KernelBuilder, x: Val) -> Val:
    fmt = _format("expm1", x)
    return _keep_tiny(k, fmt, x, _expm1(k, fmt, _clamp(k, x, fmt.expm1_range), scale=-2) * 4.0)


def _expm1(k: KernelBuilder, fmt: Format, x: Val, scale: int) -> Val:
    """(e**x - 1) * 2**scale for x inside expm1_range; scale -2 keeps 2**n finite wherever e**x / 2 is."""
    q, power = _exp_parts(k, fmt, x, scale)
    return k.fma(q, power, power - 2.0**scale)


def _exp_parts(k: KernelBuilder, fmt: Format, x: Val, scale: int, rest: Val | None = None) -> tuple[Val, Val]:
    """q and 2**(n + scale) with e**(x + rest) = (1 + q) * 2**n, |q| < 1/2; the rest is far below x."""
    shifted = k.fma(x, 1 / math.log(2), fmt.shifter)
    n = shifted - fmt.shifter
    r = k.fma(n, -fmt.ln2[0], x)
    r = k.fma(n, -fmt.ln2[1], r if rest is None else r + rest)
    return k.fma(r * r, _short_chain(k, r, fmt.expm1), r), _power_of_two(k, fmt, shifted, plus=scale)


def tanh(k: KernelBuilder, x: Val) -> Val:
    """-t / (t + 1) with t = expm1(-2|x|) / 2: no overflow, and t is exactly -|x| where x is tiny."""
    fmt = _format("tanh", x)
    t = _expm1(k, fmt, _at_least(k, k.abs(x) * -2.0, fmt.expm1_range[0]), scale=-1)
    return k.copysign(t / (t + 1.0), x)


def sigmoid(k: KernelBuilder, x: Val) -> Val:
    """e**-|x| never overflows; its quotient by 1 + e**-|x| keeps the far left tail, down to subnormals."""
    _format("sigmoid", x)
    e = exp_nonpositive(k, -k.abs(x))
    return k.select(x < 0.0, e, 1.0) / (e + 1.0)


def sinh(k: KernelBuilder, x: Val) -> Val:
    """(t + t / (t + 1)) / 2 with t = expm1(|x|), in quarters of t so that only the result overflows."""
    fmt = _format("sinh", x)
    quarter = _expm1(k, fmt, _at_most(k, k.abs(x), fmt.expm1_range[1]), scale=-2)
    y = k.fma(quarter, 2.0, quarter / k.fma(quarter, 2.0, 0.5))
    return _keep_tiny(k, fmt, x, k.copysign(y, x))


def cosh(k: KernelBuilder, x: Val) -> Val:
    fmt = _format("cosh", x)
    quarter = _exp(k, fmt, _at_most(k, k.abs(x), fmt.expm1_range[1]), factor=0.25)
    return k.fma(quarter, 2.0, 0.125 / quarter)


# -- logarithms -------------------------------------------------------------------------------------------------------


def log(k: KernelBuilder, x: Val) -> Val:
    fmt = _format("log", x)
    e, f = _split(k, fmt, x)
    return _log_edges(k, x, k.fma(e, fmt.ln2[0], _log1p(k, fmt, f)))


def log2(k: KernelBuilder, x: Val) -> Val:
    fmt = _format("log2", x)
    e, f = _split(k, fmt, x)
    if fmt is F32:
        return _log_edges(k, x, e + k.fma(f, _polynomial(k, f, c.LOG2_32), f))
    return _log_edges(k, x, e + _times(k, _log1p(k, fmt, f), c.LOG2_E))


def log10(k: KernelBuilder, x: Val) -> Val:
    fmt = _format("log10", x)
    e, f = _split(k, fmt, x)
    wide = fmt is F64
    log_f = _times(k, _log1p(k, fmt, f), c.LOG10_E) if wide else k.fma(f, _polynomial(k, f, c.LOG10_32), f * 0.5)
    return _log_edges(k, x, k.fma(e, fmt.log10_2[0], k.fma(e, fmt.log10_2[1], log_f)))


def log1p(k: KernelBuilder, x: Val) -> Val:
    """The exponent comes from u = 1 + x, the fraction from x itself: what u rounded away is not lost."""
    fmt = _format("log1p", x)
    u = x + 1.0
    offset = _exponent_bits(k, fmt, u)
    # 2**(2-e) is normal for every e; the product with 1/4 is exact.
    scale = k.bitcast(k.const((fmt.bias + 2) << fmt.mantissa, fmt.bits) - offset, fmt.dtype) * 0.25
    f = k.fma(x, scale, scale - 1.0)
    y = k.fma(_exponent(k, fmt, offset), fmt.ln2[0], _log1p(k, fmt, f))
    return k.copysign(_log_edges(k, u, y), x)


def _split(k: KernelBuilder, fmt: Format, x: Val) -> tuple[Val, Val]:
    """x = 2**e * (1 + f) with 1 + f in [2/3, 4/3); subnormals are scaled into the normal range first."""
    is_small = x < fmt.min_normal
    normal = k.select(is_small, x * 2.0**fmt.mantissa, x)
    offset = _exponent_bits(k, fmt, normal)
    f = k.bitcast(k.bitcast(normal, fmt.bits) - offset, fmt.dtype) - 1.0
    return _exponent(k, fmt, offset, is_small), f


def _exponent_bits(k: KernelBuilder, fmt: Format, x: Val) -> Val:
    """e * 2**mantissa as an integer, where x = 2**e * m with m in [2/3, 4/3)."""
    two_thirds = ((fmt.bias - 1) << fmt.mantissa) + (1 << fmt.mantissa) // 3
    return (k.bitcast(x, fmt.bits) - two_thirds) & (-1 << fmt.mantissa)


def _exponent(k: KernelBuilder, fmt: Format, offset: Val, is_small: Val | None = None) -> Val:
    """The float e of `_exponent_bits`, less what `_split` added to it where is_small.

    Conversion of 32-bit integers is an instruction, of 64-bit ones slow: there e enters the low bits of a float.
    """
    extra = k.const(-fmt.mantissa, fmt.dtype), k.const(0.0, fmt.dtype)
    if fmt is F32:
        plus = extra[1] if is_small is None else k.select(is_small, *extra)
        return k.fma(offset.cast(f32), 2.0**-23, plus)
    shifted = k.bitcast((offset >> 52) + (0x4338 << 48), f64)  # the bits of the shifter, 1.5 * 2**52
    e = shifted - fmt.shifter
    return e if is_small is None else e + k.select(is_small, *extra)


def _log1p(k: KernelBuilder, fmt: Format, f: Val) -> Val:
    """log(1 + f), f in [-1/3, 1/3]."""
    if fmt is F32:
        return k.fma(f * f, _polynomial(k, f, c.LOG1P_32), f)
    # f - (h - s*(h + R)), h = f*f/2, s = f/(2+f): the large terms are exact, s only scales small ones.
    s = f / (f + 2.0)
    z, h = s * s, f * f * 0.5
    return f - (h - s * k.fma(z, _polynomial(k, z, c.LOG_64), h))


def _times(k: KernelBuilder, x: Val, factor: tuple[float, float]) -> Val:
    """x times a constant in two parts."""
    return k.fma(x, factor[0], x * factor[1])


def _log_edges(k: KernelBuilder, x: Val, y: Val) -> Val:
    """The logarithm of x: y where x is positive and finite; inf, -inf at 0, NaN below."""
    finite = k.select(x < INF, y, x)
    return k.select(x > 0.0, finite, k.select(x.eq(0.0), -INF, k.const(NAN, x.dtype)))


def asinh(k: KernelBuilder, x: Val) -> Val:
    """log1p(a + a*a / (1 + sqrt(a*a + 1))), a = |x|; log(a) + log(2) where a*a could overflow."""
    fmt = _format("asinh", x)
    a = k.abs(x)
    is_large = a > fmt.large
    u = a + a * a / (k.sqrt(k.fma(a, a, 1.0)) + 1.0)
    y = log1p(k, k.select(is_large, a, u)) + k.select(is_large, fmt.ln2[0], k.const(0.0, x.dtype))
    return k.copysign(y, x)


def acosh(k: KernelBuilder, x: Val) -> Val:
    """log1p(t + sqrt(t*(t + 2))), t = x - 1; log(x) + log(2) where t*t could overflow."""
    fmt = _format("acosh", x)
    t = x - 1.0
    is_large = x > fmt.large
    u = k.select(is_large, t, t + k.sqrt(t * (t + 2.0)))
    y = log1p(k, u) + k.select(is_large, fmt.ln2[0], k.const(0.0, x.dtype))
    return k.select(x < 1.0, k.const(NAN, x.dtype), y)


def atanh(k: KernelBuilder, x: Val) -> Val:
    _format("atanh", x)
    a = k.abs(x)
    return k.copysign(log1p(k, (a + a) / (1.0 - a)) * 0.5, x)


# -- powers -----------------------------------------------------------------------------------------------------------


def rsqrt(k: KernelBuilder, x: Val) -> Val:
    _format("rsqrt", x)
    return 1.0 / k.sqrt(x)


def pow(k: KernelBuilder, x: Val, y: Val) -> Val:
    """2**(y * log2|x|), the product with more bits than the type has; then the cases of C99 F.9.4.4."""
    fmt = _format("pow", x)
    a = k.abs(x)
    magnitude = _pow_32(k, a, y) if fmt is F32 else _pow_64(k, a, y)
    is_integer = k.floor(y).eq(y)
    half = y * 0.5
    is_odd = is_integer & k.floor(half).ne(half)
    signed = k.select(is_odd, k.copysign(magnitude, x), magnitude)
    # A finite negative base has no real power that is not whole; 0 and inf only look at the sign of y.
    undefined = (x < 0.0) & (x > -INF) & ~is_integer
    defined = k.select(undefined, k.const(NAN, x.dtype), signed)
    return k.select(x.eq(1.0) | y.eq(0.0), k.const(1.0, x.dtype), defined)


def _pow_32(k: KernelBuilder, a: Val, y: Val) -> Val:
    """a**y for a >= 0, NaN where an operand is; in f64, which holds the 35 bits that are needed."""
    product = y.cast(f64) * _pow_log2_32(k, a.cast(f64))
    exponent = _clamp(k, _one_to_any(k, a, y, product), (-160.0, 130.0))
    shifted = exponent + F64.shifter
    r = exponent - (shifted - F64.shifter)
    return (_polynomial(k, r, c.POW_EXP2) * _power_of_two(k, F64, shifted)).cast(f32)


def _pow_log2_32(k: KernelBuilder, a: Val) -> Val:
    """log2 of an f32 held in an f64, where it is never subnormal."""
    offset = _exponent_bits(k, F64, a)
    f = k.bitcast(k.bitcast(a, i64) - offset, f64) - 1.0
    s = f / (f + 2.0)
    return _log_edges(k, a, k.fma(s, _polynomial(k, s * s, c.POW_LOG2), _exponent(k, F64, offset)))


def _pow_64(k: KernelBuilder, a: Val, y: Val) -> Val:
    """As `_pow_32`, in pairs (a value and its rounding error) of f64."""
    log_a, rest = _pow_log2_64(k, a)
    product = y * log_a
    low = k.fma(y, log_a, -product) + y * rest
    low = k.select(k.abs(product) < 1100.0, low, k.const(0.0, f64))  # beyond, low may be inf - inf
    return _exp2(k, F64, _clamp(k, _one_to_any(k, a, y, product), F64.exp2_range), low)


def _one_to_any(k: KernelBuilder, a: Val, y: Val, product: Val) -> Val:
    """y * log2(a), but 0 where a is 1: there an infinite y would give 0 * inf."""
    return k.select(a.eq(1.0) & y.eq(y), k.const(0.0, product.dtype), product)


def _pow_log2_64(k: KernelBuilder, a: Val) -> tuple[Val, Val]:
    """log2(a) and what is missing, to 2**-64 of it: s * (1 + w) * 2/ln2 + e, every step a pair."""
    e, f = _split(k, F64, a)
    s, s_low = _pow_quotient(k, f)
    z = s * s
    z_low = k.fma(s, s, -z) + s * s_low * 2.0
    third, third_low = _scale_pair(k, z, z_low, c.THIRD)
    w, w_low = _add_pair(third, z * z * _polynomial(k, z, c.POW_64))
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


# -- error function ---------------------------------------------------------------------------------------------------


def erf(k: KernelBuilder, x: Val) -> Val:
    """Near 0 an odd polynomial, further out one minus something small."""
    fmt = _format("erf", x)
    a = k.abs(x)
    far = _erf_far_32(k, a) if fmt is F32 else 1.0 - _erfc_far(k, fmt, _at_most(k, a, 6.0))
    return k.copysign(k.select(a < 0.65, _erf_near(k, fmt, a), far), x)


def erfc(k: KernelBuilder, x: Val) -> Val:
    fmt = _format("erfc", x)
    a = _at_most(k, k.abs(x), fmt.erfc_end)
    far = _erfc_far(k, fmt, a)
    return k.select(a < 0.65, 1.0 - _erf_near(k, fmt, x), k.select(x < 0.0, 2.0 - far, far))


def _erf_near(k: KernelBuilder, fmt: Format, x: Val) -> Val:
    """erf(x) for |x| < 0.65."""
    return k.fma(x, _polynomial(k, x * x, fmt.erf), x)


def _erf_far_32(k: KernelBuilder, a: Val) -> Val:
    """1 - 2**h(a), a >= 0.65: h is a short polynomial, since 2**h is small."""
    h = _polynomial(k, _at_most(k, a, 3.93), c.ERF_FAR_32)
    shifted = h + F32.shifter
    fraction = h - (shifted - F32.shifter)
    return k.fma(-_polynomial(k, fraction, c.EXP2_FRACTION_32), _power_of_two(k, F32, shifted), 1.0)


def _erfc_far(k: KernelBuilder, fmt: Format, a: Val) -> Val:
    """exp(-a*a) * polynomial(q) / (1 + 2a), q = (a - centre) / (a + centre), for a in [0.65, erfc_end]."""
    square = a * a
    # -a*a is exactly the rounding error minus the square. The scale keeps the power of two normal.
    scale = fmt.bias // 2
    q, power = _exp_parts(k, fmt, -square, scale, rest=k.fma(-a, a, square))
    p = _polynomial(k, (a - fmt.erfc_centre) / (a + fmt.erfc_centre), fmt.erfc)
    return _erfc_quotient(k, p, a) * k.fma(q, power, power) * 2.0**-scale


def _erfc_quotient(k: KernelBuilder, p: Val, a: Val) -> Val:
    """p / (1 + 2a), a > 1/2, with the rounding error of the sum made good."""
    double = a + a
    d = double + 1.0
    d_low = 1.0 - (d - double)
    inverse = 1.0 / d
    y = p * inverse
    return k.fma(k.fma(-y, d_low, k.fma(-y, d, p)), inverse, y)


# -- circular functions -----------------------------------------------------------------------------------------------


def sin(k: KernelBuilder, x: Val) -> Val:
    fmt = _format("sin", x)
    r, quadrant = _reduce_angle(k, fmt, x)
    y = _by_quadrant(k, quadrant, *_sin_cos(k, fmt, r))
    return _flip(k, fmt, y, k.bitcast(x, fmt.bits) ^ _sign_of(fmt, quadrant))


def cos(k: KernelBuilder, x: Val) -> Val:
    fmt = _format("cos", x)
    r, quadrant = _reduce_angle(k, fmt, x)
    following = quadrant + 1
    return _flip(k, fmt, _by_quadrant(k, following, *_sin_cos(k, fmt, r)), _sign_of(fmt, following))


def tan(k: KernelBuilder, x: Val) -> Val:
    """sin/cos in even quadrants, -cos/sin in odd ones."""
    fmt = _format("tan", x)
    r, quadrant = _reduce_angle(k, fmt, x)
    sine, cosine = _sin_cos(k, fmt, r)
    y = _by_quadrant(k, quadrant, sine, -cosine) / _by_quadrant(k, quadrant, cosine, sine)
    return _flip(k, fmt, y, k.bitcast(x, fmt.bits))


def _sin_cos(k: KernelBuilder, fmt: Format, r: Val) -> tuple[Val, Val]:
    """Sine and cosine of |r| <= pi/4."""
    z = r * r
    return _odd(k, r, z, fmt.sin), k.fma(z, _polynomial(k, z, fmt.cos), 1.0)


def _by_quadrant(k: KernelBuilder, quadrant: Val, even: Val, odd: Val) -> Val:
    return k.select((quadrant & 1).eq(0), even, odd)


def _sign_of(fmt: Format, quadrant: Val) -> Val:
    """Bit 1 of the quadrant as the sign bit."""
    return quadrant << (fmt.dtype.bits - 2)


def _flip(k: KernelBuilder, fmt: Format, y: Val, sign: Val) -> Val:
    """y with its sign flipped where the top bit of `sign` is set; sets the sign of zeros too."""
    return k.bitcast(k.bitcast(y, fmt.bits) ^ (sign & fmt.sign_bit), fmt.dtype)


def _reduce_angle(k: KernelBuilder, fmt: Format, x: Val) -> tuple[Val, Val]:
    """|x| = n*pi/2 + r with |r| <= pi/4: r, and an integer equal to n modulo 4.

    The product of n with the first part of pi/2 cancels exactly against |x|, the others reach far below r.
    """
    r, quadrant = k.once(("angle", x.node), lambda: _reduced_angle(k, fmt, k.abs(x)))  # sine and cosine share it
    return r, quadrant


def _reduced_angle(k: KernelBuilder, fmt: Format, a: Val) -> tuple[Val, Val]:
    shifted = k.fma(a, c.TWO_OVER_PI, fmt.shifter)
    n = shifted - fmt.shifter
    r = a
    for part in fmt.half_pi:
        r = k.fma(n, -part, r)
    angle, quadrant = k.local(r), k.local(k.bitcast(shifted, fmt.bits))
    with k.when(a > fmt.near_angle):
        far, far_quadrant = _reduce_far_32(k, a) if fmt is F32 else _reduce_far_64(k, a)
        angle.set(k.select(a < INF, far, k.const(NAN, fmt.dtype)))
        quadrant.set(far_quadrant)
    return angle.get(), quadrant.get()


# Payne and Hanek: a = m * 2**p with an integer m. Bits of 2/pi above position p - 2 only add full turns to a * 2/pi, so
# the product of m with the window of bits that starts there, modulo 1, is a as a fraction of a full turn.


def _reduce_far_32(k: KernelBuilder, a: Val) -> tuple[Val, Val]:
    """A 64-bit fraction from 96 bits of 2/pi: f32 angles come no closer than 2**-30 to a multiple of pi/2."""
    bits = k.bitcast(a, i32)
    m = ((bits & 0x7FFFFF) | 0x800000).cast(i64)
    w = _window(k, (bits >> 23).cast(i64) - 120, count=3, levels=3)
    turn = m * ((w[0] << 32) | w[1]) + ((m * w[2]) >> 32)
    r = (turn << 2).cast(f64) * (math.pi / 2 * 2.0**-64)
    return r.cast(f32), _nearest_quadrant(turn).cast(i32)


def _reduce_far_64(k: KernelBuilder, a: Val) -> tuple[Val, Val]:
    """A 128-bit fraction from 192 bits of 2/pi: f64 angles come as close as 2**-61 to a multiple of pi/2."""
    bits = k.bitcast(a, i64)
    m = (bits & ((1 << 52) - 1)) | (1 << 52)
    p = _fraction_of_turn(k, m, _window(k, (bits >> 52) - 1045, count=6, levels=5))
    turn = (p[0] << 32) | p[1]
    rest = (turn << 2) | (p[2] >> 30)
    high = rest.cast(f64)
    below = (((p[2] & 0x3FFFFFFF) << 23) | (p[3] >> 9)).cast(f64)  # the next 53 bits
    low = k.fma(below, 2.0**-53, (rest - high.cast(i64)).cast(f64))  # and what the conversion rounded away
    quarter = tuple(part * 2.0**-64 for part in F64.half_pi)
    return k.fma(high, quarter[0], k.fma(high, quarter[1], low * quarter[0])), _nearest_quadrant(turn)


def _nearest_quadrant(turn: Val) -> Val:
    """2**64 is a full turn: the rest, turn << 2 as a signed number, is then at most half a quadrant."""
    return (turn + (1 << 61)) >> 62


def _window(k: KernelBuilder, position: Val, *, count: int, levels: int) -> list[Val]:
    """`count` words of 32 bits of the table of 2/pi from a bit position on, the first 2**levels words as start."""
    words, start = [k.const(word, u32) for word in c.TWO_OVER_PI_WORDS], position.cast(i32)
    for level in reversed(range(levels)):
        is_set = ((start >> (5 + level)) & 1).ne(0)
        kept = count + 1 + (1 << level) - 1
        words = [k.select(is_set, words[i + (1 << level)], words[i]) for i in range(kept)]
    shift = position & 31
    return [_low_word((a << shift) | (b >> (32 - shift))) for a, b in pairwise([word.cast(i64) for word in words])]


def _low_word(x: Val) -> Val:
    return x & 0xFFFFFFFF


def _fraction_of_turn(k: KernelBuilder, m: Val, w: Sequence[Val]) -> list[Val]:
    """The first four 32-bit digits after the point of m * 0.w0w1w2..., m < 2**53: long multiplication."""
    m_low, m_high = _low_word(m), m >> 32
    low, high = [m_low * x for x in w], [m_high * x for x in w]  # modulo 2**64, read as unsigned
    digits, carry = [], k.const(0, i64)
    for i in reversed(range(5)):
        column = _low_word(low[i]) + _low_word(low[i + 1] >> 32) + _low_word(high[i + 1])
        if i + 2 < len(w):
            column = column + _low_word(high[i + 2] >> 32)
        digits.append(_low_word(column + carry))
        carry = (column + carry) >> 32
    return digits[::-1][:4]


def asin(k: KernelBuilder, x: Val) -> Val:
    """Above 1/2: pi/2 - 2 asin(sqrt((1 - |x|) / 2)). NaN outside [-1, 1] by the square root."""
    fmt = _format("asin", x)
    p, is_large = _asin_core(k, fmt, x)
    return k.copysign(k.select(is_large, _minus(_half_pi(fmt), p + p), p), x)


def acos(k: KernelBuilder, x: Val) -> Val:
    fmt = _format("acos", x)
    p, is_large = _asin_core(k, fmt, x)
    outer = k.select(x < 0.0, _minus(_pi(fmt), p + p), p + p)
    return k.select(is_large, outer, _minus(_half_pi(fmt), k.copysign(p, x)))


def _asin_core(k: KernelBuilder, fmt: Format, x: Val) -> tuple[Val, Val]:
    """asin(|x|) below 1/2, else asin(sqrt((1 - |x|) / 2)); and which."""
    a = k.abs(x)
    is_large = a > 0.5
    z = k.select(is_large, k.fma(a, -0.5, 0.5), a * a)
    s = k.select(is_large, k.sqrt(z), a)
    return _odd(k, s, z, fmt.asin), is_large


def _half_pi(fmt: Format) -> tuple[float, float]:
    return fmt.half_pi[:2]


def _pi(fmt: Format) -> tuple[float, float]:
    return 2 * fmt.half_pi[0], 2 * fmt.half_pi[1]


def _minus(constant: tuple[float, float], x: Val) -> Val:
    """A constant in two parts, minus x."""
    return constant[0] - (x - constant[1])


def atan(k: KernelBuilder, x: Val) -> Val:
    fmt = _format("atan", x)
    a = k.abs(x)
    is_large = a > 1.0
    one = k.const(1.0, x.dtype)
    p = _atan_quotient(k, fmt, k.select(is_large, one, a), k.select(is_large, a, one))
    return k.copysign(k.select(is_large, _minus(_half_pi(fmt), p), p), x)


def atan2(k: KernelBuilder, y: Val, x: Val) -> Val:
    """The angle of the point (x, y): the octant by comparisons, the rest from the smaller over the larger."""
    fmt = _format("atan2", y)
    a, b = k.abs(x), k.abs(y)
    small, large = k.min(a, b), k.max(a, b)
    both_infinite = small.eq(INF)
    one = k.const(1.0, x.dtype)
    p = _atan_quotient(k, fmt, k.select(both_infinite, one, small), k.select(both_infinite | large.eq(0.0), one, large))
    p = k.select(b > a, _minus(_half_pi(fmt), p), p)
    p = k.select(k.bitcast(x, fmt.bits) < 0, _minus(_pi(fmt), p), p)
    return k.copysign(p, y)


def _atan_quotient(k: KernelBuilder, fmt: Format, small: Val, large: Val) -> Val:
    """atan(small / large), 0 <= small <= large. In f64 the polynomial covers a quarter of that; it turns by pi/4."""
    if fmt is F32:
        t = small / large
        return _odd(k, t, t * t, fmt.atan)
    scale = k.select(large > 2.0**1000, k.const(0.25, f64), k.const(1.0, f64))  # the sum must not overflow
    small, large = small * scale, large * scale
    is_turned = small > large * c.TAN_PI_8
    t = k.select(is_turned, small - large, small) / k.select(is_turned, small + large, large)
    p = _odd(k, t, t * t, fmt.atan)
    quarter = tuple(part / 2 for part in _half_pi(fmt))
    return k.select(is_turned, quarter[0] + (p + quarter[1]), p)
