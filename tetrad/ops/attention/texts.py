"""Ops, attention inside texts: tokens of many texts side by side, each sees the tokens of its own.

Encoders evaluate whole texts. There is no padding between them and nothing is kept: queries, keys
and values are rows of this call, and `starts` says where a text begins. A row has the bits it has
when its text is alone (docs/attention.md has the order). Kernels are in
`ops.attention.texts_kernel`.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tetrad.core.dtypes import f32, i32
from tetrad.core.errors import BoundsError, DtypeError, ShapeError
from tetrad.core.op import Case, op
from tetrad.core.types import ArrayType
from tetrad.ops.cases import Rng, pick
from tetrad.ops.rules import Array

NOT_ROWS = "text_attention: starts must ascend from 0 to the number of rows, got {value}"


def text_attention_type(
    q: ArrayType, k: ArrayType, v: ArrayType, starts: ArrayType, *bias: ArrayType,
    heads: int, scale: float, window: int = 0,
) -> ArrayType:  # fmt: skip
    if any(x.dtype is not f32 for x in (q, k, v, *bias)) or starts.dtype is not i32:
        raise DtypeError(f"text_attention: expected f32 and starts in i32, got {q} and {starts}")
    if q.rank != 2 or k.shape != q.shape or v.shape != q.shape or starts.rank != 1:
        raise ShapeError(
            f"text_attention: expected q, k and v [tokens, heads * channels] and starts "
            f"[texts + 1], got {q}, {k}, {v} and {starts}"
        )
    if not isinstance(q.shape[1], int) or q.shape[1] % heads or window < 0:
        raise ShapeError(f"text_attention: {heads} heads do not share {q} evenly")
    if len(bias) > 1 or any(b.rank != 2 or b.shape[0] != heads or is_even(b) for b in bias):
        raise ShapeError(
            f"text_attention: expected a bias [{heads}, odd], got {', '.join(map(str, bias))}",
            hint="a row for each head, an element for each distance, the middle one for none",
        )
    return q


def is_even(bias: ArrayType) -> bool:
    return not isinstance(bias.shape[1], int) or bias.shape[1] % 2 == 0


def _text_cases(rng: Rng) -> Case:
    """Scores are exact and values positive: errors are those of a few roundings."""
    lengths = rng.choice([0, 1, 3, 8, 17, 260], size=rng.integers(1, 4))
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    heads = pick(rng, (1, 2))
    shape = (int(starts[-1]), heads * pick(rng, (1, 4, 16, 17, 32)))
    q, k = ((rng.integers(0, 5, shape) / 4).astype(np.float32) for _ in range(2))
    v = (rng.integers(4, 17, shape) / 8).astype(np.float32)
    bias = (rng.integers(0, 9, (heads, pick(rng, (1, 5, 9)))) / 8).astype(np.float32)
    given = (bias,) if rng.random() < 0.4 else ()
    settings = {"heads": heads, "scale": 0.5, "window": pick(rng, (0, 0, 2, 40))}
    return Case((q, k, v, starts, *given), settings)


@op(
    type=text_attention_type,
    kind="special",
    prologue=True,
    cases=_text_cases,
    dtypes=(f32,),
    ulps={f32: 32},
    public=False,
)
def text_attention(
    q: Array, k: Array, v: Array, starts: Array, *bias: Array, heads: int, scale: float,
    window: int = 0,
) -> Array:  # fmt: skip
    """softmax(scale * q k) v inside each text. q, k and v are f32[tokens, heads * channels]; text i
    has the rows from starts[i] to starts[i + 1]. With a window w a token sees those at most w away.

    A bias [heads, 2 c - 1] is added to scores by the distance key - query: element c - 1 where that
    is 0; distances beyond the ends take the ends.

    >>> q = np.ones((3, 16), np.float32)
    >>> v = np.float32([[2], [4], [6]]) * q
    >>> text_attention(q, q, v, np.int32([0, 2, 3]), heads=1, scale=1.0)[:, 0]
    array([3., 3., 6.], dtype=float32)
    """
    check_starts(starts, len(q))
    result = np.zeros(q.shape, np.float32)
    for first, stop in pairwise(starts):
        if first < stop:
            parts = [_by_head(x[first:stop], heads) for x in (q, k, v)]
            found = _attend(*parts, *bias, scale=scale, window=window)
            result[first:stop] = np.swapaxes(found, 0, 1).reshape(-1, q.shape[1])
    return result


text_attention.not_differentiable("models evaluate texts with it, td.nn has attention that changes")


def _by_head(x: Array, heads: int) -> Array:
    return np.swapaxes(x.reshape(len(x), heads, -1), 0, 1).astype(np.float64)


def _attend(q: Array, k: Array, v: Array, *bias: Array, scale: float, window: int) -> Array:
    """All [heads, tokens, channels], in f64."""
    places = np.arange(q.shape[1])
    apart = places[None, :] - places[:, None]
    with np.errstate(all="ignore"):
        scores = np.matmul(q, np.swapaxes(k, 1, 2)) * scale
        for table in bias:
            middle = table.shape[1] // 2
            scores = scores + table[:, np.clip(apart + middle, 0, 2 * middle)]
        if window:
            scores = np.where(np.abs(apart) <= window, scores, -np.inf)
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return np.asarray(np.matmul(powers, v) / powers.sum(axis=-1, keepdims=True))


def check_starts(starts: Array, rows: int) -> None:
    whole = [0, *(int(x) for x in starts), rows]
    wrong = [b for a, b in pairwise(whole) if b < a]
    if whole[1] != 0 or whole[-2] != rows:
        wrong.append(whole[-2])
    if wrong:
        raise BoundsError(NOT_ROWS.format(value=wrong[0]))
