"""Attention against its formula in float64, query by query and head by head; what is hidden, and
what does not fit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.nn import dot_product_attention

B, T, S, N, K, H = 2, 5, 7, 6, 3, 4
RNG = np.random.default_rng(3)
Q, KEYS, VALUES = (RNG.standard_normal(s) for s in ((B, T, N, H), (B, S, K, H), (B, S, K, H + 1)))
BIAS = RNG.standard_normal((1, N, T, S))
MASK = RNG.random((B, 1, T, S)) > 0.3
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "scale": {"scale": 0.3},
    "bias": {"bias": BIAS},
    "mask": {"mask": MASK},
    "mask of two axes": {"mask": MASK[0, 0]},
    "causal": {"is_causal": True},
    "keys end": {"key_value_seq_lengths": np.int32([3, 7])},
    "queries end": {"query_seq_lengths": np.int32([5, 2])},
    "window": {"local_window_size": 1},
    "all": {
        **{"local_window_size": (2, 0), "is_causal": True, "bias": BIAS, "mask": MASK},
        "query_seq_lengths": np.int32([2, 5]),
    },
    "nothing is seen": {"mask": np.zeros((1, 1, 1, 1), bool)},
}


def visible(b: int, t: int, s: int, **settings: Any) -> bool:
    window = settings.get("local_window_size", (T + S, T + S))
    before, after = window if isinstance(window, tuple) else (window, window)
    mask = np.broadcast_to(settings.get("mask", True), (B, 1, T, S))
    ends = (
        settings.get("query_seq_lengths", [T] * B)[b],
        settings.get("key_value_seq_lengths", [S] * B)[b],
    )
    is_hidden = settings.get("is_causal", False) and s > t
    return (
        bool(mask[b, 0, t, s])
        and not is_hidden
        and -before <= s - t <= after
        and t < ends[0]
        and s < ends[1]
    )


def formula(q: np.ndarray, k: np.ndarray, v: np.ndarray, **settings: Any) -> np.ndarray:
    out = np.zeros((*q.shape[:3], v.shape[-1]))
    bias = np.broadcast_to(settings.get("bias", 0.0), (B, N, T, S))
    for b, t, n in np.ndindex(q.shape[:3]):
        seen = [s for s in range(S) if visible(b, t, s, **settings)]
        head = n // (N // K)
        scores = (
            k[b, seen, head] @ q[b, t, n] * settings.get("scale", 1 / math.sqrt(H))
            + bias[b, n, t, seen]
        )
        shares = np.exp(scores - scores.max(initial=-np.inf))
        out[b, t, n] = shares @ v[b, seen, head] / shares.sum() if seen else 0
    return out


@pytest.mark.parametrize("name", CASES)
def test_formula(name: str) -> None:
    settings = CASES[name]

    def attend(q: Any, k: Any, v: Any) -> Any:
        return dot_product_attention(q, k, v, **settings)

    want = formula(Q, KEYS, VALUES, **settings)
    for f in (attend, td.jit(attend)):
        np.testing.assert_allclose(np.asarray(f(Q, KEYS, VALUES)), want, atol=1e-12)


@pytest.mark.parametrize("name", ["plain", "all", "nothing is seen"])
def test_derivatives(name: str) -> None:
    settings, weights = CASES[name], RNG.standard_normal((B, T, N, H + 1))
    directions = [RNG.standard_normal(x.shape) for x in (Q, KEYS, VALUES)]

    def weighted(q: Any, k: Any, v: Any) -> Any:
        return td.sum(dot_product_attention(q, k, v, **settings) * weights)

    gradients = td.jit(td.grad(weighted, argnums=(0, 1, 2)))(Q, KEYS, VALUES)
    got = sum(float(np.sum(np.asarray(g) * d)) for g, d in zip(gradients, directions, strict=True))
    h = 1e-6
    moved = [
        [x + s * h * d for x, d in zip((Q, KEYS, VALUES), directions, strict=True)] for s in (1, -1)
    ]
    above, below = (np.sum(formula(*xs, **settings) * weights) for xs in moved)
    np.testing.assert_allclose(got, (above - below) / (2 * h), atol=1e-6)


def test_without_a_batch_in_half_precision_and_for_any_length() -> None:
    q, k, v = (td.asarray(x[0], dtype="float16") for x in (Q, KEYS, VALUES))
    got = dot_product_attention(q, k, v)
    assert got.dtype is td.float16 and got.shape == (T, N, H + 1)
    np.testing.assert_allclose(np.asarray(got, np.float64), formula(Q, KEYS, VALUES)[0], atol=3e-3)
    n = td.Dim("n", max=16)
    free = td.jit(
        lambda q, k, v: dot_product_attention(q, k, v, is_causal=True),
        dims=({1: n}, {1: n}, {1: n}),
    )
    for length in (2, 5):
        xs = [x[:, :length] for x in (Q, KEYS, VALUES)]
        np.testing.assert_allclose(
            np.asarray(free(*xs)), dot_product_attention(*xs, is_causal=True), atol=1e-12
        )


def test_layout_softcap_and_alignment() -> None:
    turned = [np.swapaxes(x, 1, 2) for x in (Q, KEYS, VALUES)]
    got = np.asarray(dot_product_attention(*turned, layout="bnsh", is_causal=True))
    np.testing.assert_allclose(
        np.swapaxes(got, 1, 2), formula(Q, KEYS, VALUES, is_causal=True), atol=1e-12
    )
    last = np.tril(np.ones((T, S), bool), S - T)
    got = dot_product_attention(Q, KEYS, VALUES, is_causal="bottom_right")
    np.testing.assert_allclose(np.asarray(got), formula(Q, KEYS, VALUES, mask=last), atol=1e-12)
    products = np.einsum("btgnh,bsgh->bgnts", Q.reshape(B, T, K, -1, H), KEYS) / math.sqrt(H)
    capped = 0.5 * np.tanh(products / 0.5) - products
    want = formula(Q, KEYS, VALUES, bias=capped.reshape(B, N, T, S))
    got = dot_product_attention(Q, KEYS, VALUES, softcap=0.5)
    np.testing.assert_allclose(np.asarray(got), want, atol=1e-12)
    with pytest.raises(td.errors.TetradError, match="layout"):
        dot_product_attention(Q, Q, Q, layout="bshn")


def test_a_scale_may_be_traced_and_dtypes_may_differ() -> None:
    slope = td.grad(lambda s: td.sum(dot_product_attention(Q, KEYS, VALUES, scale=s)))(0.3)
    above, below = (formula(Q, KEYS, VALUES, scale=0.3 + h).sum() for h in (1e-6, -1e-6))
    np.testing.assert_allclose(float(slope), (above - below) / 2e-6, atol=1e-6)
    mixed = dot_product_attention(Q.astype(np.float32), KEYS, VALUES.astype(np.float16))
    assert mixed.dtype is td.float32
    np.testing.assert_allclose(np.asarray(mixed), formula(Q, KEYS, VALUES), atol=2e-3)


def test_vmap_is_a_batch() -> None:
    got = td.vmap(lambda q, k, v: dot_product_attention(q, k, v, is_causal=True))(Q, KEYS, VALUES)
    np.testing.assert_allclose(
        np.asarray(got), formula(Q, KEYS, VALUES, is_causal=True), atol=1e-12
    )


def test_what_does_not_fit() -> None:
    x = td.ones((2, 3, 4, 8))
    with pytest.raises(
        td.errors.ShapeError, match=r"queries f32\[2,3,4,8\], keys f32\[2,3,4,4\] .* do not fit"
    ):
        dot_product_attention(x, x[..., :4], x[..., :4])
    with pytest.raises(
        td.errors.ShapeError, match="4 heads of queries are no multiple of 3 heads of keys"
    ):
        dot_product_attention(x, x[:, :, :3], x[:, :, :3])
    with pytest.raises(td.errors.DtypeError, match="a mask is made of truth values"):
        dot_product_attention(x, x, x, mask=td.ones((3, 3)))
    for window in list[Any]([-1, (2, -1)]):
        with pytest.raises(td.errors.SettingError, match=r"at least 0, got .*-1"):
            dot_product_attention(x, x, x, local_window_size=window)


@pytest.mark.parametrize("way", [lambda f: f, td.jit], ids=["eager", "compiled"])
def test_heads_without_channels_have_equal_scores(way: Any) -> None:
    none, value = td.ones((1, 3, 2, 0)), td.reshape(td.arange(24.0), (1, 3, 2, 4))
    found = way(dot_product_attention)(none, none, value)
    want = td.broadcast_to(td.mean(value, axis=1, keepdims=True), value.shape)
    np.testing.assert_allclose(found, want, rtol=1e-6)


# -- what is hidden --------------------------------------------------------------------------------


def poisoned(x: np.ndarray, at: int) -> np.ndarray:
    made = x.copy()
    made[:, at] = np.resize([np.nan, np.inf, -np.inf], made[:, at].shape)
    return made


@pytest.mark.parametrize("hiding", ["mask", "causal", "lengths", "window"])
@pytest.mark.parametrize("way", [lambda f: f, td.jit], ids=["eager", "compiled"])
def test_what_is_hidden_has_no_effect_be_it_nan(way: Any, hiding: str) -> None:
    rng = np.random.default_rng(11)
    q, k, v = (
        rng.standard_normal(s).astype(np.float32)
        for s in ((2, 6, 4, 8), (2, 6, 2, 8), (2, 6, 2, 8))
    )
    mask = rng.random((2, 1, 6, 6)) < 0.7
    mask[..., 5] = False
    settings: dict[str, Any] = {
        "mask": {"mask": mask}, "causal": {"is_causal": True},
        "lengths": {"key_value_seq_lengths": np.array([5, 5])},
        "window": {"local_window_size": (1, 0)},
    }[hiding]  # fmt: skip
    # queries that do not see key 5
    rows = slice(None) if hiding in ("mask", "lengths") else slice(0, 5)

    def attend(q: Any, k: Any, v: Any) -> Any:
        return td.nn.dot_product_attention(q, k, v, **settings)[:, rows]

    slopes = way(td.grad(lambda *args: td.sum(attend(*args) ** 2), argnums=(0, 1, 2)))
    clean, dirty = (
        [td.asarray(a) for a in (q, k, v)],
        [td.asarray(a) for a in (q, poisoned(k, 5), poisoned(v, 5))],
    )
    np.testing.assert_array_equal(np.asarray(way(attend)(*dirty)), np.asarray(way(attend)(*clean)))
    if rows == slice(None):  # else a query that sees the key has a share in the gradients
        for found, want in zip(slopes(*dirty), slopes(*clean), strict=True):
            np.testing.assert_array_equal(np.asarray(found), np.asarray(want))


def test_what_is_seen_and_not_finite_is_not_hidden() -> None:
    q = k = v = np.ones((1, 3, 1, 4), np.float32)
    found = np.asarray(td.nn.dot_product_attention(q, k, poisoned(v, 1), is_causal=True))
    assert np.isfinite(found[:, 0]).all() and np.isnan(found[:, 1:]).all()
    padded = q.copy()
    padded[:, 2] = np.nan  # a query behind the end gives zeros, and reaches no gradient
    run = td.grad(
        lambda k: td.sum(td.nn.dot_product_attention(padded, k, v, query_seq_lengths=np.array([2])))
    )
    assert np.isfinite(np.asarray(run(td.asarray(k)))).all()
