"""Attention of queries to keys, as `td.nn.dot_product_attention`: the op `attention` over arrays.

Receives queries, keys and values [batch, time, heads, size] and what hides keys from queries;
returns what the queries found. Here operands are brought to the form of the op and checked; its
meaning, its order and its gradient are in `ops/attention`. `td.nn` loads this module when it is
first used.
"""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

from tetrad.arrays import functions as td
from tetrad.arrays.creation import positions
from tetrad.core.dtypes import bool_, f32, f64, i32, i64
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.core.floats import guarded
from tetrad.nn._packed import Ranges, Sight, ranges_of_lengths, ranges_of_segments
from tetrad.nn._settings import refuse
from tetrad.ops.attention import derivatives  # noqa: F401  (attaches the rules)
from tetrad.ops.attention.dense import CAUSAL, UNBOUNDED, accumulator
from tetrad.ops.attention.op import attention
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import as_array

NAME = "dot_product_attention"


@guarded
def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    *,
    scale: float | None = None,
    is_causal: bool | str = False,
    query_seq_lengths: Any = None,
    key_value_seq_lengths: Any = None,
    local_window_size: int | tuple[int, int] | None = None,
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    segment_ids: Any = None,
    cu_seqlens_q: Any = None,
    cu_seqlens_k: Any = None,
    layout: str = "bsnh",
) -> Array:
    """softmax(scale * query key + bias) value, for queries [batch, T, heads, size] and keys [batch,
    S, groups, size].

    Each group of keys serves as many heads of queries as there are for each; the batch may be left
    out. `mask` is true where a query sees a key, [batch, heads, T, S] or what broadcasts to it,
    like `bias`; `is_causal` hides later keys, lengths hide what is behind them, a window what is
    further away. A query that sees nothing finds zeros. What is hidden has no effect, be it NaN;
    where something can be hidden, a query that sees a number that is not finite finds NaN. Numbers
    of 16 bits are computed in f32.

    `is_causal="bottom_right"` lets the last query see the last key, and counts windows from there.
    With a softcap c a score is c tanh(score / c) before the bias. With `layout="bnsh"` arrays are
    [batch, heads, time, size]. Memory is linear in T and S, for gradients too. `alibi_slopes`
    [heads] lower a score by the slope times the distance of the key.

    Packed sequences see nothing of each other, and take no time for each other: tokens with one
    `segment_ids` [batch, T] that stand side by side are a sequence (a negative id sees nothing), or
    those between neighbouring cumulative lengths `cu_seqlens_q` [sequences + 1], which see the keys
    between those of `cu_seqlens_k`. Causal order and windows count inside a sequence.

    >>> import tetrad as td
    >>> q, kv = td.ones((4, 8, 16)), td.ones((6, 2, 16))
    >>> td.nn.dot_product_attention(q, kv, kv).shape
    (4, 8, 16)
    """
    given = [_with_batch(x, 4) for x in _alike(query, key, value)]
    _check(given, layout)
    if not isinstance(scale, Real | None):
        given[0], scale = given[0] * scale, 1.0
    sight = Sight(_causal(is_causal), *_window(local_window_size))
    ranges = _ranges(given, layout, sight, segment_ids, cu_seqlens_q, cu_seqlens_k)
    if alibi_slopes is not None:
        bias = _with_alibi(bias, alibi_slopes, given, layout, sight, ranges)
    names, optional = _optional(
        given[0], bias, mask, query_seq_lengths, key_value_seq_lengths, ranges
    )
    sight = sight if ranges is None else Sight("", None, None)
    found, _ = attention(
        *given,
        *optional,
        layout=layout,
        given=names,
        scale=1 / math.sqrt(max(given[0].shape[-1], 1)) if scale is None else float(scale),
        softcap=float(softcap),
        causal=sight.causal,
        before=UNBOUNDED if sight.before is None else sight.before,
        after=UNBOUNDED if sight.after is None else sight.after,
    )
    outer = as_array(query)
    return td.astype(td.reshape(found, (*outer.shape[:-1], found.shape[-1])), outer.dtype)


def _causal(is_causal: bool | str) -> str:
    return is_causal if isinstance(is_causal, str) else CAUSAL[bool(is_causal)]


def _ranges(
    given: list[Array], layout: str, sight: Sight, ids: Any, queries: Any, keys: Any
) -> Ranges | None:
    """What each query of packed sequences sees; None where there is one sequence a batch."""
    if ids is None and queries is None and keys is None:
        return None
    batch, (times, length) = given[0].shape[0], (x.shape[_time(layout)] for x in given[:2])
    if ids is not None:
        if queries is not None or keys is not None or times != length:
            message = f"{NAME}: segment_ids are those of queries and keys alike, got {times} "
            fail(ShapeError, message + f"queries and {length} keys", "use cu_seqlens_q and _k")
        return ranges_of_segments(ids, batch, times, sight)
    if queries is None or batch != 1 or (keys is None and times != length):
        message = f"{NAME}: cumulative lengths need cu_seqlens_q and arrays of one batch, got "
        fail(ShapeError, message + f"{given[0].type} and {given[1].type}")
    return ranges_of_lengths(queries, keys, times, sight)


