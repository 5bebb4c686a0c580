"""Packed sequences and linear biases: against each sequence alone, in value and gradient; the work
and the memory they take, and what does not fit."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.nn import dot_product_attention

RNG = np.random.default_rng(7)
LENGTHS = (70, 0, 130, 1, 260)
ENDS = np.cumsum((0, *LENGTHS)).astype(np.int32)
T, N, G, D = int(ENDS[-1]) + 9, 4, 2, 8  # nine tokens of padding
IDS = np.full(T, -1, np.int32)
for number, (first, stop) in enumerate(itertools.pairwise(ENDS)):
    IDS[first:stop] = (5, 0, 3, 0, 5)[number]  # neighbours differ, that is enough
Q, K, V = (RNG.standard_normal((1, T, heads, D)) for heads in (N, G, G))
SLOPES = np.array([0.5, 0.25, 0.125, 0.0625])
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"is_causal": True},
    "window": {"is_causal": True, "local_window_size": (20, 0)},
    "both sides": {"local_window_size": (3, 9), "softcap": 2.0},
    "alibi": {"alibi_slopes": SLOPES, "is_causal": True},
}
PACKED: dict[str, dict[str, Any]] = {
    "ids": {"segment_ids": IDS},
    "lengths": {"cu_seqlens_q": ENDS},
}


def alone(q: Any, k: Any, v: Any, **settings: Any) -> Any:
    """Each sequence by itself; padding finds nothing."""
    parts = [
        dot_product_attention(*(x[:, first:stop] for x in (q, k, v)), **settings)
        for first, stop in itertools.pairwise(ENDS)
        if stop > first
    ]
    return td.concat([*parts, td.zeros((1, T - int(ENDS[-1]), N, D), dtype="float64")], axis=1)


@pytest.mark.parametrize("packed", PACKED)
@pytest.mark.parametrize("name", SETTINGS)
def test_each_sequence_is_as_if_alone(name: str, packed: str) -> None:
    settings, how = SETTINGS[name], PACKED[packed]
    want = np.asarray(alone(Q, K, V, **settings))
    for form in (lambda f: f, td.jit):
        got = form(lambda q, k, v: dot_product_attention(q, k, v, **settings, **how))(Q, K, V)
        np.testing.assert_allclose(np.asarray(got), want, atol=1e-12)


@pytest.mark.parametrize("name", ["causal", "alibi"])
def test_gradients_are_those_of_each_sequence(name: str) -> None:
    settings, weights = SETTINGS[name], RNG.standard_normal(Q.shape)

    def gradients(f: Any) -> Any:
        return td.jit(td.grad(lambda *x: td.sum(f(*x) * weights), argnums=(0, 1, 2)))(Q, K, V)

    packed, apart = (
        gradients(f)
        for f in (
            lambda q, k, v: dot_product_attention(q, k, v, segment_ids=IDS, **settings),
            lambda q, k, v: alone(q, k, v, **settings),
        )
    )  # fmt: skip
    for got, want in zip(packed, apart, strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), atol=1e-11)


@pytest.mark.parametrize("causal", [False, True, "bottom_right"])
def test_queries_and_keys_of_different_lengths(causal: Any) -> None:
    keys = np.cumsum([0, 80, 5, 120, 0, 100]).astype(np.int32)
    k, v = (RNG.standard_normal((1, int(keys[-1]), G, D)) for _ in range(2))
    attend = td.jit(
        lambda q, k, v, a, b: dot_product_attention(
            q, k, v, cu_seqlens_q=a, cu_seqlens_k=b, is_causal=causal, alibi_slopes=SLOPES
        )
    )
    got = np.asarray(attend(Q, k, v, ENDS, keys))
    for i in range(len(LENGTHS)):
        mine, theirs = (slice(ends[i], ends[i + 1]) for ends in (ENDS, keys))
        parts = (Q[:, mine], k[:, theirs], v[:, theirs])
        want = dot_product_attention(*parts, is_causal=causal, alibi_slopes=SLOPES)
        np.testing.assert_allclose(got[:, mine], np.asarray(want), atol=1e-12)
    assert not got[:, ENDS[-1] :].any()


def test_batches_have_segments_of_their_own() -> None:
    ids = np.sort(RNG.integers(0, 4, (3, 40)), axis=1)
    q, k, v = (RNG.standard_normal((3, 40, N, D)) for _ in range(3))
    seen = (ids[:, None, :, None] == ids[:, None, None, :]).astype(bool)
    want = np.asarray(dot_product_attention(q, k, v, mask=seen))
    got = td.jit(lambda q, k, v, ids: dot_product_attention(q, k, v, segment_ids=ids))(q, k, v, ids)
    np.testing.assert_allclose(np.asarray(got), want, atol=1e-12)
    rows = td.vmap(lambda q, k, v, ids: dot_product_attention(q, k, v, segment_ids=ids))(
        q, k, v, ids
    )
    np.testing.assert_allclose(np.asarray(rows), want, atol=1e-12)
    turned = [np.swapaxes(x, 1, 2) for x in (q, k, v)]
    got = dot_product_attention(*turned, segment_ids=ids, layout="bnsh")
    np.testing.assert_allclose(np.swapaxes(np.asarray(got), 1, 2), want, atol=1e-12)


def test_alibi_is_a_bias_that_takes_no_memory() -> None:
    length = 1024
    place = np.arange(length)
    bias = -SLOPES[:, None, None] * np.abs(place[:, None] - place)
    q = RNG.standard_normal((length, N, D)).astype(np.float32)
    slopes = SLOPES.astype(np.float32)

    def attend(q: Any, slopes: Any) -> Any:
        return dot_product_attention(q, q, q, alibi_slopes=slopes)

    want = np.asarray(dot_product_attention(q, q, q, bias=bias.astype(np.float32)))
    np.testing.assert_allclose(np.asarray(td.jit(attend)(q, slopes)), want, atol=1e-5)
    assert td.explain(attend)(q, slopes).arena_bytes < length * length
    few, step = q[:40].astype(np.float64), 1e-6
    back = td.grad(lambda s: td.sum(attend(few, s) ** 2))(SLOPES)
    for head in range(N):
        moved = [SLOPES + sign * step * np.eye(N)[head] for sign in (1, -1)]
        above, below = (float(td.sum(attend(few, s) ** 2)) for s in moved)
        np.testing.assert_allclose(float(back[head]), (above - below) / (2 * step), atol=1e-6)


def test_sequences_take_no_time_for_each_other() -> None:
    """Of 64 sequences of 64, kernels walk one block of keys in sixteen: counted as scores."""
    length, each = 1024, 64
    q = RNG.standard_normal((1, length, 1, 16)).astype(np.float32)
    ids = np.repeat(np.arange(length // each), each)[None]
    packed = td.jit(lambda q, ids: dot_product_attention(q, q, q, segment_ids=ids))
    poisoned = q.copy()
    poisoned[:, ids[0] == 3] = np.nan  # whoever scores these gets NaN, or tests each key
    got = np.asarray(packed(poisoned, ids))
    assert np.isnan(got[:, ids[0] == 3]).all() and np.isfinite(got[:, ids[0] != 3]).all()


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"segment_ids": IDS[:-1]}, "segment_ids"),
        ({"segment_ids": IDS.astype(np.float32)}, "integers"),
        ({"segment_ids": IDS, "cu_seqlens_q": ENDS}, "segment_ids"),
        ({"cu_seqlens_k": ENDS}, "cu_seqlens_q"),
        ({"cu_seqlens_q": ENDS[None]}, "cu_seqlens_q"),
        ({"cu_seqlens_q": ENDS, "cu_seqlens_k": ENDS[:-1]}, "differ"),
        ({"cu_seqlens_q": ENDS.astype(np.float32)}, "counts tokens"),
        ({"alibi_slopes": SLOPES[:-1]}, "alibi_slopes"),
    ],
)
def test_what_does_not_fit(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(td.errors.TetradError, match=text):
        dot_product_attention(Q, K, V, **settings)
    with pytest.raises(td.errors.TetradError, match="one batch"):
        dot_product_attention(*(np.repeat(x, 2, 0) for x in (Q, K, V)), cu_seqlens_q=ENDS)


def test_a_layout_is_never_guessed() -> None:
    """FIX-35: as many tokens as heads."""
    q, k, v = (RNG.standard_normal((2, N, N, D)) for _ in range(3))
    one = np.asarray(dot_product_attention(q, k, v, is_causal=True))
    turned = [np.swapaxes(x, 1, 2) for x in (q, k, v)]
    two = np.asarray(dot_product_attention(*turned, is_causal=True, layout="bnsh"))
    np.testing.assert_allclose(one, np.swapaxes(two, 1, 2), atol=1e-12)
    assert np.abs(one - two).max() > 0.1
