"""Ops, test cases: random operands and settings for conformance tests and the fuzzer.

A generator receives a random source and returns a `Case`. Sizes include 0, 1 and primes; values
include what usually goes wrong (NaN, infinities, -0.0, subnormals, the ends of the integers).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from tetrad.core.dtypes import DType, bool_
from tetrad.core.op import Case, Cases

Array = Any  # np.ndarray: NumPy's stubs give Any for arrays of any dtype
# by name: NumPy loads its random numbers when they are mentioned
Rng: TypeAlias = "np.random.Generator"

SIZES = (0, 1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 33, 64, 65)
MOST = 4096  # elements of one operand
LONG = ((4097,), (10007,), (2, 5003), (5003, 2), (300, 3, 7))
SPECIALS = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 3e38, 0.5, 2.5)


def pick(rng: Rng, choices: Sequence[Any]) -> Any:
    return choices[int(rng.integers(len(choices)))]


def random_shape(rng: Rng, max_rank: int = 3, min_rank: int = 0) -> tuple[int, ...]:
    shape: list[int] = []
    for _ in range(int(rng.integers(min_rank, max_rank + 1))):
        room = MOST // max(1, int(np.prod(shape)))
        shape.append(pick(rng, [n for n in SIZES if n <= room]))
    return tuple(int(n) for n in rng.permutation(np.array(shape, int)))


def line_shape(rng: Rng) -> tuple[int, ...]:
    """A shape with axes to fold; now and then one that is longer than the chunks sums are made
    of."""
    if rng.random() < 0.1:
        return pick(rng, LONG)  # type: ignore[no-any-return]
    return random_shape(rng, min_rank=1)


def random_array(rng: Rng, dtype: DType, shape: tuple[int, ...], special: float = 0.1) -> Array:
    """Ordinary values with a share of special ones (nan, inf, -0.0, subnormals; extremes for
    integers)."""
    if dtype is bool_:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if dtype.is_float:
        return _random_floats(rng, dtype, shape, special)
    if dtype.is_complex:
        return joined(*(_random_floats(rng, dtype.real, shape, special / 2) for _ in range(2)))
    info = np.iinfo(dtype.np)
    values = rng.integers(
        max(info.min, -50), min(info.max, 50), shape, dtype=dtype.np, endpoint=True
    )
    extremes = rng.choice(np.array([info.min, info.max, 0, 1], dtype.np), shape)
    return np.where(rng.random(shape) < special, extremes, values)


def _random_floats(rng: Rng, dtype: DType, shape: tuple[int, ...], special: float) -> Array:
    """Normal values, every fifth of them of any magnitude."""
    values = rng.standard_normal(shape) * 4
    scale = np.where(rng.random(shape) < 0.2, np.exp2(rng.integers(-30, 30, shape)), 1.0)
    chosen = rng.choice(SPECIALS, shape)
    with np.errstate(all="ignore"):
        return np.where(rng.random(shape) < special, chosen, values * scale).astype(dtype.np)


def joined(re: Array, im: Array) -> Array:
    """A complex array from its parts."""
    made = np.empty((*re.shape, 2), re.dtype)
    made[..., 0], made[..., 1] = re, im
    return made.view(f"c{2 * re.dtype.itemsize}").reshape(re.shape)


def exact_array(rng: Rng, dtype: DType, shape: tuple[int, ...]) -> Array:
    """Small multiples of 1/8: sums and products of many are exact in f32, so every order of
    summation agrees."""
    if dtype.is_complex:
        return joined(*(exact_array(rng, dtype.real, shape) for _ in range(2)))
    if not dtype.is_float:
        return random_array(rng, dtype, shape)
    return (rng.integers(-64, 65, shape) / 8).astype(dtype.np)


def unit_array(rng: Rng, dtype: DType, shape: tuple[int, ...]) -> Array:
    """Ones of either sign (and i), a dozen of them doubled or halved: products are exact in every
    order."""
    if dtype.is_complex:
        return (unit_array(rng, dtype.real, shape) * rng.choice((1, 1j), shape)).astype(dtype.np)
    if not dtype.is_float:
        return random_array(rng, dtype, shape)
    scale = np.where(
        rng.random(shape) * int(np.prod(shape)) < 12, rng.choice((2.0, 0.5), shape), 1.0
    )
    return (rng.choice((-1.0, 1.0), shape) * scale).astype(dtype.np)


def unary(dtypes: tuple[DType, ...]) -> Cases:
    return same_shaped(1, dtypes)


def same_shaped(count: int, dtypes: tuple[DType, ...]) -> Cases:
    """`count` operands of one shape and dtype."""

    def draw(rng: Rng) -> Case:
        dtype, shape = pick(rng, dtypes), random_shape(rng)
        return Case(tuple(random_array(rng, dtype, shape) for _ in range(count)))

    return draw


def random_axes(rng: Rng, rank: int) -> tuple[int, ...]:
    """Some of the axes, at least one."""
    count = int(rng.integers(1, rank + 1))
    return tuple(sorted(int(a) for a in rng.choice(rank, count, replace=False)))


def random_indices(rng: Rng, dtype: DType, shape: tuple[int, ...], size: int) -> Array:
    """Indices into an axis of `size`, from the end as well where the type has a sign."""
    top = min(size - 1, int(np.iinfo(dtype.np).max))
    low = max(-size, int(np.iinfo(dtype.np).min))
    return rng.integers(low, top, shape, endpoint=True).astype(dtype.np)