def _time(layout: str) -> int:
    return 2 if layout == "bnsh" else 1


def _with_alibi(
    bias: Any, slopes: Any, given: list[Array], layout: str, sight: Sight, ranges: Ranges | None
) -> Array:
    """A bias of minus the slope times the distance: no more memory than there was, since kernels
    compute it where they read it."""
    slopes, heads = as_array(slopes), given[0].shape[3 - _time(layout)]
    if slopes.shape != (heads,) or not slopes.dtype.is_float:
        fail(ShapeError, f"{NAME}: alibi_slopes {slopes.type} are not floats [{heads}]")
    times, keys = (x.shape[_time(layout)] for x in given[:2])
    place = td.expand_dims(positions(times), axis=0) if ranges is None else ranges[2]
    if ranges is None and sight.causal == "bottom_right":
        place = place + (keys - times)
    wide = accumulator(given[0].dtype)
    here, there = (td.astype(x, wide) for x in (place, positions(keys)))
    far = td.abs(td.expand_dims(here, axis=(1, 3)) - there)
    falling = td.reshape(-td.astype(slopes, wide), (1, heads, 1, 1)) * far
    return falling if bias is None else falling + _as_bias(as_array(bias), given[0])  # type: ignore[no-any-return]


def _alike(*operands: Any) -> list[Array]:
    """Floats of one dtype: that of all, else f32 or f64."""
    arrays = [as_array(x) for x in operands]
    kinds = {x.dtype for x in arrays}
    if len(kinds) == 1 and arrays[0].dtype.is_float:
        return arrays
    return [td.astype(x, f64 if f64 in kinds else f32) for x in arrays]


def _with_batch(x: Array, rank: int) -> Array:
    return td.reshape(x, (*(1,) * (rank - x.ndim), *x.shape))


def _check(given: list[Array], layout: str) -> None:
    q, k, v = given
    fits = (
        q.ndim == k.ndim == v.ndim == 4
        and k.shape[:3] == v.shape[:3]
        and q.shape[-1] == k.shape[-1]
    )
    if not fits or q.shape[0] != k.shape[0]:
        message = f"{NAME}: queries {q.type}, keys {k.type} and values {v.type} do not fit"
        fail(
            ShapeError,
            message,
            "all are [batch, time, heads, size]; keys and values differ in size at most",
        )
    axis = 1 if layout == "bnsh" else 2
    heads, groups = q.shape[axis], k.shape[axis]
    if isinstance(heads, int) and isinstance(groups, int) and (not groups or heads % groups):
        fail(
            ShapeError,
            f"{NAME}: {heads} heads of queries are no multiple of {groups} heads of keys",
        )


def _optional(
    q: Array, bias: Any, mask: Any, query_lengths: Any, key_lengths: Any, ranges: Ranges | None
) -> tuple[tuple[str, ...], list[Array]]:
    """The optional operands there are, by their names in the op."""
    found = {
        "bias": bias if bias is None else _as_bias(as_array(bias), q),
        "mask": mask if mask is None else _as_mask(as_array(mask)),
        "query_lengths": _as_lengths(query_lengths),
        "key_lengths": _as_lengths(key_lengths),
        "key_starts": ranges and ranges[0],
        "key_stops": ranges and ranges[1],
    }
    present = {name: x for name, x in found.items() if x is not None}
    return tuple(present), list(present.values())


def _as_bias(x: Array, q: Array) -> Array:
    wide = accumulator(q.dtype)
    fits = x.dtype.is_float and x.dtype.bits <= wide.bits
    return _with_batch(x if fits else td.astype(x, wide), 4)


def _as_mask(x: Array) -> Array:
    if x.dtype is not bool_:
        fail(
            DtypeError,
            f"{NAME}: a mask is made of truth values, got {x.type}",
            "numbers to add are a bias",
        )
    return _with_batch(x, 4)


def _as_lengths(lengths: Any) -> Array | None:
    if lengths is None:
        return None
    ends = td.reshape(as_array(lengths), (-1,))
    return ends if ends.dtype in (i32, i64) else td.astype(ends, i64)


def _window(size: int | tuple[int, int] | None) -> tuple[int | None, int | None]:
    if size is None:
        return None, None
    before, after = size if isinstance(size, tuple) else (size, size)
    if min(before, after) < 0:
        refuse(NAME, "local_window_size", "numbers of at least 0", size, "None hides nothing")
    return int(before), int(after)
