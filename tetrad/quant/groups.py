"""Group quantisers, their meaning in NumPy: four bits a number, a scale for every group of
neighbours in the flat array.

Receives flat arrays of f32 or f64 and gives codes, scales and zero points, or the other way round;
two codes lie in a byte, the even element in the low half. Compiled code does the same operations
in the same order (`ops.groups`). Checks of settings and lengths are here too.
"""

from __future__ import annotations

import operator
from itertools import pairwise
from typing import Any

import numpy as np

from tetrad.core.errors import DtypeError, ShapeError

Numbers = np.ndarray[Any, np.dtype[Any]]
# how numbers become codes, and how the error texts call it
SCHEMES = {"int4": "INT4", "int4_float": "INT4", "int4_symmetric": "INT4", "nf4": "NF4"}
LEVELS = 15  # steps between the least and the greatest code
MIDDLE = 8  # the code of zero where there is no zero point
STEPS = 7  # of a symmetric group, from zero to its greatest magnitude
MOST = 1 << 32  # elements: one less is the most
# Quantiles of a normal distribution, from -1 to 1 (T. Dettmers and others, QLoRA, 2023).
NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0,
)  # fmt: skip
# a number above so many of these has that code; on one of them it has the lower
MIDPOINTS = tuple((a + b) / 2 for a, b in pairwise(NF4))


def has_zeros(scheme: str) -> bool:
    """Does every group have a zero point?"""
    return scheme in ("int4", "int4_float")


def group_count(n: int, group: int) -> int:
    """Groups of n elements; the last may be shorter.

    >>> group_count(128, 32), group_count(129, 32), group_count(0, 32)
    (4, 5, 0)
    """
    return -(-n // group)


def packed_bytes(n: int) -> int:
    """Bytes of n codes.

    >>> packed_bytes(128), packed_bytes(129), packed_bytes(1)
    (64, 65, 1)
    """
    return -(-n // 2)


def check_settings(scheme: str, group: Any, n: int) -> int:
    """The size of a group; one of no elements is refused, and more elements than 32 bits count."""
    name = SCHEMES[scheme]
    size = group_size(name, group)
    if n >= MOST:
        raise ShapeError(
            f"Fix: {name} takes fewer than 2^32 elements, got {n}",
            hint="quantise a part at a time",
        )
    return size


def group_size(name: str, group: Any) -> int:
    """An int of any kind, above 0."""
    is_int = hasattr(type(group), "__index__") and not isinstance(group, bool | np.bool_)
    if not is_int or np.shape(group) or operator.index(group) < 0:
        raise ShapeError(
            f"Fix: {name} group_size must be a positive int, got {group!r:.80}", hint="group=64"
        )
    if operator.index(group) == 0:
        raise ShapeError(f"Fix: {name} group_size must be non-zero, got 0", hint="group=64")
    return operator.index(group)


def check_length(scheme: str, part: str, expected: int, actual: int) -> None:
    """Refuse a part that is too short."""
    if actual < expected:
        raise ShapeError(
            f"Fix: {SCHEMES[scheme]} {part} too small: expected {expected}, actual {actual}",
            hint="is it cut short, or of another group size?",
        )


# -- bytes -----------------------------------------------------------------------------------------


def pack_nibbles(codes: Numbers) -> Numbers:
    """The low four bits of bytes, two in one; the last high half may be unused and is zero.

    >>> [hex(b) for b in pack_nibbles(np.uint8([1, 2, 3]))]
    ['0x21', '0x3']
    """
    flat = codes.reshape(-1).view(np.uint8) & np.uint8(15)
    if flat.size % 2:
        flat = np.append(flat, np.uint8(0))
    return np.asarray(flat[::2] | (flat[1::2] << np.uint8(4)))


def unpack_nibbles(packed: Numbers, n: int) -> Numbers:
    """n codes of a byte each."""
    both = np.stack([packed & np.uint8(15), packed >> np.uint8(4)], axis=-1)
    return both.reshape(-1)[:n]


# -- numbers to codes ------------------------------------------------------------------------------


def quantize(x: Numbers, scheme: str, group: int) -> tuple[Numbers, Numbers, Numbers]:
    """Codes u8, scales, and zero points (those of schemes without them are all 0) of a flat array.

    The last group is filled up with its last element, which changes no extreme.
    """
    groups = group_count(x.size, group)
    padded = x[np.minimum(np.arange(groups * group), max(x.size - 1, 0))].reshape(groups, group)
    check_finite(x, scheme, group)
    with np.errstate(all="ignore"):
        scale, zero = factors_of(padded, scheme)
        if not np.isfinite(scale).all():
            raise range_error(scheme)
        codes = codes_of(padded, scale[:, None], zero[:, None], scheme)
    return codes.reshape(-1)[: x.size], scale, zero


def factors_of(x: Numbers, scheme: str) -> tuple[Numbers, Numbers]:
    """The scale and the zero point of each row. A row whose scale is zero has the scale 1."""
    one, none = x.dtype.type(1), x.dtype.type(0)
    if not has_zeros(scheme):
        top = np.abs(x).max(axis=1)
        scale = top if scheme == "nf4" else top / x.dtype.type(STEPS)
        return np.where(scale == 0, one, scale), np.zeros_like(top)
    low, high = x.min(axis=1), x.max(axis=1)
    if scheme == "int4":  # zero is a number of the group, so that its code stands for it exactly
        low, high = np.minimum(low, none), np.maximum(high, none)
    scale = (high - low) / x.dtype.type(LEVELS)
    scale = np.where(scale == 0, one, scale)
    zero = none - low / scale
    return scale, zero if scheme == "int4_float" else np.clip(np.rint(zero), 0, LEVELS)


def codes_of(x: Numbers, scale: Numbers, zero: Numbers, scheme: str) -> Numbers:
    ratio = x / scale
    if scheme == "nf4":
        midpoints = np.array(MIDPOINTS).astype(x.dtype)
        return np.asarray((ratio[..., None] > midpoints).sum(axis=-1, dtype=np.uint8))
    if scheme == "int4_float":
        steps = np.rint(ratio + zero)
    else:
        steps = np.rint(ratio) + (x.dtype.type(MIDDLE) if scheme == "int4_symmetric" else zero)
    return np.asarray(np.clip(steps, 0, LEVELS).astype(np.uint8))


def check_finite(x: Numbers, scheme: str, group: int) -> None:
    finite = np.isfinite(x)
    if not finite.all():
        raise not_finite(scheme, int(np.argmin(finite)) // group)


def not_finite(scheme: str, group: int) -> DtypeError:
    return DtypeError(
        f"quantize: {SCHEMES[scheme]} holds finite numbers only, group {group} has nan or inf",
        hint="look for the nan or inf before quantising",
    )


def range_error(scheme: str) -> DtypeError:
    return DtypeError(
        f"quantize: the range of a group is too large for a scale of {SCHEMES[scheme]}",
        hint="scale the array down",
    )


# -- codes to numbers ------------------------------------------------------------------------------


def decode(codes: Numbers, zero: Numbers | None, scheme: str, dtype: np.dtype[Any]) -> Numbers:
    """What codes stand for before they are scaled; zero points are those of their groups."""
    if scheme == "ones":
        return np.ones(codes.shape, dtype)
    if scheme == "nf4":
        return np.array(NF4).astype(dtype)[codes]
    return codes.astype(dtype) - (dtype.type(MIDDLE) if zero is None else zero)
