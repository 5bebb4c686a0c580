"""Kernel language, math, Philox4x32-10: random words from a key and a counter, in kernel
instructions and in NumPy.

Receives a counter of 128 bits and a key of 64, returns four words. There is no state: any word of
any stream is computed directly. Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1,
2, 3 (SC11). The constants are the published ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tetrad.core.dtypes import i64, u32
from tetrad.kernel.build import KernelBuilder, Val

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
WORD = 0xFFFFFFFF
Number = Any  # int, or a NumPy array


def philox(k: KernelBuilder, counter: Sequence[Val], key: Sequence[Val]) -> list[Val]:
    """Four u32 from four words of counter and two of key, lowest first."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        high0, low0 = _wide_product(k, c0, MULTIPLIERS[0])
        high1, low1 = _wide_product(k, c2, MULTIPLIERS[1])
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = k0 + KEY_STEPS[0], k1 + KEY_STEPS[1]
    return [c0, c1, c2, c3]


def _wide_product(k: KernelBuilder, x: Val, factor: int) -> tuple[Val, Val]:
    """The high and the low word of a product; i64 wraps, so all 64 bits are right."""
    product = k.cast(x, i64) * factor
    return k.cast(product >> 32, u32), k.cast(product, u32)


def philox_numbers(
    counter: Sequence[Number], key: Sequence[Number]
) -> tuple[Number, Number, Number, Number]:
    """The same on Python ints, and on NumPy arrays of u64 that hold words."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        p0, p1 = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        c0, c1, c2, c3 = p1 >> 32 ^ c1 ^ k0, p1 & WORD, p0 >> 32 ^ c3 ^ k1, p0 & WORD
        k0, k1 = k0 + KEY_STEPS[0] & WORD, k1 + KEY_STEPS[1] & WORD
    return c0, c1, c2, c3


def philox_words(seed: int, block: int) -> tuple[int, int, int, int]:
    """The four words of a block of the stream that `seed` names.

    >>> [f"{word:08X}" for word in philox_words(42, 0)]
    ['9CEAF053', '77F5493B', '12BF50AD', '5742B3D7']
    """
    return philox_numbers(
        [block >> 32 * i & WORD for i in range(4)], (seed & WORD, seed >> 32 & WORD)
    )
