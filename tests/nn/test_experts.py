"""Products with the matrices of chosen experts, and which are chosen: against NumPy, with
derivatives; no expert, and experts that do not exist."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.nn import grouped_matmul, load_balance_loss, top_k_experts

RNG = np.random.default_rng(3)
SIZES = [(40, 2, 5, 7, 6), (3, 1, 5, 4, 6), (150, 2, 4, 16, 32), (5, 2, 1, 3, 3), (0, 2, 3, 4, 5)]


def case(tokens: int, used: int, experts: int, outputs: int, inputs: int) -> Any:
    x, w = RNG.standard_normal((tokens, inputs)), RNG.standard_normal((experts, outputs, inputs))
    return x, w, RNG.integers(-1, experts, (tokens, used)).astype(np.int32)


def formula(x: np.ndarray, w: np.ndarray, expert: np.ndarray) -> np.ndarray:
    each = np.einsum("tunk,tk->tun", w[np.maximum(expert, 0)], x)
    return np.where((expert == -1)[..., None], 0, each)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_formula(sizes: tuple[int, ...]) -> None:
    x, w, expert = case(*sizes)
    want = formula(x, w, expert)
    for form in (lambda f: f, td.jit):
        np.testing.assert_allclose(np.asarray(form(grouped_matmul)(x, w, expert)), want, atol=1e-12)
    one = grouped_matmul(x, w, expert[:, 0])
    np.testing.assert_allclose(np.asarray(one), want[:, 0], atol=1e-12)


@pytest.mark.parametrize("sizes", SIZES[:3], ids=str)
def test_derivatives(sizes: tuple[int, ...]) -> None:
    x, w, expert = case(*sizes)
    ct = RNG.standard_normal((*expert.shape, w.shape[1]))

    def weighted(x: Any, w: Any) -> Any:
        return td.sum(grouped_matmul(x, w, expert) * ct)

    dx, dw = td.jit(td.grad(weighted, argnums=(0, 1)))(x, w)
    hit = (expert[..., None] == np.arange(len(w))).astype(float)
    np.testing.assert_allclose(np.asarray(dx), np.einsum("tun,tue,enk->tk", ct, hit, w), atol=1e-11)
    np.testing.assert_allclose(np.asarray(dw), np.einsum("tun,tue,tk->enk", ct, hit, x), atol=1e-11)
    steps = RNG.standard_normal(x.shape), RNG.standard_normal(w.shape)
    _, tangent = td.jvp(weighted, (x, w), steps)
    want = np.sum(np.asarray(dx) * steps[0]) + np.sum(np.asarray(dw) * steps[1])
    np.testing.assert_allclose(float(tangent), want, atol=1e-9)


def test_a_row_does_not_depend_on_the_others_and_halves_round_once() -> None:
    x, w, expert = case(64, 2, 4, 8, 16)
    x, w = x.astype(np.float32), w.astype(np.float32)
    whole = np.asarray(td.jit(grouped_matmul)(x, w, expert))
    part = np.asarray(td.jit(grouped_matmul)(x[20:50], w, expert[20:50]))
    assert part.tobytes() == whole[20:50].tobytes()
    small = [a.astype(np.float16) for a in (x, w)]
    got = grouped_matmul(*small, expert)
    wide = grouped_matmul(*(a.astype(np.float32) for a in small), expert)
    assert np.asarray(got).tobytes() == np.asarray(wide).astype(np.float16).tobytes()


def test_vmap_is_a_loop() -> None:
    x, w, expert = case(12, 2, 3, 4, 5)
    xs = np.stack([x, x[::-1]])
    got = td.vmap(lambda x: grouped_matmul(x, w, expert))(xs)
    want = np.stack([formula(x, w, expert) for x in xs])
    np.testing.assert_allclose(np.asarray(got), want, atol=1e-12)


@pytest.mark.parametrize("number", [-2, 5, 6, 100, -7])
@pytest.mark.parametrize("tokens", [3, 20])
def test_an_expert_that_does_not_exist_stops_the_program(number: int, tokens: int) -> None:
    x, w = np.ones((tokens, 3)), np.ones((5, 2, 3))
    expert = np.zeros(tokens, np.int32)
    expert[-1] = number
    for form in (lambda f: f, td.jit):
        with pytest.raises(IndexError):
            np.asarray(form(grouped_matmul)(x, w, expert))


@pytest.mark.parametrize("normalize", [True, False])
def test_routing(normalize: bool) -> None:
    logits = RNG.standard_normal((9, 6))
    likelihood = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    order = np.argsort(-likelihood, axis=1, kind="stable")[:, :2]
    shares = np.take_along_axis(likelihood, order, 1)
    shares = shares / shares.sum(1, keepdims=True) if normalize else shares
    experts, got = td.jit(lambda x: top_k_experts(x, 2, normalize=normalize))(logits)
    np.testing.assert_array_equal(np.asarray(experts), order)
    np.testing.assert_allclose(np.asarray(got), shares, atol=1e-12)
    back = td.grad(lambda x: td.sum(top_k_experts(x, 2, normalize=normalize)[1][:, 0]))(logits)
    step = 1e-6 * RNG.standard_normal(logits.shape)
    ends = [
        float(td.sum(top_k_experts(logits + s * step, 2, normalize=normalize)[1][:, 0]))
        for s in (1, -1)
    ]
    np.testing.assert_allclose(np.sum(np.asarray(back) * step), (ends[0] - ends[1]) / 2, atol=1e-12)


def test_balance() -> None:
    logits = np.zeros((8, 4))
    even, one = np.arange(8)[:, None] % 4, np.zeros((8, 1), np.int64)
    np.testing.assert_allclose(float(load_balance_loss(logits, even)), 1.0)
    logits[:, 0] = 50.0
    np.testing.assert_allclose(float(load_balance_loss(logits, one)), 4.0)


def test_what_does_not_fit() -> None:
    x, w, expert = case(4, 2, 3, 4, 5)
    for given in ((x[:, :3], w, expert), (x, w[0], expert), (x[:2], w, expert), (x, w, expert[0])):
        with pytest.raises(td.errors.ShapeError, match="grouped_matmul"):
            grouped_matmul(*given)
    with pytest.raises(td.errors.DtypeError, match="integers"):
        grouped_matmul(x, w, expert.astype(np.float32))
    with pytest.raises(td.errors.TetradError, match="from 1 to 3"):
        top_k_experts(np.zeros((4, 3)), 4)
