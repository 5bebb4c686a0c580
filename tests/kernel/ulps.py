"""What the tests of `kernel.math.exponential` share: each function in a wider type, errors in ulps,
and where to look for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tetrad as td
from tests.kernel.programs import apply, edges
from tetrad.core.dtypes import DType, f32
from tetrad.kernel.math import exponential as km
from tetrad.kernel.math.ulps import ULPS

Array = np.ndarray[Any, Any]
CHUNK = 1 << 20  # points in one call of compiled code
HAS_WIDE_OF_F64 = np.finfo(np.longdouble).nmant >= 63


def _sigmoid(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


def _erf(x: Array) -> Array:
    """2x / sqrt(pi) at first, then a series, then from erfc; each is computed only for the points
    that need it."""
    tiny, near = np.abs(x) < 2.0**-33, np.abs(x) < 1.5
    stretches = [tiny, near & ~tiny, np.abs(x) >= 1.5]
    return np.piecewise(x, stretches, [lambda x: x * _gauss(x), _erf_near, _erf_far, np.nan])


def _erf_near(x: Array) -> Array:
    """A series without cancellation: e**-x**2 * (x + 2x**3/3 + 4x**5/15 + ...)."""
    total = term = x
    for n in range(60):
        term = term * x * x * 2 / (2 * n + 3)
        total = total + term
    return _gauss(x) * total


def _erf_far(x: Array) -> Array:
    return np.copysign(1 - _erfc_far(np.abs(x)), x)


def _erfc(x: Array) -> Array:
    return np.piecewise(x, [x < 1.5, x >= 1.5], [lambda x: 1 - _erf(x), _erfc_far, np.nan])


def _erfc_far(x: Array) -> Array:
    """From 1.5 on; beyond 40 it is 0 in every type that has a wider one to compare with."""
    return np.piecewise(x, [x < 40], [_erfc_fraction, 0])


def _erfc_fraction(x: Array) -> Array:
    """The continued fraction e**-x**2 / sqrt(pi) / (x + 1/2 / (x + 2/2 / (x + 3/2 / ...))), from
    the far end."""
    tail = x
    for n in range(150, 0, -1):  # enough levels from 1.5 on
        tail = x + n / (2 * tail)
    return _gauss(x) / (2 * tail)


def _gauss(x: Array) -> Array:
    """2 / sqrt(pi) * e**-x**2; the square is split, so that it has no rounding error."""
    head = x.astype(np.float32).astype(x.dtype)
    root_pi = np.sqrt(4 * np.arctan(x.dtype.type(1)))
    return 2 / root_pi * np.exp(-head * head) * np.exp(-(x - head) * (x + head))


# Evaluated in f64 for f32, in longdouble for f64.
ORACLES: dict[str, Callable[..., Array]] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1,
    "log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p,
    "tanh": np.tanh, "sigmoid": _sigmoid, "rsqrt": lambda x: 1 / np.sqrt(x),
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "erf": _erf, "erfc": _erfc, "pow": np.power,
    "sinh": np.sinh, "cosh": np.cosh, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "atan2": np.arctan2,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
}  # fmt: skip
BINARY = ("pow", "atan2")
# Measured on many points in every run, in f32; together with "pow".
OFTEN = ("exp", "exp2", "expm1", "log", "log1p", "tanh", "sigmoid", "rsqrt", "sin", "cos", "erf")
CASES = [(name, dtype) for name, row in ULPS.items() for dtype in row]


def compute(name: str, dtype: DType, *xs: Array) -> Array:
    return apply(getattr(km, name), (dtype,) * len(xs), *xs)


def want(name: str, dtype: DType, *xs: Array) -> Array:
    wide = np.float64 if dtype is f32 else np.longdouble
    with np.errstate(all="ignore"):
        return ORACLES[name](*(x.astype(wide) for x in xs))


def errors(got: Array, true: Array) -> Array:
    """|got - true| in ulps of the true value in the type of `got`; infinite where sign of zero or
    kind differ.

    Beyond the largest finite number the grid goes on: infinity stands for the next power of two.
    """
    info, wide = np.finfo(got.dtype), true.dtype.type
    top = np.ldexp(wide(1), info.maxexp)
    with np.errstate(all="ignore"):
        exponent = np.clip(np.frexp(true)[1] - 1, info.minexp, info.maxexp - 1)
        ulp = np.ldexp(wide(1), exponent - info.nmant)
        error = np.abs(np.clip(got.astype(wide), -top, top) - np.clip(true, -top, top)) / ulp
    error = np.where(np.isnan(got) & np.isnan(true), 0, error)
    lost_sign = (got == 0) & (true == 0) & (np.signbit(got) != np.signbit(true))
    return np.where(lost_sign | (np.isnan(got) != np.isnan(true)), np.inf, error).astype(np.float64)


def worst(name: str, dtype: DType, *xs: Array) -> tuple[float, str]:
    """The largest error of the evaluator over the points, and where."""
    return _largest(name, compute(name, dtype, *xs), want(name, dtype, *xs), xs)


def worst_compiled(name: str, dtype: DType, *xs: Array) -> tuple[float, str]:
    """The same for compiled code, which gives the same bits and has time for many points."""
    run = td.jit(getattr(td, name))
    chunks = [[x[i : i + CHUNK] for x in xs] for i in range(0, len(xs[0]), CHUNK)]
    return max(
        _largest(name, np.asarray(run(*map(td.asarray, chunk))), want(name, dtype, *chunk), chunk)
        for chunk in chunks
    )


def _largest(name: str, got: Array, true: Array, xs: Sequence[Array]) -> tuple[float, str]:
    error = errors(got, true)
    i = int(np.argmax(error))
    return float(
        error[i]
    ), f"{name}({', '.join(repr(x[i]) for x in xs)}) = {got[i]!r}, not {true[i]!r}"


def spread(dtype: DType, count: int, seed: int) -> Array:
    """Random bit patterns, one from each of `count` equal stretches of all of them."""
    words = np.dtype(f"u{dtype.nbytes}")
    step = (1 << dtype.bits) // count
    start = np.arange(count, dtype=words) * words.type(step)
    return (start + np.random.default_rng(seed).integers(0, step, count, dtype=words)).view(
        dtype.np
    )


def hard(dtype: DType, count: int, seed: int) -> Array:
    """Where things happen: around 0, 1 and the multiples of pi/2, over ordinary magnitudes, near
    the thresholds."""
    rng = np.random.default_rng(seed)
    signs = rng.choice([-1.0, 1.0], count)
    parts = [
        rng.uniform(-2, 2, count),
        1 + rng.normal(0, 0.1, count),
        signs * np.exp(rng.uniform(math.log(1e-9), math.log(800), count)),
        rng.integers(-10000, 10000, count) * (math.pi / 2) + rng.normal(0, 1e-3, count),
        thresholds(dtype)[:, None] * (1 + rng.normal(0, 1e-4, max(1, count // 8))),
    ]
    return np.concatenate(
        [np.ravel(p).astype(dtype.np) for p in parts] + [np.array(edges(dtype), dtype.np)]
    )


def many(dtype: DType, hard_count: int) -> Array:
    """16 million points over all bit patterns, and `hard_count` of each kind where it is hard."""
    return np.concatenate([spread(dtype, 1 << 24, seed=11), hard(dtype, hard_count, seed=12)])


def many_pairs(dtype: DType, hard_count: int) -> tuple[Array, Array]:
    """As many pairs of any two bit patterns, of any two hard points, of bases and powers, every two
    special values."""
    rng, special = np.random.default_rng(13), np.array(edges(dtype), dtype.np)
    anything, difficult = spread(dtype, 1 << 24, seed=11), hard(dtype, hard_count, seed=12)
    base, power = _bases_and_powers(dtype, 1 << 21, seed=14)
    x = np.concatenate([anything, difficult, base, np.repeat(special, len(special))])
    y = np.concatenate(
        [
            rng.permutation(anything),
            rng.permutation(difficult),
            power,
            np.tile(special, len(special)),
        ]
    )
    return x, y


def _bases_and_powers(dtype: DType, count: int, seed: int) -> tuple[Array, Array]:
    """Ordinary magnitudes, and any positive bases with powers that take them to somewhere below
    infinity."""
    rng, info = np.random.default_rng(seed), np.finfo(dtype.np)
    base = np.abs(spread(dtype, count, seed + 1))
    with np.errstate(all="ignore"):
        power = rng.uniform(info.minexp - info.nmant, info.maxexp, count) / np.log2(
            base.astype(np.float64)
        )
        power = power.astype(dtype.np)
    ordinary = np.exp(rng.normal(0, 2, count)), rng.normal(0, 20, count)
    return np.append(base, ordinary[0].astype(dtype.np)), np.append(
        power, ordinary[1].astype(dtype.np)
    )


def thresholds(dtype: DType) -> Array:
    """Where results overflow, underflow, saturate, or an algorithm changes its mind."""
    single = (
        88.72284,
        -87.33655,
        -103.97,
        128,
        -126,
        -149,
        -17.3,
        89.416,
        9.01,
        0.65,
        3.92,
        9.19,
        10.05,
        105615,
    )
    double = (
        709.78,
        -708.4,
        -745.13,
        1024,
        -1022,
        -1074,
        -37.4,
        710.47,
        19.06,
        0.65,
        5.9,
        26.5,
        27.2,
        1e9,
        0.4142,
    )
    both = (0.5, 1.0, 2 / 3, 4 / 3, 2.0**30, 2.0**60)
    return np.array((*single, *both) if dtype is f32 else (*double, *both))
