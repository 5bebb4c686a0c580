"""Attention of queries to keys, as `td.nn.dot_product_attention`: two products with a softmax
between them.

Receives queries, keys and values [batch, time, heads, size] and what hides keys from queries;
returns what the queries found. A composition of public functions; `td.nn` loads this module when it
is first used. Language models that run have an op of their own (`ops/attention/op.py`), whose keys
and values lie in a cache.
"""

from __future__ import annotations

import math
from typing import Any

from tetrad import nn
from tetrad.arrays import functions as td
from tetrad.arrays.creation import positions
from tetrad.core.dtypes import bool_, f32
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.core.floats import guarded
from tetrad.core.sizes import Size
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
    is_causal: bool = False,
    query_seq_lengths: Any = None,
    key_value_seq_lengths: Any = None,
    local_window_size: int | tuple[int, int] | None = None,
) -> Array:
    """softmax(scale * query key + bias) value, for queries [batch, T, heads, size] and keys [batch,
    S, groups, size].

    Each group of keys serves as many heads of queries as there are for each; the batch may be left
    out. `mask` is true where a query sees a key, [batch, heads, T, S] or what broadcasts to it,
    like `bias`; `is_causal` hides later keys, lengths hide what is behind them, a window what is
    further away. A query that sees nothing finds zeros. What is hidden has no effect, be it NaN;
    where something can be hidden, a query that sees a number that is not finite finds NaN. Numbers
    of 16 bits are computed in f32.

    >>> import tetrad as td
    >>> q, kv = td.ones((4, 8, 16)), td.ones((6, 2, 16))
    >>> td.nn.dot_product_attention(q, kv, kv).shape
    (4, 8, 16)
    """
    q, k, v = (_with_batch(_wide(x), 4) for x in (query, key, value))
    _check(q, k, v)
    batch, times, heads, size = q.shape
    groups, keys = k.shape[2], k.shape[1]
    seen = _seen(times, keys, mask, is_causal, local_window_size)
    seen += _within(query_seq_lengths, times, (-1, 1, times, 1))
    seen += _within(key_value_seq_lengths, keys, (-1, 1, 1, keys))
    (q, from_q), (k, from_k), (v, from_v) = (_finite(x) if seen else (x, None) for x in (q, k, v))
    grouped = td.reshape(q, (batch, times, groups, -1, size))
    scores = td.einsum("btkgh,bskh->bkgts", grouped, k) * (
        1 / math.sqrt(size) if scale is None else scale
    )
    if from_q is not None and from_k is not None and from_v is not None:
        by_query = td.reshape(td.matrix_transpose(from_q), (batch, groups, -1, times, 1))
        scores += by_query + td.reshape(
            td.matrix_transpose(from_k + from_v), (batch, groups, 1, 1, keys)
        )
    scores = td.reshape(scores, (batch, heads, times, keys))
    scores = scores if bias is None else scores + _with_batch(as_array(bias), 4)
    shares = nn.softmax(scores, where=_all(seen))
    shares = td.reshape(shares, (batch, groups, -1, times, keys))
    found = td.reshape(
        td.einsum("bkgts,bskh->btkgh", shares, v), (batch, times, heads, v.shape[-1])
    )
    return td.astype(
        td.reshape(found, (*as_array(query).shape[:-1], v.shape[-1])), as_array(query).dtype
    )


def _finite(x: Array) -> tuple[Array, Array]:
    """x with 0 for what is not finite, and for each vector of it 0, or NaN to be added to scores:
    hidden with them, it has no effect, where as a factor it would make NaN of the 0 that a hidden
    key counts."""
    finite = td.isfinite(x)
    return td.where(finite, x, 0), td.where(
        td.all(finite, axis=-1), td.asarray(0.0, dtype=x.dtype), math.nan
    )


def _wide(x: Any) -> Array:
    found = as_array(x)
    return td.astype(found, f32) if found.dtype.bits < 32 or not found.dtype.is_float else found


def _with_batch(x: Array, rank: int) -> Array:
    return td.reshape(x, (*(1,) * (rank - x.ndim), *x.shape))


def _check(q: Array, k: Array, v: Array) -> None:
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
    heads, groups = q.shape[2], k.shape[2]
    if isinstance(heads, int) and isinstance(groups, int) and (not groups or heads % groups):
        fail(
            ShapeError,
            f"{NAME}: {heads} heads of queries are no multiple of {groups} heads of keys",
        )


def _seen(
    times: Size, keys: Size, mask: Any, is_causal: bool, window: int | tuple[int, int] | None
) -> list[Array]:
    """What says, for queries [.., T, 1] and keys [.., 1, S], that one sees the other; all must say
    so."""
    at, other = td.reshape(positions(times), (times, 1)), td.reshape(positions(keys), (1, keys))
    seen = []
    if mask is not None:
        given = as_array(mask)
        if given.dtype is not bool_:
            fail(
                DtypeError,
                f"{NAME}: a mask is made of truth values, got {given.type}",
                "numbers to add are a bias",
            )
        seen.append(_with_batch(given, 4))
    if is_causal:
        seen.append(at >= other)
    if window is not None:
        before, after = window if isinstance(window, tuple) else (window, window)
        seen += [other >= at - before, other <= at + after]
    return seen


def _within(lengths: Any, size: Size, shape: tuple[Any, ...]) -> list[Array]:
    """Places before the end of each sequence, in this shape."""
    if lengths is None:
        return []
    ends = td.reshape(as_array(lengths), (-1, 1))
    return [td.reshape(td.reshape(positions(size), (1, size)) < ends, shape)]


def _all(seen: list[Array]) -> Array | None:
    result = None
    for one in seen:
        result = one if result is None else td.logical_and(result, one)
    return result
