"""Ops, attention: queries against keys and values, in arrays (`ops.attention.dense`) or in the
cache of a running model.

Here are the op, and the type, the meaning and the test cases of its form over a cache: queries of
many sequences, each against the keys of its own slot. Compiled code adds in one order: key blocks
of 256, each with a maximum, a sum and an accumulator of its own, merged in ascending order
(docs/attention.md).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tetrad.core.dtypes import DType, bf16, f16, f32, f64, i8, i32, i64
from tetrad.core.errors import BoundsError, DtypeError, ShapeError
from tetrad.core.machine import LANES
from tetrad.core.op import Case, op
from tetrad.core.types import ArrayType
from tetrad.ops.attention.dense import FLOATS, dense_attention, dense_case, dense_type
from tetrad.ops.cases import Rng, pick
from tetrad.ops.rules import Array, check_dtype

KEYS = 256  # of a block: part of the meaning. LANES neighbouring ones lie interleaved
SCALED = 32  # neighbouring channels of a key or value of i8 that share a scale
CACHES: tuple[DType, ...] = (f16, bf16, f32, i8)


# -- types -----------------------------------------------------------------------------------------


def attention_type(
    *operands: ArrayType, layout: str = "", **settings: Any
) -> ArrayType | tuple[ArrayType, ArrayType]:
    """With a layout the operands are arrays, without one a cache."""
    if layout:
        return dense_type(*operands, layout=layout, **settings)
    return cached_type(*operands, **settings)


def cached_type(
    q: ArrayType,
    k: ArrayType,
    v: ArrayType,
    layer: ArrayType,
    slot: ArrayType,
    position: ArrayType,
    *scales: ArrayType,
    scale: float,
    window: int = 0,
    softcap: float = 0.0,
) -> ArrayType:
    check_dtype("attention", q.dtype, (f32,))
    check_dtype("attention", k.dtype, CACHES)
    _check_cache(q, k, v)
    _check_tokens(q, layer, slot, position)
    _check_scales(k, v, scales)
    if window < 0 or softcap < 0:
        raise ShapeError(
            f"attention: window and softcap must not be negative, got {window} and {softcap}"
        )
    return q


def _check_cache(q: ArrayType, k: ArrayType, v: ArrayType) -> None:
    if q.rank != 3 or k.rank != 6 or v.rank != 5:
        raise ShapeError(
            f"attention: expected q [T,H,D], k [L,S,G,C/16,D,16] and v [L,S,G,C,D], got {q}, {k} "
            f"and {v}",
            hint="docs/attention.md shows how a cache is laid out",
        )
    *outer, keys, channels = v.shape
    if not all(isinstance(n, int) and n > 0 for n in (*v.shape, *q.shape[1:])):
        raise ShapeError(
            f"attention: only the number of tokens may be a Dim, sizes are at least 1, got {q} "
            f"and {v}"
        )
    if keys % KEYS or channels % LANES:
        raise ShapeError(
            f"attention: keys come in {KEYS}s and channels in {LANES}s, got {v}",
            hint="make room for more",
        )
    if k.shape != (*outer, keys // LANES, channels, LANES) or k.dtype is not v.dtype:
        raise ShapeError(
            f"attention: k and v are not one cache: {k} and {v}", hint="k is [L,S,G,C/16,D,16]"
        )
    if q.shape[2] != channels or q.shape[1] % v.shape[2]:
        raise ShapeError(
            f"attention: q {q} does not fit v {v}", hint="equal D, and H a multiple of G"
        )


def _check_tokens(q: ArrayType, layer: ArrayType, slot: ArrayType, position: ArrayType) -> None:
    if layer.shape != () or slot.shape != q.shape[:1] or position.shape != q.shape[:1]:
        raise ShapeError(
            f"attention: needs one layer, and a slot and a position for each token of {q}, "
            f"got {layer}, {slot} and {position}"
        )
    for numbers in (layer, slot, position):
        check_dtype("attention", numbers.dtype, (i32, i64))


def _check_scales(k: ArrayType, v: ArrayType, scales: tuple[ArrayType, ...]) -> None:
    if k.dtype is not i8:
        if scales:
            raise DtypeError(f"attention: only a cache of i8 has scales, got {k}")
        return
    *outer, keys, channels = v.shape
    parts, rest = divmod(channels, SCALED)  # type: ignore[operator]
    wanted = [(*outer, keys // LANES, parts, LANES), (*outer, keys, parts)]
    if rest or [s.shape for s in scales] != wanted or any(s.dtype is not f16 for s in scales):
        shown = ", ".join(map(str, (k, v, *scales)))
        raise ShapeError(
            f"attention: a cache of i8 needs a scale for every {SCALED} channels, got {shown}",
            hint="k_scale f16[L,S,G,C/16,D/32,16] and v_scale f16[L,S,G,C,D/32] follow the "
            "positions",
        )


# -- the meaning -----------------------------------------------------------------------------------


def cache_values(k: Array, v: Array, *scales: Array) -> tuple[Array, Array]:
    """Keys and values [..., G, C, D] in f64, from the arrays of a cache."""
    keys, values = k.astype(np.float64), v.astype(np.float64)
    if scales:
        with np.errstate(invalid="ignore"):  # scales of places that nobody sees may hold anything
            keys = keys * np.repeat(scales[0].astype(np.float64), SCALED, axis=-2)
            values = values * np.repeat(scales[1].astype(np.float64), SCALED, axis=-1)
    return np.swapaxes(keys, -1, -2).reshape(values.shape), values


def _attention_cases(rng: Rng) -> Case:
    is_dense, dtype = rng.random() < 0.5, pick(rng, FLOATS)
    return dense_case(rng, dtype) if is_dense else _cached_case(rng)


def _cached_case(rng: Rng) -> Case:
    """Scores are exact and values positive, so the error of the result is that of a few
    roundings."""
    group, heads, layers, slots = (
        pick(rng, choices) for choices in ((1, 2), (1, 2, 3, 4), (1, 2), (1, 2, 3))
    )
    dtype, channels, tokens = pick(rng, CACHES), pick(rng, (16, 32)), pick(rng, range(1, 10))
    length = pick(rng, (KEYS, 2 * KEYS))
    channels = SCALED if dtype is i8 else channels
    window, softcap = pick(rng, (0, 0, 1, 40, 300)), pick(rng, (0.0, 5.0))
    q = (rng.integers(-8, 9, (tokens, heads * group, channels)) / 8).astype(np.float32)
    cache = _random_cache(rng, dtype, (layers, slots, group, length, channels))
    slot, position = (rng.integers(0, n, tokens).astype(np.int32) for n in (slots, length))
    numbers = (np.array(rng.integers(layers), np.int32), slot, position)
    settings = {"scale": channels**-0.5, "window": window, "softcap": softcap}
    return Case((q, *cache[:2], *numbers, *cache[2:]), settings)


def _random_cache(rng: Rng, dtype: DType, shape: tuple[int, ...]) -> list[Array]:
    *outer, keys, channels = shape
    turned = (*outer, keys // LANES, channels, LANES)
    if dtype is not i8:
        k, v = rng.integers(-8, 9, turned) / 8, rng.integers(4, 17, shape) / 8
        return [k.astype(dtype.np), v.astype(dtype.np)]
    codes = [
        rng.integers(-100, 101, turned).astype(np.int8),
        rng.integers(50, 127, shape).astype(np.int8),
    ]
    parts = channels // SCALED
    places = ((*outer, keys // LANES, parts, LANES), (*outer, keys, parts))
    return codes + [(rng.integers(1, 5, place) / 256).astype(np.float16) for place in places]


def reads_views(*operands: ArrayType, layout: str = "", **settings: Any) -> bool:
    """Arrays are read through views, and with light work on them; a cache is read as it lies."""
    return bool(layout)


@op(
    type=attention_type,
    kind="special",
    prologue=reads_views,
    cases=_attention_cases,
    dtypes=FLOATS,
    ulps={f32: 32, f64: 32, f16: 2, bf16: 2},
    public=False,
)
def attention(
    q: Array, k: Array, v: Array, *rest: Array, layout: str = "", scale: float, **settings: Any
) -> Any:
    """softmax(scale * q k) v over the keys each query sees, every N/G query heads with one of G kv
    heads.

    A score is (q . k) * scale, with a softcap c it is c * tanh(score / c), plus the bias. A query
    that sees nothing gives zeros; a hidden key has no effect, be it NaN. Two forms, by `layout`:

    - Over arrays, `layout="bsnh"` or `"bnsh"`: q [B,T,N,D], k [B,S,G,D] and v [B,S,G,W] in this
      order of axes, then what `given` names: "bias" and "mask" (true: seen), which broadcast to
      [B,N,T,S], "query_lengths" and "key_lengths" [B], "key_starts" and "key_stops" [B,T], the ends
      of what each query sees. `causal` is "top_left" or "bottom_right"
      (aligned to the last key); `before` and `after` bound the distance to a key. Results: the
      output, and of each query the logarithm of its sum of powers [B,T,N], -inf where nothing is
      seen.
    - Over a cache, without a layout: q f32[T,H,D], k [L,S,G,C/16,D,16] (sixteen neighbouring keys
      interleaved) and v [L,S,G,C,D] in f16, bf16, f32 or i8, layer i32[], slot i32[T], position
      i32[T], of i8 the scales f16[L,S,G,C/16,D/32,16] and f16[L,S,G,C,D/32]. Token t sees keys 0
      ... position[t] of its slot, the last `window` of them; one with a negative position is
      padding.

    >>> k, v = np.zeros((1, 1, 1, 16, 16, 16), np.float16), np.zeros((1, 1, 1, 256, 16), np.float16)
    >>> v[..., :3, 0] = [2, 4, 6]
    >>> q = np.ones((3, 1, 16), np.float32)
    >>> slot, position = np.int32([0, 0, 0]), np.int32([0, 1, 2])
    >>> attention(q, k, v, np.int32(0), slot, position, scale=0.25)[:, 0, 0]
    array([2., 3., 4.], dtype=float32)
    >>> q, v = np.ones((1, 3, 1, 4), np.float32), np.float32([2, 4, 6]).reshape(1, 3, 1, 1)
    >>> attention(q, q, v, layout="bsnh", causal="top_left", scale=0.5)[0].ravel()
    array([2., 3., 4.], dtype=float32)
    """
    if layout:
        return dense_attention(q, k, v, *rest, layout=layout, scale=scale, **settings)
    return cached_attention(q, k, v, *rest, scale=scale, **settings)


def cached_attention(
    q: Array,
    k: Array,
    v: Array,
    layer: Array,
    slot: Array,
    position: Array,
    *scales: Array,
    scale: float,
    window: int = 0,
    softcap: float = 0.0,
) -> Array:
    _check_range(v.shape, layer, slot, position)
    result = np.zeros(q.shape, np.float32)
    for place in np.unique(slot):
        mine = [np.asarray(a)[layer, place] for a in (k, v, *scales)]
        keys, values = cache_values(*mine)
        for t in np.flatnonzero((np.asarray(slot) == place) & (np.asarray(position) >= 0)):
            last = int(position[t])
            seen = slice(max(0, last - window + 1) if window else 0, last + 1)
            result[t] = _token(q[t], keys[:, seen], values[:, seen], scale, softcap)
    return result


def _token(q: Array, keys: Array, values: Array, scale: float, softcap: float) -> Array:
    """q [H,D], keys and values [G,n,D]."""
    grouped = q.astype(np.float64).reshape(keys.shape[0], -1, q.shape[-1])
    with np.errstate(all="ignore"):
        scores = np.matmul(grouped, np.swapaxes(keys, 1, 2)) * scale
        if softcap:
            scores = softcap * np.tanh(scores / softcap)
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        result = np.matmul(powers, values) / powers.sum(axis=-1, keepdims=True)
        return result.reshape(q.shape).astype(np.float32)


def _check_range(cache: tuple[int, ...], layer: Array, slot: Array, position: Array) -> None:
    """Padding has a position below zero; everything else lies inside the cache."""
    layers, slots, _, keys, _ = cache
    lowest = np.iinfo(np.int64).min
    for name, given, first, size in (
        ("layer", layer, 0, layers),
        ("slot", slot, 0, slots),
        ("position", position, lowest, keys),
    ):
        numbers = np.atleast_1d(given)
        wrong = numbers[(numbers < first) | (numbers >= size)]
        if wrong.size:
            raise BoundsError(out_of_range(name, size).format(value=wrong[0]))


def out_of_range(name: str, size: int) -> str:
    return (
        f"attention: {name} {{value}} is out of range: the cache has {size} {name}s, counted from 0"
    )
