"""Kernel language, math, trigonometric: circular functions and their inverses, as compositions of
kernel instructions.

Receives a builder and values, returns the value of the function; `kernel.math.exponential` exports
them. Straight-line code, except that huge angles take a branch, which is skipped when no lane needs
it.
"""

from __future__ import annotations

import math
from itertools import pairwise

from tetrad.core.dtypes import f32, f64, i32, i64, u32
from tetrad.kernel.build import KernelBuilder, Val
from tetrad.kernel.math import coefficients as c
from tetrad.kernel.math.building_blocks import format_of, odd_function, polynomial
from tetrad.kernel.math.coefficients import F32, F64, FloatFormat

INF, NAN = math.inf, math.nan


def sin(k: KernelBuilder, x: Val) -> Val:
    fmt = format_of("sin", x)
    r, quadrant = _reduce_angle(k, fmt, x)
    y = _by_quadrant(k, quadrant, *_sin_cos(k, fmt, r))
    return _flip(k, fmt, y, k.bitcast(x, fmt.bits) ^ _sign_of(fmt, quadrant))


def cos(k: KernelBuilder, x: Val) -> Val:
    fmt = format_of("cos", x)
    r, quadrant = _reduce_angle(k, fmt, x)
    following = quadrant + 1
    return _flip(k, fmt, _by_quadrant(k, following, *_sin_cos(k, fmt, r)), _sign_of(fmt, following))


def tan(k: KernelBuilder, x: Val) -> Val:
    """sin/cos in even quadrants, -cos/sin in odd ones."""
    fmt = format_of("tan", x)
    r, quadrant = _reduce_angle(k, fmt, x)
    sine, cosine = _sin_cos(k, fmt, r)
    y = _by_quadrant(k, quadrant, sine, -cosine) / _by_quadrant(k, quadrant, cosine, sine)
    return _flip(k, fmt, y, k.bitcast(x, fmt.bits))


def _sin_cos(k: KernelBuilder, fmt: FloatFormat, r: Val) -> tuple[Val, Val]:
    """Sine and cosine of |r| <= pi/4."""
    z = r * r
    return odd_function(k, r, z, fmt.sin), k.fma(z, polynomial(k, z, fmt.cos), 1.0)


def _by_quadrant(k: KernelBuilder, quadrant: Val, even: Val, odd: Val) -> Val:
    return k.select((quadrant & 1).eq(0), even, odd)


def _sign_of(fmt: FloatFormat, quadrant: Val) -> Val:
    """Bit 1 of the quadrant as the sign bit."""
    return quadrant << (fmt.dtype.bits - 2)


def _flip(k: KernelBuilder, fmt: FloatFormat, y: Val, sign: Val) -> Val:
    """y with its sign flipped where the top bit of `sign` is set; sets the sign of zeros too."""
    return k.bitcast(k.bitcast(y, fmt.bits) ^ (sign & fmt.sign_bit), fmt.dtype)


def _reduce_angle(k: KernelBuilder, fmt: FloatFormat, x: Val) -> tuple[Val, Val]:
    """|x| = n*pi/2 + r with |r| <= pi/4: r, and an integer equal to n modulo 4.

    The product of n with the first part of pi/2 cancels exactly against |x|, the others reach far
    below r.
    """
    # sine and cosine share it
    r, quadrant = k.once(("angle", x.node), lambda: _reduced_angle(k, fmt, k.abs(x)))
    return r, quadrant


def _reduced_angle(k: KernelBuilder, fmt: FloatFormat, a: Val) -> tuple[Val, Val]:
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


# Payne and Hanek: a = m * 2**p with an integer m. Bits of 2/pi above position p - 2 only add full
# turns to a * 2/pi, so the product of m with the window of bits that starts there, modulo 1, is a
# as a fraction of a full turn.


