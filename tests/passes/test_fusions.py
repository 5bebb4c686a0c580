"""passes.fusions: every named fusion fires where it should, with the same bits as turned off, and
does not where a value has another reader or is an output."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.compiler.pipeline import optimise
from tetrad.core.flags import FUSIONS
from tetrad.passes.fuse import fuse
from tetrad.passes.fusions import FusionOutcome

RNG = np.random.default_rng(4)
B, S, H, N, I = 2, 6, 32, 4, 48  # noqa: E741


def normal(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) * 0.3).astype(np.float32)


X, MASK = normal(B, S, H), np.arange(S) < np.array([[4], [6]])
W = {
    **{name: normal(H, H) for name in ("q", "k", "v", "out")},
    "up": normal(I, H), "gate": normal(I, H), "both": normal(2 * I, H), "down": normal(H, I),
}  # fmt: skip
BIAS = {name: w[:, 0] for name, w in W.items()}
RESIDUAL = normal(B, S, H)
NORM = (1 + normal(H), normal(H))
nn = td.nn


def linear(x: Any, name: str) -> Any:
    return nn.linear(x, W[name], BIAS[name])


def heads(x: Any) -> Any:
    return td.reshape(x, (*x.shape[:-1], N, H // N))


def attend(x: Any, **settings: Any) -> Any:
    q, k, v = (heads(linear(x, name)) for name in "qkv")
    return td.reshape(nn.dot_product_attention(q, k, v, **settings), x.shape)


def block(x: Any, **settings: Any) -> Any:
    return linear(attend(x, **settings), "out")


def bert(x: Any) -> Any:
    x = nn.layer_norm(block(x, mask=MASK[:, None, None]) + x, *NORM)
    hidden = nn.gelu(linear(x, "up"), approximate=False)
    return nn.layer_norm(linear(hidden, "down") + x, *NORM)


def bert_residual_first(x: Any) -> Any:
    x = nn.layer_norm(x + block(x, mask=MASK[:, None, None]), *NORM)
    hidden = nn.gelu(linear(x, "up"), approximate=False)
    return nn.layer_norm(x + linear(hidden, "down"), *NORM)


def nomic(x: Any) -> Any:
    cos, sin = nn.rope_tables(S, H // N)
    q, k, v = (heads(nn.linear(x, W[name])) for name in "qkv")
    q, k = (nn.rope(y, cos, sin) for y in (q, k))
    found = nn.dot_product_attention(q, k, v, mask=MASK[:, None, None])
    x = nn.layer_norm(nn.linear(td.reshape(found, x.shape), W["out"]) + x, *NORM)
    whole = nn.linear(x, W["both"])
    hidden = whole[..., :I] * nn.silu(whole[..., I:])
    return nn.layer_norm(nn.linear(hidden, W["down"]) + x, *NORM)


def bert_and_queries(x: Any) -> Any:
    whole = x @ np.concatenate([W[name] for name in "qkv"], axis=1)
    q, k, v = (heads(whole[..., i * H : (i + 1) * H]) for i in range(3))
    found = td.reshape(nn.dot_product_attention(q, k, v), x.shape)
    x = nn.layer_norm(linear(found, "out") + x, *NORM)
    return q, nn.layer_norm(linear(nn.gelu(linear(x, "up")), "down") + x, *NORM)


def swiglu(x: Any) -> Any:
    return nn.silu(linear(x, "gate")) * linear(x, "up")


def halves(x: Any) -> Any:
    whole = linear(x, "both")
    return whole[..., :I] * nn.silu(whole[..., I:])


def rotated(x: Any) -> Any:
    cos, sin = nn.rope_tables(S, H // N)
    whole = x @ np.concatenate([W[name] for name in "qkv"], axis=1)
    q, k, v = (heads(whole[..., i * H : (i + 1) * H]) for i in range(3))
    return nn.dot_product_attention(nn.rope(q, cos, sin), nn.rope(k, cos, sin), v, is_causal=True)


FIRING: dict[str, list[Callable[[Any], Any]]] = {
    "bias_activation": [
        lambda x: nn.gelu(linear(x, "up")),
        lambda x: td.tanh(td.matmul(td.reshape(x, (-1, H)), W["q"])),
    ],
    "residual_norm": [
        lambda x: nn.layer_norm(RESIDUAL + x, *NORM),
        lambda x: nn.rms_norm(linear(x, "q") + td.abs(x), NORM[0]),
        lambda x: nn.layer_norm(linear(x, "q") + x, *NORM),
    ],
    "swiglu": [swiglu, halves],
    "qkv_in_place": [attend, rotated],
    "merge_products": [attend],
    "attention_block": [block, lambda x: block(x, is_causal=True)],
    "encoder_layer": [bert, nomic, bert_residual_first],
}
CASES = [(name, f) for name, functions in FIRING.items() for f in functions]
IDS = [f"{name}-{i}" for i, (name, _) in enumerate(CASES)]


def found(function: Callable[[Any], Any], name: str) -> list[FusionOutcome]:
    story = td.explain(function)(X)
    return [fusion for fusion in story.fusions if fusion.name == name]


def test_every_fusion_is_here() -> None:
    assert set(FIRING) == set(FUSIONS)


@pytest.mark.parametrize(("name", "function"), CASES, ids=IDS)
def test_it_fires_and_keeps_every_bit(
    name: str, function: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = found(function, name)
    assert made and all(fusion.fired for fusion in made), made
    if function is not FIRING["attention_block"][0]:
        assert any(fusion.nbytes > 0 for fusion in made)
    together = np.asarray(td.jit(function)(X))
    np.testing.assert_allclose(together, np.asarray(function(X)), atol=2e-5)
    monkeypatch.setenv("TETRAD_UNFUSED", name)
    assert not any(fusion.fired for fusion in found(lambda x: function(x), name))
    apart = np.asarray(td.jit(lambda x: function(x))(X))
    assert apart.tobytes() == together.tobytes()


NOT_FIRING: dict[str, tuple[str, Callable[[Any], Any], str]] = {
    "the product is an output": (
        "bias_activation",
        lambda x: (y := td.matmul(td.reshape(x, (-1, H)), W["q"]), td.tanh(y)),
        "is an output",
    ),
    "the product has another reader": (
        "bias_activation",
        lambda x: (td.sum(y := td.reshape(x, (-1, H)) @ W["q"], axis=0), td.tanh(y)),
        "also read by reduce_sum",
    ),
    "the residual sum is an output": (
        "residual_norm",
        lambda x: (y := RESIDUAL + x, nn.layer_norm(y, *NORM)),
        "is an output",
    ),
    "the residual sum has another reader": (
        "residual_norm",
        lambda x: (nn.layer_norm(y := RESIDUAL + x, *NORM), td.cumulative_sum(y, axis=1)),
        "also read by cumsum",
    ),
    "the gate is an output": (
        "swiglu",
        lambda x: (y := nn.silu(linear(x, "gate")), y * linear(x, "up")),
        "is an output",
    ),
    "a slice is an output": (
        "qkv_in_place",
        lambda x: (
            q := heads((w := x @ np.concatenate([W[n] for n in "qkv"], axis=1))[..., :H]),
            nn.dot_product_attention(q, heads(w[..., H : 2 * H]), heads(w[..., 2 * H :])),
        ),
        "is an output",
    ),
    "the residual is dear": (
        "residual_norm",
        lambda x: nn.layer_norm(td.tanh(x) + x, *NORM),
        "too much",
    ),
    "a layer whose queries are an output": (
        "encoder_layer", lambda x: bert_and_queries(x), "attention_block is not",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", NOT_FIRING)
def test_it_does_not_fire_and_says_why(case: str) -> None:
    name, function, why = NOT_FIRING[case]
    made = [fusion for fusion in found(function, name) if not fusion.fired]
    assert made and why in made[0].why_not, found(function, name)
    got, want = td.jit(function)(X), function(X)
    for a, b in zip(td.tree.leaves(got), td.tree.leaves(want), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), atol=2e-5)


@pytest.mark.parametrize(
    "settings",
    [{}, {"is_causal": True}, {"mask": MASK[:, None, None]}, {"bias": normal(1, N, S, S)},
     {"is_causal": True, "local_window_size": (2, 0)}],
    ids=str,
)  # fmt: skip
def test_every_mask_keeps_its_meaning_in_a_block(settings: dict[str, Any]) -> None:
    """FIX-46: a fused block sees what attention sees, whatever hides keys."""
    got = td.jit(lambda x: block(x, **settings))(X)
    np.testing.assert_allclose(np.asarray(got), np.asarray(block(X, **settings)), atol=2e-5)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("use", ["relu", "output", "transpose", "sum"])
def test_slices_of_any_axis_with_any_other_use(axis: int, use: str) -> None:
    """FIX-47: readers are counted, whatever they are, and a slice along any axis is itself."""
    whole = normal(4, 8, 8)

    def function(x: Any) -> Any:
        y = td.matmul(x, whole[0])
        index = [slice(None)] * 3
        index[axis] = slice(0, y.shape[axis] // 2)
        part = y[tuple(index)]
        q = td.expand_dims(part, axis=2)
        other = {"relu": nn.relu, "output": lambda x: x, "transpose": td.matrix_transpose,
                 "sum": lambda x: td.sum(x, axis=0)}[use](part)  # fmt: skip
        return nn.dot_product_attention(q, q, q, is_causal=True), other

    for got, want in zip(td.jit(function)(whole), function(whole), strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), atol=2e-5)


def test_a_bert_layer_is_at_most_eight_kernels() -> None:
    """At a size where attention packs its keys first."""
    x = normal(2, 96, H)

    def layer(x: Any) -> Any:
        x = nn.layer_norm(block(x, is_causal=False, mask=np.ones((2, 1, 1, 96), bool)) + x, *NORM)
        hidden = nn.gelu(linear(x, "up"), approximate=False)
        return nn.layer_norm(linear(hidden, "down") + x, *NORM)

    assert len(td.explain(layer)(x).kernels) <= 8


def test_groups_apart_and_together_are_on_file(
    golden: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each fusion: the groups with it turned off, then with it."""
    parts = []
    for name, functions in FIRING.items():
        parts.append(f"# {name}")
        for off in (name, ""):
            monkeypatch.setenv("TETRAD_UNFUSED", off)
            graph = optimise(td.trace(functions[0])(td.Spec(X.shape)))
            groups = [g for g in fuse(graph) if not (g.root.op.view and len(g.members) == 1)]
            parts += [f"{g.kind}: {g.name}" for g in groups if g.kind != "item"]
            parts.append("# ->" if off else "")
    golden("fusions", "\n".join(parts))


def test_the_report_lists_them() -> None:
    text = str(td.explain(bert)(X))
    assert re.search(r"fusions \([\d.]+ [kM]?B not written and read\)", text)
    for name in ("merge_products", "bias_activation", "residual_norm", "encoder_layer"):
        assert re.search(rf"  {name}: \d+ bytes saved", text), name
