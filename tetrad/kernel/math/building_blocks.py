"""Kernel language, math, building blocks: polynomials, clamps, powers of two.

Receives a builder and values of type f32 or f64, returns values. `kernel.math.exponential` and
`kernel.math.trigonometric` are written with these. `kernel.math.ulps` lists the types that each
function supports and its largest error.
"""

from __future__ import annotations

from collections.abc import Sequence

from tetrad.core.dtypes import f32
from tetrad.core.errors import DtypeError
from tetrad.kernel.build import KernelBuilder, Val
from tetrad.kernel.math.coefficients import F32, F64, FloatFormat
from tetrad.kernel.math.ulps import ULPS


def format_of(name: str, x: Val) -> FloatFormat:
    """The format of x, or an error that lists the dtypes the function supports."""
    if x.dtype not in ULPS[name]:
        known = ", ".join(d.short_name for d in ULPS[name])
        raise DtypeError(f"{name}: no kernel for {x.dtype}", hint=f"cast to one of: {known}")
    return F32 if x.dtype is f32 else F64


def short_chain(k: KernelBuilder, x: Val, coefficients: Sequence[float]) -> Val:
    """c0 + c1 x + ... by Estrin's scheme for all but the first two terms: the dependency chain is
    half as long.

    The first two terms, which decide the rounding, are still added last.
    """
    first, second, *rest = coefficients
    parts = [k.const(c, x.dtype) for c in rest]
    power = x
    while len(parts) > 1:
        odd = parts[len(parts) // 2 * 2 :]
        parts = [
            k.fma(high, power, low) for low, high in zip(parts[::2], parts[1::2], strict=False)
        ] + odd
        power = power * power if len(parts) > 1 else power
    return k.fma(k.fma(parts[0], x, second), x, first)


def polynomial(k: KernelBuilder, x: Val, coefficients: Sequence[float]) -> Val:
    """Horner's rule, constant term first."""
    *rest, last = coefficients
    value: Val = k.const(last, x.dtype)
    for coefficient in reversed(rest):
        value = k.fma(value, x, coefficient)
    return value


def at_most(k: KernelBuilder, x: Val, limit: float) -> Val:
    """min(x, limit) that keeps NaN; unlike the instruction `min`, it is one machine instruction."""
    return k.select(x > limit, limit, x)


def at_least(k: KernelBuilder, x: Val, limit: float) -> Val:
    return k.select(x < limit, limit, x)


def clamp(k: KernelBuilder, x: Val, limits: tuple[float, float]) -> Val:
    return at_least(k, at_most(k, x, limits[1]), limits[0])


def power_of_two(k: KernelBuilder, fmt: FloatFormat, shifted: Val, plus: int = 0) -> Val:
    """2**(n + plus), where `shifted` is n + fmt.shifter: n is in its low bits, and the shift drops
    the rest."""
    return power_of_bits(k, fmt, k.bitcast(shifted, fmt.bits), plus)


def power_of_bits(k: KernelBuilder, fmt: FloatFormat, n: Val, plus: int = 0) -> Val:
    """2**(n + plus) for an integer of which only the low bits count."""
    return k.bitcast((n << fmt.mantissa) + ((fmt.bias + plus) << fmt.mantissa), fmt.dtype)


def keep_tiny(k: KernelBuilder, fmt: FloatFormat, x: Val, y: Val) -> Val:
    """x where f(x) rounds to x: -0 and subnormals stay exact."""
    return k.select(k.abs(x) < fmt.tiny, x, y)


def odd_function(k: KernelBuilder, x: Val, z: Val, coefficients: Sequence[float]) -> Val:
    """x + x*z*polynomial(z), z = x*x: an odd function near 0, with one significant rounding, at the
    end."""
    return k.fma(x * z, polynomial(k, z, coefficients), x)
