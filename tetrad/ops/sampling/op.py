"""Ops that choose tokens: draw one from logits by the settings of its row, and the n most likely.

Here is their meaning, types and test cases. Every setting is an operand, so nothing is compiled
again when one changes, and every row is drawn by its own seed and number: what stands beside it
does not matter (docs/decoding.md).
"""

from __future__ import annotations

import numpy as np

from tetrad.core.dtypes import f32, i32, u32
from tetrad.core.errors import BoundsError, DtypeError, ShapeError
from tetrad.core.op import Case, op
from tetrad.core.sampling_columns import BITS, INDEX, NUMBERS, SEED, SETTINGS, TOP_K
from tetrad.core.types import ArrayType
from tetrad.kernel.math.philox import philox_words
from tetrad.ops.cases import Rng, pick
from tetrad.ops.rules import Array

TEMPERATURE, TOP_P, MIN_P, REPEAT, PRESENCE, FREQUENCY = range(6)  # columns of `settings`
TOP_N_SIGMA, TYPICAL_P, XTC_PROBABILITY, XTC_THRESHOLD, DYNAMIC_RANGE, DYNAMIC_EXPONENT = range(
    6, 12
)
SEED_OF_ZERO = 0xDEADBEEF
# whether XTC takes part is drawn from a stream of its own: the choice of the token stays the same
# draw
XTC_STREAM = 1
XTC_MOST = 0.5  # no two tokens are likelier than that
MESSAGES = {
    "settings": "sample: row {value}: temperature, top_p or min_p is negative or not a number",
    "logits": "sample: row {value}: the logits hold NaN or infinity",
    "nothing": "sample: row {value}: no token is left to choose: every logit is -inf",
    "token": "sample: token {value} of the bias or of the tokens seen is not in the vocabulary",
}


def failed(which: str, value: int) -> BoundsError:
    return BoundsError(MESSAGES[which].format(value=value))