def _reduce_far_32(k: KernelBuilder, a: Val) -> tuple[Val, Val]:
    """A 64-bit fraction from 96 bits of 2/pi: f32 angles come no closer than 2**-30 to a multiple
    of pi/2."""
    bits = k.bitcast(a, i32)
    m = ((bits & 0x7FFFFF) | 0x800000).cast(i64)
    position = (bits >> 23) - 120
    start, shift = position >> 5, position & 31
    words = _words(k, start, count=4, levels=3)
    w = [_joined(high, low, shift).cast(i64) for high, low in pairwise(words)]
    turn = m * ((w[0] << 32) | w[1]) + ((m * w[2]) >> 32)
    r = (turn << 2).cast(f64) * (math.pi / 2 * 2.0**-64)
    return r.cast(f32), _nearest_quadrant(turn).cast(i32)


def _reduce_far_64(k: KernelBuilder, a: Val) -> tuple[Val, Val]:
    """A 128-bit fraction from 192 bits of 2/pi: f64 angles come as close as 2**-61 to a multiple of
    pi/2."""
    bits = k.bitcast(a, i64)
    m = (bits & ((1 << 52) - 1)) | (1 << 52)
    p = _fraction_of_turn(k, m, ((bits >> 52) - 1045).cast(i32))
    turn = (p[0] << 32) | p[1]
    rest = (turn << 2) | (p[2] >> 30)
    high = rest.cast(f64)
    below = (((p[2] & 0x3FFFFFFF) << 23) | (p[3] >> 9)).cast(f64)  # the next 53 bits
    # and what the conversion rounded away
    low = k.fma(below, 2.0**-53, (rest - high.cast(i64)).cast(f64))
    quarter = tuple(part * 2.0**-64 for part in F64.half_pi)
    return k.fma(high, quarter[0], k.fma(high, quarter[1], low * quarter[0])), _nearest_quadrant(
        turn
    )


def _nearest_quadrant(turn: Val) -> Val:
    """2**64 is a full turn: the rest, turn << 2 as a signed number, is then at most half a
    quadrant."""
    return (turn + (1 << 61)) >> 62


def _words(k: KernelBuilder, start: Val, *, count: int, levels: int) -> list[Val]:
    """`count` words of the table of 2/pi from word `start` < 2**levels on, chosen: there is no
    memory to look into."""
    words = [k.const(word, u32) for word in c.TWO_OVER_PI_WORDS]
    for level in reversed(range(levels)):
        is_set, half = ((start >> level) & 1).ne(0), 1 << level
        upper, lower = words[half:], words[: count - 1 + half]
        words = [k.select(is_set, b, a) for a, b in zip(lower, upper, strict=False)] + lower[
            len(upper) :
        ]
    return words


def _joined(high: Val, low: Val, shift: Val) -> Val:
    """The 32 bits that begin `shift` bits into the first of two words."""
    return (high << shift.cast(u32)) | ((low >> 1) >> (31 - shift).cast(u32))


def _fraction_of_turn(k: KernelBuilder, m: Val, position: Val) -> list[Val]:
    """The first four 32-bit digits after the point of m times the bits of 2/pi from a position on,
    m < 2**53.

    Long multiplication by six digits, the last first: a loop, as such angles are rare and code
    takes time to compile. A digit is in two words; the first step only fetches one.
    """
    m_low, m_high = _low_word(m), m >> 32
    start, shift = position >> 5, position & 31
    zero = k.const(0, i64)
    below, column, high = k.local(0, u32), k.local(zero), k.local(zero)
    digits = [k.local(zero) for _ in range(4)]
    with k.loop(7, always=True) as step:
        (word,) = _words(k, start + 6 - step.cast(i32), count=1, levels=6)
        digit = k.select(step > 0, _joined(word, below.get(), shift).cast(i64), zero)
        low_product, high_product = m_low * digit, m_high * digit  # modulo 2**64, read as unsigned
        total = column.get() + _low_word(low_product)
        column.set(
            (total >> 32) + _low_word(low_product >> 32) + _low_word(high_product) + high.get()
        )
        high.set(_low_word(high_product >> 32))
        below.set(word)
        for newer, older in reversed(list(pairwise(digits))):
            older.set(newer.get())
        digits[0].set(_low_word(total))
    return [digit.get() for digit in digits]


