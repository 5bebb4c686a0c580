"""Activations of td.nn at any number, with their first and second derivatives, against formulas in
float64.

`check(seed)` draws an activation, an element type and numbers (infinities, NaN, large, subnormal,
tails); None means that value and derivatives are right at once and compiled, by both modes of
differentiation: NaN exactly where the number is, and otherwise within what the type can tell.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

import tetrad as td
from tetrad import nn
from tetrad.core.dtypes import as_dtype

Array = np.ndarray
Formula = Callable[[Array], Array]
INF = math.inf
SPECIAL = (
    INF, -INF, math.nan, 0.0, -0.0, 1e-40, -1e-40, 1e30, -1e30, 1e19, -1e19, -104.0, -88.0, 88.0,
    1000.0, -1000.0,
)  # fmt: skip
WAYS: dict[str, Callable[[Any], Any]] = {"at once": lambda f: f, "compiled": td.jit}
DTYPES = {"float32": 2.0**-23, "float64": 2.0**-52, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def check(seed: int) -> str | None:
    rng = np.random.default_rng(seed)
    name, dtype = list(ACTIVATIONS)[seed % len(ACTIVATIONS)], str(rng.choice(list(DTYPES)))
    x = drawn(rng, dtype)
    ours, formulas = ACTIVATIONS[name]
    for order, formula in enumerate(formulas):
        want = at_ends(formula, order, name, x.astype(np.float64))
        for way, found in found_by(ours, order, x).items():
            wrong = np.flatnonzero(
                ~is_near(found.astype(np.float64), want, x.astype(np.float64), dtype, order)
            )
            if wrong.size:
                i = wrong[0]
                place = f"seed {seed}: derivative {order} of nn.{name} at {x[i]!r} ({dtype}), {way}"
                return f"{place}: want {want[i]!r}, found {found[i]!r}"
    return None


def drawn(rng: np.random.Generator, dtype: str) -> Array:
    usual = rng.standard_normal(12) * rng.choice([1.0, 5.0, 20.0])
    with np.errstate(over="ignore"):
        return np.concatenate([rng.choice(SPECIAL, 12), usual]).astype(as_dtype(dtype).np)


def found_by(ours: Callable[[Any], Any], order: int, x: Array) -> dict[str, Array]:
    backward, forward = ours, ours
    for _ in range(order):
        backward = td.grad(backward)
        forward = along(forward)
    every = {"grad": td.vmap(backward), "jvp": td.vmap(forward)}
    pairs = [(f"{name}, {way}", run(f)) for name, f in every.items() for way, run in WAYS.items()]
    return {name: np.asarray(f(td.asarray(x))) for name, f in pairs}


def along(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: td.jvp(function, (x,), (td.ones_like(x),))[1]


def is_near(found: Array, want: Array, x: Array, dtype: str, order: int) -> Array:
    """Values keep their digits, but for those that a polynomial in x under an exponential takes;
    derivatives below 1 may be off by a rounding of 1. A subnormal gate times x is off by as many of
    its steps."""
    unit, size = DTYPES[dtype], np.minimum(np.abs(x), 40)
    with np.errstate(invalid="ignore", over="ignore"):
        rounded = want.astype(as_dtype(dtype).np).astype(np.float64)
        scale = np.abs(want) if order == 0 else np.maximum(np.abs(want), 1.0)
        room = (40 + size**3) * unit * scale + 3 * (1 + size) * float(
            td.finfo(dtype).smallest_normal
        ) * unit
        near = np.abs(found - rounded) <= room
    return near | (found == rounded) | (np.isnan(found) & np.isnan(want))


# -- formulas --------------------------------------------------------------------------------------


def at_ends(formula: Formula, order: int, name: str, x: Array) -> Array:
    """The formula where it can be computed; at infinity the limit, which for a value is that of
    ENDS."""
    held = np.clip(x, -1e150, 1e150)  # by then derivatives have come to their limits
    with np.errstate(all="ignore"):
        found = formula(x) if order == 0 else formula(held)
    left, right = ENDS.get(name, (0.0, INF))
    return np.where(x == -INF, left, np.where(x == INF, right, found)) if order == 0 else found


def silu_second(x: Array) -> Array:
    g, h = special.expit(x), special.expit(-x)
    return np.asarray(g * h * (2 + x * (h - g)))


def normal(x: Array) -> Array:
    return np.asarray(np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi))


def rising(x: Array) -> tuple[Array, Array, Array]:
    """y, y' and y'' of the sigmoid in the approximate gelu."""
    c = math.sqrt(8 / math.pi)
    return c * (x + 0.044715 * x**3), c * (1 + 3 * 0.044715 * x * x), c * 6 * 0.044715 * x


