"""Block formats: the scales and codes that come nearest to given numbers, for formats that leave a
choice.

Receives f32[n, block]; returns the f16 factor of every block, the small integer scales (and mins)
of its sub-blocks and the codes. What a code stands for is an integer, from a range or from a code
book (`Near`). First each sub-block alone: codes for some twenty step sizes, the least-squares line
through each, the best kept. Then the scales are rounded to what the block can hold, trying the
neighbours of each as well.

Arrays of elements are [elements, n, sub-blocks] in here: sums over the first axis run along whole
rows of memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

import numpy as np

from tetrad.core.record import record
from tetrad.quant.codebook import CodeBook
from tetrad.quant.fields import F32, U8, as_half
from tetrad.quant.rounding import largest, over

# the range is divided into this many codes more than there are
STRETCH = np.linspace(-2, 2, 21, dtype=np.float32)
LEAST_HALF, LEAST_NORMAL_HALF = np.float32(2**-24), np.float32(2**-14)
NEAR = (-1, 0, 1)
# of the end of a code book, to where the largest number goes
RATIOS = np.linspace(0.8, 1.3, 26, dtype=np.float32)
Range = tuple[int, int]  # both ends included
# numbers and a step -> the integers whose multiples of the step are nearest
Near = Callable[[F32, F32], F32]


@record
class Scales:
    """Scales factor * scales and mins min_factor * mins, one for each sub-block."""

    factor: F32  # [n, 1], as f16 keeps it
    scales: F32  # [n, sub-blocks], integers
    min_factor: F32
    mins: F32


def fit_with_mins(x: F32, sub_block: int, top: int, scale_top: int) -> tuple[Scales, U8]:
    """Codes 0..top, scales and mins 0..scale_top; the codes are u8[n, block]."""
    groups = _groups(x, sub_block)
    step, low = _lines(groups, top)
    factor, min_factor = (
        _factor(v.max(axis=1, keepdims=True) / np.float32(scale_top)) for v in (step, low)
    )
    first = Scales(factor, np.rint(over(step, factor)), min_factor, np.rint(over(low, min_factor)))
    near = partial(_nearest, limits=(0, top))
    kept = _best_nearby(groups, first, near, (0, scale_top), NEAR)
    return kept, _as_blocks(_codes(groups, kept, near), x)


def fit_signed(x: F32, sub_block: int, half: int, scale_half: int) -> tuple[Scales, U8]:
    """Codes q + half with q in -half..half-1, scales -scale_half..scale_half-1, no mins."""
    near = partial(_nearest, limits=(-half, half - 1))
    groups = _groups(x, sub_block)
    kept = _without_mins(groups, _steps(groups, near, -(half + STRETCH)), near, scale_half)
    return kept, _as_blocks(_codes(groups, kept, near) + np.float32(half), x)


def fit_book(x: F32, sub_block: int, book: CodeBook, scale_half: int) -> tuple[Scales, U8]:
    """Codes of a code book, scales -scale_half..scale_half-1, no mins."""
    groups = _groups(x, sub_block)
    kept = _without_mins(
        groups, _steps(groups, book.nearest, book.end * RATIOS), book.nearest, scale_half
    )
    return kept, _as_blocks(book.codes(_codes(groups, kept, book.nearest)), x)


def fit_book_step(x: F32, book: CodeBook) -> tuple[F32, U8]:
    """The f16 step of every block, f32[n, 1], and codes of a code book."""
    groups = _groups(x, x.shape[1])
    step = _factor(_steps(groups, book.nearest, book.end * RATIOS))
    return step, _as_blocks(book.codes(book.nearest(groups, step)), x)


def _without_mins(groups: F32, step: F32, near: Near, scale_half: int) -> Scales:
    # The largest scale goes to the end of the range that reaches further.
    factor = _factor(largest(step, axis=1) / np.float32(-scale_half))
    first = Scales(factor, np.rint(over(step, factor)), np.zeros_like(factor), np.zeros_like(step))
    return _best_nearby(groups, first, near, (-scale_half, scale_half - 1), (0,))


def _factor(wanted: F32) -> F32:
    """The f16 nearest to what is wanted; among subnormals the next one outward, so that the integer
    scales suffice."""
    outward = np.copysign(np.ceil(np.abs(wanted) / LEAST_HALF) * LEAST_HALF, wanted)
    return np.where(np.abs(wanted) < LEAST_NORMAL_HALF, outward, as_half(wanted))


def _groups(x: F32, sub_block: int) -> F32:
    return np.ascontiguousarray(x.reshape(len(x), -1, sub_block).transpose(2, 0, 1))


def _as_blocks(codes: F32 | U8, x: F32) -> U8:
    return codes.astype(np.uint8).transpose(1, 2, 0).reshape(x.shape)


def _best_nearby(
    groups: F32, first: Scales, near: Near, limits: Range, min_moves: tuple[int, ...]
) -> Scales:
    """Of the integer scales and mins around the first ones, in every sub-block those with the least
    error."""
    scales, mins = (np.clip(v, *limits) for v in (first.scales, first.mins))
    least = np.full(scales.shape, np.inf, np.float32)
    kept_scales, kept_mins = scales, mins
    for move, min_move in itertools.product(NEAR, min_moves):
        s, m = (
            np.clip(scales + np.float32(move), *limits),
            np.clip(mins + np.float32(min_move), *limits),
        )
        tried = Scales(first.factor, s, first.min_factor, m)
        error = _error(groups, tried, _codes(groups, tried, near))
        better = error < least
        least = np.where(better, error, least)
        kept_scales, kept_mins = np.where(better, s, kept_scales), np.where(better, m, kept_mins)
    return Scales(first.factor, kept_scales, first.min_factor, kept_mins)


def _codes(groups: F32, scales: Scales, near: Near) -> F32:
    return near(groups + scales.min_factor * scales.mins, scales.factor * scales.scales)


def _error(groups: F32, scales: Scales, codes: F32) -> F32:
    wrong = codes * (scales.factor * scales.scales)
    wrong -= scales.min_factor * scales.mins
    wrong -= groups
    return _dot(wrong, wrong)


def _lines(groups: F32, top: int) -> tuple[F32, F32]:
    """step and low (both at least 0) of the line step * code - low nearest to each group."""
    count, total = np.float32(len(groups)), groups.sum(axis=0)
    base = np.minimum(groups.min(axis=0), np.float32(0))
    span = groups.max(axis=0) - base
    least = np.full(span.shape, np.inf, np.float32)
    kept_step, kept_low = span / np.float32(top), -base
    above = groups - base
    for stretch in STRETCH:
        codes = _nearest(above, span / (top + stretch), (0, top))
        c, cc, cx = codes.sum(axis=0), _dot(codes, codes), _dot(codes, groups)
        step, shift = _regression(count, c, cc, cx, total)
        # The sum of squares of what is left, less that of the group: the same for every line.
        error = step * (step * cc + 2 * (shift * c - cx)) + shift * (count * shift - 2 * total)
        better = (error < least) & (step > 0)
        least = np.where(better, error, least)
        kept_step, kept_low = np.where(better, step, kept_step), np.where(better, -shift, kept_low)
    return kept_step, kept_low


def _regression(count: np.float32, c: F32, cc: F32, cx: F32, x: F32) -> tuple[F32, F32]:
    """Slope and shift of the least-squares line with a shift of at most 0, from the sums over each
    group."""
    bend = count * cc - c * c
    slope, shift = over(count * cx - c * x, bend), over(cc * x - c * cx, bend)
    through_zero = (shift > 0) | (bend <= 0)
    return np.where(through_zero, over(cx, cc), slope), np.where(through_zero, np.float32(0), shift)


def _steps(groups: F32, near: Near, ends: F32) -> F32:
    """The signed step whose multiples come nearest to each group; `ends` are the multiples tried
    for the largest."""
    furthest = largest(groups, axis=0).reshape(groups.shape[1:])
    best = np.zeros(furthest.shape, np.float32)
    kept: F32 = furthest / ends[len(ends) // 2]
    for end in ends:
        codes = near(groups, furthest / end)
        cc, cx = _dot(codes, codes), _dot(codes, groups)
        step = over(cx, cc)
        gain = step * cx  # what the least-squares step takes from the sum of squares
        better = gain > best
        best, kept = np.where(better, gain, best), np.where(better, step, kept)
    return kept


def _nearest(x: F32, step: F32, limits: Range) -> F32:
    """The codes nearest to x / step, ties to even."""
    codes = x * over(np.float32(1), step)
    np.rint(codes, out=codes)
    return np.clip(codes, *limits, out=codes)


def _dot(a: F32, b: F32) -> F32:
    return np.asarray(np.einsum("ens,ens->ns", a, b), np.float32)
