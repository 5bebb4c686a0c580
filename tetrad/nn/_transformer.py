"""Transformer blocks, as `td.nn.multi_head_attention`, `transformer_encoder_layer`,
`transformer_decoder_layer` and `gated_feed_forward`: plain functions of weights, which are named as
PyTorch and Hugging Face name them, and arrays.

Receives weights, x [batch, time, size] and what hides keys; returns arrays like x. `td.nn` loads
this module when it is first used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tetrad import nn, random
from tetrad.arrays import functions as td
from tetrad.core.dtypes import as_dtype
from tetrad.core.errors import SettingError, ShapeError
from tetrad.nn import initializers
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import as_array

Weights = Mapping[str, Any]
ACTIVATIONS: dict[str, Callable[[Any], Array]] = {
    "relu": nn.relu,
    "gelu": lambda x: nn.gelu(x, approximate=False),
    "gelu_tanh": nn.gelu,
    "silu": nn.silu,
}
PROJECTIONS = ("q_proj_weight", "k_proj_weight", "v_proj_weight")


# -- attention -------------------------------------------------------------------------------------


def multi_head_attention(
    weights: Weights,
    query: Any,
    key: Any = None,
    value: Any = None,
    *,
    num_heads: int,
    rope: tuple[Any, Any] | None = None,
    **settings: Any,
) -> Array:
    """Attention of projected queries to projected keys and values, projected again.

    `weights` has the names of `torch.nn.MultiheadAttention`: in_proj_weight [3 size, size] or
    q_proj_weight, k_proj_weight and v_proj_weight [heads * head, inputs] (of fewer heads for keys
    and values, if these are shared by groups of queries), in_proj_bias, out_proj.weight,
    out_proj.bias; biases may be missing. Arrays are [batch, time, inputs]; without `key` it is
    self-attention. `rope` is tables for queries and keys; further settings are those of
    `dot_product_attention`.

    >>> import tetrad as td
    >>> weights = td.nn.multi_head_attention_init(td.random.key(0), 32, num_heads=4)
    >>> x = td.ones((2, 10, 32))
    >>> td.nn.multi_head_attention(weights, x, num_heads=4, is_causal=True).shape
    (2, 10, 32)
    """
    _check_names("multi_head_attention", weights, _attention_names(weights))
    keys_are_queries, values_are_keys = key is None or key is query, value is None or value is key
    query = as_array(query)
    key = query if keys_are_queries else as_array(key)
    value = key if values_are_keys else as_array(value)
    parts = _projected(weights, (query, key, value))
    size = _head_size(weights, parts[0], num_heads)
    q, k, v = (td.reshape(x, (*x.shape[:-1], x.shape[-1] // size, size)) for x in parts)
    if rope is not None:
        q, k = nn.rope(q, *rope), nn.rope(k, *rope)
    found = nn.dot_product_attention(q, k, v, **settings)
    joined = td.reshape(found, (*query.shape[:-1], found.shape[-2] * found.shape[-1]))
    return nn.linear(joined, weights["out_proj.weight"], weights.get("out_proj.bias"))


def _attention_names(weights: Weights) -> tuple[str, ...]:
    parts = ("in_proj_weight",) if "in_proj_weight" in weights else PROJECTIONS
    return (*parts, "out_proj.weight")


def _projected(weights: Weights, given: tuple[Array, Array, Array]) -> list[Array]:
    """Queries, keys and values; one product where all are of one array."""
    bias = weights.get("in_proj_bias")
    bias = None if bias is None else as_array(bias)
    whole = weights.get("in_proj_weight")
    if whole is not None:
        whole = as_array(whole)
        ends = _ends([whole.shape[0] // 3] * 3)
        if given[0] is given[1] is given[2]:
            together = nn.linear(given[0], whole, bias)
            return [together[..., start:stop] for start, stop in ends]
        matrices = [whole[start:stop] for start, stop in ends]
    else:
        matrices = [as_array(weights[name]) for name in PROJECTIONS]
        ends = _ends([matrix.shape[0] for matrix in matrices])
    biases = [None if bias is None else bias[start:stop] for start, stop in ends]
    return [nn.linear(x, w, b) for x, w, b in zip(given, matrices, biases, strict=True)]


def _ends(sizes: list[int]) -> list[tuple[int, int]]:
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return [(start, start + size) for start, size in zip(starts, sizes, strict=True)]


def _head_size(weights: Weights, q: Array, num_heads: int) -> int:
    size, rest = divmod(q.shape[-1], num_heads) if num_heads > 0 else (0, 1)
    if rest:
        message = f"multi_head_attention: {q.shape[-1]} channels have no {num_heads} heads"
        fail(ShapeError, message, "num_heads divides the rows of in_proj_weight / 3")
    return size


def multi_head_attention_init(
    key: Any, size: int, *, num_heads: int, num_kv_heads: int | None = None, bias: bool = True,
    dtype: Any = float,
) -> dict[str, Array]:  # fmt: skip
    """Weights of `multi_head_attention`: Glorot's uniform ones, biases zero. Fewer `num_kv_heads`
    are shared by groups of query heads."""
    if num_heads < 1 or size % num_heads:
        raise SettingError(
            "multi_head_attention_init: num_heads", f"a divisor of {size}", num_heads
        )
    groups = num_heads if num_kv_heads is None else num_kv_heads
    if groups < 1 or num_heads % groups:
        raise SettingError(
            "multi_head_attention_init: num_kv_heads", f"a divisor of {num_heads}", num_kv_heads
        )
    rows = (size, size // num_heads * groups, size // num_heads * groups)
    keys = random.split(key, 4)
    made = [_matrix(keys[i], n, size, dtype) for i, n in enumerate(rows)]
    weights = (
        {"in_proj_weight": td.concat(made, axis=0)}
        if groups == num_heads
        else dict(zip(PROJECTIONS, made, strict=True))
    )
    weights["out_proj.weight"] = _matrix(keys[3], size, size, dtype)
    if bias:
        weights["in_proj_bias"] = td.zeros(sum(rows), dtype=as_dtype(dtype))
        weights["out_proj.bias"] = td.zeros(size, dtype=as_dtype(dtype))
    return weights


def _matrix(key: Any, outputs: int, inputs: int, dtype: Any) -> Array:
    return initializers.glorot_uniform(in_axis=-1, out_axis=-2)(
        key, (outputs, inputs), as_dtype(dtype)
    )


# -- feed-forward ----------------------------------------------------------------------------------


def gated_feed_forward(weights: Weights, x: Any, *, activation: str = "silu") -> Array:
    """down(activation(gate(x)) * up(x)), as Llama has it.

    `weights` has gate_proj.weight and up_proj.weight [hidden, size], down_proj.weight [size,
    hidden], and the same with .bias, which may be missing.

    >>> import tetrad as td
    >>> weights = td.nn.gated_feed_forward_init(td.random.key(0), 16, 40)
    >>> td.nn.gated_feed_forward(weights, td.ones((2, 5, 16))).shape
    (2, 5, 16)
    """
    names = tuple(f"{part}_proj.weight" for part in ("gate", "up", "down"))
    _check_names("gated_feed_forward", weights, names)
    hidden = _activation(activation)(_linear(weights, "gate_proj", x)) * _linear(
        weights, "up_proj", x
    )
    return _linear(weights, "down_proj", hidden)


def gated_feed_forward_init(
    key: Any, size: int, hidden: int, *, bias: bool = False, dtype: Any = float
) -> dict[str, Array]:
    """Weights of `gated_feed_forward`: Glorot's uniform ones."""
    keys, shapes = (
        random.split(key, 3),
        {"gate": (hidden, size), "up": (hidden, size), "down": (size, hidden)},
    )
    made = {
        f"{name}_proj.weight": _matrix(keys[i], *shape, dtype)
        for i, (name, shape) in enumerate(shapes.items())
    }
    if bias:
        made |= {f"{n}_proj.bias": td.zeros(s[0], dtype=as_dtype(dtype)) for n, s in shapes.items()}
    return made


