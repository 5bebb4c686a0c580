"""Ops, windows: sums and extremes of windows that move over an array, and their derivatives.

Four settings have an entry for each axis, as in `jax.lax.reduce_window`: the taps of a `window`,
the `strides` from one window to the next, the `padding` (before, after) and the `dilation` between
taps. Padding takes no part: it is 0 in a sum, and never an extreme. Taps count row by row.

    window_sum       x -> sums                  its transpose: window_spread
    window_extreme   x -> largest or smallest   its derivative: window_pick at window_position
    window_position  x -> the tap that has it: of equals the first, NaN before all; -1 if there is
                     none in range
    window_pick      x, taps -> elements        its transpose: window_put
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product as every
from typing import Any

import numpy as np

from tetrad.core.dtypes import i32
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.core.op import Case, Op, Rule, op
from tetrad.core.sizes import Shape, Size
from tetrad.core.types import ArrayType
from tetrad.graph.nodes import Node
from tetrad.ops.calculus import Batched, all_batched, batch_size
from tetrad.ops.cases import Rng, exact_array, pick, random_array
from tetrad.ops.rules import FLOATS, NUMBERS, Array, check_dtype, ieee

Ints = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]
MOST_TAPS = 1 << 24  # positions in a window are i32


# -- geometry --------------------------------------------------------------------------------------


def is_moving(taps: int, stride: int, around: tuple[int, int]) -> bool:
    """Does the axis change? Others may have any size."""
    return (taps, stride, around) != (1, 1, (0, 0))


def windowed_size(
    name: str, size: Size, taps: int, stride: int, around: tuple[int, int], apart: int
) -> Size:
    """How many windows there are along an axis.

    >>> windowed_size("pool", 7, 3, 2, (1, 1), 1), windowed_size("pool", 7, 2, 1, (0, 0), 3)
    (4, 4)
    """
    if not is_moving(taps, stride, around):
        return size
    if not isinstance(size, int):
        raise ShapeError(f"{name}: windows move along axes of known size, not along {size}")
    if taps < 1 or stride < 1 or apart < 1 or min(around) < 0:
        given = f"{taps} taps, stride {stride}, dilation {apart}, padding {tuple(around)}"
        raise ShapeError(f"{name}: windows need taps, strides and no negative padding, got {given}")
    reach = apart * (taps - 1) + 1
    if size + sum(around) < reach:
        raise ShapeError(
            f"{name}: a window reaches over {reach} elements, and the axis has {size} with padding "
            f"{tuple(around)}"
        )
    return (size + sum(around) - reach) // stride + 1


def windowed_shape(
    name: str, shape: Shape, window: Ints, strides: Ints, padding: Pairs, dilation: Ints
) -> Shape:
    if not len(window) == len(strides) == len(padding) == len(dilation) == len(shape):
        raise ShapeError(f"{name}: settings have an entry for each of {len(shape)} axes")
    settings = zip(shape, window, strides, padding, dilation, strict=True)
    if np.prod(window, dtype=float) > MOST_TAPS:
        raise ShapeError(f"{name}: a window of {window} has more than {MOST_TAPS} taps")
    return tuple(windowed_size(name, *one) for one in settings)


def known_shape(name: str, shape: Ints, settings: tuple[Any, ...]) -> Ints:
    """Of an array that is there."""
    return tuple(map(int, windowed_shape(name, shape, *settings)))  # type: ignore[arg-type]


def taps_of(
    shape: Ints, result: Ints, window: Ints, strides: Ints, padding: Pairs, dilation: Ints
) -> Iterator[tuple[tuple[slice, ...], tuple[slice, ...]]]:
    """For each tap: where it reads, and the windows in which it is in range."""
    for taps in every(*map(range, window)):
        reads, windows = [], []
        axes = zip(taps, shape, result, strides, padding, dilation, strict=True)
        for tap, size, count, stride, (low, _), apart in axes:
            first = tap * apart - low
            begin = min(max(0, -(first // stride)), count)
            end = max(begin, min(count, (size - 1 - first) // stride + 1))
            windows.append(slice(begin, end))
            start = first + begin * stride
            reads.append(slice(start, start + (end - begin) * stride, stride))
        yield tuple(reads), tuple(windows)


# -- types and cases -------------------------------------------------------------------------------


def window_sum_type(x: ArrayType, **settings: Any) -> ArrayType:
    check_dtype("window_sum", x.dtype, NUMBERS)
    return x.with_shape(windowed_shape("window_sum", x.shape, **settings))


def window_extreme_type(x: ArrayType, *, largest: bool, **settings: Any) -> ArrayType:
    check_dtype("window_extreme", x.dtype, NUMBERS)
    return x.with_shape(windowed_shape("window_extreme", x.shape, **settings))


def window_position_type(x: ArrayType, *, largest: bool, **settings: Any) -> ArrayType:
    check_dtype("window_position", x.dtype, NUMBERS)
    return ArrayType(i32, windowed_shape("window_position", x.shape, **settings))


def window_pick_type(x: ArrayType, taps: ArrayType, **settings: Any) -> ArrayType:
    check_dtype("window_pick", x.dtype, FLOATS)
    shape = windowed_shape("window_pick", x.shape, **settings)
    _check_taps("window_pick", taps, shape)
    return x.with_shape(shape)


def window_spread_type(y: ArrayType, *, sizes: Shape, **settings: Any) -> ArrayType:
    check_dtype("window_spread", y.dtype, FLOATS)
    _check_windows("window_spread", y, windowed_shape("window_spread", sizes, **settings))
    return y.with_shape(sizes)


def window_put_type(y: ArrayType, taps: ArrayType, *, sizes: Shape, **settings: Any) -> ArrayType:
    check_dtype("window_put", y.dtype, FLOATS)
    shape = windowed_shape("window_put", sizes, **settings)
    _check_windows("window_put", y, shape)
    _check_taps("window_put", taps, shape)
    return y.with_shape(sizes)


def _check_taps(name: str, taps: ArrayType, shape: Shape) -> None:
    if taps.dtype is not i32:
        raise DtypeError(f"{name}: taps are i32, got {taps}")
    _check_windows(name, taps, shape)


def _check_windows(name: str, y: ArrayType, shape: Shape) -> None:
    if y.shape != shape:
        raise ShapeError(f"{name}: there are {list(shape)} windows, got {y}")


def _geometry(rng: Rng) -> tuple[Ints, dict[str, Any]]:
    """A shape, and settings that fit it."""
    rank = int(rng.integers(1, 5))
    shape = tuple(int(n) for n in rng.choice((1, 2, 3, 5, 8, 17, 33), rank))
    shape = tuple(min(n, 8) if a < rank - 2 else n for a, n in enumerate(shape))
    settings: dict[str, Any] = {"window": (), "strides": (), "padding": (), "dilation": ()}
    for size in shape:
        around = (int(rng.integers(3)), int(rng.integers(3))) if rng.random() < 0.5 else (0, 0)
        apart = int(rng.integers(1, 3))
        most = (size + sum(around) - 1) // apart + 1
        taps = min(pick(rng, (1, 1, 2, 3, 4)), most)
        one = (taps, pick(rng, (1, 2, 2, 3)), around, apart)
        for name, value in zip(settings, one, strict=True):
            settings[name] = (*settings[name], value)
    return shape, settings


def _sum_cases(rng: Rng) -> Case:
    shape, settings = _geometry(rng)
    return Case((exact_array(rng, pick(rng, NUMBERS), shape),), settings)


def _extreme_cases(rng: Rng) -> Case:
    """Few different values, so that ties are common."""
    shape, settings = _geometry(rng)
    values = random_array(rng, pick(rng, NUMBERS), (4,), special=0.3)
    return Case((rng.choice(values, shape),), {"largest": bool(rng.integers(2)), **settings})


def _pick_cases(rng: Rng) -> Case:
    shape, settings = _geometry(rng)
    x = rng.choice(random_array(rng, pick(rng, FLOATS), (4,)), shape)
    return Case((x, window_position(x, largest=True, **settings)), settings)


def _spread_cases(rng: Rng) -> Case:
    shape, settings = _geometry(rng)
    result = windowed_shape("window_spread", shape, **settings)
    y = exact_array(rng, pick(rng, FLOATS), result)  # type: ignore[arg-type]
    return Case((y,), {"sizes": shape, **settings})


def _put_cases(rng: Rng) -> Case:
    spread, dtype = _spread_cases(rng), pick(rng, FLOATS)
    settings = {name: value for name, value in spread.params.items() if name != "sizes"}
    x = exact_array(rng, dtype, spread.params["sizes"])
    taps = window_position(x, largest=True, **settings)
    return Case((spread.args[0].astype(dtype.np), taps), spread.params)


# -- the ops ---------------------------------------------------------------------------------------


@op(type=window_sum_type, kind="special", cases=_sum_cases, dtypes=NUMBERS, public=False)
@ieee
def window_sum(x: Array, *, window: Ints, strides: Ints, padding: Pairs, dilation: Ints) -> Array:
    """The sum of each window, tap by tap from 0.

    >>> settings = {"window": (2,), "strides": (2,), "padding": ((1, 0),), "dilation": (1,)}
    >>> window_sum(np.array([1.0, 2.0, 4.0]), **settings)
    array([1., 6.])
    """
    shape = known_shape("window_sum", x.shape, (window, strides, padding, dilation))
    total = np.zeros(shape, x.dtype)
    for reads, windows in taps_of(x.shape, total.shape, window, strides, padding, dilation):
        total[windows] += x[reads]
    return total


@op(type=window_extreme_type, kind="special", cases=_extreme_cases, dtypes=NUMBERS, public=False)
@ieee
def window_extreme(
    x: Array, *, largest: bool, window: Ints, strides: Ints, padding: Pairs, dilation: Ints
) -> Array:
    """The largest element of each window, or the smallest; NaN if there is one.

    >>> settings = {"window": (2,), "strides": (1,), "padding": ((1, 0),), "dilation": (1,)}
    >>> window_extreme(np.array([3.0, 1.0, np.nan]), largest=True, **settings)
    array([ 3.,  3., nan])
    """
    shape = known_shape("window_extreme", x.shape, (window, strides, padding, dilation))
    found = np.full(shape, outermost(x.dtype, largest), x.dtype)
    better = np.maximum if largest else np.minimum
    for reads, windows in taps_of(x.shape, found.shape, window, strides, padding, dilation):
        found[windows] = better(found[windows], x[reads])
    return found


def outermost(dtype: np.dtype[Any], largest: bool) -> Any:
    """What no element is beyond: -inf for the largest."""
    if dtype.kind in "iu":
        return np.iinfo(dtype).min if largest else np.iinfo(dtype).max
    return -np.inf if largest else np.inf


@op(type=window_position_type, kind="special", cases=_extreme_cases, dtypes=NUMBERS, public=False)
@ieee
def window_position(
    x: Array, *, largest: bool, window: Ints, strides: Ints, padding: Pairs, dilation: Ints
) -> Array:
    """The tap that has the extreme: of equals the first, NaN before all; -1 if all are padding.

    >>> settings = {"window": (2,), "strides": (2,), "padding": ((0, 0),), "dilation": (1,)}
    >>> window_position(np.array([3.0, 3.0, 1.0, 2.0]), largest=True, **settings)
    array([0, 1], dtype=int32)
    """
    shape = known_shape("window_position", x.shape, (window, strides, padding, dilation))
    best = np.full(shape, outermost(x.dtype, largest), x.dtype)
    found = np.full(shape, -1, np.int32)
    every_tap = taps_of(x.shape, found.shape, window, strides, padding, dilation)
    for tap, (reads, windows) in enumerate(every_tap):
        now, before = x[reads], best[windows]
        wins = (now > before if largest else now < before) | (found[windows] < 0)
        wins |= np.isnan(now) & ~np.isnan(before)
        found[windows] = np.where(wins, tap, found[windows])
        best[windows] = np.where(wins, now, before)
    return found


@op(type=window_pick_type, kind="special", cases=_pick_cases, dtypes=FLOATS, public=False)
@ieee
def window_pick(
    x: Array, taps: Array, *, window: Ints, strides: Ints, padding: Pairs, dilation: Ints
) -> Array:
    """The element of each window at its tap; 0 where there is none.

    >>> settings = {"window": (2,), "strides": (2,), "padding": ((0, 0),), "dilation": (1,)}
    >>> window_pick(np.array([3.0, 4.0, 1.0, 2.0]), np.array([1, -1], np.int32), **settings)
    array([4., 0.])
    """
    found = np.zeros(taps.shape, x.dtype)
    every_tap = taps_of(x.shape, found.shape, window, strides, padding, dilation)
    for tap, (reads, windows) in enumerate(every_tap):
        found[windows] = np.where(taps[windows] == tap, x[reads], found[windows])
    return found


@op(type=window_spread_type, kind="special", cases=_spread_cases, dtypes=FLOATS, public=False)
@ieee
def window_spread(
    y: Array, *, sizes: Ints, window: Ints, strides: Ints, padding: Pairs, dilation: Ints
) -> Array:
    """For each element of an array of these sizes, the sum over the windows it lies in, tap by tap
    from 0.

    >>> settings = {"window": (2,), "strides": (1,), "padding": ((0, 0),), "dilation": (1,)}
    >>> window_spread(np.array([1.0, 2.0]), sizes=(3,), **settings)
    array([1., 3., 2.])
    """
    total = np.zeros(sizes, y.dtype)
    for reads, windows in taps_of(sizes, y.shape, window, strides, padding, dilation):
        total[reads] += y[windows]
    return total


@op(type=window_put_type, kind="special", cases=_put_cases, dtypes=FLOATS, public=False)
@ieee
def window_put(
    y: Array,
    taps: Array,
    *,
    sizes: Ints,
    window: Ints,
    strides: Ints,
    padding: Pairs,
    dilation: Ints,
) -> Array:
    """As `window_spread`, but a window counts only where its tap is.

    >>> settings = {"window": (2,), "strides": (2,), "padding": ((0, 0),), "dilation": (1,)}
    >>> window_put(np.array([5.0, 6.0]), np.array([1, 0], np.int32), sizes=(4,), **settings)
    array([0., 5., 6., 0.])
    """
    total = np.zeros(sizes, y.dtype)
    every_tap = taps_of(sizes, y.shape, window, strides, padding, dilation)
    for tap, (reads, windows) in enumerate(every_tap):
        total[reads] += np.where(taps[windows] == tap, y[windows], y.dtype.type(0))
    return total


# -- derivatives and batches -----------------------------------------------------------------------


def _sum_back(ct: Node, x: Node, **settings: Any) -> Node:
    result: Node = window_spread(ct, sizes=x.type.shape, **settings)
    return result


def _spread_back(ct: Node, y: Node, *, sizes: Shape, **settings: Any) -> Node:
    result: Node = window_sum(ct, **settings)
    return result


def _pick_back(ct: Node, x: Node, taps: Node, **settings: Any) -> Node:
    result: Node = window_put(ct, taps, sizes=x.type.shape, **settings)
    return result


def _put_back(ct: Node, y: Node, taps: Node, *, sizes: Shape, **settings: Any) -> Node:
    result: Node = window_pick(ct, taps, **settings)
    return result


def _extreme_jvp(t: Node, y: Node, x: Node, *, largest: bool, **settings: Any) -> Node:
    position = window_position(x, largest=largest, **settings)
    result: Node = window_pick(t, position, **settings)
    return result


window_sum.transpose(_sum_back)
window_spread.transpose(_spread_back)
window_pick.transpose(_pick_back, None)
window_put.transpose(_put_back, None)
window_extreme.jvp(_extreme_jvp)
window_position.not_differentiable("positions are integers")


def batched_windows(windows: Op) -> Rule:
    """No window moves along the new axis."""

    def rule(batched: Batched, *operands: Node, **settings: Any) -> Any:
        ahead: dict[str, Any] = {"window": 1, "strides": 1, "padding": (0, 0), "dilation": 1}
        if "sizes" in settings:
            ahead["sizes"] = batch_size(batched, operands)
        wider = {name: (first, *settings[name]) for name, first in ahead.items()}
        return windows(*all_batched(batched, operands), **{**settings, **wider})

    return rule


for _op in (window_sum, window_extreme, window_position, window_pick, window_spread, window_put):
    _op.batch(batched_windows(_op))
