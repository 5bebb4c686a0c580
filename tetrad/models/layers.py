"""Models, layers: the pieces decoders are made of, on arrays of a ragged batch.

T tokens stand side by side, each with the sequence (`slot`) it belongs to and its position there: one token of a
decoding step, a chunk of a prompt, several sequences at once are all the same to a layer. Keys and values live in
caches that a layer updates and returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import tetrad as td
from tetrad import nn
from tetrad.core.record import record
from tetrad.models.config import Config, Rope
from tetrad.ops.attention import attention as attention_op
from tetrad.ops.cache import put_cache, put_scales
from tetrad.ops.experts import expert_matmul, top_experts
from tetrad.ops.linear import row_matmul
from tetrad.ops.lowbit import lowbit_matmul, lowbit_rows, quantize_rows
from tetrad.quant.lanes import lanes_of
from tetrad.tracing.array import Array

Weights = Mapping[str, Array]


@record
class Place:
    """Where the tokens of a step stand, and the caches of all layers."""

    slot: Array  # i32[T]
    position: Array  # i32[T]
    caches: tuple[Array, ...]  # keys and values of all layers; in 8 bits also their scales


def put(place: Place, keys: Array, values: Array, layer: Array) -> Place:
    """The keys and values of the tokens [T, heads, channels], in the caches."""
    where = (layer, place.slot, place.position)
    caches = [put_cache(c, rows, *where) for c, rows in zip(place.caches, (keys, values), strict=False)]
    caches += [put_scales(c, rows, *where) for c, rows in zip(place.caches[2:], (keys, values), strict=False)]
    return Place(place.slot, place.position, tuple(caches))


def linear(x: Array, weights: Weights, name: str) -> Array:
    """x w^T + b. Rows of x are in 8 bits where the weight is a low-bit one."""
    y = product(x, weights[f"{name}.weight"])
    bias = weights.get(f"{name}.bias")
    return y if bias is None else y + bias


def product(x: Array, weight: Array, terms: int = 1) -> Array:
    if weight.dtype.is_quantized:
        return lowbit_matmul(quantize_rows(x, terms=terms), weight, terms=terms)  # type: ignore[no-any-return]
    return row_matmul(x, weight)  # type: ignore[no-any-return]


def head(x: Array, weight: Array) -> Array:
    """Logits. Rounding x to 8 bits here is a third of the error that rounding makes in a model of 8 bits, and nothing
    comes after to even it out: there a second term keeps what the first lost. Weights are read once all the same."""
    is_fine = weight.dtype.is_quantized and lanes_of(weight.dtype).format.bits == 8
    return product(x, weight, terms=2 if is_fine else 1)


def embedding(weight: Array, tokens: Array) -> Array:
    if weight.dtype.is_quantized:
        return lowbit_rows(weight, tokens)  # type: ignore[no-any-return]
    return td.take(weight, tokens, axis=0).astype(td.float32)


def rms_norm(x: Array, weight: Array, epsilon: float) -> Array:
    """x / sqrt(mean(x^2) + epsilon) * weight, along the last axis."""
    return x * td.rsqrt(td.mean(x * x, axis=-1, keepdims=True) + epsilon) * weight  # type: ignore[no-any-return]


def norm(x: Array, weights: Weights, name: str, epsilon: float) -> Array:
    """Normalised where the architecture has this norm, untouched where it has none."""
    weight = weights.get(f"{name}.weight")
    return x if weight is None else rms_norm(x, weight, epsilon)


def rope_tables(rope: Rope, position: Array) -> tuple[Array, Array]:
    """cos and sin of every token's angles: f32[T, pairs] each."""
    angles = position.astype(td.float32)[:, None] * np.array(rope.speeds, np.float32)
    return td.cos(angles) * rope.length, td.sin(angles) * rope.length


def rotate(x: Array, tables: tuple[Array, Array]) -> Array:
    """x [T, heads, channels]: channel i turns with channel i + pairs; channels past those carry no position."""
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
    config: Config, weights: Weights, x: Array, place: Place, layer: Array, tables: tuple[Array, Array], window: int
) -> tuple[Array, Place]:
    """Queries, keys and values of x; keys and values into the caches; what the queries find there."""
    q, k, v = (split_heads(part, config.head_size) for part in queries_keys_values(config, weights, x))
    q = rotate(norm(q, weights, "attn_q_norm", config.epsilon), tables)
    k = rotate(norm(k, weights, "attn_k_norm", config.epsilon), tables)
    place = put(place, k, v, layer)
    keys, values, *scales = place.caches
    settings = {"scale": config.scale, "window": window, "softcap": config.score_cap}
    mixed = attention_op(q, keys, values, layer, place.slot, place.position, *scales, **settings)
    flat = td.reshape(mixed, (x.shape[0], config.heads * config.head_size))
    return linear(flat, weights, "attn_output"), place


def queries_keys_values(config: Config, weights: Weights, x: Array) -> list[Array]:
    if "attn_qkv.weight" not in weights:
        return [linear(x, weights, name) for name in ("attn_q", "attn_k", "attn_v")]
    whole = linear(x, weights, "attn_qkv")
    ends = np.cumsum([config.heads, config.kv_heads, config.kv_heads]) * config.head_size
    return [whole[:, start:stop] for start, stop in zip((0, *ends[:-1].tolist()), ends.tolist(), strict=True)]


def gated(weights: Weights, x: Array, activation: Any) -> Array:
    """down(activation(gate(x)) * up(x))"""
    if "ffn_gate.weight" in weights:
        gate, up = linear(x, weights, "ffn_gate"), linear(x, weights, "ffn_up")
    else:  # one matrix, the gate above the rest
        whole = linear(x, weights, "ffn_up")
        half = whole.shape[-1] // 2
        gate, up = whole[:, :half], whole[:, half:]
    return linear(activation(gate) * up, weights, "ffn_down")


def mixture(config: Config, weights: Weights, x: Array) -> Array:
    """Each token goes to its likeliest experts; what they answer is added up by their shares."""
    likelihood = nn.softmax(linear(x, weights, "ffn_gate_inp"))
    chosen = top_experts(likelihood, used=config.experts_used)  # [T, experts used]
    shares = td.take_along_axis(likelihood, chosen, axis=1)
    if config.normalises_experts:
        shares = shares / td.sum(shares, axis=1, keepdims=True)
    gate, up = (of_experts(config, weights, name, x, chosen) for name in ("ffn_gate_exps", "ffn_up_exps"))
    pairs = chosen.shape[0] * config.experts_used
    hidden = td.reshape(nn.silu(gate) * up, (pairs, gate.shape[2]))
    answers = of_experts(config, weights, "ffn_down_exps", hidden, td.reshape(chosen, (pairs, 1)))
    each = td.reshape(answers, (*chosen.shape, answers.shape[2]))
    return td.sum(each * shares[:, :, None], axis=1)


def of_experts(config: Config, weights: Weights, name: str, x: Array, chosen: Array) -> Array:
    """x times the matrices of the chosen experts: [T, experts chosen, outputs]"""
    weight = weights[f"{name}.weight"]
    rows = quantize_rows(x) if weight.dtype.is_quantized else x
    return expert_matmul(rows, weight, chosen, experts=config.experts)  # type: ignore[no-any-return]