def _linear(weights: Weights, name: str, x: Any) -> Array:
    return nn.linear(x, weights[f"{name}.weight"], weights.get(f"{name}.bias"))


def _activation(name: str) -> Callable[[Any], Array]:
    if name not in ACTIVATIONS:
        raise SettingError("activation", "one of " + ", ".join(ACTIVATIONS), name)
    return ACTIVATIONS[name]


# -- layers ----------------------------------------------------------------------------------------


def transformer_encoder_layer(
    weights: Weights, x: Any, *, num_heads: int, norm_first: bool = False,
    activation: str = "relu", eps: float = 1e-5, **settings: Any,
) -> Array:  # fmt: skip
    """Self-attention and a feed-forward, each with a residual and a norm.

    `weights` has the names of `torch.nn.TransformerEncoderLayer`: self_attn. with those of
    `multi_head_attention`, linear1., linear2., norm1. and norm2. with weight and bias. The norm
    comes after the residual is added, or `norm_first` before attention and feed-forward. Further
    settings are those of `multi_head_attention`.

    >>> import tetrad as td
    >>> weights = td.nn.transformer_encoder_layer_init(td.random.key(0), 32, num_heads=4, hidden=64)
    >>> td.nn.transformer_encoder_layer(weights, td.ones((2, 7, 32)), num_heads=4).shape
    (2, 7, 32)
    """
    layer = _Layer(weights, norm_first, activation, eps)
    x = layer.around(
        "norm1",
        as_array(x),
        lambda x: multi_head_attention(
            part(weights, "self_attn"), x, num_heads=num_heads, **settings
        ),
    )
    return layer.around("norm2", x, layer.feed_forward)


