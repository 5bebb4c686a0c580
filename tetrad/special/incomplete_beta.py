"""Special functions, incomplete beta: the incomplete beta function, and its derivatives in all
arguments.

With zp(x) = x^a (1 - x)^b / B(a, b), the density of log(x / (1 - x)), I = zp left, where `left` is
an integral over those log odds from x down (`quadrature.py`). The part above x is the same of
1 - x, with a and b exchanged.
"""

from __future__ import annotations

from typing import Any

from tetrad.arrays import functions as td
from tetrad.special.gamma import STIRLING, digammas, log_beta, stirling_rest
from tetrad.special.quadrature import DEPTH, expm1_less, integrals
from tetrad.special.wide import INF, NAN, log1p_less, wide
from tetrad.tracing.array import Array
from tetrad.transforms.custom import custom_jvp

STEPS = 8  # so many terms are taken before the integral where a is small
Odds = tuple[Array, Array, Array, Array]  # x, 1 - x, and their logarithms


def _left(a: Array, b: Array, odds: Odds) -> tuple[Array, Array, Array]:
    """I over zp, and its changes with a and with b over zp, for x up to about a / (a + b)."""
    x, _, log_x, log_y = odds
    is_small = a < STEPS
    up = td.where(is_small, a + STEPS, a)
    both, above, below = digammas(up + b), digammas(up), digammas(b)
    in_a, in_b = log_x + both - above, log_y + both - below
    value, change_a, change_b = _integral(up, b, odds, in_a, in_b)
    for k in reversed(range(STEPS)):
        step, rest = a + float(k), a + b + float(k)
        above, both = above - 1.0 / step, both - 1.0 / rest
        share = x * rest / step
        in_a, in_b = log_x + both - above - 1.0 / step, log_y + both - below
        value = td.where(is_small, 1.0 / step + share * value, value)
        change_a = td.where(is_small, in_a / step + share * change_a, change_a)
        change_b = td.where(is_small, in_b / step + share * change_b, change_b)
    return value, change_a, change_b


def _integral(a: Array, b: Array, odds: Odds, in_a: Array, in_b: Array) -> list[Array]:
    """Down from x. At log odds lower by l, x becomes x exp(-l) / d and y becomes y / d, with
    d = 1 + x (exp(-l) - 1): written about the smaller of x and y, so that no large numbers meet."""
    x, y, _, log_y = odds
    is_low, slope, total = x < 0.5, a * y - b * x, a + b
    bend = td.sqrt(2.0 * DEPTH / (total * x * y))
    longest = (DEPTH - total * log_y) / a
    steepest = td.where(slope > 0.0, DEPTH / td.where(slope > 0.0, slope, 1.0), INF)
    reach = td.minimum(td.minimum(longest, steepest), 2.0 * bend + DEPTH / a)
    part, falls = td.where(is_low, x, y)[..., None], slope[..., None]
    sign = td.where(is_low, -1.0, 1.0)[..., None]
    whole, first, second = total[..., None], in_a[..., None], in_b[..., None]

    def spread(l: Array) -> Array:  # noqa: E741  (a distance)
        return part * td.expm1(sign * l)  # type: ignore[no-any-return]

    def exponent(l: Array) -> Array:  # noqa: E741
        curved = part * expm1_less(sign * l) + log1p_less(spread(l))
        return -(falls * l + whole * curved)  # type: ignore[no-any-return]

    def log_shares(l: Array) -> tuple[Array, Array]:  # noqa: E741
        """How log x and log y change."""
        by = -td.log1p(spread(l))
        return td.where(sign < 0.0, by - l, by), td.where(sign < 0.0, by, by + l)

    for _ in range(4):  # Newton's method comes from above, as the exponent is convex
        given = reach[..., None]
        fall = falls + whole * _share_moved(part, sign, given)
        excess = -exponent(given) - DEPTH
        reach = reach - td.where(excess > 0.0, excess / fall, 0.0)[..., 0]
    return integrals(
        reach,
        exponent,
        lambda l: first + log_shares(l)[0],  # noqa: E741
        lambda l: second + log_shares(l)[1],  # noqa: E741
    )


def _share_moved(part: Array, sign: Array, l: Array) -> Array:  # noqa: E741
    """How far x, or y, has moved: x - x exp(-l) / d, or y exp(l) / d - y."""
    moved = td.exp(sign * l)
    return sign * part * (moved / (1.0 + part * (moved - 1.0)) - 1.0)  # type: ignore[no-any-return]


def log_density(a: Array, b: Array, odds: Odds) -> Array:
    """log of x^a (1 - x)^b / B(a, b), without large differences where a and b are large."""
    x, y, log_x, log_y = odds
    is_far = (a >= STIRLING) & (b >= STIRLING)
    c, d = td.where(is_far, a, STIRLING), td.where(is_far, b, STIRLING)
    total = c + d
    off = d * x - c * y  # so far is x from its mean c / (c + d), times the sum
    ratios = c * _log_ratio(off / c, log_x + td.log1p(d / c))
    ratios = ratios + d * _log_ratio(-off / d, log_y + td.log1p(c / d))
    rests = stirling_rest(c) + stirling_rest(d) - stirling_rest(total)
    far = ratios - rests + 0.5 * (td.log(c) + td.log(d / total)) - HALF_LOG_TAU
    near = td.where(is_far, 1.0, a), td.where(is_far, 1.0, b)
    return td.where(is_far, far, near[0] * log_x + near[1] * log_y - log_beta(*near))  # type: ignore[no-any-return]


