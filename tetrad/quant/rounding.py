"""Block formats: the rounding of the formats with one scale a block, to the letter of ggml's
reference.

Receives f32[n, block]; returns the step of every block and the codes. Steps are used in f32 and
stored in f16; a tie goes away from zero (or up, where a half is added and the rest cut off). So
files made here and there are the same.
"""

from __future__ import annotations

import numpy as np

from tetrad.quant.fields import F32, U8

ONE = np.float32(1)


def round_signed(x: F32, half: int) -> tuple[F32, U8]:
    """The element of largest magnitude becomes code 0; codes are q + half, q in -half..half-1."""
    step = largest(x, axis=1) / np.float32(-half)
    codes = np.trunc(x * over(ONE, step) + np.float32(half + 0.5))
    return step, np.clip(codes, 0, 2 * half - 1).astype(np.uint8)


def round_with_min(x: F32, top: int) -> tuple[F32, F32, U8]:
    """The least element becomes code 0, the greatest code `top`; returns the step, the least
    element, the codes."""
    low = x.min(axis=1, keepdims=True)
    step = (x.max(axis=1, keepdims=True) - low) / np.float32(top)
    codes = np.trunc((x - low) * over(ONE, step) + np.float32(0.5))
    return step, low, np.clip(codes, 0, top).astype(np.uint8)


def round_away(x: F32) -> F32:
    """To the nearest integer, ties away from zero."""
    whole: F32 = np.trunc(x)
    whole += np.trunc(2 * (x - whole))
    return whole


def largest(x: F32, axis: int) -> F32:
    """The element of largest magnitude along the axis, with its sign; the axis stays, with size
    1."""
    return np.take_along_axis(x, np.abs(x).argmax(axis=axis, keepdims=True), axis=axis)


def over(a: F32 | np.float32, b: F32) -> F32:
    """a / b, and 0 where that is no finite number: a step so small is 0 in f16, and what it scales
    is lost anyway."""
    ratio = a / b
    return np.where(np.isfinite(ratio), ratio, np.float32(0))
