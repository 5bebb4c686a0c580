"""Ops, the gradient of attention over arrays: weights are computed again from the logarithms of
their sums, block by block, so that memory is linear in the number of keys.

Here are the op, its type, its meaning in NumPy and its test cases; `ops.attention.derivatives` says
where it is used and how it is differentiated, `ops.attention.gradient_kernel` is its kernel.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tetrad.core.dtypes import bf16, f16, f32, f64
from tetrad.core.errors import SettingError, ShapeError
from tetrad.core.op import Case, op
from tetrad.core.types import ArrayType
from tetrad.ops.attention.dense import (
    FLOATS,
    AttentionForm,
    Head,
    accumulator,
    by_head,
    check_optional,
    dense_attention,
    dense_case,
    form_of,
    form_of_arrays,
    heads_of,
)
from tetrad.ops.cases import Rng, pick
from tetrad.ops.rules import Array

WRT = ("q", "k", "v", "bias")
LAST = 3  # operands after the optional ones: lse, delta, ct


def gradient_type(
    q: ArrayType,
    k: ArrayType,
    v: ArrayType,
    *rest: ArrayType,
    wrt: tuple[str, ...],
    **settings: Any,
) -> tuple[ArrayType, ...] | ArrayType:
    form = form_of(q, k, v, **settings)
    *optional, lse, delta, ct = rest
    check_optional(form, optional)
    if not wrt or tuple(name for name in WRT if name in wrt) != wrt:
        raise SettingError("attention_gradient: wrt", "some of " + ", ".join(WRT), wrt)
    out = form.shape(form.times, form.heads, form.width)
    wide = accumulator(q.dtype)
    row = ArrayType(wide, out[:3])
    if (lse, delta, ct) != (row, row, q.with_shape(out)):
        raise ShapeError(f"attention_gradient: {lse}, {delta} and {ct} do not fit q {q} and v {v}")
    scores = ArrayType(wide, (form.batch, form.heads, form.times, form.keys))
    found = dict(zip(WRT, (q, k, v, scores), strict=True))
    return tuple(found[name] for name in wrt) if len(wrt) > 1 else found[wrt[0]]


def _cases(rng: Rng) -> Case:
    """What a forward call left, a cotangent of the output, and delta 0 (or not), all of one
    sign: sums do not cancel."""
    dtype = pick(rng, FLOATS)
    case = dense_case(rng, dtype)
    out, lse = dense_attention(*case.args, **case.params)
    ct = (rng.integers(4, 17, out.shape) / 8).astype(out.dtype)
    delta = np.zeros_like(lse)
    wrt = tuple(name for name in WRT if rng.random() < 0.7) or ("q",)
    return Case((*case.args, lse, delta, ct), {**case.params, "wrt": wrt})


@op(
    type=gradient_type,
    kind="special",
    prologue=True,
    cases=_cases,
    dtypes=FLOATS,
    ulps={f32: 64, f64: 64, f16: 4, bf16: 4},
    public=False,
)
def attention_gradient(
    q: Array, k: Array, v: Array, *rest: Array, wrt: tuple[str, ...], **settings: Any
) -> Any:
    """Cotangents of q, k, v and the scores, those that `wrt` names, from the cotangent of the
    output.

    The operands of `attention` with its settings; then of each query `lse`, the logarithm of its
    sum, and `delta`, the product of its output with its cotangent (less the cotangent of lse); then
    the cotangent `ct`. With p = exp(score - lse), 0 for hidden keys, and e = p * (ct . v - delta):
    dv = p^T ct, dbias = e (of the whole [B,N,T,S]), and with e * scale (times 1 - tanh^2 where
    there is a softcap) dq = e k and dk = e^T q. A hidden key has no effect and gets none.

    >>> q = np.ones((1, 2, 1, 1), np.float32)
    >>> lse, delta = np.log(2 * np.exp(q[..., 0])), np.zeros((1, 2, 1), np.float32)
    >>> settings = {"layout": "bsnh", "scale": 1.0}
    >>> attention_gradient(q, q, q, lse, delta, q, wrt=("v",), **settings).ravel().round(4)
    array([1., 1.], dtype=float32)
    """
    operands = tuple(np.asarray(x) for x in (q, k, v, *rest))
    form = form_of_arrays(operands, settings)
    made = {name: _zeros(form, name, operands) for name in wrt}
    lse, delta, ct = (by_head(form, x).astype(np.float64) for x in operands[-LAST:])
    with np.errstate(all="ignore"):
        for g, head in enumerate(heads_of(form, operands)):
            mine = [x[head.batch, head.heads] for x in (lse, delta, ct)]
            _add_head(form, head, g % int(form.groups), made, *mine)  # type: ignore[arg-type]
    found = tuple(made[name] for name in wrt)
    return found if len(found) > 1 else found[0]


def _zeros(form: AttentionForm, name: str, operands: tuple[Array, ...]) -> Array:
    if name != "bias":
        return np.zeros_like(operands[WRT.index(name)])
    sizes: Any = (form.batch, form.heads, form.times, form.keys)
    return np.zeros(sizes, operands[-LAST].dtype)


def _add_head(
    form: AttentionForm,
    head: Head,
    g: int,
    made: dict[str, Array],
    lse: Array,
    delta: Array,
    ct: Array,
) -> None:
    weights = head.weights(lse)
    if form.hides:
        is_finite = np.isfinite(ct)
        flags = np.where(is_finite.all(axis=-1, keepdims=True), 0.0, np.nan)
        weights, ct = np.where(weights == 0, 0.0, weights + flags), np.where(is_finite, ct, 0.0)
    slopes = weights * (np.matmul(ct, head.v.T) - delta[..., None])
    slopes = np.where(weights == 0, 0.0, slopes)
    if "bias" in made:
        made["bias"][head.batch, head.heads] = slopes
    if form.softcap:
        slopes = slopes * (1 - np.tanh(head.raw / form.softcap) ** 2)
        slopes = np.where(weights == 0, 0.0, slopes)
    slopes = slopes * form.scale
    if "q" in made:
        by_head(form, made["q"])[head.batch, head.heads] = np.matmul(slopes, head.k)
    for name, left, right in (("k", slopes, head.q), ("v", weights, ct)):
        if name in made:
            found = np.einsum("hts,htc->sc", left, right)
            by_head(form, made[name])[head.batch, g] = found