HALF_LOG_TAU = 0.9189385332046728


def _log_ratio(away: Array, log: Array) -> Array:
    """log(1 + away) - away, given the logarithm; the two parts that are left out add up to 0."""
    return td.where(td.abs(away) < 0.5, log1p_less(away), log - away)  # type: ignore[no-any-return]


def _parts(a: Array, b: Array, odds: Odds) -> tuple[Array, Array, Array, Array]:
    """Whether I is known (else 1 - I), it over zp, and its changes with a and b over zp."""
    x, y, log_x, log_y = odds
    is_left = a * y >= b * x
    # of a small parameter's side nearly nothing is left: terms of 1 hold there, the other's do not
    is_turned = is_left & (b < 1.0) & (a * y < 1.0) & (y < 0.5)
    is_turned = is_turned | (~is_left & (a < 1.0) & (b * x < 1.0) & (x < 0.5))
    is_left = is_left ^ is_turned

    def pick(one: Array, other: Array) -> Array:
        return td.where(is_left, one, other)  # type: ignore[no-any-return]

    value, own, other = _left(
        pick(a, b), pick(b, a), (pick(x, y), pick(y, x), pick(log_x, log_y), pick(log_y, log_x))
    )
    return is_left, value, pick(own, other), pick(other, own)


def beta_slopes(a: Array, b: Array, odds: Odds) -> tuple[Array, Array]:
    """How the log odds of a beta number move with a and with b while its probability stays."""
    is_left, _, in_a, in_b = _parts(a, b, odds)
    return td.where(is_left, -in_a, in_a), td.where(is_left, -in_b, in_b)


def _inside(a: Array, b: Array, x: Array) -> tuple[Array, Array, Array, Odds]:
    """Which arguments are ordinary, and these (others are replaced)."""
    is_inside = (a > 0.0) & (b > 0.0) & (x > 0.0) & (x < 1.0) & (a < INF) & (b < INF)
    z = td.where(is_inside, x, 0.5)
    odds = z, 1.0 - z, td.log(z), td.log1p(-z)
    return is_inside, td.where(is_inside, a, 1.0), td.where(is_inside, b, 1.0), odds


def _both(a: Array, b: Array, x: Array) -> tuple[Array, Array]:
    """I and 1 - I, each as exact as it can be."""
    is_inside, c, d, odds = _inside(a, b, x)
    is_left, share, _, _ = _parts(c, d, odds)
    part = td.minimum(td.exp(log_density(c, d, odds)) * share, 1.0)
    edge = td.where((x <= 0.0) | (b == 0.0) | (a == INF), 0.0, 1.0)
    edge = td.where((x >= 1.0) | (a == 0.0) | (b == INF), td.where(x <= 0.0, 0.0, 1.0), edge)
    is_bad = (a < 0.0) | (b < 0.0) | (x < 0.0) | (x > 1.0) | td.isnan(a + b) | td.isnan(x)
    is_bad = is_bad | ((a == 0.0) & (b == 0.0)) | ((a == INF) & (b == INF))
    edge = td.where(is_bad, NAN, edge)
    low, high = td.where(is_left, part, 1.0 - part), td.where(is_left, 1.0 - part, part)
    return td.where(is_inside, low, edge), td.where(is_inside, high, 1.0 - edge)


@custom_jvp
def incomplete_beta(a: Array, b: Array, x: Array) -> Array:
    return _both(a, b, x)[0]


@custom_jvp
def upper_beta(a: Array, b: Array, x: Array) -> Array:
    """1 - I, also where that is small and where x is."""
    return _both(a, b, x)[1]


def _slope(primals: Any, tangents: Any) -> Array:
    (a, b, x), (da, db, dx) = primals, tangents
    is_inside, c, d, odds = _inside(a, b, x)
    is_left, _, in_a, in_b = _parts(c, d, odds)
    density = td.where(is_inside, td.exp(log_density(c, d, odds)), 0.0)
    signed = td.where(is_left, density, -density)
    edge = td.where(x == 0.0, _edge(a, b), td.where(x == 1.0, _edge(b, a), NAN))
    in_x = td.where(is_inside, density / (odds[0] * odds[1]), edge)
    return signed * (in_a * da + in_b * db) + in_x * dx  # type: ignore[no-any-return]


@incomplete_beta.defjvp
def _incomplete_beta_jvp(primals: Any, tangents: Any) -> Any:
    return incomplete_beta(*primals), _slope(primals, tangents)


@upper_beta.defjvp
def _upper_beta_jvp(primals: Any, tangents: Any) -> Any:
    return upper_beta(*primals), -_slope(primals, tangents)


def _edge(a: Array, b: Array) -> Array:
    """The density at 0."""
    return td.where(a < 1.0, INF, td.where(a == 1.0, b, td.where(a > 1.0, 0.0, NAN)))  # type: ignore[no-any-return]


def betainc(a: Any, b: Any, x: Any, /) -> Array:
    """The regularised incomplete beta function: the probability that a beta number of parameters a
    and b is below x. All arguments have derivatives.

    >>> import tetrad as td
    >>> td.special.betainc(2.0, 3.0, td.asarray([0.0, 0.5, 1.0]))
    Array([0.    , 0.6875, 1.    ], float32)
    """
    return wide("betainc", incomplete_beta, a, b, x)
