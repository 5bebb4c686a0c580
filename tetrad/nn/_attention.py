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
from tetrad.core.dtypes import bool_, f32, f64, i32, i64
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.core.floats import guarded
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
    [batch, heads, time, size]. Memory is linear in T and S, for gradients too.

    >>> import tetrad as td
    >>> q, kv = td.ones((4, 8, 16)), td.ones((6, 2, 16))
    >>> td.nn.dot_product_attention(q, kv, kv).shape
    (4, 8, 16)
    """
    given = [_with_batch(x, 4) for x in _alike(query, key, value)]
    _check(given, layout)
    if not isinstance(scale, Real | None):
        given[0], scale = given[0] * scale, 1.0
    names, optional = _optional(given[0], bias, mask, query_seq_lengths, key_value_seq_lengths)
    before, after = _window(local_window_size)
    found, _ = attention(
        *given,
        *optional,
        layout=layout,
        given=names,
        scale=1 / math.sqrt(given[0].shape[-1]) if scale is None else float(scale),
        softcap=float(softcap),
        causal=is_causal if isinstance(is_causal, str) else CAUSAL[bool(is_causal)],
        before=before,
        after=after,
    )
    outer = as_array(query)
    return td.astype(td.reshape(found, (*outer.shape[:-1], found.shape[-1])), outer.dtype)


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
    q: Array, bias: Any, mask: Any, query_lengths: Any, key_lengths: Any
) -> tuple[tuple[str, ...], list[Array]]:
    """The optional operands there are, by their names in the op."""
    found = {
        "bias": bias if bias is None else _as_bias(as_array(bias), q),
        "mask": mask if mask is None else _as_mask(as_array(mask)),
        "query_lengths": _as_lengths(query_lengths),
        "key_lengths": _as_lengths(key_lengths),
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


def _window(size: int | tuple[int, int] | None) -> tuple[int, int]:
    if size is None:
        return UNBOUNDED, UNBOUNDED
    before, after = size if isinstance(size, tuple) else (size, size)
    return int(before), int(after)
