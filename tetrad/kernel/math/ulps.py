"""Kernel language, math, accuracy: the largest error of each function, and the types it supports.

Data alone: ops state their accuracy with it before anything is built.
"""

from __future__ import annotations

from tetrad.core.dtypes import DType, f32, f64

# Function -> dtype -> largest error in units in the last place. A dtype that is not listed is not
# supported.
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

# Of complex numbers, the largest error of a part, in units in the last place of the magnitude, for
# parts in f32 and f64. A power is exp(w*log(z)), whose error grows with |w*log(z)|: the bound holds
# up to 200.
COMPLEX_ULPS: dict[str, dict[DType, float]] = {
    "abs": {f32: 1, f64: 2},
    "acos": {f32: 1, f64: 6},
    "acosh": {f32: 1, f64: 6},
    "angle": {f32: 2, f64: 3},
    "asin": {f32: 1, f64: 6},
    "asinh": {f32: 1, f64: 6},
    "atan": {f32: 1, f64: 5},
    "atanh": {f32: 1, f64: 5},
    "cos": {f32: 4, f64: 4},
    "cosh": {f32: 4, f64: 4},
    "divide": {f32: 1, f64: 4},
    "exp": {f32: 4, f64: 4},
    "expm1": {f32: 4, f64: 4},
    "log": {f32: 1, f64: 4},
    "log10": {f32: 1, f64: 6},
    "log1p": {f32: 1, f64: 5},
    "log2": {f32: 1, f64: 5},
    "pow": {f32: 1, f64: 256},
    "reciprocal": {f32: 1, f64: 3},
    "sign": {f32: 1, f64: 3},
    "sin": {f32: 4, f64: 4},
    "sinh": {f32: 4, f64: 4},
    "sqrt": {f32: 1, f64: 3},
    "tan": {f32: 1, f64: 7},
    "tanh": {f32: 1, f64: 7},
}