def _low_word(x: Val) -> Val:
    return x & 0xFFFFFFFF


def asin(k: KernelBuilder, x: Val) -> Val:
    """Above 1/2: pi/2 - 2 asin(sqrt((1 - |x|) / 2)). NaN outside [-1, 1] by the square root."""
    fmt = format_of("asin", x)
    p, is_large = _asin_core(k, fmt, x)
    return k.copysign(k.select(is_large, _minus(_half_pi(fmt), p + p), p), x)


def acos(k: KernelBuilder, x: Val) -> Val:
    fmt = format_of("acos", x)
    p, is_large = _asin_core(k, fmt, x)
    outer = k.select(x < 0.0, _minus(_pi(fmt), p + p), p + p)
    return k.select(is_large, outer, _minus(_half_pi(fmt), k.copysign(p, x)))


def _asin_core(k: KernelBuilder, fmt: FloatFormat, x: Val) -> tuple[Val, Val]:
    """asin(|x|) below 1/2, else asin(sqrt((1 - |x|) / 2)); and which."""
    a = k.abs(x)
    is_large = a > 0.5
    z = k.select(is_large, k.fma(a, -0.5, 0.5), a * a)
    s = k.select(is_large, k.sqrt(z), a)
    return odd_function(k, s, z, fmt.asin), is_large


def _half_pi(fmt: FloatFormat) -> tuple[float, float]:
    return fmt.half_pi[:2]


def _pi(fmt: FloatFormat) -> tuple[float, float]:
    return 2 * fmt.half_pi[0], 2 * fmt.half_pi[1]


def _minus(constant: tuple[float, float], x: Val) -> Val:
    """A constant in two parts, minus x."""
    return constant[0] - (x - constant[1])


def atan(k: KernelBuilder, x: Val) -> Val:
    fmt = format_of("atan", x)
    a = k.abs(x)
    is_large = a > 1.0
    one = k.const(1.0, x.dtype)
    p = _atan_quotient(k, fmt, k.select(is_large, one, a), k.select(is_large, a, one))
    return k.copysign(k.select(is_large, _minus(_half_pi(fmt), p), p), x)


def atan2(k: KernelBuilder, y: Val, x: Val) -> Val:
    """The angle of the point (x, y): the octant by comparisons, the rest from the smaller over the
    larger."""
    fmt = format_of("atan2", y)
    a, b = k.abs(x), k.abs(y)
    small, large = k.min(a, b), k.max(a, b)
    both_infinite = small.eq(INF)
    one = k.const(1.0, x.dtype)
    p = _atan_quotient(
        k,
        fmt,
        k.select(both_infinite, one, small),
        k.select(both_infinite | large.eq(0.0), one, large),
    )
    p = k.select(b > a, _minus(_half_pi(fmt), p), p)
    p = k.select(k.bitcast(x, fmt.bits) < 0, _minus(_pi(fmt), p), p)
    return k.copysign(p, y)


def _atan_quotient(k: KernelBuilder, fmt: FloatFormat, small: Val, large: Val) -> Val:
    """atan(small / large), 0 <= small <= large. In f64 the polynomial covers a quarter of that; it
    turns by pi/4."""
    if fmt is F32:
        t = small / large
        return odd_function(k, t, t * t, fmt.atan)
    # the sum must not overflow
    scale = k.select(large > 2.0**1000, k.const(0.25, f64), k.const(1.0, f64))
    small, large = small * scale, large * scale
    is_turned = small > large * c.TAN_PI_8
    t = k.select(is_turned, small - large, small) / k.select(is_turned, small + large, large)
    p = odd_function(k, t, t * t, fmt.atan)
    quarter = tuple(part / 2 for part in _half_pi(fmt))
    return k.select(is_turned, quarter[0] + (p + quarter[1]), p)
