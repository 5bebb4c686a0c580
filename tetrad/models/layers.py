"""Models, layers: the pieces blocks are made of, on arrays of a ragged batch.

T tokens stand side by side, each with the sequence (`slot`) it belongs to and its position there:
one token of a decoding step, a chunk of a prompt, several sequences at once are all the same to a
layer. Keys and values live in caches that a layer updates and returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tetrad import nn
from tetrad.arrays import functions as td
from tetrad.core.dtypes import bf16, f32
from tetrad.core.machine import LANES
from tetrad.models.arch import BlockInputs, Weights
from tetrad.models.decoder import Decoder, Experts, Gated
from tetrad.models.encoder import Encoder
from tetrad.models.rope import Rope
from tetrad.ops.attention.cache import put_cache, put_scales
from tetrad.ops.attention.op import attention as attention_op
from tetrad.ops.attention.texts import text_attention
from tetrad.ops.experts.op import grouped_matmul, top_experts
from tetrad.ops.matmul.op import matmul
from tetrad.ops.panels.op import byte_rows, panel_matmul
from tetrad.ops.quantized.op import lowbit_rows, quantize_rows
from tetrad.quant.lanes import lanes_of
from tetrad.quant.panels import HALVES
from tetrad.tracing.array import Array


def put(at: BlockInputs, keys: Array, values: Array) -> BlockInputs:
    """The keys and values of the tokens [T, heads, channels], in the caches; in 8 bits also their
    scales."""
    where = (at.layer, at.slot, at.position)
    caches = [put_cache(c, rows, *where) for c, rows in zip(at.state, (keys, values), strict=False)]
    caches += [
        put_scales(c, rows, *where) for c, rows in zip(at.state[2:], (keys, values), strict=False)
    ]
    return at.with_state(caches)


def linear(x: Array, weights: Weights, name: str) -> Array:
    """x w^T + b. Rows of x are in 8 bits where the weight is a low-bit one."""
    scale = weights.get(f"{name}.scale")
    if scale is None:
        y = product(x, weights[f"{name}.weight"])
    else:
        codes, sizes = byte_rows(x)
        total = panel_matmul(codes, weights[f"{name}.weight"]) + weights[f"{name}.offset"]
        y = total.astype(f32) * (sizes * scale)
    bias = weights.get(f"{name}.bias")
    return y if bias is None else y + bias


def product(x: Array, weight: Array, terms: int = 1) -> Array:
    if weight.ndim == 3:
        x = x.astype(bf16) if weight.shape[2] == HALVES * LANES else x
        return panel_matmul(x, weight)  # type: ignore[no-any-return]
    rows = quantize_rows(x, terms=terms) if weight.dtype.is_quantized else x
    return matmul(rows, weight, transposed=True, terms=terms)  # type: ignore[no-any-return]


def head(x: Array, weight: Array) -> Array:
    """Logits. Rounding x to 8 bits here is a third of the error that rounding makes in a model of 8
    bits, and nothing comes after to even it out: there a second term keeps what the first lost.
    Weights are read once all the same."""
    is_fine = weight.dtype.is_quantized and lanes_of(weight.dtype).format.bits == 8
    return product(x, weight, terms=2 if is_fine else 1)


def embedding(weight: Array, tokens: Array) -> Array:
    if weight.dtype.is_quantized:
        return lowbit_rows(weight, tokens)  # type: ignore[no-any-return]
    return td.take(weight, tokens, axis=0).astype(f32)


def rms_norm(x: Array, weight: Array, epsilon: float) -> Array:
    """x / sqrt(mean(x^2) + epsilon) * weight, along the last axis."""
    return x * td.rsqrt(td.mean(x * x, axis=-1, keepdims=True) + epsilon) * weight  # type: ignore[no-any-return]


def layer_norm(x: Array, weights: Weights, name: str, epsilon: float) -> Array:
    """With mean 0 and variance 1 along the last axis, then scaled and shifted."""
    return nn.layer_norm(x, weights[f"{name}.weight"], weights.get(f"{name}.bias"), eps=epsilon)


def norm(x: Array, weights: Weights, name: str, epsilon: float) -> Array:
    """Normalised where the architecture has this norm, untouched where it has none."""
    weight = weights.get(f"{name}.weight")
    return x if weight is None else rms_norm(x, weight, epsilon)


def rope_tables(rope: Rope, position: Array) -> tuple[Array, Array]:
    """cos and sin of every token's angles: f32[T, pairs] each."""
    angles = position.astype(f32)[:, None] * np.array(rope.speeds, np.float32)
    return td.cos(angles) * rope.length, td.sin(angles) * rope.length


def rotate(x: Array, tables: Sequence[Array]) -> Array:
    """x [T, heads, channels]: channel i turns with channel i + pairs; channels past those carry no
    position."""
    cos, sin = (table[:, None, :] for table in tables)
    pairs = cos.shape[-1]
    first, second = x[..., :pairs], x[..., pairs : 2 * pairs]
    turned = [first * cos - second * sin, second * cos + first * sin]
    if x.shape[-1] > 2 * pairs:
        turned.append(x[..., 2 * pairs :])
    return td.concat(turned, axis=-1)


