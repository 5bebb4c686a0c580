"""Small random encoders as a GGUF file would hold them, and their forward pass in NumPy, in f64."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.models.tiny import fan, near, normal

Array = np.ndarray
WORDS = [
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁the", "▁a", "▁cat", "▁dog", "▁sat", "▁ran", "▁on", "▁mat",
    "▁fast", "▁slow",
    "s", "ing", "ed", "ly", *(f"▁{c}" for c in "abcdefghij"), *"klmnopqrstuvwxyz",
]  # fmt: skip
CLS, SEP = 2, 3
EPSILON = 1e-5


def tiny_encoder(
    arch: str,
    seed: int = 0,
    *,
    layers: int = 2,
    width: int = 64,
    heads: int = 4,
    hidden: int = 96,
    context: int = 128,
) -> tuple[dict[str, Any], dict[str, Array]]:
    """`arch` is bert or nomic-bert: metadata and tensors by the names that llama.cpp's converter
    gives them."""
    own = {
        "block_count": layers, "context_length": context, "embedding_length": width,
        "feed_forward_length": hidden,
        "attention.head_count": heads, "attention.layer_norm_epsilon": EPSILON,
        "attention.causal": False,
        "pooling_type": 1, **({"rope.freq_base": 1000.0} if arch == "nomic-bert" else {}),
    }  # fmt: skip
    metadata = {"general.architecture": arch, "general.name": f"tiny-{arch}", **tokenizer_keys()}
    rng = np.random.RandomState(seed)
    tensors = dict(outer_tensors(arch, rng, width, context))
    for i in range(layers):
        make = bert_block if arch == "bert" else nomic_block
        tensors |= {f"blk.{i}.{name}": tensor for name, tensor in make(rng, width, hidden)}
    return metadata | {f"{arch}.{key}": value for key, value in own.items()}, tensors


def tokenizer_keys() -> dict[str, Any]:
    return {
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.tokens": WORDS,
        "tokenizer.ggml.token_type": [3, 3, 3, 3] + [1] * (len(WORDS) - 4),
        "tokenizer.ggml.token_type_count": 2,
        "tokenizer.ggml.unknown_token_id": 1,
        "tokenizer.ggml.cls_token_id": CLS,
        "tokenizer.ggml.bos_token_id": CLS,
        "tokenizer.ggml.seperator_token_id": SEP,
        "tokenizer.ggml.padding_token_id": 0,
    }


def outer_tensors(
    arch: str, rng: np.random.RandomState, width: int, context: int
) -> Iterator[tuple[str, Array]]:
    yield "token_embd.weight", normal(rng, len(WORDS), width, scale=1.0)
    yield "token_types.weight", normal(rng, 2, width, scale=0.5)
    if arch == "bert":
        yield "position_embd.weight", normal(rng, context, width, scale=0.5)
    yield from norm_tensors(rng, "token_embd_norm", width)


def norm_tensors(rng: np.random.RandomState, name: str, width: int) -> Iterator[tuple[str, Array]]:
    yield f"{name}.weight", near(rng, 1.0, width)
    yield f"{name}.bias", near(rng, 0.0, width)


def linear_tensors(
    rng: np.random.RandomState, name: str, rows: int, columns: int, bias: bool, gain: float = 1.0
) -> Iterator[tuple[str, Array]]:
    yield f"{name}.weight", normal(rng, rows, columns, scale=gain * fan(columns))
    if bias:
        yield f"{name}.bias", near(rng, 0.0, rows)


def bert_block(rng: np.random.RandomState, width: int, hidden: int) -> Iterator[tuple[str, Array]]:
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        yield from linear_tensors(rng, name, width, width, True, 1.5)
    yield from norm_tensors(rng, "attn_output_norm", width)
    yield from linear_tensors(rng, "ffn_up", hidden, width, True)
    yield from linear_tensors(rng, "ffn_down", width, hidden, True)
    yield from norm_tensors(rng, "layer_output_norm", width)


def nomic_block(rng: np.random.RandomState, width: int, hidden: int) -> Iterator[tuple[str, Array]]:
    yield from linear_tensors(rng, "attn_qkv", 3 * width, width, False, 1.5)
    yield from linear_tensors(rng, "attn_output", width, width, False)
    yield from norm_tensors(rng, "attn_output_norm", width)
    for name in ("ffn_gate", "ffn_up"):
        yield from linear_tensors(rng, name, hidden, width, False)
    yield from linear_tensors(rng, "ffn_down", width, hidden, False)
    yield from norm_tensors(rng, "layer_output_norm", width)


# -- the forward pass ------------------------------------------------------------------------------


def forward(metadata: dict[str, Any], tensors: dict[str, Array], tokens: Array) -> Array:
    """Hidden states [tokens, width] of one text."""
    arch = metadata["general.architecture"]
    x = tensors["token_embd.weight"][tokens].astype(np.float64) + tensors["token_types.weight"][0]
    if arch == "bert":
        x = x + tensors["position_embd.weight"][: len(tokens)]
    x = layer_norm(x, tensors, "token_embd_norm", metadata[f"{arch}.attention.layer_norm_epsilon"])
    for i in range(metadata[f"{arch}.block_count"]):
        x = block(metadata, arch, tensors, f"blk.{i}.", x)
    return x


def block(
    metadata: dict[str, Any], arch: str, tensors: dict[str, Array], at: str, x: Array
) -> Array:
    epsilon, heads = (
        metadata[f"{arch}.attention.{key}"] for key in ("layer_norm_epsilon", "head_count")
    )
    y = linear(attend(metadata, arch, tensors, at, x, heads), tensors, f"{at}attn_output")
    x = layer_norm(x + y, tensors, f"{at}attn_output_norm", epsilon)
    y = linear(x, tensors, f"{at}ffn_up")
    if arch == "bert":
        y = y * (1 + np.vectorize(math.erf)(y / math.sqrt(2))) / 2
    else:
        gate = linear(x, tensors, f"{at}ffn_gate")
        y = y * gate / (1 + np.exp(-gate))
    return layer_norm(
        x + linear(y, tensors, f"{at}ffn_down"), tensors, f"{at}layer_output_norm", epsilon
    )


def attend(
    metadata: dict[str, Any], arch: str, tensors: dict[str, Array], at: str, x: Array, heads: int
) -> Array:
    if arch == "bert":
        parts = [linear(x, tensors, f"{at}{name}") for name in ("attn_q", "attn_k", "attn_v")]
    else:
        parts = np.split(linear(x, tensors, f"{at}attn_qkv"), 3, axis=1)
    # [heads, tokens, channels]
    q, k, v = (part.reshape(len(x), heads, -1).swapaxes(0, 1) for part in parts)
    if arch == "nomic-bert":
        q, k = (turn(part, metadata["nomic-bert.rope.freq_base"]) for part in (q, k))
    scores = q @ k.swapaxes(1, 2) / math.sqrt(q.shape[2])
    powers = np.exp(scores - scores.max(axis=2, keepdims=True))
    mixed = powers / powers.sum(axis=2, keepdims=True) @ v
    return np.asarray(mixed.swapaxes(0, 1).reshape(x.shape))


def turn(x: Array, base: float) -> Array:
    pairs = x.shape[2] // 2
    angles = np.arange(x.shape[1])[:, None] * base ** (-np.arange(pairs) / pairs)
    first, second = x[..., :pairs], x[..., pairs:]
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=2)


def linear(x: Array, tensors: dict[str, Array], name: str) -> Array:
    bias = tensors.get(f"{name}.bias")
    y = x @ tensors[f"{name}.weight"].astype(np.float64).T
    return y if bias is None else y + bias


def layer_norm(x: Array, tensors: dict[str, Array], name: str, epsilon: float) -> Array:
    apart = x - x.mean(axis=1, keepdims=True)
    scaled = apart / np.sqrt((apart**2).mean(axis=1, keepdims=True) + epsilon)
    return np.asarray(scaled * tensors[f"{name}.weight"] + tensors[f"{name}.bias"])
