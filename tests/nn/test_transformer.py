"""Transformer blocks against the same written out in NumPy; derivatives, packed and shared heads,
and what does not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tetrad as td

nn = td.nn
RNG = np.random.default_rng(6)
B, T, S, E, N = 2, 5, 7, 12, 3
X, MEMORY = RNG.standard_normal((B, T, E)), RNG.standard_normal((B, S, E))


def known(made: dict[str, Any]) -> dict[str, np.ndarray]:
    """The weights with noise, so that no bias is zero."""
    return {k: np.asarray(v) + 0.1 * RNG.standard_normal(v.shape) for k, v in made.items()}


ATTENTION = known(nn.multi_head_attention_init(td.random.key(0), E, num_heads=N, dtype="float64"))
LAYER = {"num_heads": N, "hidden": 20, "dtype": "float64"}
ENCODER = known(nn.transformer_encoder_layer_init(td.random.key(1), E, **LAYER))
DECODER = known(nn.transformer_decoder_layer_init(td.random.key(2), E, **LAYER))


def softmax(x: np.ndarray) -> np.ndarray:
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def attend(w: dict[str, np.ndarray], q: np.ndarray, kv: np.ndarray, causal: bool) -> np.ndarray:
    size = E // N
    parts = [
        x @ w["in_proj_weight"][i * E : (i + 1) * E].T + w["in_proj_bias"][i * E : (i + 1) * E]
        for i, x in enumerate((q, kv, kv))
    ]
    heads = [x.reshape(*x.shape[:2], N, size).swapaxes(1, 2) for x in parts]
    scores = heads[0] @ heads[1].swapaxes(-1, -2) / np.sqrt(size)
    if causal:
        hidden = np.arange(scores.shape[-1]) > np.arange(scores.shape[-2])[:, None]
        scores = np.where(hidden, -np.inf, scores)
    found = (softmax(scores) @ heads[2]).swapaxes(1, 2).reshape(q.shape)
    return found @ w["out_proj.weight"].T + w["out_proj.bias"]


def norm(w: dict[str, np.ndarray], name: str, x: np.ndarray) -> np.ndarray:
    apart = x - x.mean(-1, keepdims=True)
    scaled = apart / np.sqrt((apart**2).mean(-1, keepdims=True) + 1e-5)
    return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]


def forward(w: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    hidden = np.maximum(x @ w["linear1.weight"].T + w["linear1.bias"], 0)
    return hidden @ w["linear2.weight"].T + w["linear2.bias"]


def part(w: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    return {k.removeprefix(f"{name}."): v for k, v in w.items() if k.startswith(name)}


def layer(w: dict[str, np.ndarray], x: np.ndarray, norm_first: bool, is_decoder: bool) -> Any:
    steps = [lambda x: attend(part(w, "self_attn"), x, x, is_decoder)]
    if is_decoder:
        steps.append(lambda x: attend(part(w, "multihead_attn"), x, MEMORY, False))
    steps.append(lambda x: forward(w, x))
    for i, step in enumerate(steps, 1):
        x = x + step(norm(w, f"norm{i}", x)) if norm_first else norm(w, f"norm{i}", x + step(x))
    return x


@pytest.mark.parametrize("causal", [False, True])
def test_multi_head_attention(causal: bool) -> None:
    for kv in (None, MEMORY):
        want = attend(ATTENTION, X, X if kv is None else kv, causal)
        for form in (lambda f: f, td.jit):
            got = form(
                lambda w, x, kv=kv: nn.multi_head_attention(w, x, kv, num_heads=N, is_causal=causal)
            )(ATTENTION, X)
            np.testing.assert_allclose(np.asarray(got), want, atol=1e-12)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("is_decoder", [False, True])
def test_layers(norm_first: bool, is_decoder: bool) -> None:
    w = DECODER if is_decoder else ENCODER
    want = layer(w, X, norm_first, is_decoder)

    def run(w: Any, x: Any) -> Any:
        settings = {"num_heads": N, "norm_first": norm_first}
        if is_decoder:
            return nn.transformer_decoder_layer(w, x, MEMORY, **settings)
        return nn.transformer_encoder_layer(w, x, **settings)

    for got in (run(w, X), td.jit(run)(w, X), td.jit(lambda x: run(w, x))(X)):
        np.testing.assert_allclose(np.asarray(got), want, atol=1e-11)
    scale = RNG.standard_normal(X.shape)
    gradient = td.jit(td.grad(lambda w: td.sum(run(w, X) * scale)))(w)
    step = {k: RNG.standard_normal(v.shape) for k, v in w.items()}
    along = sum(float(np.sum(np.asarray(gradient[k]) * step[k])) for k in w)
    above, below = (
        np.sum(layer({k: v + h * step[k] for k, v in w.items()}, X, norm_first, is_decoder) * scale)
        for h in (1e-6, -1e-6)
    )
    np.testing.assert_allclose(along, (above - below) / 2e-6, rtol=1e-6, atol=1e-5)


def test_shared_heads_and_rope() -> None:
    w = nn.multi_head_attention_init(
        td.random.key(3), 16, num_heads=4, num_kv_heads=2, bias=False, dtype="float64"
    )
    assert w["k_proj_weight"].shape == (8, 16) and "in_proj_bias" not in w
    x, tables = RNG.standard_normal((B, T, 16)), nn.rope_tables(T, 4, dtype="float64")
    got = nn.multi_head_attention(w, x, num_heads=4, rope=tables, is_causal=True)
    q, k, v = (np.asarray(w[f"{n}_proj_weight"]) for n in "qkv")
    parts = [td.reshape(x @ m.T, (B, T, -1, 4)) for m in (q, k, v)]
    turned = [nn.rope(y, *tables) for y in parts[:2]]
    found = nn.dot_product_attention(*turned, parts[2], is_causal=True)
    want = np.asarray(found).reshape(B, T, 16) @ np.asarray(w["out_proj.weight"]).T
    np.testing.assert_allclose(np.asarray(got), want, atol=1e-12)


def test_gated_feed_forward_is_three_products() -> None:
    w = known(nn.gated_feed_forward_init(td.random.key(4), E, 20, bias=True, dtype="float64"))
    a, b = (X @ w[f"{n}_proj.weight"].T + w[f"{n}_proj.bias"] for n in ("gate", "up"))
    want = (a / (1 + np.exp(-a)) * b) @ w["down_proj.weight"].T + w["down_proj.bias"]
    np.testing.assert_allclose(np.asarray(nn.gated_feed_forward(w, X)), want, atol=1e-12)
    story = td.explain(lambda w, x: nn.gated_feed_forward(w, x))(w, X)
    assert len(story.kernels) == 3, [kernel.name for kernel in story.kernels]


def test_halves() -> None:
    small = {k: v.astype(np.float16) for k, v in ENCODER.items()}
    got = nn.transformer_encoder_layer(small, X.astype(np.float16), num_heads=N)
    assert got.dtype is td.float16
    np.testing.assert_allclose(
        np.asarray(got, np.float64), layer(ENCODER, X, False, False), atol=2e-2
    )


def test_what_does_not_fit() -> None:
    with pytest.raises(td.errors.TetradError, match="5 heads"):
        nn.multi_head_attention(ATTENTION, X, num_heads=5)
    with pytest.raises(td.errors.TetradError, match=r"expected out_proj.weight"):
        nn.multi_head_attention({"in_proj_weight": ATTENTION["in_proj_weight"]}, X, num_heads=N)
    with pytest.raises(td.errors.TetradError, match="activation"):
        nn.transformer_encoder_layer(ENCODER, X, num_heads=N, activation="tanhh")
    with pytest.raises(td.errors.TetradError, match=r"norm2\.weight"):
        less = {k: v for k, v in ENCODER.items() if k != "norm2.weight"}
        nn.transformer_encoder_layer(less, X, num_heads=N)
    with pytest.raises(td.errors.TetradError, match="divisor"):
        nn.multi_head_attention_init(td.random.key(0), 12, num_heads=5)
