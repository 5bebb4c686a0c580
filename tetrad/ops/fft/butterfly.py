"""Kernels, Fourier transforms, butterflies: transforms of 2 to 23 complex numbers in registers,
forward.

A number is a pair of kernel values, real and imaginary part. Products are one multiplication and
one fma each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tetrad.kernel.build import KernelBuilder, Val
from tetrad.ops.fft.plan import roots

Pair = tuple[Val, Val]


def plus(a: Pair, b: Pair) -> Pair:
    return a[0] + b[0], a[1] + b[1]


def minus(a: Pair, b: Pair) -> Pair:
    return a[0] - b[0], a[1] - b[1]


def conjugate(a: Pair) -> Pair:
    return a[0], -a[1]


def swapped(a: Pair) -> Pair:
    """i times the conjugate. The transform of swapped numbers, swapped, is the inverse
    transform."""
    return a[1], a[0]


def times(k: KernelBuilder, a: Pair, b: Pair) -> Pair:
    return k.fma(-a[1], b[1], a[0] * b[0]), k.fma(a[1], b[0], a[0] * b[1])


def scaled(a: Pair, by: float) -> Pair:
    return (a[0] * by, a[1] * by) if by != 1 else a


def turned_back(a: Pair) -> Pair:
    """-i times a."""
    return a[1], -a[0]


def turned_on(a: Pair) -> Pair:
    """i times a."""
    return -a[1], a[0]


def butterfly(k: KernelBuilder, x: Sequence[Pair]) -> list[Pair]:
    """The transform of a few numbers."""
    if len(x) == 1:
        return list(x)
    if len(x) == 2:
        return [plus(*x), minus(*x)]
    if len(x) in (4, 8):
        return power_of_two(k, x)
    return odd(k, x)


def power_of_two(k: KernelBuilder, x: Sequence[Pair]) -> list[Pair]:
    """Of the sums and the (turned) differences of both halves."""
    half = len(x) // 2
    even = butterfly(k, [plus(x[i], x[i + half]) for i in range(half)])
    odd_ = butterfly(k, [turned(minus(x[i], x[i + half]), i, len(x)) for i in range(half)])
    return [pair for both in zip(even, odd_, strict=True) for pair in both]


def turned(a: Pair, i: int, n: int) -> Pair:
    """a e^(-2 pi i / n), for eighths of the circle."""
    eighth, root = 8 * i // n, math.sqrt(0.5)
    if eighth == 0:
        return a
    if eighth == 2:
        return turned_back(a)
    total, difference = a[0] + a[1], a[1] - a[0]
    return (total * root, difference * root) if eighth == 1 else (difference * root, total * -root)


def odd(k: KernelBuilder, x: Sequence[Pair]) -> list[Pair]:
    """Cosines go with the sums of opposite numbers, sines with their differences."""
    n, first = len(x), x[0]
    half = n // 2
    sums = [plus(x[i], x[n - i]) for i in range(1, half + 1)]
    differences = [minus(x[i], x[n - i]) for i in range(1, half + 1)]
    total = first
    for pair in sums:
        total = plus(total, pair)
    result = [total] * n
    for j in range(1, half + 1):
        turns = roots(n, j * np.arange(1, half + 1))
        cos, sin = turns.real.tolist(), (-turns.imag).tolist()
        even = first
        for c, pair in zip(cos, sums, strict=True):
            even = k.fma(pair[0], c, even[0]), k.fma(pair[1], c, even[1])
        uneven = differences[0][0] * sin[0], differences[0][1] * sin[0]
        for c, pair in zip(sin[1:], differences[1:], strict=True):
            uneven = k.fma(pair[0], c, uneven[0]), k.fma(pair[1], c, uneven[1])
        back = turned_back(uneven)
        result[j], result[n - j] = plus(even, back), minus(even, back)
    return result