def transformer_decoder_layer(
    weights: Weights, x: Any, memory: Any, *, num_heads: int, norm_first: bool = False,
    activation: str = "relu", eps: float = 1e-5, is_causal: bool | str = True,
    memory_settings: Mapping[str, Any] | None = None, **settings: Any,
) -> Array:  # fmt: skip
    """Self-attention, attention to `memory` [batch, time, size], and a feed-forward.

    As `transformer_encoder_layer`, with the names of `torch.nn.TransformerDecoderLayer`: also
    multihead_attn. and norm3. `settings` are those of self-attention, which is causal;
    `memory_settings` those of the attention to memory.

    >>> import tetrad as td
    >>> weights = td.nn.transformer_decoder_layer_init(td.random.key(0), 32, num_heads=4, hidden=64)
    >>> x, memory = td.ones((2, 7, 32)), td.ones((2, 9, 32))
    >>> td.nn.transformer_decoder_layer(weights, x, memory, num_heads=4).shape
    (2, 7, 32)
    """
    layer = _Layer(weights, norm_first, activation, eps)
    own, other = part(weights, "self_attn"), part(weights, "multihead_attn")
    asked = {"num_heads": num_heads, **(memory_settings or {})}
    settings = {"num_heads": num_heads, "is_causal": is_causal, **settings}
    x = layer.around("norm1", as_array(x), lambda x: multi_head_attention(own, x, **settings))
    x = layer.around("norm2", x, lambda x: multi_head_attention(other, x, memory, **asked))
    return layer.around("norm3", x, layer.feed_forward)


class _Layer:
    """What layers share: a residual with a norm before or after, and the feed-forward."""

    def __init__(self, weights: Weights, norm_first: bool, activation: str, eps: float) -> None:
        self.weights, self.norm_first, self.eps = weights, norm_first, eps
        self.activation = _activation(activation)
        _check_names("transformer layer", weights, ("linear1.weight", "linear2.weight"))

    def around(self, norm: str, x: Array, work: Callable[[Array], Array]) -> Array:
        if self.norm_first:
            return x + work(self.normed(norm, x))  # type: ignore[no-any-return]
        return self.normed(norm, x + work(x))

    def normed(self, name: str, x: Array) -> Array:
        _check_names("transformer layer", self.weights, (f"{name}.weight",))
        bias = self.weights.get(f"{name}.bias")
        return nn.layer_norm(x, self.weights[f"{name}.weight"], bias, eps=self.eps)

    def feed_forward(self, x: Array) -> Array:
        return _linear(
            self.weights, "linear2", self.activation(_linear(self.weights, "linear1", x))
        )


def part(weights: Weights, name: str) -> dict[str, Any]:
    """The weights whose names begin with this one and a dot, without it."""
    start = f"{name}."
    return {key[len(start) :]: value for key, value in weights.items() if key.startswith(start)}


def _check_names(who: str, weights: Weights, names: tuple[str, ...]) -> None:
    missing = [name for name in names if name not in weights]
    if missing:
        raise SettingError(f"{who}: weights", ", ".join(missing), sorted(weights))


def transformer_encoder_layer_init(
    key: Any, size: int, *, num_heads: int, hidden: int, bias: bool = True, dtype: Any = float
) -> dict[str, Array]:
    """Weights of `transformer_encoder_layer`."""
    return _layer_init(key, size, num_heads, hidden, ("self_attn",), bias, dtype)


def transformer_decoder_layer_init(
    key: Any, size: int, *, num_heads: int, hidden: int, bias: bool = True, dtype: Any = float
) -> dict[str, Array]:
    """Weights of `transformer_decoder_layer`."""
    return _layer_init(key, size, num_heads, hidden, ("self_attn", "multihead_attn"), bias, dtype)


def _layer_init(
    key: Any, size: int, num_heads: int, hidden: int, attentions: tuple[str, ...], bias: bool,
    dtype: Any,
) -> dict[str, Array]:  # fmt: skip
    keys, dtype = random.split(key, len(attentions) + 2), as_dtype(dtype)
    made: dict[str, Array] = {}
    for i, name in enumerate(attentions):
        own = multi_head_attention_init(keys[i], size, num_heads=num_heads, bias=bias, dtype=dtype)
        made |= {f"{name}.{key}": value for key, value in own.items()}
    for i, (name, outputs, inputs) in enumerate(
        (("linear1", hidden, size), ("linear2", size, hidden))
    ):
        made[f"{name}.weight"] = _matrix(keys[len(attentions) + i], outputs, inputs, dtype)
        if bias:
            made[f"{name}.bias"] = td.zeros(outputs, dtype=dtype)
    for i in range(1, len(attentions) + 2):
        made[f"norm{i}.weight"] = td.ones(size, dtype=dtype)
        if bias:
            made[f"norm{i}.bias"] = td.zeros(size, dtype=dtype)
    return made
