"""What a language model must answer: GGUF metadata and tensors in, logits out, in plain NumPy.

Written for reading, independent of the package: no cache, no fusion, one line per formula, every
position at once. `against_transformers.py` beside this file compares it with the models' own code.

T positions, D width of the stream, H query heads, G key and value heads, C channels of a head, F
width of the feed-forward part, E experts, V words. Arrays have NumPy's order (rows first): GGUF
writes the same sizes reversed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

Array = np.ndarray
Metadata = Mapping[str, Any]
Tensors = Mapping[str, Array]

INTERLEAVED_ROPE = {"llama"}  # pairs (2i, 2i + 1); the others rotate pairs (i, i + half)
GEMMA = {"gemma2", "gemma3"}
ARCHITECTURES = {"llama", "qwen2", "qwen3", "qwen3moe", "phi3", *GEMMA}
# when the file does not say; other windows are on every layer
WINDOW_PERIOD = {"gemma2": 2, "gemma3": 6}
# The largest gemmas scale queries by D / H instead of C, and the file does not say so: the number
# of layers does.
SCALED_BY_WIDTH = {("gemma2", 46), ("gemma3", 62)}


@dataclass(frozen=True)
class Config:
    """The numbers of a model that the formulas need."""

    arch: str
    layers: int
    width: int  # D
    heads: int  # H
    kv_heads: int  # G
    head_size: int  # C
    epsilon: float
    query_scale: float
    window: int  # positions a windowed layer sees, itself included; 0: all of them
    window_period: int  # 0: every layer has the window; n: every layer but the last of each n
    score_cap: float  # 0: no cap
    logit_cap: float
    experts_used: int  # 0: one dense feed-forward part


@dataclass(frozen=True)
class Rope:
    """One turning speed per pair of channels (radians a position), and the length of a turned
    vector."""

    speeds: Array  # [pairs]
    length: float
    interleaved: bool


# -- the whole model -------------------------------------------------------------------------------


def forward(
    metadata: Metadata,
    tensors: Tensors,
    tokens: ArrayLike,  # [T]
    *,
    dtype: DTypeLike = np.float64,
    context: int | None = None,
) -> Array:  # [T, V]
    """Logits after each token. `context` is the length the caller prepares for (phi3 picks its rope
    factors by it); by default just these tokens."""
    config = read_config(metadata)
    weights = {name: np.asarray(tensor, dtype) for name, tensor in tensors.items()}
    tokens = np.asarray(tokens)
    ropes = read_ropes(metadata, config, weights, context or len(tokens))

    x = weights["token_embd.weight"][tokens]
    if config.arch in GEMMA:
        x = x * x.dtype.type(math.sqrt(config.width))
    for layer in range(config.layers):
        windowed = is_windowed(config, layer)
        x = block(
            config, Layer(weights, layer), ropes[windowed], config.window if windowed else 0, x
        )
    x = rms_norm(x, weights["output_norm.weight"], config.epsilon)
    return soft_cap(output_head(weights, x), config.logit_cap)


def output_head(weights: Tensors, x: Array) -> Array:
    """A file without output.weight uses its embedding twice."""
    logits = x @ weights.get("output.weight", weights["token_embd.weight"]).T
    return logits + weights["output.bias"] if "output.bias" in weights else logits


@dataclass(frozen=True)
class Layer:
    """The weights of block `index`, by their short names."""

    weights: Tensors
    index: int

    def __contains__(self, name: str) -> bool:
        return f"blk.{self.index}.{name}" in self.weights

    def __getitem__(self, name: str) -> Array:
        return self.weights[f"blk.{self.index}.{name}"]

    def linear(self, name: str, x: Array) -> Array:
        y = x @ self[f"{name}.weight"].T
        return y + self[f"{name}.bias"] if f"{name}.bias" in self else y

    def norm(self, name: str, x: Array, epsilon: float) -> Array:
        """Normalised where the architecture has this norm, untouched where it has none."""
        return rms_norm(x, self[f"{name}.weight"], epsilon) if f"{name}.weight" in self else x


def block(config: Config, layer: Layer, rope: Rope, window: int, x: Array) -> Array:
    y = layer.norm("attn_norm", x, config.epsilon)
    y = attention(config, layer, rope, window, y)
    x = x + layer.norm("post_attention_norm", y, config.epsilon)
    y = layer.norm("ffn_norm", x, config.epsilon)
    y = mixture(config, layer, y) if config.experts_used else feed_forward(config, layer, y)
    return x + layer.norm("post_ffw_norm", y, config.epsilon)


# -- attention -------------------------------------------------------------------------------------


def attention(config: Config, layer: Layer, rope: Rope, window: int, x: Array) -> Array:
    # [heads, T, C]
    q, k, v = (heads.swapaxes(0, 1) for heads in queries_keys_values(config, layer, x))
    q = rotate(rope, layer.norm("attn_q_norm", q, config.epsilon))
    k = rotate(rope, layer.norm("attn_k_norm", k, config.epsilon))
    group = config.heads // config.kv_heads  # query heads h * group ... share key head h
    k, v = np.repeat(k, group, axis=0), np.repeat(v, group, axis=0)

    # [H, T, T]
    scores = soft_cap(q @ k.swapaxes(1, 2) * q.dtype.type(config.query_scale), config.score_cap)
    seen = visible(len(x), window)
    mixed = softmax(np.where(seen, scores, -np.inf)) @ v  # [H, T, C]
    return layer.linear("attn_output", mixed.swapaxes(0, 1).reshape(len(x), -1))


def queries_keys_values(config: Config, layer: Layer, x: Array) -> tuple[Array, Array, Array]:
    """[T, H, C], [T, G, C], [T, G, C], from three matrices or from the one that phi3 stacks them
    in."""
    counts = (config.heads, config.kv_heads, config.kv_heads)
    if "attn_qkv.weight" in layer:
        ends = np.cumsum(counts)[:-1] * config.head_size
        parts = np.split(layer.linear("attn_qkv", x), ends, axis=-1)
    else:
        parts = [layer.linear(name, x) for name in ("attn_q", "attn_k", "attn_v")]
    q, k, v = (
        part.reshape(len(x), n, config.head_size) for part, n in zip(parts, counts, strict=True)
    )
    return q, k, v


def visible(length: int, window: int) -> Array:
    """[T, T]: may position i look at position j?"""
    distance = np.arange(length)[:, None] - np.arange(length)
    return (distance >= 0) & (distance < (window or length))


def is_windowed(config: Config, layer: int) -> bool:
    period = config.window_period
    return config.window > 0 and (period == 0 or layer % period < period - 1)


# -- positions -------------------------------------------------------------------------------------


def rotate(rope: Rope, x: Array, start: int = 0) -> Array:
    """x [heads, T, C]: at position p, turn pair i of the first 2 * pairs channels by the angle p *
    speeds[i]."""
    angles = (start + np.arange(x.shape[1]))[:, None] * rope.speeds
    cos, sin = ((f(angles) * rope.length).astype(x.dtype) for f in (np.cos, np.sin))
    size = 2 * len(rope.speeds)
    first, second = (
        (slice(0, size, 2), slice(1, size, 2))
        if rope.interleaved
        else (slice(0, size // 2), slice(size // 2, size))
    )
    y = x.copy()  # channels past `size` carry no position
    y[..., first] = x[..., first] * cos - x[..., second] * sin
    y[..., second] = x[..., second] * cos + x[..., first] * sin
    return y


def read_ropes(
    metadata: Metadata, config: Config, weights: Tensors, context: int
) -> tuple[Rope, Rope]:
    """(for layers that see everything, for windowed layers)."""
    key = Keys(metadata, config.arch)
    interleaved = config.arch in INTERLEAVED_ROPE
    size = key("rope.dimension_count", config.head_size)
    base = key("rope.freq_base", 10000.0)
    speeds, length = scaled(key, plain_speeds(size, base) / factors(key, weights, context), base)
    full = Rope(speeds, length, interleaved)
    if config.arch != "gemma3":
        return full, full
    return full, Rope(plain_speeds(size, key("rope.freq_base_swa", 10000.0)), 1.0, interleaved)


def plain_speeds(size: int, base: float) -> Array:
    return base ** (-np.arange(0, size, 2, dtype=np.float64) / size)


def factors(key: Keys, weights: Tensors, context: int) -> Array | float:
    """What each speed is divided by: llama 3 stores one list, phi3 one for short and one for long
    contexts."""
    if "rope_freqs.weight" in weights:
        return weights["rope_freqs.weight"].astype(np.float64)
    trained = key("rope.scaling.original_context_length", key("context_length", 0))
    name = "rope_factors_long.weight" if context > trained else "rope_factors_short.weight"
    return weights[name].astype(np.float64) if name in weights else 1.0


def scaled(key: Keys, speeds: Array, base: float) -> tuple[Array, float]:
    """(speeds, length) after `rope.scaling`: linear slows all pairs, yarn those that turn less than
    `slow` times."""
    kind, factor = key("rope.scaling.type", "linear"), key("rope.scaling.factor", 1.0)
    length = key("rope.scaling.attn_factor", 1.0)
    if kind in ("none", "longrope"):
        return speeds, length
    if kind == "linear":
        return speeds / factor, length
    if kind == "yarn":
        kept = yarn_kept(key, len(speeds), base)
        return speeds * kept + speeds / factor * (1 - kept), length * (1 + 0.1 * math.log(factor))
    raise ValueError(f"rope.scaling.type: {kind!r}, expected none, linear, longrope or yarn")


def yarn_kept(key: Keys, pairs: int, base: float) -> Array:
    """[pairs]: 1 where the plain speed stays, 0 where it is divided, a ramp between (arXiv
    2309.00071, section 3.2)."""
    trained = key("rope.scaling.original_context_length", key("context_length", 0))

    def pair_turning(times: float) -> float:
        return pairs * math.log(trained / (times * 2 * math.pi)) / math.log(base)

    low = max(math.floor(pair_turning(key("rope.scaling.yarn_beta_fast", 32.0))), 0)
    high = min(math.ceil(pair_turning(key("rope.scaling.yarn_beta_slow", 1.0))), 2 * pairs - 1)
    return 1 - np.clip((np.arange(pairs) - low) / max(high - low, 0.001), 0, 1)


# -- feed-forward ----------------------------------------------------------------------------------


def feed_forward(config: Config, layer: Layer, x: Array) -> Array:
    if "ffn_gate.weight" in layer:
        gate, up = layer.linear("ffn_gate", x), layer.linear("ffn_up", x)
    else:  # phi3 stacks the gate above the rest
        gate, up = np.split(layer.linear("ffn_up", x), 2, axis=-1)
    activation = gelu_tanh if config.arch in GEMMA else silu
    return layer.linear("ffn_down", activation(gate) * up)


def mixture(config: Config, layer: Layer, x: Array) -> Array:
    """Each position goes to its `experts_used` likeliest experts; their shares sum to one."""
    chosen, shares = route(layer.linear("ffn_gate_inp", x), config.experts_used)
    # [E, F, D] twice, [E, D, F]
    gate, up, down = (layer[f"ffn_{part}_exps.weight"] for part in ("gate", "up", "down"))
    y = np.zeros_like(x)
    for t, e in np.ndindex(chosen.shape):
        expert = chosen[t, e]
        hidden = silu(gate[expert] @ x[t]) * (up[expert] @ x[t])
        y[t] += shares[t, e] * (down[expert] @ hidden)
    return y


def route(logits: Array, used: int) -> tuple[Array, Array]:
    """(experts [T, used], shares [T, used])."""
    likelihood = softmax(logits)
    chosen = np.argsort(-likelihood, axis=-1, kind="stable")[:, :used]
    shares = np.take_along_axis(likelihood, chosen, axis=-1)
    return chosen, shares / shares.sum(axis=-1, keepdims=True)


# -- formulas --------------------------------------------------------------------------------------


def rms_norm(x: Array, weight: Array, epsilon: float) -> Array:
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + x.dtype.type(epsilon)) * weight


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def soft_cap(x: Array, cap: float) -> Array:
    return x.dtype.type(cap) * np.tanh(x / x.dtype.type(cap)) if cap else x


def silu(x: Array) -> Array:
    return x / 2 * (1 + np.tanh(x / 2))  # x / (1 + exp(-x)), which overflows


def gelu_tanh(x: Array) -> Array:
    root = x.dtype.type(math.sqrt(2 / math.pi))
    return x / 2 * (1 + np.tanh(root * (x + x.dtype.type(0.044715) * x**3)))


# -- metadata --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Keys:
    """`key("rope.freq_base", 10000.0)` is metadata["llama.rope.freq_base"] of a llama, or the
    default."""

    metadata: Metadata
    arch: str

    def __call__(self, name: str, default: Any = None) -> Any:
        value = self.metadata.get(f"{self.arch}.{name}", default)
        if value is None:
            raise KeyError(f"{self.arch}.{name} is missing in the metadata")
        return value


def read_config(metadata: Metadata) -> Config:
    arch = metadata["general.architecture"]
    if arch not in ARCHITECTURES:
        raise ValueError(
            f"general.architecture: {arch!r}, expected one of {', '.join(sorted(ARCHITECTURES))}"
        )
    key = Keys(metadata, arch)
    width, heads, layers = key("embedding_length"), key("attention.head_count"), key("block_count")
    head_size = key("attention.key_length", width // heads)
    scaled_by = width // heads if (arch, layers) in SCALED_BY_WIDTH else head_size
    return Config(
        arch=arch,
        layers=layers,
        width=width,
        heads=heads,
        kv_heads=key("attention.head_count_kv", heads),
        head_size=head_size,
        epsilon=key("attention.layer_norm_rms_epsilon"),
        query_scale=1 / math.sqrt(scaled_by),
        window=key("attention.sliding_window", 0),
        window_period=key("attention.sliding_window_pattern", WINDOW_PERIOD.get(arch, 0)),
        score_cap=key("attn_logit_softcapping", 0.0),
        logit_cap=key("final_logit_softcapping", 0.0),
        experts_used=key("expert_used_count", 0),
    )
