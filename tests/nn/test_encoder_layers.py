"""Attention block, post-norm encoder layer and the gated layer of Nomic: the golden data of the
specification, composed of public functions, eager and compiled, f64 and f32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tetrad as td

nn = td.nn
HEADS, SIZE, S = 2, 4, 3
H, I = HEADS * SIZE, 8  # noqa: E741
MASK = np.array([[True, True, False]])
TYPES = [("float64", 2e-6), ("float32", 1e-5)]


def fill(shape: tuple[int, ...], seed: int, dtype: str) -> np.ndarray:
    i = np.arange(np.prod(shape), dtype=np.float64)
    return (0.5 * np.sin(seed + 0.13 * i * i)).reshape(shape).astype(dtype)


def weights(dtype: str) -> dict[str, np.ndarray]:
    sizes: dict[str, tuple[tuple[int, ...], int]] = {
        "hidden": ((1, S, H), 0), "qkv": ((H, 3 * H), 1), "out": ((H, H), 2),
        "qkv_b": ((3 * H,), 3), "out_b": ((H,), 4), "g1": ((H,), 5), "b1": ((H,), 6),
        "fc1": ((H, I), 7), "fc1_b": ((I,), 8),
        "fc2": ((I, H), 9), "fc2_b": ((H,), 10), "g2": ((H,), 11), "b2": ((H,), 12),
        "fc": ((H, 2 * I), 7),
    }  # fmt: skip
    made = {name: fill(shape, seed, dtype) for name, (shape, seed) in sizes.items()}
    return {**made, "g1": 1 + made["g1"], "g2": 1 + made["g2"]}


def block(x: Any, w: dict[str, Any], *, has_bias: bool, has_rope: bool) -> Any:
    qkv = x @ w["qkv"] + (w["qkv_b"] if has_bias else 0)
    q, k, v = (td.reshape(qkv[..., i * H : (i + 1) * H], (1, S, HEADS, SIZE)) for i in range(3))
    if has_rope:
        cos, sin = nn.rope_tables(S, SIZE, dtype=x.dtype)
        q, k = nn.rope(q, cos, sin), nn.rope(k, cos, sin)
    found = nn.dot_product_attention(q, k, v, mask=MASK[:, None, None])
    out = td.reshape(found, x.shape) @ w["out"]
    return out + w["out_b"] if has_bias else out


def bert(x: Any, w: dict[str, Any]) -> Any:
    x = nn.layer_norm(block(x, w, has_bias=True, has_rope=False) + x, w["g1"], w["b1"], eps=1e-12)
    hidden = nn.gelu(x @ w["fc1"] + w["fc1_b"], approximate=False)
    return nn.layer_norm(hidden @ w["fc2"] + w["fc2_b"] + x, w["g2"], w["b2"], eps=1e-12)


def nomic(x: Any, w: dict[str, Any]) -> Any:
    x = nn.layer_norm(block(x, w, has_bias=False, has_rope=True) + x, w["g1"], w["b1"], eps=1e-12)
    both = x @ w["fc"]
    hidden = both[..., :I] * nn.silu(both[..., I:])
    return nn.layer_norm(hidden @ w["fc2"] + x, w["g2"], w["b2"], eps=1e-12)


GOLDEN: dict[str, tuple[Any, dict[int, str]]] = {
    "block with biases": (
        lambda x, w: block(x, w, has_bias=True, has_rope=False),
        {
            0: "-0.816747 -0.443597 -0.830348 -0.322758 -0.33219 0.932119 0.027136 -0.238242",
            2: "-0.819458 -0.441304 -0.834643 -0.321029 -0.337446 0.940637 0.02401 -0.233917",
        },
    ),
    "block with rope": (
        lambda x, w: block(x, w, has_bias=False, has_rope=True),
        {
            0: "0.017703 -0.031596 -0.032964 0.058732 -0.005752 0.054766 -0.067891 -0.008171",
            2: "0.02082 -0.033829 -0.028962 0.057935 -0.001004 0.046659 -0.065716 -0.012175",
        },
    ),
    "bert": (
        bert,
        {
            0: "-0.382091 -0.190156 -0.413517 -0.62853 -1.066121 2.984831 0.629365 -0.036594",
            1: "-0.273908 -0.470433 -0.204515 -0.646499 -0.653644 2.780114 1.161188 -0.401049",
            2: "-0.163464 -0.261848 -0.628539 -0.71568 -0.576808 2.763751 0.883171 -0.188961",
        },
    ),
    "nomic": (
        nomic,
        {
            0: "-0.344101 -0.381383 0.221896 1.293634 2.311266 -0.392002 -2.371843 -0.385367",
            1: "0.198068 -1.085923 0.209613 0.836533 1.016856 1.638202 -0.519852 -1.009663",
            2: "-0.285704 -0.46858 -0.665518 0.469657 2.811051 2.083626 -1.400973 -0.571605",
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize(("dtype", "atol"), TYPES)
@pytest.mark.parametrize("name", GOLDEN)
def test_golden_data(name: str, dtype: str, atol: float) -> None:
    function, rows = GOLDEN[name]
    known = weights(dtype)
    x = known["hidden"]
    constant = td.jit(lambda x: function(x, known))
    for got in (function(td.asarray(x), known), td.jit(function)(x, known), constant(x)):
        for row, want in rows.items():
            np.testing.assert_allclose(np.asarray(got)[0, row], np.float64(want.split()), atol=atol)


@pytest.mark.parametrize("name", GOLDEN)
def test_gradients_are_finite_differences(name: str) -> None:
    function = GOLDEN[name][0]
    known = weights("float64")
    scale = np.random.default_rng(0).standard_normal((1, S, H))

    def weighted(w: dict[str, Any]) -> Any:
        return td.sum(function(w["hidden"], w) * scale)

    gradient = td.jit(td.grad(weighted))(known)
    rng = np.random.default_rng(1)
    step = {key: rng.standard_normal(w.shape) for key, w in known.items()}
    along = sum(float(np.sum(np.asarray(gradient[key]) * step[key])) for key in known)
    above, below = (
        float(weighted({key: td.asarray(w + h * step[key]) for key, w in known.items()}))
        for h in (1e-6, -1e-6)
    )
    np.testing.assert_allclose(along, (above - below) / 2e-6, atol=1e-6, rtol=1e-6)
