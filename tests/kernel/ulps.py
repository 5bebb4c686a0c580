"""What the tests of `kernel.math` share: each function in a wider type, errors in ulps, and where to look for them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.kernel.programs import apply, edges
from tetrad.core.dtypes import DType, f32
from tetrad.kernel import math as km

Array = np.ndarray[Any, Any]
HAS_WIDE_OF_F64 = np.finfo(np.longdouble).nmant >= 63


def _sigmoid(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


def _erf(x: Array) -> Array:
    """Below 1.5 a series without cancellation, e**-x**2 * (x + 2x**3/3 + 4x**5/15 + ...), beyond that from erfc."""
    total = term = near = np.clip(x, -1.5, 1.5)
    for n in range(60):
        term = term * near * near * 2 / (2 * n + 3)
        total = total + term
    far = np.copysign(1 - _erfc_far(np.abs(x)), x)
    return np.where(np.abs(x) < 1.5, _gauss(near) * total, far)


def _erfc(x: Array) -> Array:
    far = _erfc_far(np.abs(x))
    return np.where(x < 1.5, np.where(x < -1.5, 2 - far, 1 - _erf(x)), far)


def _erfc_far(x: Array) -> Array:
    """The continued fraction e**-x**2 / sqrt(pi) / (x + 1/2 / (x + 2/2 / (x + 3/2 / ...))), from the far end."""
    x = np.clip(x, 1.5, 40)  # 150 levels are enough from 1.5 on
    tail = x
    for n in range(150, 0, -1):
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
    "sinh": np.sinh, "cosh": np.cosh, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "atan2": np.arctan2,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
}  # fmt: skip
BINARY = ("pow", "atan2")
CASES = [(name, dtype) for name, row in km.ULPS.items() for dtype in row]


def compute(name: str, dtype: DType, *xs: Array) -> Array:
    return apply(getattr(km, name), (dtype,) * len(xs), *xs)


def want(name: str, dtype: DType, *xs: Array) -> Array:
    wide = np.float64 if dtype is f32 else np.longdouble
    with np.errstate(all="ignore"):
        return ORACLES[name](*(x.astype(wide) for x in xs))


def errors(got: Array, true: Array) -> Array:
    """|got - true| in ulps of the true value in the type of `got`; infinite where sign of zero or kind differ.

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
    """The largest error over the points, and where."""
    got, true = compute(name, dtype, *xs), want(name, dtype, *xs)
    error = errors(got, true)
    i = int(np.argmax(error))
    return float(error[i]), f"{name}({', '.join(repr(x[i]) for x in xs)}) = {got[i]!r}, not {true[i]!r}"


def spread(dtype: DType, count: int, seed: int) -> Array:
    """Random bit patterns, one from each of `count` equal stretches of all of them."""
    words = np.dtype(f"u{dtype.nbytes}")
    step = (1 << dtype.bits) // count
    start = np.arange(count, dtype=words) * words.type(step)
    return (start + np.random.default_rng(seed).integers(0, step, count, dtype=words)).view(dtype.np)


def hard(dtype: DType, count: int, seed: int) -> Array:
    """Where things happen: around 0, 1 and the multiples of pi/2, over ordinary magnitudes, near the thresholds."""
    rng = np.random.default_rng(seed)
    signs = rng.choice([-1.0, 1.0], count)
    parts = [
        rng.uniform(-2, 2, count),
        1 + rng.normal(0, 0.1, count),
        signs * np.exp(rng.uniform(math.log(1e-9), math.log(800), count)),
        rng.integers(-10000, 10000, count) * (math.pi / 2) + rng.normal(0, 1e-3, count),
        thresholds(dtype)[:, None] * (1 + rng.normal(0, 1e-4, max(1, count // 8))),
    ]
    return np.concatenate([np.ravel(p).astype(dtype.np) for p in parts] + [np.array(edges(dtype), dtype.np)])


def thresholds(dtype: DType) -> Array:
    """Where results overflow, underflow, saturate, or an algorithm changes its mind."""
    single = (88.72284, -87.33655, -103.97, 128, -126, -149, -17.3, 89.416, 9.01, 0.65, 3.92, 9.19, 10.05, 105615)
    double = (709.78, -708.4, -745.13, 1024, -1022, -1074, -37.4, 710.47, 19.06, 0.65, 5.9, 26.5, 27.2, 1e9, 0.4142)
    both = (0.5, 1.0, 2 / 3, 4 / 3, 2.0**30, 2.0**60)
    return np.array((*single, *both) if dtype is f32 else (*double, *both))