def tanh_gelu(x: Array) -> Array:
    return np.asarray(x * special.expit(rising(x)[0]))


def tanh_gelu_slope(x: Array) -> Array:
    y, dy, _ = rising(np.clip(x, -60, 60))
    g = special.expit(y)
    return np.asarray(g + np.clip(x, -60, 60) * g * special.expit(-y) * dy)


def tanh_gelu_second(x: Array) -> Array:
    x = np.clip(x, -60, 60)
    y, dy, ddy = rising(x)
    g, h = special.expit(y), special.expit(-y)
    return np.asarray(g * h * (2 * dy + x * (ddy + dy * dy * (h - g))))


def mish(x: Array) -> Array:
    return np.asarray(x * np.tanh(np.logaddexp(x, 0)))


def mish_slope(x: Array) -> Array:
    p, g = np.logaddexp(x, 0), special.expit(x)
    return np.asarray(
        np.tanh(p) + np.where(np.abs(x) > 700, 0, x * g / np.cosh(np.minimum(p, 700)) ** 2)
    )


ENDS = {
    "elu": (-1.0, INF), "celu": (-2.0, INF), "sigmoid": (0.0, 1.0), "soft_sign": (-1.0, 1.0),
    "hard_sigmoid": (0.0, 1.0), "log_sigmoid": (-INF, 0.0), "relu6": (0.0, 6.0), "hard_tanh": (-1.0,
    1.0),
}  # fmt: skip
ACTIVATIONS: dict[str, tuple[Callable[[Any], Any], tuple[Formula, ...]]] = {
    "silu": (nn.silu, (
        lambda x: x * special.expit(x), lambda x: special.expit(x) * (1 + x * special.expit(-x)),
        silu_second,
    )),
    "gelu": (lambda x: nn.gelu(x, approximate=False), (
        lambda x: x * special.ndtr(x), lambda x: special.ndtr(x) + x * normal(x),
        lambda x: normal(x) * (2 - x * x),
    )),
    "tanh_gelu": (nn.gelu, (tanh_gelu, tanh_gelu_slope, tanh_gelu_second)),
    "mish": (nn.mish, (mish, mish_slope)),
    "sigmoid": (nn.sigmoid, (special.expit, lambda x: special.expit(x) * special.expit(-x))),
    "softplus": (nn.softplus, (lambda x: np.logaddexp(x, 0), special.expit)),
    "log_sigmoid": (nn.log_sigmoid, (special.log_expit, lambda x: special.expit(-x))),
    "elu": (nn.elu, (lambda x: np.where(x > 0, x, np.expm1(x)), lambda x: np.exp(np.minimum(x,
    0)))),
    "celu": (lambda x: nn.celu(x, 2.0), (
        lambda x: np.where(x > 0, x, 2 * np.expm1(x / 2)), lambda x: np.exp(np.minimum(x, 0) / 2),
    )),
    "soft_sign": (nn.soft_sign, (lambda x: x / (1 + np.abs(x)),
    lambda x: 1 / (1 + np.abs(x)) ** 2)),
    "squareplus": (nn.squareplus, (
        lambda x: np.maximum(x, 0) + 2 / (np.abs(x) + np.hypot(x, 2)),
        lambda x: (1 + x / np.hypot(x, 2)) / 2,
    )),
    "hard_silu": (nn.hard_silu, (
        lambda x: np.where(x >= 3, x, np.where(x <= -3, 0, x * (x + 3) / 6)),
        lambda x: np.where(x >= 3, 1, np.where(x <= -3, 0, (2 * x + 3) / 6)),
    )),
    "hard_sigmoid": (nn.hard_sigmoid, (lambda x: np.clip(x + 3, 0, 6) / 6,)),
    "relu6": (nn.relu6, (lambda x: np.clip(x, 0, 6),)),
    "hard_tanh": (nn.hard_tanh, (lambda x: np.clip(x, -1, 1),)),
}  # fmt: skip
