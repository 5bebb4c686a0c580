"""Ops, complex references: what arithmetic on complex NumPy arrays means, where NumPy itself is not
precise about it.

Receives and returns complex arrays. NumPy's product may fuse or not, its quotient overflows for
parts far from 1, its `log1p` loses digits near 0; here every step is written out. c64 is computed
in c128, as everywhere in references.
"""

from __future__ import annotations

import numpy as np

from tetrad.ops.cases import joined
from tetrad.ops.rules import Array, precise


def is_complex(x: Array) -> bool:
    return bool(np.asarray(x).dtype.kind == "c")


def multiplied(x: Array, y: Array) -> Array:
    """(ac - bd, ad + bc), every product rounded."""
    with np.errstate(all="ignore"):
        a, b, c, d = x.real, x.imag, y.real, y.imag
        return joined(np.asarray(a * c - b * d), np.asarray(a * d + b * c))


def scaled(x: Array) -> tuple[Array, Array, Array]:
    """The parts of x scaled by a power of two to about 1, and its exponent; infinities and NaN as
    they are."""
    size = np.maximum(np.abs(x.real), np.abs(x.imag))
    exponent = np.where(np.isfinite(size), np.frexp(np.where(np.isfinite(size), size, 1.0))[1], 0)
    return np.ldexp(x.real, -exponent), np.ldexp(x.imag, -exponent), exponent


@precise
def divided(x: Array, y: Array) -> Array:
    """x conj(y) / |y|**2 without overflow on the way. By 0: each part by 0. A finite number by an
    infinite one: 0."""
    (a, b, above), (c, d, below) = scaled(x), scaled(y)
    square = c * c + d * d
    re, im = (np.ldexp(part / square, above - below) for part in (a * c + b * d, b * c - a * d))
    is_zero, vanishes = y == 0, np.isinf(y) & np.isfinite(x)
    re, im = (np.where(is_zero, p / np.abs(y.real), q) for p, q in ((x.real, re), (x.imag, im)))
    return joined(*(np.where(vanishes, 0.0, part) for part in (re, im)))


@precise
def inverted(x: Array) -> Array:
    a, b, exponent = scaled(x)
    square = a * a + b * b
    re, im = (np.ldexp(part / square, -exponent) for part in (a, -b))
    re = np.where(np.isinf(x), np.copysign(0.0, x.real), np.where(x == 0, np.inf, re))
    return joined(re, np.where(np.isinf(x), np.copysign(0.0, -x.imag), im))


def magnitude(x: Array) -> Array:
    """The distance from 0: it overflows only where it is too large itself."""
    with np.errstate(all="ignore"):
        return np.hypot(x.real.astype(np.float64), x.imag.astype(np.float64)).astype(x.real.dtype)


@precise
def root(x: Array) -> Array:
    return np.asarray(np.sqrt(x))


@precise
def direction(x: Array) -> Array:
    return np.asarray(np.sign(x))


@precise
def powered(x: Array, y: Array) -> Array:
    """exp(y log x), or products where NumPy multiplies; 0 to a power is 0, NaN when its real part
    is not positive."""
    power = np.where(
        (x == 0) & (y != 0), np.where(y.real > 0, 0.0, complex(np.nan, np.nan)), np.power(x, y)
    )
    return np.asarray(power)


@precise
def less_one(x: Array) -> Array:
    """exp(x) - 1, without the loss near 0."""
    half, whole = np.sin(x.imag / 2), np.exp(x)
    small = np.expm1(x.real) * np.cos(x.imag) + (0 - 2 * half * half)
    # exp(x.real) may overflow where the product does not
    is_large = (x.real > 700) & np.isfinite(x.real)
    settled = np.isinf(x.real) & ~np.isfinite(x.imag)  # the angle is unknown, the magnitude is not
    small = np.where(settled, np.where(x.real > 0, x.real, -1), small)
    return joined(np.where(is_large, whole.real, small), whole.imag.copy())


@precise
def log_of_one_more(x: Array) -> Array:
    """log(1 + x), without the loss near 0."""
    a, b = x.real, x.imag
    near = (np.abs(a) < 0.5) & (np.abs(b) < 0.5)
    return joined(
        np.where(near, np.log1p(a * (a + 2) + b * b) / 2, np.log(x + 1).real), np.arctan2(b, a + 1)
    )
