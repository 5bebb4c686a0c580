"""Defects of the register in spec `nn` 14 after which no other test of this folder is named, and
that each of the 47 has a test that says its number."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.nn.vectors import TOLERANCE, gives, in_both_types, pulls_back, typed
from tetrad.compiler.driver import compile_graph
from tetrad.core.sizes import plain
from tetrad.nn import dot_product_attention
from tetrad.schedule.nodes import programs_of

TESTS = Path(__file__).parents[1]
RNG = np.random.default_rng(14)
Q = np.array([[1.0, 0], [0, 1], [1, 1]]).reshape(1, 3, 1, 2)
K = np.array([[1.0, 0], [0, 1], [1, -1]]).reshape(1, 3, 1, 2)
V = np.array([[1.0, 2], [3, 4], [5, 6]]).reshape(1, 3, 1, 2)
EYE = np.eye(2).reshape(1, 2, 1, 2)
CT = np.array([[1.0, 0], [0, 1], [1, -1]]).reshape(1, 3, 1, 2)
BOTH = pytest.mark.parametrize("way", [lambda f: f, td.jit], ids=["eager", "compiled"])


def attend(**settings: Any) -> Callable[..., Any]:
    return lambda q, k, v: dot_product_attention(q, k, v, **settings)


def test_every_defect_has_a_test() -> None:
    named = {
        int(number)
        for path in TESTS.rglob("test_*.py")
        for number in re.findall(r"(?:FIX-|_fix_)(\d+)", path.read_text())
    }
    assert named == set(range(1, 48))


# -- what a program is given and where it lies -----------------------------------------------------


@BOTH
def test_fix_5_an_operand_that_comes_first_is_not_absent(way: Any) -> None:
    """A mask, or a bias, as the first input of a program."""
    mask = np.array([True, True, False]).reshape(1, 1, 1, 3)
    bias = np.array([[0.0, 1, 0], [0, 0, 0], [-1, 0, 2]]).reshape(1, 1, 3, 3)
    hidden = way(lambda m, q, k, v: dot_product_attention(q, k, v, mask=m))(mask, Q, K, V)
    want = [[1.660477, 2.660477], [2.339523, 3.339523], [2, 3]]
    np.testing.assert_allclose(np.asarray(hidden).reshape(3, 2), want, atol=1e-6)
    moved = way(lambda b, q, k, v: dot_product_attention(q, k, v, b))(bias, Q, K, V)
    want = [[3, 4], [2.712068, 3.712068], [4.307247, 5.307247]]
    np.testing.assert_allclose(np.asarray(moved).reshape(3, 2), want, atol=1e-6)


def test_fix_6_no_row_is_dropped_and_no_size_is_cut() -> None:
    """A program for any batch computes all of it, and refuses more than it was told."""
    n, w = td.Dim("n", max=70), RNG.standard_normal((5, 3))
    product = td.jit(lambda x: x @ w, dims=({0: n},))
    for batch in (1, 3, 70):
        x = RNG.standard_normal((batch, 7, 5))
        np.testing.assert_allclose(np.asarray(product(x)), x @ w, atol=1e-12)
    with pytest.raises(td.errors.TetradError, match="70"):
        product(np.zeros((71, 7, 5)))


def test_fix_7_there_is_one_executor_and_it_computes_what_is_fused() -> None:
    """A layer of which everything fuses, with its gradient: compiled, eager, and in steps."""
    x, w, u, b = (RNG.standard_normal(s) for s in ((2, 5, 8), (8, 16), (16, 8), (8,)))

    def layer(x: Any, w: Any, u: Any, b: Any) -> Any:
        hidden = td.nn.gelu(x @ w, approximate=False) @ u + b
        return td.nn.layer_norm(hidden + x, np.ones(8), np.zeros(8), eps=1e-5)

    def loss(*operands: Any) -> Any:
        return td.sum(td.sin(layer(*operands)))

    for function in (layer, td.grad(loss, argnums=(0, 1, 2, 3))):
        eager, compiled = function(x, w, u, b), td.jit(function)(x, w, u, b)
        for one, other in zip(td.tree.leaves(eager), td.tree.leaves(compiled), strict=True):
            np.testing.assert_allclose(np.asarray(one), np.asarray(other), atol=1e-10)


def largest(function: Any, *specs: td.Spec) -> int:
    """Bytes of the largest array that a program has, scratch included."""
    schedule = compile_graph(td.trace(function)(*specs)).schedule
    buffers = [b for program in programs_of(schedule) for b in program.buffers if b.count]
    return max(plain(b.count) * b.dtype.nbytes for b in buffers)


def test_fix_12_a_convolution_needs_no_array_of_windows() -> None:
    """No array is larger than operands and result are."""
    x, w = td.Spec((1, 64, 128, 128)), td.Spec((64, 64, 3, 3))
    assert largest(lambda x, w: td.nn.conv2d(x, w, padding=1), x, w) == 4 * 64 * 128**2
    back = largest(lambda x, w: td.nn.conv_transpose2d(x, w, stride=2), x, w)
    assert back == 4 * 64 * 257**2


# -- activations and positions ---------------------------------------------------------------------


@in_both_types
def test_fix_29_the_slope_of_the_approximate_gelu_is_its_own(dtype: Any) -> None:
    x = np.array([-2, -0.5, 0, 0.5, 2])
    want = [-0.086099, 0.13263, 0.5, 0.86737, 1.086099]
    pulls_back(lambda x: td.nn.gelu(x, approximate=True), [x], np.ones(5), [np.array(want)], dtype)


@pytest.mark.parametrize(
    ("shape", "rows", "settings"),
    [
        ((1, 8, 2, 4), 2, {}),  # a table for two positions of eight
        ((1, 3, 2, 4), 3, {"rotary_dim": 3}),
        ((1, 3, 2, 4), 3, {"rotary_dim": 6}),
        ((1, 3, 10), 3, {"layout": "bsh", "head_dim": 4}),
        ((1, 3, 2, 4), 3, {"layout": "shbn"}),
    ],
)
@BOTH
def test_fix_33_positions_that_do_not_fit_are_refused(
    way: Any, shape: tuple[int, ...], rows: int, settings: dict[str, Any]
) -> None:
    table = np.ones((rows, 2))
    with pytest.raises(td.errors.TetradError):
        way(lambda x: td.nn.rope(x, table, table, **settings))(np.ones(shape))


# -- attention -------------------------------------------------------------------------------------


@in_both_types
def test_fix_36_heads_share_the_keys_of_their_group(dtype: Any) -> None:
    q = np.array([[1.0, 0, 0, 1], [0, 1, 1, 0]]).reshape(1, 2, 2, 2)
    want = [[1.660477, 2.660477, 2.339523, 3.339523], [2.339523, 3.339523, 1.660477, 2.660477]]
    gives(attend(), (q, EYE, V[:, :2]), np.reshape(want, (1, 2, 2, 2)), dtype)
    with pytest.raises(td.errors.ShapeError, match="multiple"):
        dot_product_attention(*(np.ones((1, 2, heads, 2)) for heads in (3, 2, 2)))


@in_both_types
def test_fix_37_scale_and_softcap_are_heard_in_both_directions(dtype: Any) -> None:
    want = [[1.537883, 2.537883], [2.462117, 3.462117]]
    gives(attend(scale=1.0), (EYE, EYE, V[:, :2]), np.reshape(want, (1, 2, 1, 2)), dtype)
    want = [[1.704639, 2.704639], [2.295361, 3.295361]]
    gives(attend(softcap=1.0), (EYE, EYE, V[:, :2]), np.reshape(want, (1, 2, 1, 2)), dtype)

    def plain(q: Any, k: Any, v: Any) -> Any:
        scores = 0.7 * td.einsum("bqhd,bkhd->bhqk", q, k)
        return td.einsum("bhqk,bkhd->bqhd", td.nn.softmax(0.5 * td.tanh(scores / 0.5)), v)

    ct = typed([CT], dtype)[0]
    for one, other in zip(
        td.vjp(attend(scale=0.7, softcap=0.5), *typed([Q, K, V], dtype))[1](ct),
        td.vjp(plain, *typed([Q, K, V], dtype))[1](ct),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, **TOLERANCE[dtype])


@in_both_types
@pytest.mark.parametrize("layout", ["bsnh", "bnsh"])
def test_fix_38_masks_are_checked_spread_and_combined(dtype: Any, layout: str) -> None:
    q, k, v = (x if layout == "bsnh" else x.swapaxes(1, 2) for x in (Q, K, V))
    seen = np.array([False, True, True]).reshape(1, 1, 1, 3)
    for settings, kept in (
        ({"is_causal": True, "mask": seen}, np.tril(np.ones((3, 3), bool)) & seen[0, 0]),
        (
            {"local_window_size": (1, 0), "mask": seen},
            np.tril(np.triu(np.ones((3, 3), bool), -1)) & seen[0, 0],
        ),
    ):
        want = dot_product_attention(*typed([Q, K, V], dtype), mask=kept[None, None])
        want = want if layout == "bsnh" else np.swapaxes(np.asarray(want), 1, 2)
        gives(attend(layout=layout, **settings), (q, k, v), want, dtype)
    for mask, error in (
        (np.ones((1, 1, 3, 3)), td.errors.DtypeError),  # numbers say nothing about what is seen
        (np.ones((1, 1, 3, 2), bool), td.errors.ShapeError),
        (np.ones((2, 1, 3, 3), bool), td.errors.ShapeError),
    ):
        with pytest.raises(error):
            dot_product_attention(*typed([q, k, v], dtype), mask=mask, layout=layout)


MASKED = np.array([[1, 1, 0], [0, 0, 0], [0, 1, 1]], bool).reshape(1, 1, 3, 3)


@in_both_types
def test_fix_39_a_row_that_sees_nothing_is_zero(dtype: Any) -> None:
    for settings in (
        {"mask": MASKED},
        {"bias": np.where(MASKED, 0.0, -np.inf).astype(dtype)},
    ):
        for way in (lambda f: f, td.jit):
            found = np.asarray(way(attend(**settings))(*typed([Q, K, V], dtype)))
            assert not found[0, 1].any() and np.isfinite(found).all()
            assert found[0, 0, 0, 0] < 3  # the hidden key weighs nothing


@in_both_types
def test_fix_43_a_score_that_is_hidden_has_no_slope(dtype: Any) -> None:
    """Row 1 sees nothing: neither its query nor any key or value hears of it."""
    q, k, v, ct = typed([Q, K, V, CT], dtype)
    rows = [0, 2]
    for way in (lambda f: f, td.jit):

        def slopes(q: Any, k: Any, v: Any, ct: Any) -> Any:
            return td.vjp(attend(mask=MASKED), q, k, v)[1](ct)

        dq, dk, dv = (np.asarray(x) for x in way(slopes)(q, k, v, ct))
        assert not dq[0, 1].any()
        part = attend(mask=MASKED[:, :, rows])
        few = td.vjp(part, q[:, rows], k, v)[1](ct[:, rows])
        for found, want in zip((dq[:, rows], dk, dv), few, strict=True):
            np.testing.assert_allclose(found, np.asarray(want), **TOLERANCE[dtype])


def test_fix_40_memory_grows_with_the_length_and_not_with_its_square() -> None:
    causal = attend(is_causal=True)
    back = td.grad(lambda *x: td.sum(causal(*x)), argnums=(0, 1, 2))
    for function in (causal, back):
        short, long = (largest(function, *[td.Spec((1, n, 2, 16))] * 3) for n in (2048, 4096))
        assert long <= 2 * short < 4 * 2048**2


@in_both_types
@pytest.mark.parametrize("size", [1, 3, 5, 18])
def test_fix_41_every_channel_counts(dtype: Any, size: int) -> None:
    q, k, v = (RNG.standard_normal((2, 6, 2, size)) for _ in range(3))
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(size)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    want = np.einsum("bhqk,bkhd->bqhd", weights, v)
    gives(attend(), (q, k, v), want, dtype)


def test_fix_42_the_gradient_is_one_op() -> None:
    spec = td.Spec((1, 64, 2, 16))
    slopes = td.grad(lambda *x: td.sum(attend(is_causal=True)(*x)), argnums=(0, 1, 2))
    text = str(td.trace(slopes)(spec, spec, spec))
    assert text.count("attention_gradient(") == 1


@in_both_types
def test_fix_44_a_bias_has_a_gradient(dtype: Any) -> None:
    bias = RNG.standard_normal((1, 1, 1, 3))  # for all queries

    def plain(b: Any, q: Any, k: Any, v: Any) -> Any:
        scores = td.einsum("bqhd,bkhd->bhqk", q, k) * np.asarray(2**-0.5, dtype) + b
        return td.einsum("bhqk,bkhd->bqhd", td.nn.softmax(scores), v)

    given = typed([bias, Q, K, V, CT], dtype)
    for way in (lambda f: f, td.jit):

        def slope(b: Any, *rest: Any) -> Any:
            attention = lambda b: dot_product_attention(*rest[:3], b)  # noqa: E731
            return td.vjp(attention, b)[1](rest[3])[0]

        want = td.vjp(lambda b: plain(b, *given[1:4]), given[0])[1](given[4])[0]
        np.testing.assert_allclose(way(slope)(*given), np.asarray(want), **TOLERANCE[dtype])
