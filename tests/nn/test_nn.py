"""Neural-network functions against their formulas in float64, eager and traced, and where formulas
overflow."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.compiler.engine import jit
from tetrad import nn

RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 6)) * 3


def erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf)(x)


def exact_softmax(x: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


FORMULAS: list[tuple[Callable[[Any], Any], Callable[[np.ndarray], np.ndarray]]] = [
    (nn.relu, lambda x: np.maximum(x, 0)),
    (nn.leaky_relu, lambda x: np.where(x > 0, x, 0.01 * x)),
    (nn.elu, lambda x: np.where(x > 0, x, np.expm1(x))),
    (nn.sigmoid, lambda x: 1 / (1 + np.exp(-x))),
    (nn.silu, lambda x: x / (1 + np.exp(-x))),
    (nn.softplus, lambda x: np.log1p(np.exp(x))),
    (nn.gelu, lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
    (lambda x: nn.gelu(x, approximate=False), lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2)))),
    (nn.relu6, lambda x: np.clip(x, 0, 6)),
    (lambda x: nn.celu(x, 2.0), lambda x: np.where(x > 0, x, 2 * np.expm1(x / 2))),
    (nn.selu, lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x))),
    (nn.glu, lambda x: x[:, :3] / (1 + np.exp(-x[:, 3:]))),
    (lambda x: nn.glu(x, axis=0), lambda x: x[:2] / (1 + np.exp(-x[2:]))),
    (nn.hard_sigmoid, lambda x: np.clip(x + 3, 0, 6) / 6),
    (nn.hard_silu, lambda x: x * np.clip(x + 3, 0, 6) / 6),
    (nn.hard_tanh, lambda x: np.clip(x, -1, 1)),
    (nn.log_sigmoid, lambda x: -np.log1p(np.exp(-x))),
    (nn.mish, lambda x: x * np.tanh(np.log1p(np.exp(x)))),
    (nn.soft_sign, lambda x: x / (1 + np.abs(x))),
    (nn.squareplus, lambda x: (x + np.sqrt(x * x + 4)) / 2),
    (nn.softmax, lambda x: exact_softmax(x, -1)),
    (lambda x: nn.softmax(x, axis=0), lambda x: exact_softmax(x, 0)),
    (nn.log_softmax, lambda x: np.log(exact_softmax(x, -1))),
    (nn.logsumexp, lambda x: np.log(np.exp(x).sum())),
    (lambda x: nn.logsumexp(x, axis=1, keepdims=True), lambda x: np.log(np.exp(x).sum(1,
    keepdims=True))),
    (nn.layer_norm, lambda x: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1,
    keepdims=True) + 1e-5)),
    (nn.rms_norm, lambda x: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)),
    (lambda x: nn.rms_norm(x, 2.0), lambda x: 2 * x / np.sqrt((x * x).mean(-1,
    keepdims=True) + 1e-6)),
    (lambda x: nn.linear(x, x, 1.0), lambda x: x @ x.T + 1),
]  # fmt: skip


@pytest.mark.parametrize(("function", "formula"), FORMULAS, ids=range(len(FORMULAS)))
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(td.float32, 3e-6), (td.float16, 4e-3), (td.bfloat16, 3e-2)], ids=str
)
def test_formula(function: Any, formula: Any, dtype: Any, tolerance: float) -> None:
    x = td.astype(X, dtype)
    want = formula(np.asarray(x, np.float64))
    for got in (function(x), jit(function)(x)):
        assert got.dtype is dtype and got.shape == want.shape
        np.testing.assert_allclose(
            np.asarray(got, np.float64), want, rtol=tolerance, atol=tolerance
        )


def test_extremes_do_not_overflow() -> None:
    x = td.asarray([-1000.0, 0.0, 1000.0])
    assert nn.softmax(x).tolist() == [0, 0, 1]
    assert nn.log_softmax(x).tolist() == [-2000, -1000, 0]
    assert float(nn.logsumexp(x)) == 1000
    assert float(nn.logsumexp(td.asarray([-math.inf, -math.inf]))) == -math.inf
    assert float(nn.logsumexp(td.asarray([1.0, math.inf, -math.inf]))) == math.inf
    assert math.isnan(float(nn.logsumexp(td.asarray([math.nan, math.inf]))))
    assert nn.elu(x).tolist() == [-1, 0, 1000] and nn.sigmoid(x).tolist() == [0, 0.5, 1]
    assert nn.softplus(x).tolist()[2] == 1000
    assert math.isnan(float(nn.relu(td.asarray(math.nan))))


@pytest.mark.parametrize("size", [3, 64, 1000])
def test_rows_with_infinities_and_nan(size: int) -> None:
    """A NaN spoils its row and no other; -inf weighs nothing; +inf is the sum; what is far below is
    subnormal."""
    x = np.zeros((6, size), np.float32)
    x[1, 1], x[2, 0], x[3, :], x[4, 2], x[5, 1:] = math.nan, -math.inf, -math.inf, math.inf, -100
    total, parts = jit(lambda x: (nn.logsumexp(x, axis=1), nn.softmax(x)))(td.asarray(x))
    want = [math.log(size), math.nan, math.log(size - 1), -math.inf, math.inf, 0]
    np.testing.assert_allclose(total, want, rtol=1e-6, atol=1e-6)
    assert np.isnan(parts).all(1).tolist() == [False, True, False, True, True, False]
    assert float(parts[2, 0]) == 0 and float(parts[5, 0]) == 1
    assert set(parts[5, 1:].tolist()) == {float(np.float32(math.exp(-100)))}


def test_layer_norm_with_weight_and_bias() -> None:
    weight, bias = np.arange(6.0), np.ones(6)
    got = nn.layer_norm(X, weight, bias)
    want = (X - X.mean(-1, keepdims=True)) / np.sqrt(
        X.var(-1, keepdims=True) + 1e-5
    ) * weight + bias
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


def test_one_hot() -> None:
    classes = np.array([[0, 2], [1, 5]])
    want = (classes[..., None] == np.arange(3)).astype(np.float32)
    np.testing.assert_array_equal(nn.one_hot(classes, 3), want)
    np.testing.assert_array_equal(
        jit(lambda c: nn.one_hot(c, 3, axis=0))(classes), np.moveaxis(want, -1, 0)
    )
    with pytest.raises(td.errors.DtypeError, match="classes are integers"):
        nn.one_hot(td.zeros(2), 3)


def test_the_gradient_of_softmax_keeps_its_digits() -> None:
    """Its terms cancel; the rule of the whole loses fewer digits than those of exp, sum and
    quotient."""
    weights = np.linspace(-1, 2, 128).reshape(8, 16)

    def slope(x: np.ndarray) -> np.ndarray:
        w = td.asarray(weights.astype(x.dtype))
        return np.asarray(td.jit(td.grad(lambda x: td.sum(nn.softmax(x) * w)))(td.asarray(x)))

    for seed in range(6):
        x = np.random.default_rng(seed).standard_normal((8, 16)).astype(np.float32)
        exact = slope(x.astype(np.float64))
        assert np.abs(slope(x) - exact).max() < 1.5e-6 * np.abs(exact).max()
    half = td.grad(lambda x: td.sum(nn.softmax(x) * x))(td.asarray([0.5, 1.0], dtype=td.float16))
    assert half.dtype is td.float16 and nn.softmax(td.asarray([1, 1])).tolist() == [0.5, 0.5]
    second = td.hessian(lambda x: nn.softmax(x)[0])(td.zeros(2, dtype=td.float64))
    np.testing.assert_allclose(np.asarray(second), np.zeros((2, 2)), atol=1e-16)
    along = td.vmap(lambda x: nn.softmax(x, axis=(0, 1)), in_axes=2, out_axes=2)(td.ones((2, 3, 4)))
    np.testing.assert_allclose(np.asarray(along), np.full((2, 3, 4), 1 / 6), rtol=1e-6)


def test_elements_of_a_mask() -> None:
    x = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [0.0, 1.0, 2.0]])
    mask = np.array([[True, False, True], [True, True, True], [False, False, False]])
    exps, weights = (
        np.where(mask, np.exp(x), 0),
        np.array([[1.0, 0.0, 2.0], [0.5, 1.0, 1.0], [1.0, 1.0, 0.0]]),
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(mask, exps / exps.sum(1, keepdims=True), 0)
        logs, totals, weighted = (
            np.log(share),
            np.log(exps.sum(1)),
            np.log((weights * np.exp(x)).sum(1)),
        )
    for way in (lambda f: f, td.jit):
        np.testing.assert_allclose(way(lambda x: nn.softmax(x, where=mask))(x), share)
        np.testing.assert_allclose(way(lambda x: nn.log_softmax(x, where=mask))(x), logs)
        np.testing.assert_allclose(way(lambda x: nn.logsumexp(x, axis=1, where=mask))(x), totals)
        np.testing.assert_allclose(way(lambda x: nn.logsumexp(x, axis=1, b=weights))(x), weighted)
        slope = way(td.grad(lambda x: td.sum(td.square(nn.softmax(x, where=mask)))))(td.asarray(x))
        square = (share**2).sum(1, keepdims=True)
        np.testing.assert_allclose(slope, 2 * share * (share - square), atol=1e-15)


ACTIVATIONS = [
    "celu",
    "hard_sigmoid",
    "hard_silu",
    "hard_tanh",
    "log_sigmoid",
    "mish",
    "relu6",
    "selu",
    "soft_sign",
]


@pytest.mark.parametrize("name", [*ACTIVATIONS, "squareplus"])
def test_activations_and_their_derivatives_stay_finite(name: str) -> None:
    """Numbers as large as squares allow, both zeros, and the derivative against differences beside
    the kinks."""
    f = getattr(nn, name)
    x = td.asarray([-1e18, -200.0, -0.0, 0.0, 200.0, 1e18])
    slope = td.vmap(td.grad(f))(x)
    assert np.isfinite(np.asarray(f(x))).all() and np.isfinite(np.asarray(slope)).all()
    at = np.linspace(-6.4, 6.7, 40)
    step = 1e-6
    y, got = td.jvp(f, (td.asarray(at),), (td.ones_like(td.asarray(at)),))
    want = (np.asarray(f(td.asarray(at + step))) - np.asarray(f(td.asarray(at - step)))) / (
        2 * step
    )
    np.testing.assert_allclose(np.asarray(got), want, atol=1e-8)
    assert f(3).dtype in (td.float32, td.int32) and y.dtype is td.float64


def test_halves_of_an_axis() -> None:
    with pytest.raises(td.errors.ShapeError, match=r"glu: axis -1 of f32\[2,3\] has no halves"):
        nn.glu(td.ones((2, 3)))
    n = td.Dim("n", max=8)
    free = td.jit(lambda x: nn.glu(x, axis=1), dims=({0: n},))
    np.testing.assert_allclose(
        free(np.ones((3, 4), np.float32)), np.full((3, 2), 1 / (1 + math.exp(-1))), rtol=1e-6
    )


def test_derivatives_at_kinks_are_those_of_jax() -> None:
    kinks = {
        "relu": (0, 0),
        "leaky_relu": (0, 1),
        "elu": (0, 1),
        "celu": (0, 1),
        "hard_tanh": (1, 1),
    }
    kinks |= {
        "relu6": (6, 0),
        "hard_sigmoid": (-3, 0),
        "hard_silu": (3, 1),
        "selu": (0, 1.7580993408473766),
    }
    for name, (at, slope) in kinks.items():
        assert float(td.grad(getattr(nn, name))(float(at))) == np.float32(slope), name
    assert float(td.grad(nn.relu6)(0.0)) == 0


# -- norms along any axes --------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [-1, 1, -2, 0, (1, 2), (-1, 0), (0, 1, 2), (2, 0)])
@pytest.mark.parametrize("way", [lambda f: f, td.jit], ids=["eager", "compiled"])
def test_weight_and_bias_lie_along_the_normalised_axes(way: Any, axis: Any) -> None:
    x = RNG.standard_normal((3, 3, 3))
    axes = tuple(sorted(a % 3 for a in ((axis,) if isinstance(axis, int) else axis)))
    weight, bias = (RNG.standard_normal((3,) * len(axes)) for _ in range(2))
    wide = [np.expand_dims(w, tuple(i for i in range(3) if i not in axes)) for w in (weight, bias)]
    apart = x - x.mean(axes, keepdims=True)
    layer = apart / np.sqrt((apart**2).mean(axes, keepdims=True) + 1e-5) * wide[0] + wide[1]
    root = x / np.sqrt((x * x).mean(axes, keepdims=True) + 1e-6) * wide[0]
    got = way(lambda x, w, b: (nn.layer_norm(x, w, b, axis=axis), nn.rms_norm(x, w, axis=axis)))(
        x, weight, bias
    )
    np.testing.assert_allclose(np.asarray(got[0]), layer, rtol=1e-12)
    np.testing.assert_allclose(np.asarray(got[1]), root, rtol=1e-12)
    # a weight of all axes broadcasts
    kept = way(lambda x, w: nn.rms_norm(x, w, axis=axis))(x, wide[0])
    np.testing.assert_allclose(np.asarray(kept), root, rtol=1e-12)


def test_a_weight_of_another_size_is_an_error() -> None:
    with pytest.raises(td.errors.ShapeError, match=r"axes \[1\] of f32\[2,3,4\], got f32\[4\]"):
        nn.layer_norm(td.ones((2, 3, 4)), td.ones(4), axis=1)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_gelu_keeps_its_digits_on_the_left(dtype: str) -> None:
    x = np.array([-5, -5.5, -7, -9, -13], td.asarray(0, dtype=dtype).dtype.np)
    wide = x.astype(np.float64)
    tail = np.array([math.erfc(-v / math.sqrt(2)) for v in wide])
    values = 0.5 * wide * tail
    slopes = 0.5 * tail + wide * np.exp(-0.5 * wide * wide) / math.sqrt(2 * math.pi)
    unit = float(td.finfo(dtype).eps)
    gelu = td.vmap(lambda v: nn.gelu(v, approximate=False))
    slope = td.vmap(td.grad(lambda v: nn.gelu(v, approximate=False)))
    for way in (lambda f: f, td.jit):
        for found, want in (
            (way(gelu)(td.asarray(x)), values),
            (way(slope)(td.asarray(x)), slopes),
        ):
            room = 200 * unit if dtype in ("float32", "float64") else 2 * unit
            least = float(td.finfo(dtype).smallest_normal) * unit
            np.testing.assert_allclose(
                np.asarray(found).astype(np.float64), want, rtol=room, atol=least
            )
