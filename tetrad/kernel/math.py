"""The kernel language, math: transcendental functions as compositions of kernel instructions.

Receives a builder and values of type f32 (or f64 where `ULPS` lists it), returns the value of the function; ops call
`exp(k, x)` and the like while they lower. Nothing here is an instruction of its own: the evaluator and every back end
compute the same bits. `ULPS` states the largest error; special values follow C99 annex F. Straight-line code, except
that rare arguments (huge angles) sit in a branch that is skipped when no lane needs it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tetrad.core.dtypes import DType, f32, f64, i32, i64
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
    "sigmoid": {f32: 3, f64: 3},
    "rsqrt": {f32: 2, f64: 2},
    "sin": {f32: 2},
    "cos": {f32: 2},
    "tan": {f32: 3},
    "erf": {f32: 2},
    "erfc": {f32: 4},
    "pow": {f32: 1},
    "sinh": {f32: 3, f64: 3},
    "cosh": {f32: 2, f64: 2},
    "asin": {f32: 3},
    "acos": {f32: 2},
    "atan": {f32: 2},
    "atan2": {f32: 2},
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
    first = _polynomial(k, r, fmt.exp) * scale
    return first * (scale if factor == 1.0 else scale * factor)


def exp2(k: KernelBuilder, x: Val) -> Val:
    fmt = _format("exp2", x)
    x = _clamp(k, x, fmt.exp2_range)
    shifted = k.fma(x, 0.5, fmt.shifter)
    r = k.fma(shifted - fmt.shifter, -2.0, x)
    scale = _power_of_two(k, fmt, shifted)
    return _polynomial(k, r, fmt.exp2) * scale * scale


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
    return k.fma(r * r, _polynomial(k, r, fmt.expm1), r), _power_of_two(k, fmt, shifted, plus=scale)


def tanh(k: KernelBuilder, x: Val) -> Val:
    """-t / (t + 1) with t = expm1(-2|x|) / 2: no overflow, and t is exactly -|x| where x is tiny."""
    fmt = _format("tanh", x)
    t = _expm1(k, fmt, _at_least(k, k.abs(x) * -2.0, fmt.expm1_range[0]), scale=-1)
    return k.copysign(t / (t + 1.0), x)


def sigmoid(k: KernelBuilder, x: Val) -> Val:
    """e**-|x| never overflows; its quotient by 1 + e**-|x| keeps the far left tail, down to subnormals."""
    fmt = _format("sigmoid", x)
    e = _exp(k, fmt, _at_least(k, -k.abs(x), fmt.exp_range[0]))
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
    """2**(y * log2|x|) in f64, which holds the 32 bits that the product needs; then the cases of C99 F.9.4.4."""
    _format("pow", x)
    magnitude = _pow_magnitude(k, k.abs(x), y)
    is_integer = k.floor(y).eq(y)
    half = y * 0.5
    is_odd = is_integer & k.floor(half).ne(half)
    signed = k.select(is_odd, k.copysign(magnitude, x), magnitude)
    # A finite negative base has no real power that is not whole; 0 and inf only look at the sign of y.
    undefined = (x < 0.0) & (x > -INF) & ~is_integer
    defined = k.select(undefined, k.const(NAN, f32), signed)
    return k.select(x.eq(1.0) | y.eq(0.0), k.const(1.0, f32), defined)


def _pow_magnitude(k: KernelBuilder, a: Val, y: Val) -> Val:
    """a**y for a >= 0, NaN where an operand is."""
    exponent = y.cast(f64) * _pow_log2(k, a.cast(f64))
    # 1**inf: the product is 0 * inf.
    exponent = k.select(a.eq(1.0) & y.eq(y), k.const(0.0, f64), exponent)
    clamped = _clamp(k, exponent, (-160.0, 130.0))
    shifted = clamped + F64.shifter
    r = clamped - (shifted - F64.shifter)
    return (_polynomial(k, r, c.POW_EXP2) * _power_of_two(k, F64, shifted)).cast(f32)


def _pow_log2(k: KernelBuilder, a: Val) -> Val:
    """log2 of an f32 held in an f64: never subnormal, 2**-35 is enough."""
    offset = _exponent_bits(k, F64, a)
    f = k.bitcast(k.bitcast(a, i64) - offset, f64) - 1.0
    s = f / (f + 2.0)
    return _log_edges(k, a, k.fma(s, _polynomial(k, s * s, c.POW_LOG2), _exponent(k, F64, offset)))


# -- error function ---------------------------------------------------------------------------------------------------


def erf(k: KernelBuilder, x: Val) -> Val:
    """Near 0 an odd polynomial, further out 1 - 2**h(|x|): h is a short polynomial, since 2**h is small."""
    _format("erf", x)
    a = k.abs(x)
    h = _polynomial(k, _at_most(k, a, 3.93), c.ERF_FAR_32)
    shifted = h + F32.shifter
    fraction = h - (shifted - F32.shifter)
    far = k.fma(-_polynomial(k, fraction, c.EXP2_FRACTION_32), _power_of_two(k, F32, shifted), 1.0)
    return k.copysign(k.select(a < 0.65, _erf_near(k, a), far), x)


def erfc(k: KernelBuilder, x: Val) -> Val:
    """1 - erf(x) near 0, else exp(-a*a) * polynomial((a - 2) / (a + 2)) / (1 + 2a), a = |x|; 2 minus it on the left."""
    _format("erfc", x)
    a = _at_most(k, k.abs(x), 10.1)
    square = a * a
    # -a*a is exactly the rounding error minus the square. The factor 2**64 keeps the power of two normal.
    q, power = _exp_parts(k, F32, -square, scale=64, rest=k.fma(-a, a, square))
    p = _polynomial(k, (a - 2.0) / (a + 2.0), c.ERFC_32)
    far = p / k.fma(a, 2.0, 1.0) * k.fma(q, power, power) * 2.0**-64
    return k.select(a < 0.65, 1.0 - _erf_near(k, x), k.select(x < 0.0, 2.0 - far, far))


def _erf_near(k: KernelBuilder, x: Val) -> Val:
    """erf(x) for |x| < 0.65."""
    return k.fma(x, _polynomial(k, x * x, c.ERF_NEAR_32), x)


# -- circular functions -----------------------------------------------------------------------------------------------


def sin(k: KernelBuilder, x: Val) -> Val:
    _format("sin", x)
    r, quadrant = _reduce_angle(k, x)
    y = _sin_or_cos(k, r, quadrant)
    return _flip(k, y, k.bitcast(x, i32) ^ (quadrant << 30))


def cos(k: KernelBuilder, x: Val) -> Val:
    _format("cos", x)
    r, quadrant = _reduce_angle(k, x)
    next_quadrant = quadrant + 1
    return _flip(k, _sin_or_cos(k, r, next_quadrant), next_quadrant << 30)


def tan(k: KernelBuilder, x: Val) -> Val:
    _format("tan", x)
    r, quadrant = _reduce_angle(k, x)
    t = _odd(k, r, r * r, c.TAN_32)
    y = k.select((quadrant & 1).eq(0), t, -1.0 / t)
    return _flip(k, y, k.bitcast(x, i32))


def _sin_or_cos(k: KernelBuilder, r: Val, quadrant: Val) -> Val:
    """sin(r) in even quadrants, cos(r) in odd ones."""
    z = r * r
    sine, cosine = _odd(k, r, z, c.SIN_32), k.fma(z, _polynomial(k, z, c.COS_32), 1.0)
    return k.select((quadrant & 1).eq(0), sine, cosine)


def _flip(k: KernelBuilder, y: Val, sign: Val) -> Val:
    """y with its sign flipped where the top bit of `sign` is set; sets the sign of zeros too."""
    return k.bitcast(k.bitcast(y, i32) ^ (sign & F32.sign_bit), f32)


def _reduce_angle(k: KernelBuilder, x: Val) -> tuple[Val, Val]:
    """|x| = n*pi/2 + r with |r| <= pi/4: r, and an integer equal to n modulo 4.

    n*pi/2 in three parts is exact enough below 105615 (n < 2**17; the first product cancels exactly).
    """
    a = k.abs(x)
    shifted = k.fma(a, c.TWO_OVER_PI, F32.shifter)
    n = shifted - F32.shifter
    r = a
    for part in c.HALF_PI_32:
        r = k.fma(n, -part, r)
    angle, quadrant = k.local(r), k.local(k.bitcast(shifted, i32))
    with k.when(a > 105615.0):
        far, far_quadrant = _reduce_far(k, a)
        angle.set(k.select(a < INF, far, k.const(NAN, f32)))
        quadrant.set(far_quadrant)
    return angle.get(), quadrant.get()


def _reduce_far(k: KernelBuilder, a: Val) -> tuple[Val, Val]:
    """Payne and Hanek: a * 2/pi modulo 4 as a 64-bit fraction of a full turn, from the 96 bits of 2/pi that matter.

    a = m * 2**(e-150), m of 24 bits. Bits of 2/pi above position e-152 only add full turns.
    """
    bits = k.bitcast(a, i32)
    m = ((bits & 0x7FFFFF) | 0x800000).cast(i64)
    position = (bits >> 23) - 120  # one word of zeros leads the table
    w = [_word(k, position >> 5, i) for i in range(4)]
    shift = (position & 31).cast(i64)
    high = (((w[0] << 32) | w[1]) << shift) | (w[2] >> (32 - shift))
    low = ((w[2] << shift) | (w[3] >> (32 - shift))) & 0xFFFFFFFF
    turn = m * high + ((m * low) >> 32)  # modulo 2**64: a full turn
    quadrant = (turn + (1 << 61)) >> 62
    r = (turn << 2).cast(f64) * (math.pi / 2 * 2.0**-64)  # the signed rest, in 2**-64 of a quadrant
    return r.cast(f32), quadrant.cast(i32)


def _word(k: KernelBuilder, at: Val, plus: int) -> Val:
    """Word at + plus of 2/pi, 0 <= at <= 4."""
    words = c.TWO_OVER_PI_WORDS
    value = k.const(words[plus], i64)
    for i in range(1, 5):
        value = k.select(at.eq(i), k.const(words[i + plus], i64), value)
    return value


def asin(k: KernelBuilder, x: Val) -> Val:
    """Above 1/2: pi/2 - 2 asin(sqrt((1 - |x|) / 2)). NaN outside [-1, 1] by the square root."""
    _format("asin", x)
    p, is_large = _asin_core(k, x)
    return k.copysign(k.select(is_large, _minus(k, c.HALF_PI_32[:2], p + p), p), x)


def acos(k: KernelBuilder, x: Val) -> Val:
    _format("acos", x)
    p, is_large = _asin_core(k, x)
    outer = k.select(x < 0.0, _minus(k, c.PI_32, p + p), p + p)
    return k.select(is_large, outer, _minus(k, c.HALF_PI_32[:2], k.copysign(p, x)))


def _asin_core(k: KernelBuilder, x: Val) -> tuple[Val, Val]:
    """asin(|x|) below 1/2, else asin(sqrt((1 - |x|) / 2)); and which."""
    a = k.abs(x)
    is_large = a > 0.5
    z = k.select(is_large, k.fma(a, -0.5, 0.5), a * a)
    s = k.select(is_large, k.sqrt(z), a)
    return _odd(k, s, z, c.ASIN_32), is_large


def _minus(k: KernelBuilder, constant: tuple[float, float], x: Val) -> Val:
    """A constant in two parts, minus x."""
    return constant[0] - (x - constant[1])


def atan(k: KernelBuilder, x: Val) -> Val:
    _format("atan", x)
    a = k.abs(x)
    is_large = a > 1.0
    t = k.select(is_large, 1.0 / a, a)
    p = _odd(k, t, t * t, c.ATAN_32)
    return k.copysign(k.select(is_large, _minus(k, c.HALF_PI_32[:2], p), p), x)


def atan2(k: KernelBuilder, y: Val, x: Val) -> Val:
    """The angle of the point (x, y): the octant by comparisons, the rest from the smaller over the larger."""
    _format("atan2", y)
    a, b = k.abs(x), k.abs(y)
    small, large = k.min(a, b), k.max(a, b)
    t = k.select(large.eq(0.0), large, k.select(small.eq(INF), k.const(1.0, f32), small / large))
    p = _odd(k, t, t * t, c.ATAN_32)
    p = k.select(b > a, _minus(k, c.HALF_PI_32[:2], p), p)
    p = k.select(k.bitcast(x, i32) < 0, _minus(k, c.PI_32, p), p)
    return k.copysign(p, y)