def sample_type(
    logits: ArrayType,
    settings: ArrayType,
    numbers: ArrayType,
    seen: ArrayType,
    biased: ArrayType,
    bias: ArrayType,
    *mask: ArrayType,
    warm_first: bool = False,
) -> ArrayType:
    if logits.rank != 2 or not isinstance(logits.shape[1], int) or logits.shape[1] < 1:
        raise ShapeError(
            f"sample: expected logits f32[rows,vocabulary] of one token or more, got {logits}"
        )
    rows, vocab = logits.shape
    wanted = [
        ("settings", settings, f32, (rows, SETTINGS)),
        ("numbers", numbers, u32, (rows, NUMBERS)),
        ("seen", seen, i32, (rows, *seen.shape[1:2], 2)),
        ("biased", biased, i32, (rows, *biased.shape[1:2])),
        ("bias", bias, f32, (*biased.shape, 2)),
        *(("mask", m, u32, (rows, -(-vocab // BITS))) for m in mask),
    ]
    for name, came, dtype, shape in wanted:
        if came.shape != shape:
            raise ShapeError(f"sample: {name}: expected {ArrayType(dtype, shape)}, got {came}")
    for name, came, dtype, _ in (("logits", logits, f32, ()), *wanted):
        if came.dtype is not dtype:
            raise DtypeError(f"sample: {name}: expected {dtype}, got {came}")
    if len(mask) > 1:
        raise ShapeError(f"sample: expected at most one mask, got {len(mask)}")
    return ArrayType(i32, (rows,))


def _sample_cases(rng: Rng) -> Case:
    """Logits apart by more than rounding, so that every decision is clear; one token is most likely
    by far."""
    rows, vocab, few = (
        pick(rng, (1, 2, 5)),
        pick(rng, (1, 2, 7, 33, 300, 1100, 2500)),
        pick(rng, (1, 3)),
    )
    logits = (
        np.stack([rng.permutation(vocab) for _ in range(rows)]).astype(np.float32) / 4 - vocab / 8
    )
    settings = np.ones((rows, SETTINGS), np.float32)
    settings[:, TEMPERATURE] = pick(rng, (0.0, 0.01, 0.02))
    settings[:, TOP_P] = pick(rng, (0.0, 0.5, 1.0))
    settings[:, MIN_P] = pick(rng, (0.0, 0.1))
    settings[:, REPEAT:TOP_N_SIGMA] = pick(rng, ((1.0, 0.0, 0.0), (1.5, 0.25, 0.5)))
    settings[:, TOP_N_SIGMA] = pick(rng, (0.0, -1.0, 0.91))
    settings[:, TYPICAL_P] = pick(rng, (1.0, 1.0, 0.43))
    settings[:, XTC_PROBABILITY] = pick(rng, (0.0, 0.0, 0.5))
    settings[:, XTC_THRESHOLD] = pick(rng, (0.017, 0.6))
    settings[:, DYNAMIC_RANGE], settings[:, DYNAMIC_EXPONENT] = (
        pick(rng, (0.0, 0.01)),
        pick(rng, (1.0, 0.5)),
    )
    numbers = rng.integers(0, 1 << 32, (rows, NUMBERS), dtype=np.uint32)
    numbers[:, TOP_K] = pick(rng, (0, 1, 3, 40, 700))
    seen = np.stack(
        [rng.integers(-1, vocab, (rows, few)), rng.integers(0, 3, (rows, few))], axis=-1
    ).astype(np.int32)
    biased = rng.integers(-1, vocab, (rows, few)).astype(np.int32)
    bias = rng.choice(pick(rng, ([0.0], [-20.125, 20.125, -np.inf])), (rows, few, 2))
    bias = np.where(biased[..., None] == 0, 0.0, bias).astype(np.float32)  # so that a token is left
    mask = rng.integers(0, 1 << 32, (rows, -(-vocab // BITS)), dtype=np.uint32) | np.uint32(
        rng.integers(0, 2) << 31 | 1
    )
    masks = (mask,) if pick(rng, (0, 1)) else ()
    return Case(
        (logits, settings, numbers, seen, biased, bias, *masks),
        {"warm_first": bool(pick(rng, (0, 1)))},
    )


@op(type=sample_type, kind="special", cases=_sample_cases, dtypes=(f32,), public=False)
def sample(
    logits: Array,  # f32[R,V]
    # f32[R,12]: temperature, top_p, min_p, repeat, presence and frequency penalty, top_n_sigma,
    settings: Array,
    # typical_p, probability and threshold of XTC, range and exponent of a temperature that follows
    # the entropy
    numbers: Array,  # u32[R,5]: top_k, seed (2 words), index of the draw (2 words)
    # i32[R,S,2]: tokens the penalties are for, each once, and how often they came; -1: none
    seen: Array,
    biased: Array,  # i32[R,B]: tokens with a bias; -1: none
    bias: Array,  # f32[R,B,2]: added before the penalties, and after them
    *mask: Array,  # u32[R,V/32]: bit i of word j allows token 32 j + i
    warm_first: bool = False,
) -> Array:
    """A token of each row: bias, mask, penalties, then filters and temperature, then a draw.

    The filters in their order: top_n_sigma keeps what is less than n standard deviations below the
    largest (0: all), top_k the k largest and their equals (0: all), typical_p those whose logits
    are nearest to the mean until their share exceeds it, top_p the most likely until their share
    reaches it, min_p those at least so likely in relation to the first; XTC drops, by chance, of
    those above its threshold all but the least likely. Temperature 0 takes the largest, the first
    of equals. The draw number n uses word n of the Philox stream of the seed. With `warm_first`
    logits are divided by the temperature before the filters. With a range the temperature lies as
    far between its ends as the entropy of what is left lies between none and the most there could
    be, to the power of the exponent.

    >>> none, bias = np.full((1, 1), -1, np.int32), np.zeros((1, 1, 2), np.float32)
    >>> greedy = np.float32([[0, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1]])  # temperature 0
    >>> numbers, seen = np.zeros((1, 5), np.uint32), np.full((1, 1, 2), -1, np.int32)
    >>> sample(np.float32([[1, 5, 2, 5]]), greedy, numbers, seen, none, bias)
    array([1], dtype=int32)
    """
    result = np.zeros(len(logits), np.int32)
    for row in range(len(logits)):
        edited = edited_row(
            *(x[row] for x in (logits, settings, seen, biased, bias, *mask)), row=row
        )
        result[row] = _choice(edited, settings[row], numbers[row].tolist(), warm_first)
    return result


sample.not_differentiable("tokens are chosen: they do not change smoothly")


def edited_row(
    logits: Array,
    settings: Array,
    seen: Array,
    biased: Array,
    bias: Array,
    *mask: Array,
    row: int = 0,
) -> Array:
    """The logits of a row after bias, mask and penalties, checked."""
    allowed = [np.unpackbits(m.view(np.uint8), bitorder="little")[: len(logits)] != 0 for m in mask]
    found = _edited(logits, settings, seen, biased, bias, allowed)
    temperature, top_p, min_p = settings[:REPEAT]
    if not (temperature >= 0 and top_p == top_p and min_p == min_p):
        raise failed("settings", row)
    if np.isnan(found).any() or np.isposinf(found).any():
        raise failed("logits", row)
    if np.isneginf(found).all():
        raise failed("nothing", row)
    return found


def _edited(
    logits: Array, settings: Array, seen: Array, biased: Array, bias: Array, allowed: list[Array]
) -> Array:
    found = logits.copy()
    _add(found, biased, bias[:, 0])
    for mask in allowed:
        found[~mask] = -np.inf
    for token, count in seen.tolist():
        _check_token(token, len(found))
        if token >= 0 and count > 0:
            old, repeat = found[token], settings[REPEAT]
            milder = old * repeat if old <= 0 else old / repeat
            found[token] = milder - (np.float32(count) * settings[FREQUENCY] + settings[PRESENCE])
    _add(found, biased, bias[:, 1])
    return found


def _add(logits: Array, biased: Array, bias: Array) -> None:
    for token, value in zip(biased.tolist(), bias, strict=True):
        _check_token(token, len(logits))
        if token >= 0:
            logits[token] += value


def _check_token(token: int, vocab: int) -> None:
    if token >= vocab:
        raise failed("token", token)


def _choice(logits: Array, settings: Array, numbers: list[int], warm_first: bool) -> int:
    if settings[TEMPERATURE] == 0:
        return int(logits.argmax())
    if warm_first:
        tempered = logits / _divisor(logits[~np.isneginf(logits)], settings)
        kept, divisor = _kept(tempered, settings, numbers), np.float32(1)
    else:
        tempered, kept = logits, _kept(logits, settings, numbers)
        divisor = _divisor(logits[kept], settings)
    shift = (tempered - tempered[kept].max()) / divisor
    with np.errstate(under="ignore", over="ignore"):
        weights = np.where(kept, np.exp(shift), np.float32(0))
    # in f32 the many unlikely ones would be lost beside the few likely
    sums = np.cumsum(weights, dtype=np.float64)
    return _first_above(weights, sums, draw_of(numbers) * sums[-1])


def _divisor(logits: Array, settings: Array) -> np.float32:
    """The temperature of the logits that are left."""
    temperature, reach = settings[TEMPERATURE], settings[DYNAMIC_RANGE]
    if reach > 0 and len(logits) > 1:
        least = np.maximum(temperature - reach, np.float32(0))
        share = _entropy(logits) / np.float32(np.log(len(logits)))
        temperature = least + (temperature + reach - least) * np.power(
            share, settings[DYNAMIC_EXPONENT]
        )
    return np.float32(np.maximum(temperature, np.float32(1e-6)))


def _entropy(logits: Array) -> np.float32:
    shift = (logits - logits.max()).astype(np.float64)
    with np.errstate(under="ignore"):
        weights = np.exp(shift)
    total = weights.sum()
    return np.float32(max(np.log(total) - (weights * shift).sum() / total, 0.0))


def _kept(logits: Array, settings: Array, numbers: list[int]) -> Array:
    """Which tokens the filters leave, one after the other."""
    top_k, top_p, min_p = numbers[TOP_K], settings[TOP_P], settings[MIN_P]
    kept: Array = ~np.isneginf(logits)
    if settings[TOP_N_SIGMA] > 0:
        kept &= logits >= _least_by_sigma(logits[kept], settings[TOP_N_SIGMA])
    if 0 < top_k < len(logits):
        kept &= logits >= np.partition(np.where(kept, logits, -np.inf), -top_k)[-top_k]
    if settings[TYPICAL_P] < 1:
        kept[kept] = _is_typical(logits[kept], settings[TYPICAL_P])
    shares = _shares(logits, kept)
    if top_p < 1:
        order = np.argsort(-shares, kind="stable")
        before = np.concatenate([[np.float32(0)], np.cumsum(shares[order], dtype=np.float32)[:-1]])
        outside = order[np.flatnonzero(before >= top_p * shares.sum(dtype=np.float32))]
        kept[outside[outside != order[0]]] = False
    kept &= shares >= min(min_p, 1)
    if (
        settings[XTC_THRESHOLD] <= XTC_MOST
        and draw_of(numbers, XTC_STREAM) < settings[XTC_PROBABILITY]
    ):
        kept &= _is_no_top_choice(_shares(logits, kept), settings[XTC_THRESHOLD])
    return kept


def _shares(logits: Array, kept: Array) -> Array:
    """How likely each is in relation to the most likely that is kept."""
    with np.errstate(under="ignore", invalid="ignore", over="ignore"):
        return np.where(kept, np.exp(logits - logits[kept].max()), np.float32(0))


def _least_by_sigma(logits: Array, sigmas: float) -> np.float32:
    deviation = np.std(logits.astype(np.float64))
    return np.float32(logits.max() - np.float32(sigmas) * np.float32(deviation))


def _is_typical(logits: Array, share: float) -> Array:
    """Surprise minus its mean, which is the entropy, is the mean logit minus the logit: sorted by
    its size, those stay that come until their share exceeds `share`, equals of the last
    included."""
    shift = logits - logits.max()
    with np.errstate(under="ignore"):
        weights = np.exp(shift)
    total = weights.sum(dtype=np.float64)
    mean = np.float32((weights.astype(np.float64) * shift).sum() / total)
    distance = np.abs(shift - mean)
    order = np.argsort(distance, kind="stable")
    enough = np.flatnonzero(np.cumsum(weights[order], dtype=np.float64) > np.float64(share) * total)
    return distance <= (distance[order[enough[0]]] if enough.size else np.inf)


def _is_no_top_choice(shares: Array, threshold: float) -> Array:
    """All but those likelier than the least likely of those that reach the threshold."""
    likely = shares[(shares > 0) & (shares >= threshold * shares.sum(dtype=np.float32))]
    return shares <= (likely.min() if likely.size else np.inf)


def _first_above(weights: Array, sums: Array, target: float) -> int:
    """The first token at which the running sum exceeds the target; rounding may leave none, then
    the last possible."""
    above = np.flatnonzero((weights > 0) & (sums > target))
    return int(above[0] if above.size else np.flatnonzero(weights)[-1])


def draw_of(numbers: list[int], stream: int = 0) -> float:
    """The uniform number in [0, 1) of a row: 24 bits of word `index` of a stream of its seed."""
    seed = numbers[SEED] | numbers[SEED + 1] << 32
    at = numbers[INDEX] | numbers[INDEX + 1] << 32
    return (philox_words(seed or SEED_OF_ZERO, stream << 64 | at // 4)[at % 4] >> 8) / 2**24


# -- the most likely -------------------------------------------------------------------------------


def top_tokens_type(logits: ArrayType, *, count: int) -> ArrayType:
    if logits.dtype is not f32:
        raise DtypeError(f"top_tokens: expected f32, got {logits}", hint="convert with astype")
    if (
        logits.rank != 2
        or not isinstance(logits.shape[1], int)
        or not 1 <= count <= logits.shape[1]
    ):
        raise ShapeError(
            f"top_tokens: expected at least {max(count, 1)} logits in a row, got {logits}"
        )
    return ArrayType(i32, (logits.shape[0], count))


def _top_cases(rng: Rng) -> Case:
    rows, vocab = pick(rng, (1, 2, 5)), pick(rng, (1, 2, 16, 33, 300, 1100))
    logits = rng.integers(-9, 9, (rows, vocab)).astype(np.float32)
    logits[rng.random((rows, vocab)) < 0.2] = -np.inf
    return Case((logits,), {"count": min(vocab, pick(rng, (1, 2, 20)))})


@op(type=top_tokens_type, kind="special", cases=_top_cases, dtypes=(f32,), public=False)
def top_tokens(logits: Array, *, count: int) -> Array:
    """The `count` most likely tokens of each row, the most likely first, of equals the first.

    >>> top_tokens(np.float32([[1, 5, 2, 5]]), count=3)
    array([[1, 3, 2]], dtype=int32)
    """
    for row in np.flatnonzero(np.isnan(logits).any(axis=1)):
        raise failed("logits", int(row))
    return np.argsort(-logits, axis=1, kind="stable")[:, :count].astype(np.int32)


top_tokens.not_differentiable("which tokens are the likeliest does not change smoothly")