def split_heads(x: Array, size: int) -> Array:
    """[T, heads * size] -> [T, heads, size]"""
    return td.reshape(x, (x.shape[0], x.shape[1] // size, size))


def attention(
    c: Decoder,
    weights: Weights,
    x: Array,
    at: BlockInputs,
    *,
    scale: float | None = None,
    softcap: float = 0.0,
) -> tuple[Array, BlockInputs]:
    """Queries, keys and values of x; keys and values into the caches; what the queries find
    there."""
    widths = [heads * c.head_size for heads in (c.heads, c.kv_heads, c.kv_heads)]
    q, k, v = (split_heads(part, c.head_size) for part in queries_keys_values(weights, x, widths))
    q = rotate(norm(q, weights, "attn_q_norm", c.epsilon), at.shared)
    k = rotate(norm(k, weights, "attn_k_norm", c.epsilon), at.shared)
    at = put(at, k, v)
    keys, values, *scales = at.state
    settings = {
        "scale": c.head_size**-0.5 if scale is None else scale,
        "window": at.kind.window,
        "softcap": softcap,
    }
    mixed = attention_op(q, keys, values, at.layer, at.slot, at.position, *scales, **settings)
    flat = td.reshape(mixed, (x.shape[0], c.heads * c.head_size))
    return linear(flat, weights, "attn_output"), at


def attention_to_all(
    c: Encoder,
    weights: Weights,
    x: Array,
    at: BlockInputs,
    *,
    tables: Sequence[Array] | None = None,
    bias: Array | None = None,
    window: int = 0,
) -> tuple[Array, BlockInputs]:
    """Every token of a text looks at all of it, with a window only so far to both sides.

    tables   cos and sin of the angles of positions that turn; None: `at.shared`
    bias     what is added to scores by distance (`text_attention`)
    """
    tables = at.shared if tables is None else tables
    q, k, v = queries_keys_values(weights, x, [c.width] * 3)
    if tables:
        q, k = (td.reshape(rotate(split_heads(y, c.head_size), tables), x.shape) for y in (q, k))
    given = () if bias is None else (bias,)
    settings = {"heads": c.heads, "scale": c.head_size**-0.5, "window": window}
    mixed = text_attention(q, k, v, at.slot, *given, **settings)
    return linear(mixed, weights, "attn_output"), at


def queries_keys_values(weights: Weights, x: Array, widths: Sequence[int]) -> list[Array]:
    if "attn_qkv.weight" not in weights:
        return [linear(x, weights, name) for name in ("attn_q", "attn_k", "attn_v")]
    whole, ends = linear(x, weights, "attn_qkv"), np.cumsum(widths)
    return [
        whole[:, start:stop]
        for start, stop in zip((0, *ends[:-1].tolist()), ends.tolist(), strict=True)
    ]


def gated(weights: Weights, x: Array, activation: Any) -> Array:
    """down(activation(gate(x)) * up(x))"""
    if "ffn_gate.weight" in weights:
        gate, up = linear(x, weights, "ffn_gate"), linear(x, weights, "ffn_up")
    else:  # one matrix, the gate above the rest
        whole = linear(x, weights, "ffn_up")
        half = whole.shape[-1] // 2
        gate, up = whole[:, :half], whole[:, half:]
    return linear(activation(gate) * up, weights, "ffn_down")


def feed_forward(c: Decoder, weights: Weights, x: Array, activation: Any) -> Array:
    """Dense, or a mixture of experts, as the config says."""
    if isinstance(c.feed_forward, Gated):
        return gated(weights, x, activation)
    return mixture(c.feed_forward, weights, x)


def mixture(experts: Experts, weights: Weights, x: Array) -> Array:
    """Each token goes to its likeliest experts; what they answer is added up by their shares."""
    likelihood = nn.softmax(linear(x, weights, "ffn_gate_inp"))
    chosen = top_experts(likelihood, used=experts.used)  # [T, experts used]
    shares = td.take_along_axis(likelihood, chosen, axis=1)
    if experts.is_normalised:
        shares = shares / td.sum(shares, axis=1, keepdims=True)
    gate, up = (
        of_experts(experts, weights, name, x, chosen) for name in ("ffn_gate_exps", "ffn_up_exps")
    )
    pairs = chosen.shape[0] * experts.used
    hidden = td.reshape(nn.silu(gate) * up, (pairs, gate.shape[2]))
    answers = of_experts(experts, weights, "ffn_down_exps", hidden, td.reshape(chosen, (pairs, 1)))
    each = td.reshape(answers, (*chosen.shape, answers.shape[2]))
    return td.sum(each * shares[:, :, None], axis=1)


def of_experts(experts: Experts, weights: Weights, name: str, x: Array, chosen: Array) -> Array:
    """x times the matrices of the chosen experts: [T, experts chosen, outputs]"""
    weight = weights[f"{name}.weight"]
    rows = quantize_rows(x) if weight.dtype.is_quantized else x
    return grouped_matmul(rows, weight, chosen, experts=experts.count)  # type: ignore[no-any-return]
