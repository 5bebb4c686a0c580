"""The public namespace `td.random`, further distributions: counts of several kinds, vectors in a
ball, and what is made of gamma numbers.

As in `distributions.py`; loaded when the first of these names is used.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tetrad.arrays.functions import abs as magnitude
from tetrad.arrays.functions import any as any_of
from tetrad.arrays.functions import clip, concat, floor, minimum, moveaxis, sqrt, where
from tetrad.arrays.statistics import sum as total
from tetrad.core.dtypes import f64, i32
from tetrad.core.errors import SettingError, ShapeError
from tetrad.core.sizes import Shape
from tetrad.random import (
    _float,
    _log,
    _open,
    drawn_shape,
    exponential,
    fold_in,
    normal,
    split,
)
from tetrad.random.distributions import (
    _exp,
    _log_factorial,
    _settings,
    _wide,
    loggamma,
    maxwell,
    rademacher,
)
from tetrad.tracing.array import Array, fail
from tetrad.tracing.loops import scan, while_loop
from tetrad.tracing.operands import as_array, broadcast, convert, expand, scalar

INF = math.inf
FEW = 10.0  # so many successes to be expected: below, gaps between them are drawn

# -- vectors and signs -----------------------------------------------------------------------------


def _check_power(name: str, p: Any) -> None:
    if not isinstance(p, int | float | np.number) or not p > 0:
        raise SettingError(f"{name}: p", "a number above 0", p)


def generalized_normal(key: Any, p: float, shape: Any = (), dtype: Any = float) -> Array:
    """Numbers whose density is proportional to exp(-|x|^p).

    >>> import tetrad as td
    >>> td.random.generalized_normal(td.random.key(0), 2.0, (3,)).shape
    (3,)
    """
    _check_power("generalized_normal", p)
    wanted, sizes = _float("generalized_normal", dtype), drawn_shape("generalized_normal", shape)
    first, second = split(key)
    size = _exp(loggamma(first, 1.0 / float(p), sizes, _wide(wanted)) / float(p))
    return convert(size * rademacher(second, sizes, _wide(wanted)), wanted)


def ball(key: Any, d: int, p: float = 2.0, shape: Any = (), dtype: Any = float) -> Array:
    """Vectors [*shape, d] within length 1 in the norm of order p, all equally likely (Barthe and
    others 2005).

    >>> import tetrad as td
    >>> td.random.ball(td.random.key(0), 2, shape=(5,)).shape
    (5, 2)
    """
    _check_power("ball", p)
    wanted, sizes = _float("ball", dtype), drawn_shape("ball", shape)
    first, second = split(key)
    g = generalized_normal(first, p, (*sizes, d), _wide(wanted))
    e = exponential(second, sizes, _wide(wanted))
    length = total(_exp(float(p) * _log(magnitude(g))), axis=-1) + e
    return convert(g / _exp(_log(length) / float(p))[..., None], wanted)


def double_sided_maxwell(
    key: Any, loc: Any, scale: Any, shape: Any = (), dtype: Any = float
) -> Array:
    """loc plus or minus scale times a Maxwell number. The shape comes before that of loc and
    scale."""
    wanted, sizes = (
        _float("double_sided_maxwell", dtype),
        drawn_shape("double_sided_maxwell", shape),
    )
    inner, (first, second) = _wide(wanted), split(key)
    middle, width = broadcast("double_sided_maxwell", [convert(x, inner) for x in (loc, scale)])
    whole = (*sizes, *middle.shape)
    size = maxwell(first, whole, inner) * rademacher(second, whole, inner)
    return convert(middle + width * size, wanted)


def wald(key: Any, mean: Any, shape: Any = None, dtype: Any = float) -> Array:
    """Wald (inverse Gaussian) numbers of a mean and scale 1 (Michael and others 1976).

    >>> import tetrad as td
    >>> td.random.wald(td.random.key(0), 2.0, (3,)).shape
    (3,)
    """
    wanted = _float("wald", dtype)
    inner, (first, second) = _wide(wanted), split(key)
    (middle,), sizes = _settings("wald", (mean,), shape, inner)
    n = normal(first, sizes, inner)
    y = 0.5 * middle * n * n
    # the smaller root, without a difference of large numbers
    x = middle / (1.0 + y + sqrt(y * (2.0 + y)))
    other = _open(second, sizes, inner) * (middle + x) > middle
    return convert(where(other, middle * middle / x, x), wanted)


# -- counts ----------------------------------------------------------------------------------------


def binomial(key: Any, n: Any, p: Any, shape: Any = None, dtype: Any = float) -> Array:
    """How many of n trials succeed, each with probability p; NaN where n is negative or p no
    probability. Counts are floats, as in JAX.

    >>> import tetrad as td
    >>> td.random.binomial(td.random.key(0), 10, 0.5, (3,)).shape
    (3,)
    """
    wanted = _float("binomial", dtype)
    (trials, chance), sizes = _settings("binomial", (n, p), shape, f64)
    return convert(_binomial(key, trials, chance, sizes), wanted)


def _binomial(key: Any, n: Array, p: Array, sizes: Shape) -> Array:
    """Of the rarer of success and failure."""
    n = floor(n)
    is_good = (n >= 0.0) & (n < INF) & (p >= 0.0) & (p <= 1.0)
    trials, chance = where(is_good, n, 0.0), where(is_good, p, 0.0)
    rare = minimum(chance, 1.0 - chance)
    is_few = trials * rare < FEW
    few, many = split(key)
    counts = where(
        is_few,
        _by_gaps(few, trials, where(is_few, rare, 0.0), sizes),
        _by_rejection(many, trials, rare, ~is_few, sizes),
    )
    counts = where(chance > 0.5, trials - counts, counts)
    return where(is_good, counts, math.nan)  # type: ignore[no-any-return]


def _by_gaps(key: Any, n: Array, p: Array, sizes: Shape) -> Array:
    """Gaps between successes are geometric numbers; those of no chance are done at once."""
    is_some = p > 0.0
    left = 1.0 - p
    gone = 1.0 - left  # what is exact of p, for the logarithm of a number near 1
    rate = where(is_some, -_log(left) * (p / where(gone > 0.0, gone, 1.0)), 1.0)
    rate = where(is_some & (gone == 0.0), p, rate)

    def attempt(state: Any) -> Any:
        step, at, count = state
        gap = floor(exponential(fold_in(key, step), sizes, f64) / rate) + 1.0
        at = at + gap
        return step + 1, at, where(at <= n, count + 1.0, count)

    zero = expand(scalar(0.0, f64), sizes)
    start = scalar(0, i32), where(is_some, zero, n + 1.0), zero
    return while_loop(lambda state: any_of(state[1] <= n), attempt, start)[2]  # type: ignore[no-any-return]


def _by_rejection(key: Any, n: Array, p: Array, wanted: Array, sizes: Shape) -> Array:
    """Transformed rejection (Hörmann 1993, algorithm BTRS)."""
    trials, chance = where(wanted, n, 40.0), where(wanted, p, 0.5)
    odds = chance / (1.0 - chance)
    spread = sqrt(trials * chance * (1.0 - chance))
    b = 1.15 + 2.53 * spread
    a = 0.0248 * b - 0.0873 + 0.01 * chance
    centre, limit = trials * chance + 0.5, 0.92 - 4.2 / b
    alpha, mode = (2.83 + 5.1 / b) * spread, floor((trials + 1.0) * chance)
    top = _log_factorial(mode) + _log_factorial(trials - mode)
    log_odds = _log(odds)

    def attempt(state: Any) -> Any:
        step, done, found = state
        first, second = split(fold_in(key, step))
        u, v = _open(first, sizes, f64) - 0.5, _open(second, sizes, f64)
        room = 0.5 - magnitude(u)
        k = floor((2.0 * a / room + b) * u + centre)
        inside = (k >= 0.0) & (k <= trials)
        whole = clip(k, 0.0, trials)
        ways = top - _log_factorial(whole) - _log_factorial(trials - whole)
        likely = _log(v * alpha / (a / (room * room) + b)) <= ways + (whole - mode) * log_odds
        accepts = inside & (((room >= 0.07) & (v <= limit)) | likely)
        return step + 1, done | accepts, where(done, found, whole)

    start = scalar(0, i32), ~wanted, expand(scalar(0.0, f64), sizes)
    return while_loop(lambda state: any_of(~state[1]), attempt, start)[2]  # type: ignore[no-any-return]


def multinomial(key: Any, n: Any, p: Any, *, shape: Any = None, dtype: Any = float) -> Array:
    """How many of n trials have each outcome, [*shape, k], for probabilities p [..., k] that add up
    to 1. One outcome after the other is a binomial number of what is left.

    >>> import tetrad as td
    >>> drawn = td.random.multinomial(td.random.key(0), 10, td.asarray([0.2, 0.3, 0.5]))
    >>> float(td.sum(drawn))
    10.0
    """
    wanted, chances = _float("multinomial", dtype), convert(as_array(p), f64)
    if not chances.ndim:
        fail(ShapeError, f"multinomial: p needs an axis of outcomes, got {chances.type}")
    trials = convert(n, f64)
    lead = broadcast("multinomial", [trials, chances[..., 0]])[0].shape
    sizes = lead if shape is None else drawn_shape("multinomial", shape)
    outcomes = chances.shape[-1]
    whole = expand(scalar(0.0, f64), sizes)
    columns = moveaxis(chances + whole[..., None], -1, 0)

    def step(state: Any, column: Any) -> Any:
        left, share = state
        now, chance = column
        part = where(share > 0.0, clip(chance / where(share > 0.0, share, 1.0), 0.0, 1.0), 0.0)
        count = _binomial(now, left, part, sizes)
        return (left - count, share - chance), count

    before = (trials + whole, whole + 1.0)
    (rest, _), counts = scan(step, before, (split(key, outcomes)[:-1], columns[:-1]))
    return convert(concat([moveaxis(counts, 0, -1), rest[..., None]], axis=-1), wanted)
