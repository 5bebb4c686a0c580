"""Ops, how attention over arrays is differentiated and batched.

Forward mode is composed of products and elementwise ops, which hold all scores; reverse mode is the
op `attention_gradient`, which does not. The derivative of that one is composed again, so
derivatives of any order exist. A batch is more batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from tetrad.core.dtypes import DType, i64
from tetrad.core.errors import UnsupportedError
from tetrad.core.sizes import Shape, product
from tetrad.graph.build import fresh_like, make_graph
from tetrad.graph.custom import make_linear
from tetrad.graph.nodes import Graph, Node
from tetrad.ops.attention.dense import UNBOUNDED, AttentionForm, accumulator, form_of
from tetrad.ops.attention.gradient import LAST, WRT, attention_gradient
from tetrad.ops.attention.op import attention
from tetrad.ops.calculus import (
    Batched,
    amount,
    batch_size,
    cast,
    expand,
    positions,
    reduce_sum,
    reshape,
    run,
    sum_to,
    swapped,
    transpose,
    where,
    zeros_like,
)

Change = Node | None  # of an operand; None: it does not change


# -- scores as nodes -------------------------------------------------------------------------------


class Folded:
    """Attention in products of matrices: rows of a kv head [B,G,R,.], where R counts its query
    heads and in them the times."""

    def __init__(self, form: AttentionForm, operands: Sequence[Node], lse: Node) -> None:
        self.form = form
        self.dtype: DType = accumulator(operands[0].type.dtype)
        self.seen = self.seen_keys(operands)
        self.q, self.k, self.v = (self.cleaned(self.fold(x)) for x in operands[:3])
        self.raw = self.products(self.q, self.k)
        scores, self.slope = self.raw, None
        if form.softcap:
            bend = run("tanh", self.raw * (1 / form.softcap))
            self.bend, self.slope = bend, 1 - bend * bend
            scores = bend * form.softcap
        if (bias := form.operand(operands, "bias")) is not None:
            scores = scores + self.whole(bias)
        shift = where(run("equal", lse, -float("inf")), 0.0, lse)
        self.weights = self.visible(run("exp", scores - self.row(shift)))

    @property
    def shape(self) -> Shape:
        return (
            self.form.batch,
            self.form.groups,
            self.form.times * self.form.shared,
            self.form.keys,
        )

    def fold(self, x: Node) -> Node:
        """An array of queries, or of keys, as rows of kv heads."""
        x = cast(transpose(x, (0, 2, 1, 3)) if self.form.layout == "bsnh" else x, self.dtype)
        batch, heads, times, channels = x.type.shape
        if heads == self.form.groups:
            return x
        return reshape(x, (batch, self.form.groups, times * self.form.shared, channels))

    def unfold(self, x: Node, like: Node) -> Node:
        shape = like.type.shape
        inner = (shape[0], shape[2], shape[1], shape[3]) if self.form.layout == "bsnh" else shape
        x = reshape(x, inner)
        x = transpose(x, (0, 2, 1, 3)) if self.form.layout == "bsnh" else x
        return cast(x, like.type.dtype)

    def row(self, x: Node) -> Node:
        """One number of each query, along all keys."""
        x = transpose(x, (0, 2, 1)) if self.form.layout == "bsnh" else x
        return expand(reshape(x, (*self.shape[:3], 1)), self.shape)

    def rows(self, x: Node) -> Node:
        """The sum over keys, of each query, in the order of the layout."""
        form = self.form
        found = reshape(reduce_sum(x, (3,)), (form.batch, form.heads, form.times))
        return transpose(found, (0, 2, 1)) if form.layout == "bsnh" else found

    def whole(self, x: Node) -> Node:
        """What broadcasts to [B,N,T,S], for all rows and keys."""
        form = self.form
        full = expand(x, (form.batch, form.heads, form.times, form.keys))
        return reshape(
            full if x.type.dtype.short_name == "bool" else cast(full, self.dtype), self.shape
        )

    def cleaned(self, x: Node) -> Node:
        """0 for what is not finite, where it might be hidden: its rows have NaN in lse."""
        return where(run("isfinite", x), x, 0.0) if self.form.hides else x

    def visible(self, x: Node) -> Node:
        return x if self.seen is None else where(self.seen, x, 0.0)

    def products(self, q: Node, k: Node) -> Node:
        found: Node = run("matmul", q, swapped(k)) * self.form.scale
        return found

    def seen_keys(self, operands: Sequence[Node]) -> Node | None:
        form, shape = self.form, (self.form.batch, self.form.heads, self.form.times, self.form.keys)
        time, key = (positions(shape, axis, i64) for axis in (2, 3))
        place = time
        if form.causal == "bottom_right":
            place = time + amount(form.keys, time) - amount(form.times, time)
        tests = [run("less_equal", key, place)] if form.causal else []
        if form.before < UNBOUNDED:
            tests.append(run("greater_equal", key, place - form.before))
        if form.after < UNBOUNDED:
            tests.append(run("less_equal", key, place + form.after))
        if (mask := form.operand(operands, "mask")) is not None:
            tests.append(expand(mask, shape))
        for name, at in (("query_lengths", time), ("key_lengths", key)):
            if (lengths := form.operand(operands, name)) is not None:
                ends = cast(reshape(lengths, (*lengths.type.shape, 1, 1, 1)), i64)
                tests.append(run("less", at, expand(ends, shape)))
        for name, op in (("key_starts", "greater_equal"), ("key_stops", "less")):
            if (ends := form.operand(operands, name)) is not None:
                batch, times = ends.type.shape
                ends = cast(reshape(ends, (batch, 1, times, 1)), i64)
                tests.append(run(op, key, expand(ends, shape)))
        if not tests:
            return None
        return reshape(reduce(lambda a, b: run("logical_and", a, b), tests), self.shape)


def plus(*parts: Change) -> Change:
    present = [part for part in parts if part is not None]
    return reduce(lambda a, b: a + b, present) if present else None


def times(a: Change, b: Change) -> Change:
    return None if a is None or b is None else a * b


def matmul(a: Change, b: Change) -> Change:
    return None if a is None or b is None else run("matmul", a, b)


def turned(x: Change) -> Change:
    return None if x is None else swapped(x)


# -- the derivative of attention -------------------------------------------------------------------


def form_of_nodes(operands: Sequence[Node], settings: dict[str, Any]) -> AttentionForm:
    return form_of(*(x.type for x in operands[:3]), **settings)


@attention.jvp_of_all
def attention_jvp(
    tangents: Sequence[Change], results: Any, *operands: Node, layout: str = "", **settings: Any
) -> Any:
    if not layout:
        raise UnsupportedError(
            "attention is not differentiable: keys and values lie in the cache of a running model",
            hint="td.nn.dot_product_attention has derivatives",
        )
    form = form_of_nodes(operands, {"layout": layout, **settings})
    which = [i for i, tangent in enumerate(tangents) if tangent is not None]
    fixed = [*operands, *results]
    graphs = (
        graph_of_changes(form, fixed, which, results),
        graph_of_cotangents(form, fixed, which, results, {"layout": layout, **settings}),
    )
    moving = [tangents[i] for i in which]
    return make_linear(*graphs, fixed, moving, tuple(r.type for r in results))  # type: ignore[arg-type]


def graph_of_changes(
    form: AttentionForm, fixed: Sequence[Node], which: Sequence[int], results: Sequence[Node]
) -> Graph:
    """operands..., out, lse, changes of operands... -> changes of out and lse"""
    inputs, moves = fresh_like(fixed), fresh_like([fixed[i] for i in which])
    operands, out, lse = inputs[:-2], *inputs[-2:]
    changes = dict(zip(which, moves, strict=True))
    folded = Folded(form, operands, lse)
    score = score_change(folded, operands, changes)
    spread = None if score is None else folded.visible(folded.weights * score)
    log = None if spread is None else folded.rows(spread)
    found = plus(
        matmul(spread, folded.v),
        matmul(folded.weights, None if 2 not in changes else folded.fold(changes[2])),
    )
    moved = zeros_like(out) if found is None else folded.unfold(found, out)
    if log is not None:
        along = expand(reshape(log, (*log.type.shape, 1)), out.type.shape)
        moved = moved - cast(along * cast(out, folded.dtype), out.type.dtype)
    return make_graph(
        "attention.change", [*inputs, *moves], [moved, zeros_like(lse) if log is None else log]
    )


def score_change(folded: Folded, operands: Sequence[Node], changes: dict[int, Node]) -> Change:
    q, k = (folded.fold(changes[i]) if i in changes else None for i in (0, 1))
    raw = plus(
        None if q is None else folded.products(q, folded.k),
        None if k is None else folded.products(folded.q, k),
    )
    bend = raw if folded.slope is None else times(raw, folded.slope)
    bias = folded.form.operand(range(len(operands)), "bias")
    return plus(bend, folded.whole(changes[bias]) if bias in changes else None)


def graph_of_cotangents(
    form: AttentionForm,
    fixed: Sequence[Node],
    which: Sequence[int],
    results: Sequence[Node],
    settings: dict[str, Any],
) -> Graph:
    """operands..., out, lse, cotangents of out and lse -> cotangents of operands"""
    inputs, seeds = fresh_like(fixed), fresh_like(results)
    operands, out, lse = inputs[:-2], *inputs[-2:]
    dtype = accumulator(operands[0].type.dtype)
    delta = reduce_sum(cast(out, dtype) * cast(seeds[0], dtype), (3,)) - seeds[1]
    wrt = tuple("qkv"[i] if i < 3 else "bias" for i in which)
    made = attention_gradient(*operands, lse, delta, seeds[0], wrt=wrt, **settings)
    found = list(made) if len(wrt) > 1 else [made]
    if wrt[-1] == "bias":
        bias = operands[which[-1]]
        found[-1] = cast(sum_to(found[-1], bias.type.shape), bias.type.dtype)
    return make_graph("attention.cotangents", [*inputs, *seeds], found)


# -- the derivative of the gradient ----------------------------------------------------------------


@attention_gradient.jvp_of_all
def attention_gradient_jvp(
    tangents: Sequence[Change], results: Any, *operands: Node, wrt: tuple[str, ...], **settings: Any
) -> Any:
    """The change of p is p * (change of score - change of lse); all else is the rule of
    products."""
    form, count = form_of_nodes(operands, settings), len(operands) - LAST
    lse, delta, ct = operands[count:]
    folded = Folded(form, operands[:count], lse)
    changes = {i: t for i, t in enumerate(tangents[:count]) if t is not None}
    q, k, v = (folded.fold(changes[i]) if i in changes else None for i in range(3))
    dlse, ddelta = (None if t is None else folded.row(t) for t in tangents[count:-1])
    dct = None if tangents[-1] is None else folded.fold(tangents[-1])
    given = folded.cleaned(folded.fold(ct))

    weights = folded.weights
    moved = plus(score_change(folded, operands[:count], changes), None if dlse is None else -dlse)
    dweights = visible(folded, times(weights, moved))
    rest = run("matmul", given, swapped(folded.v)) - folded.row(delta)
    drest = plus(
        matmul(dct, swapped(folded.v)),
        matmul(given, turned(v)),
        None if ddelta is None else -ddelta,
    )
    slopes = folded.visible(weights * rest)
    dslopes = visible(folded, plus(times(dweights, rest), times(weights, drest)))
    inner, dinner = bent(folded, slopes, dslopes, plus(
        None if q is None else folded.products(q, folded.k),
        None if k is None else folded.products(folded.q, k),
    ))  # fmt: skip
    found = {
        "q": plus(matmul(dinner, folded.k), matmul(inner, k)),
        "k": plus(matmul(turned(dinner), folded.q), matmul(swapped(inner), q)),
        "v": plus(matmul(turned(dweights), given), matmul(swapped(weights), dct)),
    }
    made = tuple(
        bias_change(dslopes, form, folded) if name == "bias"
        else unfolded(folded, found[name], operands[WRT.index(name)])
        for name in wrt
    )  # fmt: skip
    return made if len(wrt) > 1 else made[0]


def bent(folded: Folded, slopes: Node, dslopes: Change, raw: Change) -> tuple[Node, Change]:
    """Slopes by products q . k and their change: times scale, and times the slope of the
    softcap."""
    scale, slope = folded.form.scale, folded.slope
    if slope is None:
        return slopes * scale, None if dslopes is None else dslopes * scale
    bend = folded.bend * (-2 / folded.form.softcap)
    dslope = None if raw is None else bend * slope * raw
    dinner = plus(times(dslopes, slope), times(slopes, dslope))
    return slopes * slope * scale, None if dinner is None else dinner * scale


def visible(folded: Folded, x: Change) -> Change:
    return None if x is None else folded.visible(x)


def unfolded(folded: Folded, x: Change, like: Node) -> Change:
    return None if x is None else folded.unfold(x, like)


def bias_change(dslopes: Change, form: AttentionForm, folded: Folded) -> Change:
    full = (form.batch, form.heads, form.times, form.keys)
    return None if dslopes is None else reshape(dslopes, full)


# -- batches ---------------------------------------------------------------------------------------


@attention.batch
def attention_batch(batched: Batched, *operands: Node, layout: str = "", **settings: Any) -> Any:
    """More batches of arrays; tokens of a cache go one row after the other."""
    if not layout:
        return None
    return batched_op(attention, batched, operands, {"layout": layout, **settings}, 0)


@attention_gradient.batch
def attention_gradient_batch(batched: Batched, *operands: Node, **settings: Any) -> Any:
    return batched_op(attention_gradient, batched, operands, settings, LAST)


def batched_op(
    op: Any, batched: Batched, operands: Sequence[Node], settings: dict[str, Any], last: int
) -> Any:
    """The new axis joins the batch. An optional operand that all batches share stays as it is."""
    size = batch_size(batched, operands)
    batch = operands[0].type.shape[1 if batched[0] else 0]
    merged = [
        merged_batch(x, flag, size, batch, is_optional=3 <= i < len(operands) - last)
        for i, (x, flag) in enumerate(zip(operands, batched, strict=True))
    ]
    made = op(*merged, **settings)
    results = made if isinstance(made, tuple) else (made,)
    split = tuple(reshape(r, (size, batch, *r.type.shape[1:])) for r in results)
    return split if isinstance(made, tuple) else split[0]


def merged_batch(x: Node, flag: bool, size: Any, batch: Any, *, is_optional: bool) -> Node:
    shape = x.type.shape[1:] if flag else x.type.shape
    if not flag and is_optional and shape[0] == 1:
        return x
    x = expand(x if flag else reshape(x, (1, *shape)), (size, batch, *shape[1:]))
    return reshape(x, (product((size, batch)), *shape[1:]))
