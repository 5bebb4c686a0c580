"""Losses against vectors, formulas and finite differences; labels that name no class."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.nn.vectors import differentiates, gives, in_both_types, pulls_back
from tetrad import nn
from tetrad.compiler.pipeline import optimise
from tetrad.errors import BoundsError, SettingError, ShapeError
from tetrad.passes.fuse import fuse

LOGITS = [[1.0, 2, 3], [-1, 0, 4], [5, 5, 5]]
LABELS = np.array([2, 0, 1])
RNG = np.random.default_rng(3)
X, T = RNG.standard_normal((4, 5)), RNG.standard_normal((4, 5))


def each(logits: Any) -> Any:
    return nn.cross_entropy(logits, LABELS, reduction="none")


def log_softmax(x: np.ndarray) -> np.ndarray:
    apart = x - x.max(-1, keepdims=True)
    return apart - np.log(np.exp(apart).sum(-1, keepdims=True))


@in_both_types
def test_cross_entropy_vector(dtype: Any) -> None:
    gives(each, [np.array(LOGITS)], [0.407606, 5.024745, 1.098612], dtype)
    want = [
        [0.090031, 0.244728, -0.334759],
        [-1.986853, 0.035736, 1.951118],
        [0.166667, -0.333333, 0.166667],
    ]
    pulls_back(each, [np.array(LOGITS)], [1, 2, 0.5], [want], dtype)


@pytest.mark.parametrize("label", [-1, 3, 100])
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.int8])
def test_fix_27_a_label_that_is_no_class_is_an_error_both_ways(label: int, dtype: Any) -> None:
    labels, x = np.array([0, label, 1], dtype), np.array(LOGITS, np.float32)
    functions = (nn.cross_entropy, td.grad(nn.cross_entropy))
    for function in (*functions, *map(td.jit, functions)):
        with pytest.raises(BoundsError, match=f"label {label} is no class: there are 0 to 2"):
            np.asarray(function(x, labels))


def test_fix_27_ignored_labels_cost_nothing_and_get_no_gradient() -> None:
    x = np.array(LOGITS, np.float32)
    x[1] = np.nan  # a row of padding may hold anything
    labels = np.array([2, -100, 1])
    for transform in (lambda f: f, td.jit):
        rows = transform(lambda x: nn.cross_entropy(x, labels, reduction="none"))(x)
        np.testing.assert_allclose(rows, [0.407606, 0, 1.098612], atol=1e-6)
        mean = transform(lambda x: nn.cross_entropy(x, labels))(x)
        np.testing.assert_allclose(mean, (0.407606 + 1.098612) / 2, atol=1e-6)
        gradient = np.asarray(transform(td.grad(lambda x: nn.cross_entropy(x, labels)))(x))
        np.testing.assert_array_equal(gradient[1], 0)
        assert gradient[[0, 2]].all()
    other = nn.cross_entropy(np.array(LOGITS), np.array([2, 7, 1]), ignore_index=7)
    np.testing.assert_allclose(other, (0.407606 + 1.098612) / 2, atol=1e-6)
    with pytest.raises(BoundsError):
        nn.cross_entropy(np.array(LOGITS), np.array([2, -100, 1]), ignore_index=None)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weighted", [False, True])
def test_smoothing_and_weights(smoothing: float, weighted: bool) -> None:
    labels = np.array([1, 4, 0, 3])
    weight = np.array([0.5, 1, 2, 0.25, 3]) if weighted else None
    factors = np.ones(5) if weight is None else weight
    logs = log_softmax(X)
    own = -logs[np.arange(4), labels] * factors[labels]
    want = (1 - smoothing) * own + smoothing * (-logs * factors).sum(1) / 5
    settings: dict[str, Any] = {"weight": weight, "label_smoothing": smoothing}
    for reduction, expected in [
        ("none", want),
        ("sum", want.sum()),
        ("mean", want.sum() / factors[labels].sum()),
    ]:
        function = lambda x, r=reduction: nn.cross_entropy(x, labels, reduction=r, **settings)  # noqa: E731
        gives(function, [X], expected, np.float64, atol=1e-12)
    differentiates(lambda x: nn.cross_entropy(x, labels, reduction="none", **settings), X)
    even = np.eye(5)[labels]
    soft = lambda x: nn.cross_entropy(x, even, reduction="none", **settings)  # noqa: E731
    gives(soft, [X], want, np.float64, atol=1e-12)


def test_classes_along_any_axis() -> None:
    x, labels = RNG.standard_normal((2, 5, 3, 4)), RNG.integers(0, 5, (2, 3, 4))
    want = nn.cross_entropy(np.moveaxis(x, 1, -1), labels, reduction="none")
    gives(lambda x: nn.cross_entropy(x, labels, axis=1, reduction="none"), [x], want, np.float64)
    gives(lambda x: nn.cross_entropy(x, labels, axis=-3), [x], np.mean(want), np.float64)
    vector = nn.cross_entropy(np.array([1.0, 2, 3]), np.array(2))
    np.testing.assert_allclose(vector, 0.407606, atol=1e-6)


def test_probabilities_have_derivatives_too() -> None:
    p = np.abs(T) / np.abs(T).sum(1, keepdims=True)
    want = -(p * log_softmax(X)).sum(1)
    gives(lambda x, p: nn.cross_entropy(x, p, reduction="none"), [X, p], want, np.float64)
    differentiates(lambda x, p: nn.cross_entropy(x, p, reduction="none"), X, p)
    masked = X.copy()
    masked[0, 0], p[0, 0] = -np.inf, 0
    assert np.isfinite(nn.cross_entropy(masked, p))


def test_large_logits_do_not_overflow() -> None:
    x = np.array([[1e3, -1e3, 0], [1e4, 1e4, 1e4]], np.float32)
    for function in (nn.cross_entropy, td.jit(nn.cross_entropy, static_argnames="reduction")):
        np.testing.assert_allclose(
            function(x, np.array([0, 1]), reduction="none"), [0, np.log(3)], rtol=1e-6
        )
        far = function(x, np.array([1, 1]), reduction="none")
        np.testing.assert_allclose(far, [2e3, np.log(3)], rtol=1e-6)
    gradient = td.jit(td.grad(lambda x: nn.cross_entropy(x, np.array([1, 1]))))(x)
    np.testing.assert_allclose(gradient, [[0.5, -0.5, 0], [1 / 6, -1 / 3, 1 / 6]], rtol=1e-6)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_halves_are_computed_wide(kind: str) -> None:
    x = td.astype(RNG.standard_normal((3, 2000)), getattr(td, kind))
    got = td.jit(nn.cross_entropy)(x, np.array([1, 2, 3]))
    want = nn.cross_entropy(np.asarray(x, np.float64), np.array([1, 2, 3]))
    assert got.dtype == x.dtype
    np.testing.assert_allclose(float(got), float(want), rtol=4e-3)


def test_one_pass_over_the_logits() -> None:
    """The kernels that touch something as large as the logits: one, which makes loss and
    gradient."""
    spec = td.Spec((512, 256)), td.Spec((512,), td.int32)
    graph = optimise(td.trace(td.value_and_grad(nn.cross_entropy))(*spec))
    large = [g for g in fuse(graph) if any(m.type.shape == (512, 256) for m in g.members)]
    assert [group.kind for group in large] == ["rows"]


PAIRS: dict[str, tuple[Any, Any]] = {
    "mse": (nn.mse_loss, lambda x, t: (x - t) ** 2),
    "l1": (nn.l1_loss, lambda x, t: np.abs(x - t)),
    "huber": (
        lambda x, t, **s: nn.huber_loss(x, t, delta=0.7, **s),
        lambda x, t: np.where(np.abs(x - t) <= 0.7, (x - t) ** 2 / 2, 0.7 * (np.abs(x - t) - 0.35)),
    ),
    "smooth l1": (
        lambda x, t, **s: nn.smooth_l1_loss(x, t, beta=0.7, **s),
        lambda x, t: np.where(np.abs(x - t) <= 0.7, (x - t) ** 2 / 1.4, np.abs(x - t) - 0.35),
    ),
    "smooth l1 of 0": (
        lambda x, t, **s: nn.smooth_l1_loss(x, t, beta=0, **s),
        lambda x, t: np.abs(x - t),
    ),
    "kl": (
        lambda x, t, **s: nn.kl_div(x, t * t, **s),
        lambda x, t: t * t * (np.log(t * t) - x),
    ),
    "kl of logs": (
        lambda x, t, **s: nn.kl_div(x, t, log_target=True, **s),
        lambda x, t: np.exp(t) * (t - x),
    ),
    "hinge": (
        lambda x, t, **s: nn.hinge_loss(x, td.sign(t), **s),
        lambda x, t: np.maximum(0, 1 - np.sign(t) * x),
    ),
    "hinge embedding": (
        lambda x, t, **s: nn.hinge_embedding_loss(x, td.sign(t), margin=0.4, **s),
        lambda x, t: np.where(t > 0, x, np.maximum(0, 0.4 - x)),
    ),
    "binary": (
        lambda x, t, **s: nn.binary_cross_entropy(td.sigmoid(x), td.sigmoid(t), **s),
        lambda x, t: np.logaddexp(0, x) - x / (1 + np.exp(-t)),
    ),
    "binary with logits": (
        lambda x, t, **s: nn.binary_cross_entropy_with_logits(x, td.sigmoid(t), **s),
        lambda x, t: np.logaddexp(0, x) - x / (1 + np.exp(-t)),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_losses_of_pairs(name: str) -> None:
    function, formula = PAIRS[name]
    want = formula(X, T)
    gives(lambda x, t: function(x, t, reduction="none"), [X, T], want, np.float64, atol=1e-12)
    gives(lambda x, t: function(x, t, reduction="none"), [X, T], want, np.float32)
    gives(lambda x, t: function(x, t, reduction="sum"), [X, T], want.sum(), np.float64)
    gives(function, [X, T], want.mean(), np.float64)
    differentiates(lambda x, t: function(x, t, reduction="none"), X, T)


def test_binary_losses_at_the_ends() -> None:
    p, t = np.array([0.0, 1, 0, 1]), np.array([0.0, 1, 1, 0])
    loss, gradient = td.jit(td.value_and_grad(lambda p: nn.binary_cross_entropy(p, t)))(p)
    np.testing.assert_allclose(loss, 50)
    assert np.isfinite(gradient).all()
    x = np.array([1e4, -1e4, 1e4, -1e4], np.float32)
    far = np.array([1.0, 0, 0, 1], np.float32)
    rows = td.jit(lambda x: nn.binary_cross_entropy_with_logits(x, far, reduction="none"))(x)
    np.testing.assert_array_equal(rows, [0, 0, 1e4, 1e4])
    weighted = nn.binary_cross_entropy_with_logits(
        np.array([0.5, -2.0]), np.array([1.0, 0.0]), pos_weight=3.0, reduction="none"
    )
    np.testing.assert_allclose(weighted, [3 * np.log1p(np.exp(-0.5)), np.log1p(np.exp(-2))])


def test_kl_by_batch_and_where_nothing_is_expected() -> None:
    got = nn.kl_div(X, np.zeros((4, 5)), reduction="batchmean")
    np.testing.assert_array_equal(got, 0)
    want = (np.exp(T) * (T - X)).sum() / 4
    np.testing.assert_allclose(nn.kl_div(X, T, log_target=True, reduction="batchmean"), want)


def test_cosines() -> None:
    want = (X * T).sum(1) / np.linalg.norm(X, axis=1) / np.linalg.norm(T, axis=1)
    gives(nn.cosine_similarity, [X, T], want, np.float64, atol=1e-12)
    gives(lambda x, t: nn.cosine_similarity(x, t, axis=0), [X.T, T.T], want, np.float64)
    differentiates(nn.cosine_similarity, X, T)
    zero = td.jit(td.grad(lambda x: td.sum(nn.cosine_similarity(x, T))))(np.zeros_like(X))
    assert np.isfinite(zero).all()
    sign = np.array([1, -1, 1, -1])
    loss = nn.cosine_embedding_loss(X, T, sign, margin=0.1, reduction="none")
    expected = np.where(sign > 0, 1 - want, np.maximum(0, want - 0.1))
    np.testing.assert_allclose(loss, expected, atol=1e-12)


def test_losses_batch_like_loops() -> None:
    labels = np.array([1, 4, 0, 3])
    rows = td.vmap(nn.cross_entropy)(X, labels)
    np.testing.assert_allclose(rows, nn.cross_entropy(X, labels, reduction="none"), rtol=1e-6)
    np.testing.assert_allclose(td.vmap(nn.mse_loss)(X, T), ((X - T) ** 2).mean(1))


def test_what_does_not_fit_says_so() -> None:
    with pytest.raises(ShapeError, match=r"have the shape \[4\], got i64\[3\]"):
        nn.cross_entropy(X, LABELS)
    with pytest.raises(ShapeError, match="labels are integers, or probabilities"):
        nn.cross_entropy(X, np.ones(4))
    with pytest.raises(ShapeError, match="a number for each of 5 classes"):
        nn.cross_entropy(X, np.zeros(4, int), weight=np.ones(4))
    with pytest.raises(SettingError, match="mean, sum or none, got 'max'"):
        nn.mse_loss(X, T, reduction="max")
    with pytest.raises(SettingError, match="label_smoothing: expected 0 to 1"):
        nn.cross_entropy(X, np.zeros(4, int), label_smoothing=1.5)
    with pytest.raises(ShapeError, match="one shape"):
        nn.mse_loss(X, T[0])
    with pytest.raises(SettingError, match="delta: expected a positive number, got 0"):
        nn.huber_loss(X, T, delta=0)


def test_empty_batches() -> None:
    assert nn.cross_entropy(np.zeros((0, 3)), np.zeros(0, int), reduction="none").shape == (0,)
    total = td.jit(lambda x: nn.cross_entropy(x, np.zeros(0, int), reduction="sum"))
    np.testing.assert_array_equal(total(np.zeros((0, 3))), 0)
