"""Recurrent layers against their formulas step by step in NumPy; derivatives, types, kernels, and
what does not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tetrad as td

RNG = np.random.default_rng(2)
B, T, I, H = 3, 5, 4, 6  # noqa: E741


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def formula(kind: str, w: dict[str, np.ndarray], x: np.ndarray, states: list[np.ndarray]) -> Any:
    """One layer in one direction, x [B,T,I]."""
    h, out = states[0], []
    c = states[1] if kind == "lstm" else None
    zero = np.zeros(len(w["weight_ih_l0"]))
    for t in range(x.shape[1]):
        a = x[:, t] @ w["weight_ih_l0"].T + w.get("bias_ih_l0", zero)
        b = h @ w["weight_hh_l0"].T + w.get("bias_hh_l0", zero)
        if kind == "lstm":
            i, f, g, o = np.split(a + b, 4, axis=1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
        else:
            (ar, az, an), (br, bz, bn) = np.split(a, 3, axis=1), np.split(b, 3, axis=1)
            z = sigmoid(az + bz)
            h = (1 - z) * np.tanh(an + sigmoid(ar + br) * bn) + z * h
        out.append(h)
    return np.stack(out, 1), [h] if kind == "gru" else [h, c]


def weights(kind: str, inputs: int = I, **settings: Any) -> dict[str, np.ndarray]:
    make = {"lstm": td.nn.lstm_init, "gru": td.nn.gru_init}[kind]
    made = make(td.random.key(1), inputs, H, dtype="float64", **settings)
    return {name: np.asarray(value) for name, value in made.items()}


def run(kind: str, w: Any, x: Any, states: Any = None, **settings: Any) -> tuple[Any, list[Any]]:
    if kind == "lstm":
        y, ends = td.nn.lstm(w, x, None if states is None else tuple(states), **settings)
        return y, list(ends)
    y, end = td.nn.gru(w, x, None if states is None else states[0], **settings)
    return y, [end]


def begin(kind: str, layers: int = 1) -> list[np.ndarray]:
    return [RNG.standard_normal((layers, B, H)) for _ in range(2 if kind == "lstm" else 1)]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_formula(kind: str, bias: bool) -> None:
    w, x, states = weights(kind, bias=bias), RNG.standard_normal((B, T, I)), begin(kind)
    want, ends = formula(kind, w, x, [s[0] for s in states])
    for form in (lambda f: f, td.jit):
        got, last = form(lambda w, x, states: run(kind, w, x, states))(w, x, states)
        np.testing.assert_allclose(np.asarray(got), want, atol=1e-12)
        for a, b in zip(last, ends, strict=True):
            np.testing.assert_allclose(np.asarray(a)[0], b, atol=1e-12)
    turned, _ = run(kind, w, np.swapaxes(x, 0, 1), states, time_major=True)
    np.testing.assert_allclose(np.swapaxes(np.asarray(turned), 0, 1), want, atol=1e-12)
    alone, last = run(kind, w, x[1], [s[:, 1] for s in states])
    np.testing.assert_allclose(np.asarray(alone), want[1], atol=1e-12)
    assert last[0].shape == (1, H)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_layers_and_the_way_back(kind: str) -> None:
    w, x = weights(kind, num_layers=2, bidirectional=True), RNG.standard_normal((B, T, I))
    states = begin(kind, 4)
    got, last = td.jit(lambda w, x, s: run(kind, w, x, s))(w, x, states)
    for layer in range(2):
        both = []
        for way, name in enumerate(("", "_reverse")):
            own = {
                f"{n}_l0": w[f"{n}_l{layer}{name}"]
                for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            }
            given = x[:, ::-1] if way else x
            y, ends = formula(kind, own, given, [s[2 * layer + way] for s in states])
            both.append(y[:, ::-1] if way else y)
            for a, b in zip(last, ends, strict=True):
                np.testing.assert_allclose(np.asarray(a)[2 * layer + way], b, atol=1e-12)
        x = np.concatenate(both, axis=-1)
    np.testing.assert_allclose(np.asarray(got), x, atol=1e-12)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_derivatives(kind: str) -> None:
    w, x = weights(kind, bidirectional=True), RNG.standard_normal((B, T, I))
    scale = RNG.standard_normal((B, T, 2 * H))

    def weighted(w: Any, x: Any) -> Any:
        return td.sum(run(kind, w, x)[0] * scale)

    gradient = td.jit(td.grad(weighted, argnums=(0, 1)))(w, x)
    step = ({n: RNG.standard_normal(v.shape) for n, v in w.items()}, RNG.standard_normal(x.shape))
    pairs = [*((gradient[0][n], step[0][n]) for n in w), (gradient[1], step[1])]
    along = sum(float(np.sum(np.asarray(g) * d)) for g, d in pairs)
    ends = [
        float(weighted({n: v + h * step[0][n] for n, v in w.items()}, x + h * step[1]))
        for h in (1e-6, -1e-6)
    ]
    np.testing.assert_allclose(along, (ends[0] - ends[1]) / 2e-6, atol=1e-6)
    _, tangent = td.jvp(weighted, (w, x), step)
    np.testing.assert_allclose(float(tangent), along, atol=1e-9)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_types_and_vmap(kind: str) -> None:
    w, x = weights(kind), RNG.standard_normal((B, T, I))
    want = np.asarray(run(kind, w, x)[0])
    for dtype, atol in (("float32", 1e-6), ("float16", 2e-3), ("bfloat16", 2e-2)):
        small = {n: td.asarray(v, dtype=dtype) for n, v in w.items()}
        got, _ = run(kind, small, td.asarray(x, dtype=dtype))
        assert str(got.dtype) == str(td.asarray(0.0, dtype=dtype).dtype)
        np.testing.assert_allclose(np.asarray(got, np.float64), want, atol=atol)
    rows = td.vmap(lambda x: run(kind, w, x)[0])(x)
    np.testing.assert_allclose(np.asarray(rows), want, atol=1e-12)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_a_small_layer_is_one_kernel_for_all_steps(kind: str) -> None:
    w = {n: v.astype(np.float32) for n, v in weights(kind).items()}
    story = td.explain(lambda w, x: run(kind, w, x)[0])(w, np.ones((2, 50, I), np.float32))
    assert sum(kernel.name.startswith("scan") for kernel in story.kernels) == 1
    assert len(story.kernels) <= 6, [kernel.name for kernel in story.kernels]


def test_what_does_not_fit() -> None:
    w, x = weights("lstm"), np.zeros((B, T, I))
    for given, array, text in (
        ({}, x, "weight_ih_l0"),
        ({**w, "weight": w["bias_ih_l0"]}, x, "weights"),
        ({k: v for k, v in w.items() if k != "weight_hh_l0"}, x, "weight_hh_l0"),
        (w, x[..., :2], "do not fit"),
        (weights("gru"), x, "do not fit"),
        (w, x[0, 0], "batch, time, inputs"),
        (w, x.astype(np.int32), "floats"),
    ):
        with pytest.raises(td.errors.TetradError, match=text):
            td.nn.lstm(given, array)
    with pytest.raises(td.errors.TetradError, match="2 states"):
        td.nn.lstm(w, x, (np.zeros((1, B, H)), np.zeros((1, B, H + 1))))
    with pytest.raises(td.errors.TetradError, match="at least 1"):
        td.nn.lstm_init(td.random.key(0), 3, 0)
