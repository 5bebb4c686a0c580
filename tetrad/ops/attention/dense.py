"""Ops, attention over arrays: queries [B,T,N,D] against keys [B,S,G,D] and values [B,S,G,W], with
what hides keys from queries.

Here are the type, the meaning in NumPy and the test cases of this form of `attention`, and what its
gradient (`ops.attention.gradient`) shares with it. Kernels are in `ops.attention.dense_kernel`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tetrad.core.dtypes import DType, bf16, bool_, f16, f32, f64, i32, i64
from tetrad.core.errors import DtypeError, SettingError, ShapeError
from tetrad.core.op import Case
from tetrad.core.record import record
from tetrad.core.sizes import Shape, Size
from tetrad.core.types import ArrayType
from tetrad.ops.cases import Rng, pick
from tetrad.ops.rules import Array, check_dtype

FLOATS: tuple[DType, ...] = (f32, f64, f16, bf16)
# optional operands, in the order in which they follow q, k and v; `given` names those there are
OPTIONAL = ("bias", "mask", "query_lengths", "key_lengths", "key_starts", "key_stops")
# letters as JAX has them: batch, sequence, number of heads, size of a head
LAYOUTS = {"bsnh": (0, 1, 2), "bnsh": (0, 2, 1)}  # where batch, time and head stand
CAUSAL = ("", "top_left", "bottom_right")
UNBOUNDED = 1 << 40  # keys: no bound


@record
class AttentionForm:
    """Sizes and settings: B batches, T queries, S keys, N query heads, G kv heads, D channels of a
    key, W of a value."""

    batch: Size
    times: Size
    keys: Size
    heads: Size
    groups: Size
    channels: int
    width: int
    scale: float
    softcap: float
    layout: str
    given: tuple[str, ...]
    causal: str
    before: int
    after: int

    @property
    def shared(self) -> int:
        """Query heads of a kv head."""
        return 1 if self.heads == self.groups else self.heads // self.groups  # type: ignore[return-value]

    @property
    def hides(self) -> bool:
        """Can a key be hidden from a query?"""
        spans = self.causal or self.before < UNBOUNDED or self.after < UNBOUNDED
        return bool(spans or set(self.given) - {"bias"})

    @property
    def begins_late(self) -> bool:
        """Can the first key that a query sees be another than the first of all?"""
        return self.before < UNBOUNDED or "key_starts" in self.given

    def at(self, batch: Any, time: Any, head: Any, channel: Any) -> tuple[Any, Any, Any, Any]:
        """The index of an element in the order of the layout."""
        return (
            (batch, time, head, channel) if self.layout == "bsnh" else (batch, head, time, channel)
        )

    def shape(self, time: Size, head: Size, channel: Size) -> Shape:
        return self.at(self.batch, time, head, channel)

    def operand(self, operands: Sequence[Any], name: str) -> Any:
        """One of the optional operands, which follow q, k and v; None where it is not given."""
        return operands[3 + self.given.index(name)] if name in self.given else None


def accumulator(dtype: DType) -> DType:
    return f64 if dtype is f64 else f32


def form_of(
    q: ArrayType,
    k: ArrayType,
    v: ArrayType,
    *,
    scale: float,
    layout: str,
    given: tuple[str, ...] = (),
    causal: str = "",
    before: int = UNBOUNDED,
    after: int = UNBOUNDED,
    softcap: float = 0.0,
) -> AttentionForm:
    _check_settings(layout, given, causal, softcap)
    check_dtype("attention", q.dtype, FLOATS)
    if q.rank != 4 or k.rank != 4 or v.rank != 4 or len({q.dtype, k.dtype, v.dtype}) != 1:
        raise ShapeError(
            f"attention: expected q, k and v of one dtype and four axes {layout}, got {q}, {k} "
            f"and {v}"
        )
    (batch, times, heads), (_, keys, groups) = (
        [x.shape[axis] for axis in LAYOUTS[layout]] for x in (q, k)
    )
    channels, width = q.shape[3], v.shape[3]
    if not (isinstance(channels, int) and isinstance(width, int)):
        raise ShapeError(f"attention: the size of a head is no Dim, got {q} and {v}")
    form = AttentionForm(batch, times, keys, heads, groups, channels, width, scale, softcap, layout,
    given,
                causal, before, after)  # fmt: skip
    _check_sizes(form, q, k, v)
    return form


def _check_settings(layout: str, given: tuple[str, ...], causal: str, softcap: float) -> None:
    if layout not in LAYOUTS:
        raise SettingError("attention: layout", " or ".join(LAYOUTS), layout)
    if causal not in CAUSAL:
        raise SettingError("attention: causal", "nothing, top_left or bottom_right", causal)
    if tuple(name for name in OPTIONAL if name in given) != given:
        raise SettingError("attention: given", "some of " + ", ".join(OPTIONAL), given)
    if softcap < 0:
        raise ShapeError(f"attention: softcap must not be negative, got {softcap}")


def _check_sizes(form: AttentionForm, q: ArrayType, k: ArrayType, v: ArrayType) -> None:
    wanted = [form.shape(form.keys, form.groups, size) for size in (form.channels, form.width)]
    if [k.shape, v.shape] != wanted:
        raise ShapeError(
            f"attention: q {q}, k {k} and v {v} do not fit",
            hint="equal batches, equal keys, equal D; k and v have equal heads",
        )
    heads, groups = form.heads, form.groups
    is_plain = isinstance(heads, int) and isinstance(groups, int)
    if heads != groups and not (is_plain and groups and heads % groups == 0):
        raise ShapeError(f"attention: {heads} query heads are no multiple of {groups} kv heads")


def check_optional(form: AttentionForm, operands: Sequence[ArrayType]) -> None:
    """Bias and mask broadcast to [B,N,T,S], lengths to [B], the ends of what queries see to
    [B,T]."""
    if len(operands) != len(form.given):
        raise ShapeError(f"attention: expected {form.given} after v, got {len(operands)} operands")
    full = (form.batch, form.heads, form.times, form.keys)
    wholes = {"bias": full, "mask": full, "key_starts": full[::2], "key_stops": full[::2]}
    for name, kind in zip(form.given, operands, strict=True):
        whole = wholes.get(name, full[:1])
        if kind.rank != len(whole) or any(
            n not in (1, m) for n, m in zip(kind.shape, whole, strict=True)
        ):
            raise ShapeError(f"attention: {name} {kind} does not broadcast to {list(whole)}")
        allowed = {"bias": FLOATS, "mask": (bool_,)}.get(name, (i32, i64))
        if kind.dtype not in allowed:
            raise DtypeError(f"attention: {name} may not be {kind}")


def dense_type(
    q: ArrayType, k: ArrayType, v: ArrayType, *optional: ArrayType, **settings: Any
) -> tuple[ArrayType, ArrayType]:
    """The result, and of every query the logarithm of its sum of powers."""
    form = form_of(q, k, v, **settings)
    check_optional(form, optional)
    out = form.shape(form.times, form.heads, form.width)
    return q.with_shape(out), ArrayType(accumulator(q.dtype), out[:3])


# -- the meaning -----------------------------------------------------------------------------------


@record(eq=False)
class Head:
    """What one kv head of one batch has, in f64; its H query heads in front. `seen` [H,T,S] or
    None: all of it."""

    q: Array  # [H,T,D]
    k: Array  # [S,D]
    v: Array  # [S,W]
    raw: Array  # [H,T,S]: products times scale
    scores: Array  # [H,T,S]: with softcap and bias, -inf where hidden
    seen: Array | None
    batch: int
    heads: slice

    def weights(self, lse: Array) -> Array:
        """exp(score - lse), exactly 0 where hidden."""
        shift = np.where(np.isneginf(lse), 0.0, lse)[..., None]
        powers = np.exp(self.scores - shift)
        return powers if self.seen is None else np.where(self.seen, powers, 0.0)


def heads_of(form: AttentionForm, operands: Sequence[Array]) -> Iterator[Head]:
    """Every kv head of every batch, one after the other: memory for one of them at a time."""
    batches, groups = int(form.batch), int(form.groups)  # type: ignore[arg-type]
    wide = [by_head(form, x).astype(np.float64) for x in operands[:3]]
    for b in range(batches):
        for g in range(groups):
            heads = slice(g * form.shared, (g + 1) * form.shared)
            yield head_of(form, operands, b, heads, wide[0][b, heads], wide[1][b, g], wide[2][b, g])


def by_head(form: AttentionForm, x: Array) -> Array:
    return np.swapaxes(x, 1, 2) if form.layout == "bsnh" else x


def head_of(
    form: AttentionForm,
    operands: Sequence[Array],
    b: int,
    heads: slice,
    q: Array,
    k: Array,
    v: Array,
) -> Head:
    seen = seen_keys(form, operands, b, heads)
    flags: list[Array] = []
    if form.hides:
        (q, from_q), (k, from_k), (v, from_v) = (finite_rows(x) for x in (q, k, v))
        flags = [from_q[..., None], from_k + from_v]
    raw = np.matmul(q, k.T) * form.scale
    scores = form.softcap * np.tanh(raw / form.softcap) if form.softcap else raw
    if (bias := form.operand(operands, "bias")) is not None:
        scores = scores + picked(bias, b, heads).astype(np.float64)
    for flag in flags:
        scores = scores + flag
    scores = scores if seen is None else np.where(seen, scores, -np.inf)
    return Head(q, k, v, raw, scores, seen, b, heads)


def finite_rows(x: Array) -> tuple[Array, Array]:
    """x with 0 for what is not finite, and of every row 0, or NaN to be added to its scores."""
    finite = np.isfinite(x)
    return np.where(finite, x, 0.0), np.where(finite.all(axis=-1), 0.0, np.nan)


def picked(x: Array, b: int, heads: slice) -> Array:
    """What [B,N,T,S], some axes of one element, has for a batch and some heads."""
    return x[b if x.shape[0] > 1 else 0, heads if x.shape[1] > 1 else slice(None)]


def seen_keys(form: AttentionForm, operands: Sequence[Array], b: int, heads: slice) -> Array | None:
    if not form.hides:
        return None
    times, keys = int(form.times), int(form.keys)  # type: ignore[arg-type]
    position = np.arange(times)[:, None] + (keys - times if form.causal == "bottom_right" else 0)
    key = np.arange(keys)[None, :]
    seen = np.ones((form.shared, times, keys), bool)
    if form.causal:
        seen &= key <= position
    if form.before < UNBOUNDED:
        seen &= key >= position - form.before
    if form.after < UNBOUNDED:
        seen &= key <= position + form.after
    if (mask := form.operand(operands, "mask")) is not None:
        seen &= picked(mask, b, heads)
    for name, place in (("query_lengths", np.arange(times)[:, None]), ("key_lengths", key)):
        if (lengths := form.operand(operands, name)) is not None:
            seen &= place < lengths[b if lengths.size > 1 else 0]
    for name, compare in (("key_starts", np.greater_equal), ("key_stops", np.less)):
        if (ends := form.operand(operands, name)) is not None:
            seen &= compare(key, ends[b if ends.shape[0] > 1 else 0][:, None])
    return seen


def dense_attention(
    q: Array, k: Array, v: Array, *optional: Array, **settings: Any
) -> tuple[Array, Array]:
    operands = tuple(np.asarray(x) for x in (q, k, v, *optional))
    form = form_of_arrays(operands, settings)
    accumulated = np.float64 if operands[0].dtype == np.float64 else np.float32
    shape: Any = form.shape(form.times, form.heads, form.width)
    out, lse = np.zeros(shape, operands[0].dtype), np.zeros(shape[:3], accumulated)
    outs, sums = by_head(form, out), by_head(form, lse)
    with np.errstate(all="ignore"):
        for head in heads_of(form, operands):
            found, log = found_by(head)
            outs[head.batch, head.heads], sums[head.batch, head.heads] = found, log
    return out, lse


def form_of_arrays(operands: Sequence[Array], settings: dict[str, Any]) -> AttentionForm:
    kinds = [ArrayType(f32, x.shape) for x in operands[:3]]
    return form_of(*kinds, **settings)


def found_by(head: Head) -> tuple[Array, Array]:
    """What the queries of a kv head find, [H,T,W], and the logarithms of their sums, [H,T]."""
    top = head.scores.max(axis=-1, initial=-np.inf, keepdims=True)
    shift = np.where(np.isneginf(top), 0.0, top)
    powers = np.exp(head.scores - shift)
    if head.seen is not None:
        powers = np.where(head.seen, powers, 0.0)
    total = powers.sum(axis=-1, keepdims=True)
    is_empty = total == 0
    found = np.matmul(powers, head.v) / np.where(is_empty, 1.0, total)
    found = np.where(is_empty, 0.0, found)
    return found, np.where(is_empty, -np.inf, shift + np.log(total))[..., 0]


# -- cases -----------------------------------------------------------------------------------------


def dense_case(rng: Rng, dtype: DType) -> Case:
    """Scores are exact and not negative, values positive, so the errors of the result and of the
    logarithm are those of a few roundings."""
    batch, groups, shared = (pick(rng, n) for n in ((1, 2), (1, 2), (1, 2, 3)))
    times, keys = (pick(rng, (1, 3, 8, 17)) for _ in range(2))
    channels, width = (pick(rng, (1, 4, 16, 17)) for _ in range(2))
    layout, given = pick(rng, tuple(LAYOUTS)), tuple(n for n in OPTIONAL if rng.random() < 0.3)
    settings = {
        "scale": 0.5, "layout": layout, "given": given, "causal": pick(rng, CAUSAL),
        "before": pick(rng, (UNBOUNDED, UNBOUNDED, 2)), "after": pick(rng, (UNBOUNDED, UNBOUNDED,
        1)),
        "softcap": pick(rng, (0.0, 0.0, 4.0)),
    }  # fmt: skip
    heads = groups * shared
    form = AttentionForm(batch, times, keys, heads, groups, channels, width, **settings)
    places: Any = (
        form.shape(times, heads, channels),
        form.shape(keys, groups, channels),
        form.shape(keys, groups, width),
    )
    q, k = (rng.integers(0, 5, place) / 4 for place in places[:2])
    v = rng.integers(4, 17, places[2]) / 8
    made = [x.astype(dtype.np) for x in (q, k, v)]
    return Case((*made, *(optional_case(rng, form, name, dtype) for name in given)), settings)


def optional_case(rng: Rng, form: AttentionForm, name: str, dtype: DType) -> Array:
    sizes: tuple[Any, ...] = (form.batch, form.heads, form.times, form.keys)
    if name in ("query_lengths", "key_lengths"):
        most = sizes[2 if name == "query_lengths" else 3]
        return rng.integers(0, most + 2, sizes[:1]).astype(np.int32)
    shape = tuple(pick(rng, (1, n)) for n in sizes)
    if name in ("key_starts", "key_stops"):
        low, high = (-1, 3) if name == "key_starts" else (2, sizes[3] + 2)
        return rng.integers(low, max(high, low + 1), shape[::2]).astype(np.int32)
    if name == "mask":
        return rng.random(shape) < 0.7
    return (rng.integers(0, 9, shape) / 8).astype(dtype.np)
