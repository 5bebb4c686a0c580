"""Kernels, Fourier transforms, the plan: a length in, radices and tables of roots of unity out.

A length whose primes are small is a product of radices; from 256 on it is two factors of at least
16 where it can be, columns first, then rows. Any other length is a convolution of a longer, smooth
length. A plan depends on the length alone, so every walk of `ops.fft.kernel` gives the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np

from tetrad.core.dtypes import DType, c128
from tetrad.core.record import record

Array = np.ndarray[Any, Any]
PRIMES = (3, 5, 7, 11, 13, 17, 19, 23)
# What a pass with a radix costs a number, measured in 1/40 ns on a processor with AVX2, and what a
# transform adds.
COSTS = {2: 8, 3: 8, 4: 11, 5: 11, 7: 19, 8: 15, 11: 24, 13: 50, 17: 75, 19: 85, 23: 105}
ENDS = 13
# of such a processor: a side that is no multiple of it has a block that computes numbers twice
VECTOR = 8
LEAST = 16  # of both factors of a split length: a vector of any machine
NEAR = 256  # numbers of every lane that stay close to the processor
SPLIT_FROM = LEAST * LEAST
AT_ONCE = 16384


@cache
def radices(n: int) -> tuple[int, ...] | None:
    """The radices of a smooth length, small ones first (the last pass needs no twiddles); None for
    other lengths."""
    twos = (n & -n).bit_length() - 1
    rest, found = n >> twos, []
    for prime in PRIMES:
        while rest % prime == 0:
            found.append(prime)
            rest //= prime
    eights, left = divmod(twos, 3)
    if left == 1 and eights:
        eights, fours, left = eights - 1, 2, 0
    else:
        fours, left = (1, 0) if left == 2 else (0, left)
    return tuple(sorted(found + [8] * eights + [4] * fours + [2] * left)) if rest == 1 else None


def cost(n: int, others: int = VECTOR) -> float:
    """Of transforms of length n, `others` of them side by side."""
    repeated = -(-others // VECTOR) * VECTOR / others
    return repeated * sum(COSTS[r] for r in radices(n) or ())


def split_cost(a: int, b: int) -> float:
    """Long sides leave the nearest cache."""
    return cost(a, b) + cost(b, a) + max(a, b) / NEAR


@cache
def split(n: int) -> tuple[int, int] | None:
    """The cheapest two factors of at least 16, rather equal than not; None where there are none."""
    small = [a for a in range(LEAST, math.isqrt(n) + 1) if n % a == 0]
    pairs = [pair for a in small for pair in ((a, n // a), (n // a, a))]
    return min(pairs, key=lambda p: (split_cost(*p), abs(p[0] - p[1]), p), default=None)


@cache
def convolution_length(n: int) -> int:
    """The cheapest smooth length that holds a chirp of n numbers and does not wrap."""
    least = 2 * n - 1
    found = [m for m in smooth(least, 2 * least) if m < SPLIT_FROM or split(m)]
    return min(found, key=lambda m: (m * (whole_cost(m) + ENDS), m))


def whole_cost(n: int) -> float:
    factors = split(n)
    return cost(n) if factors is None else split_cost(*factors)


def smooth(least: int, most: int) -> list[int]:
    """Lengths made of 2, 3, 5 and 7."""
    found = {1}
    for prime in (2, 3, 5, 7):
        found = {
            m * prime**e
            for m in found
            for e in range(int(math.log(most / m, prime)) + 2)
            if m * prime**e <= most
        }
    return sorted(m for m in found if m >= least)


# -- tables ----------------------------------------------------------------------------------------


def roots(n: int, exponents: Array) -> Array:
    """e^(-2 pi i e / n) in f64, for as many exponents at a time as stay in a cache: six times as
    fast for millions."""
    flat = exponents.reshape(-1)
    found = np.empty(flat.size, c128.np)
    for start in range(0, flat.size, AT_ONCE):
        found[start : start + AT_ONCE] = some_roots(n, flat[start : start + AT_ONCE])
    return found.reshape(exponents.shape)


def some_roots(n: int, exponents: Array) -> Array:
    """Angles are reduced to an eighth of the circle, so equal values are equal."""
    quarter, part = np.divmod(4 * (exponents % n), n)
    # in the middle sine and cosine are equal, but for NumPy
    is_low, is_middle = 2 * part <= n, 2 * part == n
    angle = (np.pi / 2) * (np.where(is_low, part, n - part) / n)
    near, far = np.cos(angle), np.sin(angle)
    cos, sin = np.where(is_low, near, far), np.where(is_low, far, near)
    cos, sin = (np.where(is_middle, math.sqrt(0.5), value) for value in (cos, sin))
    turned = [(cos, sin), (-sin, cos), (-cos, -sin), (sin, -cos)]
    real = np.choose(quarter, [re for re, _ in turned])
    return np.asarray(real - 1j * np.choose(quarter, [im for _, im in turned]))


def pass_twiddles(n: int, radix: int) -> Array:
    """[p, j - 1]: the factor of output j of butterfly p of a pass over n = radix * m numbers."""
    p, j = np.arange(n // radix)[:, None], np.arange(1, radix)[None, :]
    return roots(n, p * j).reshape(-1)


def split_twiddles(a: int, b: int) -> Array:
    """[k, j]: between columns of length a and rows of length b."""
    return roots(a * b, np.arange(a)[:, None] * np.arange(b)[None, :]).reshape(-1)


@lru_cache(maxsize=1)
def chirp(n: int) -> Array:
    """e^(-pi i k^2 / n)"""
    k = np.arange(n)
    return roots(2 * n, k * k % (2 * n))


def chirp_spectrum(n: int, m: int) -> Array:
    """The spectrum, of length m, of the conjugate chirp around zero, divided by m."""
    conjugate = np.conj(chirp(n))
    filter_ = np.zeros(m, c128.np)
    filter_[:n] = conjugate
    filter_[m - n + 1 :] = conjugate[:0:-1]
    return np.fft.fft(filter_) / m


@record
class ConstantTable:
    """Complex constants: where their real and imaginary parts start."""

    real: int
    imag: int


class Tables:
    """All constants of a transform in one array of floats; equal ones lie there once."""

    def __init__(self, dtype: DType) -> None:
        self.dtype = dtype
        self.parts: list[Array] = []
        self.size = 0
        self.known: dict[tuple[object, ...], ConstantTable] = {}

    def add(self, key: tuple[object, ...], make: Callable[[], Array]) -> ConstantTable:
        if key not in self.known:
            values = make()
            self.known[key] = ConstantTable(self.place(values.real), self.place(values.imag))
        return self.known[key]

    def add_transform(self, n: int) -> None:
        """The twiddles of every pass of a smooth length."""
        factors = split(n)
        for part in factors or (n,):
            rest = part
            for radix in radices(part) or ():
                if rest > radix:
                    self.add(("pass", rest, radix), partial(pass_twiddles, rest, radix))
                rest //= radix
        if factors is not None:
            self.add(("split", *factors), partial(split_twiddles, *factors))

    def place(self, values: Array) -> int:
        start = self.size
        self.parts.append(values.astype(self.dtype.np))
        self.size += values.size
        return start

    def array(self) -> Array:
        return np.concatenate([*self.parts, np.zeros(1, self.dtype.np)])
