"""Activations and their derivatives against vectors, formulas and finite differences; gated
units."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.nn.vectors import differentiates, gives, in_both_types, pulls_back
from tetrad import nn
from tetrad.errors import SettingError, ShapeError

AT = np.array([-2.0, -0.5, 0, 0.5, 2])
# derivatives at these places
SLOPES: dict[str, tuple[Any, list[float]]] = {
    "relu": (nn.relu, [0, 0, 0, 1, 1]),
    "sigmoid": (nn.sigmoid, [0.104994, 0.235004, 0.25, 0.235004, 0.104994]),
    "tanh": (nn.tanh, [0.070651, 0.786448, 1, 0.786448, 0.070651]),
    "silu": (nn.silu, [-0.090784, 0.260039, 0.5, 0.739961, 1.090784]),
    "gelu": (
        lambda x: nn.gelu(x, approximate=False),
        [-0.085232, 0.132505, 0.5, 0.867495, 1.085232],
    ),
    "gelu tanh, fix 29": (nn.gelu, [-0.086099, 0.13263, 0.5, 0.86737, 1.086099]),
    "exp": (td.exp, [0.135335, 0.606531, 1, 1.648721, 7.389056]),
    "sin": (td.sin, [-0.416147, 0.877583, 1, 0.877583, -0.416147]),
    "cos": (td.cos, [0.909297, 0.479426, 0, -0.479426, -0.909297]),
    "tan": (td.tan, [5.774399, 1.298446, 1, 1.298446, 5.774399]),
    "atan": (td.atan, [0.2, 0.8, 1, 0.8, 0.2]),
    "negative": (td.negative, [-1] * 5),
    "abs": (td.abs, [-1, -1, 0, 1, 1]),
    "round": (td.round, [0] * 5),
}
POSITIVE = {
    "log": (td.log, [4, 1, 0.25]),
    "sqrt": (td.sqrt, [1, 0.5, 0.25]),
    "rsqrt": (td.rsqrt, [-4, -0.5, -0.0625]),
}


@in_both_types
@pytest.mark.parametrize("name", SLOPES)
def test_slope_vectors(name: str, dtype: Any) -> None:
    function, want = SLOPES[name]
    pulls_back(function, [AT], np.ones(5), [np.array(want)], dtype)


@in_both_types
@pytest.mark.parametrize("name", POSITIVE)
def test_slope_vectors_of_positive_numbers(name: str, dtype: Any) -> None:
    function, want = POSITIVE[name]
    pulls_back(function, [np.array([0.25, 1, 4])], np.ones(3), [np.array(want)], dtype)


@in_both_types
def test_relu_backward_vector(dtype: Any) -> None:
    x = np.array([-2, -0.1, 0, 0.1, 1, 3, -5])
    ct = [0.5, 1.5, 2.5, -0.7, 4, -1, 9]
    pulls_back(nn.relu, [x], ct, [np.array([0, 0, 0, -0.7, 4, -1, 0])], dtype)


@in_both_types
def test_gelu_vectors_fix_31(dtype: Any) -> None:
    exact = np.array([-0.0455, -0.154269, 0, 0.345731, 1.9545])
    gives(lambda x: nn.gelu(x, approximate=False), [AT], exact, dtype)
    approximate = np.array([-0.045402, -0.154286, 0, 0.345714, 1.954598])
    gives(nn.gelu, [AT], approximate, dtype)
    gives(nn.silu, [AT], AT / (1 + np.exp(-AT)), dtype)


def test_fix_32_tails_of_gelu_are_those_of_a_true_erf() -> None:
    x = np.array([-5.0, -8, -12])
    want = [0.5 * v * math.erfc(-v / math.sqrt(2)) for v in x]
    for called in (nn.gelu, td.jit(nn.gelu, static_argnames="approximate")):
        np.testing.assert_allclose(called(x, approximate=False), want, rtol=1e-13)
    assert abs(want[0] + 1.433258e-06) < 1e-11
    np.testing.assert_allclose(nn.gelu(x.astype(np.float32), approximate=False), want, rtol=2e-6)


def test_fix_28_slopes_at_the_infinities_are_finite() -> None:
    ends = np.array([-np.inf, np.inf])
    for function in (nn.silu, nn.gelu, lambda x: nn.gelu(x, approximate=False), nn.mish):
        slope = td.jit(lambda x, f=function: td.vjp(f, x)[1](np.ones(2))[0])
        np.testing.assert_array_equal(slope(ends), [0, 1])


def test_fix_30_halves_round_to_even_in_both_types() -> None:
    for dtype in (np.float32, np.float64):
        x = np.array([0.5, 1.5, 2.5, -0.5, -1.5], dtype)
        for called in (td.round, td.jit(td.round)):
            np.testing.assert_array_equal(called(x), [0, 2, 2, -0.0, -2])


def test_nan_stays_nan() -> None:
    x = np.array([np.nan], np.float32)
    functions = [nn.relu, nn.silu, nn.gelu, nn.hard_shrink, nn.soft_shrink, nn.tanh_shrink]
    functions += [nn.sparse_plus, nn.sparse_sigmoid, nn.hard_swish, nn.swish]
    functions += [lambda x: nn.threshold(x, 0.0, 1.0), lambda x: nn.prelu(x, 0.5)]
    for function in functions:
        assert np.isnan(function(x)).all() and np.isnan(td.jit(function)(x)).all()


FORMULAS: dict[str, tuple[Any, Any]] = {
    "prelu": (lambda x: nn.prelu(x, 0.3), lambda x: np.where(x > 0, x, 0.3 * x)),
    "hard_shrink": (nn.hard_shrink, lambda x: np.where(np.abs(x) > 0.5, x, 0)),
    "soft_shrink": (
        lambda x: nn.soft_shrink(x, 0.3),
        lambda x: np.sign(x) * np.maximum(np.abs(x) - 0.3, 0),
    ),
    "tanh_shrink": (nn.tanh_shrink, lambda x: x - np.tanh(x)),
    "threshold": (lambda x: nn.threshold(x, 0.2, 7.0), lambda x: np.where(x > 0.2, x, 7.0)),
    "softmin": (nn.softmin, lambda x: np.exp(-x) / np.exp(-x).sum(-1, keepdims=True)),
    "sparse_plus": (
        nn.sparse_plus,
        lambda x: np.where(x <= -1, 0, np.where(x >= 1, x, (x + 1) ** 2 / 4)),
    ),
    "sparse_sigmoid": (nn.sparse_sigmoid, lambda x: np.clip((x + 1) / 2, 0, 1)),
    "swish": (nn.swish, lambda x: x / (1 + np.exp(-x))),
    "hard_swish": (nn.hard_swish, lambda x: x * np.clip(x + 3, 0, 6) / 6),
    "log1mexp": (lambda x: nn.log1mexp(td.abs(x)), lambda x: np.log1p(-np.exp(-np.abs(x)))),
    "logmeanexp": (lambda x: nn.logmeanexp(x, -1), lambda x: np.log(np.exp(x).mean(-1))),
    "standardize": (
        nn.standardize,
        lambda x: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5),
    ),
    "identity": (nn.identity, lambda x: x),
    "geglu": (
        lambda x: nn.geglu(x, approximate=False),
        lambda x: x[:, :3] * x[:, 3:] * 0.5 * (1 + np.vectorize(math.erf)(x[:, 3:] / 2**0.5)),
    ),
    "reglu": (nn.reglu, lambda x: x[:, :3] * np.maximum(x[:, 3:], 0)),
    "reglu, gate first": (
        lambda x: nn.reglu(x, gate_first=True),
        lambda x: np.maximum(x[:, :3], 0) * x[:, 3:],
    ),
    "swiglu along the first axis": (
        lambda x: nn.swiglu(x, axis=0),
        lambda x: x[:2] * x[2:] / (1 + np.exp(-x[2:])),
    ),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_formulas(name: str) -> None:
    function, formula = FORMULAS[name]
    x = np.random.default_rng(8).standard_normal((4, 6)) * 1.5
    gives(function, [x], formula(x), np.float64, atol=1e-12)
    gives(function, [x], formula(x), np.float32)
    differentiates(function, x)
    half = td.jit(function)(td.astype(x, td.bfloat16))
    assert half.dtype == td.bfloat16
    np.testing.assert_allclose(np.asarray(half, np.float64), formula(x), rtol=0.1, atol=0.1)


def test_prelu_by_channel() -> None:
    x = np.random.default_rng(9).standard_normal((2, 3, 4))
    w = np.array([0.1, 0.2, 0.3])
    gives(nn.prelu, [x, w], np.where(x > 0, x, x * w[:, None]), np.float64, atol=1e-12)
    differentiates(nn.prelu, x, w)
    with pytest.raises(ShapeError, match="one for each of 3 channels"):
        nn.prelu(x, np.ones(4))


@in_both_types
def test_swiglu_vectors_fix_15(dtype: Any) -> None:
    x = np.array([1, 2, 0.5, -1])
    gives(nn.swiglu, [x], np.array([0.31123, -0.537883]), dtype)
    first = lambda x: nn.swiglu(x, gate_first=True)  # noqa: E731
    gives(first, [x], np.array([0.365529, -1.761594]), dtype)
    s = 1 / (1 + np.exp(-x[2:]))
    want = np.concatenate([x[2:] * s, x[:2] * s * (1 + x[2:] * (1 - s))])
    pulls_back(nn.swiglu, [x], [1, 1], [want], dtype)
    assert nn.swiglu(x.astype(np.float32), dtype=td.float16).dtype == td.float16


@pytest.mark.parametrize("batch", [1, 3])
def test_gated_units_of_batches(batch: int) -> None:
    x = np.random.default_rng(10).standard_normal((batch, 2, 10)).astype(np.float32)
    rows = np.stack([np.stack([np.asarray(nn.swiglu(v)) for v in part]) for part in x])
    np.testing.assert_allclose(td.jit(nn.swiglu)(x), rows, rtol=1e-6)
    np.testing.assert_allclose(td.vmap(nn.swiglu)(x), rows, rtol=1e-6)
    with pytest.raises(ShapeError, match="has no halves"):
        nn.geglu(x[..., :9])


@in_both_types
def test_softmax_vectors_fix_25_fix_26(dtype: Any) -> None:
    gives(nn.softmax, [np.array([1.0, 2, 3])], np.array([0.090031, 0.244728, 0.665241]), dtype)
    gives(nn.softmax, [np.full(3, 1000.0)], np.full(3, 1 / 3), dtype)
    want = np.array([[0.119203] * 2, [0.880797] * 2])
    gives(lambda x: nn.softmax(x, axis=0), [np.array([[0.0, 1], [2, 3]])], want, dtype)
    back = np.array([0.081925, -0.022033, -0.059892])
    pulls_back(nn.softmax, [np.array([1.0, 2, 3])], [1, 0, 0], [back], dtype)
    x = np.array([[-np.inf, 0, -np.inf], [-np.inf] * 3, [1, np.nan, 2], [1e4, -1e4, 0]], dtype)
    got = np.asarray(td.jit(nn.softmax)(x))
    np.testing.assert_array_equal(got[[0, 3]], [[0, 1, 0], [1, 0, 0]])
    assert np.isnan(got[1:3]).all()
    even = td.grad(lambda x: td.sum(nn.softmax(x)))(np.array([1.0, 2, 4], dtype))
    np.testing.assert_allclose(even, 0, atol=1e-7)


def test_settings_that_cannot_be() -> None:
    with pytest.raises(SettingError, match="lambd: expected 0 or more"):
        nn.soft_shrink(np.ones(2), -1.0)


# -- embedding and dropout -------------------------------------------------------------------------


@in_both_types
def test_gather_gradient_vector_fix_45(dtype: Any) -> None:
    table, ct = np.zeros((4, 2)), np.array([[1.0, 2], [3, 4], [5, 6]])
    want = np.array([[0.0, 0], [6, 8], [0, 0], [3, 4]])
    indices = np.array([1, 3, 1])
    for kind in (np.int64, np.int32, np.uint8):
        chosen = indices.astype(kind)
        pulls_back(lambda t, i=chosen: nn.embedding(i, t), [table], ct, [want], dtype)
    flat = lambda t: nn.embedding(np.array([[1, 3], [1, 0]]), t)  # noqa: E731
    two = np.array([[[1.0, 2], [3, 4]], [[5, 6], [7, 8]]])
    pulls_back(flat, [table], two, [np.array([[7.0, 8], [6, 8], [0, 0], [3, 4]])], dtype)
    across = lambda t: td.take(t, indices, axis=1)  # noqa: E731
    pulls_back(across, [table.T], ct.T, [want.T], dtype)


def test_embedding() -> None:
    table = np.random.default_rng(11).standard_normal((5, 3))
    indices = np.array([[0, 4], [-1, 2]])
    gives(lambda t: nn.embedding(indices, t), [table], table[indices], np.float64)
    differentiates(lambda t: nn.embedding(indices, t), table)
    padded = td.jit(td.grad(lambda t: td.sum(nn.embedding(indices, t, padding_idx=4))))
    np.testing.assert_array_equal(np.asarray(padded(table))[:, 0], [1, 0, 1, 0, 0])
    last = td.grad(lambda t: td.sum(nn.embedding(indices, t, padding_idx=-1)))(table)
    np.testing.assert_array_equal(last, padded(table))
    for called in (nn.embedding, td.jit(nn.embedding)):
        with pytest.raises(IndexError, match="out of range"):
            np.asarray(called(np.array([5]), table))
    with pytest.raises(TypeError, match="indices are integers"):
        nn.embedding(np.ones(2), table)
    with pytest.raises(SettingError, match="padding_idx"):
        nn.embedding(indices, table, padding_idx=5)


def test_dropout() -> None:
    key, x = td.random.key(1), np.ones((400, 50), np.float32)
    got = np.asarray(td.jit(lambda x: nn.dropout(x, 0.25, key=key))(x))
    assert set(np.unique(got)) == {0, np.float32(1 / 0.75)}
    assert abs((got == 0).mean() - 0.25) < 0.02
    np.testing.assert_array_equal(got, nn.dropout(x, 0.25, key=key))
    slope = td.grad(lambda x: td.sum(nn.dropout(x, 0.25, key=key)))(x)
    np.testing.assert_array_equal(slope, got)
    rows = np.asarray(nn.dropout(x, 0.5, key=key, shared_axes=1))
    assert (rows == rows[:, :1]).all() and {0, 2} == set(np.unique(rows))


def test_dropout_at_the_ends() -> None:
    x = np.array([1.0, np.inf, np.nan], np.float32)
    np.testing.assert_array_equal(nn.dropout(x, 0.0), x)
    np.testing.assert_array_equal(nn.dropout(x, 0.9, inference=True), x)
    np.testing.assert_array_equal(nn.dropout(x, 1.0), 0)
    np.testing.assert_array_equal(td.grad(lambda x: td.sum(nn.dropout(x, 1.0)))(x), 0)
    with pytest.raises(SettingError, match="key: expected a random key"):
        nn.dropout(x)
    with pytest.raises(SettingError, match="p: expected a probability"):
        nn.dropout(x, 1.5, key=td.random.key(0))


@in_both_types
def test_cumsum_vectors_fix_20(dtype: Any) -> None:
    x = np.array([[1.0, 2, 3, 4], [10, 20, 30, 40]])
    want = np.array([[1.0, 3, 6, 10], [10, 30, 60, 100]])
    gives(lambda x: td.cumulative_sum(x, axis=1), [x], want, dtype)
    gives(lambda x: td.cumulative_sum(x, axis=0), [x.T], want.T, dtype)
    ct = np.array([1.0, 2, 3, 4])
    pulls_back(lambda x: td.cumulative_sum(x), [x[0]], ct, [np.array([10.0, 9, 7, 4])], dtype)
    shifted = lambda x: td.cumulative_sum(x) - x  # noqa: E731
    pulls_back(shifted, [x[0]], ct, [np.array([9.0, 7, 4, 0])], dtype)
    column = lambda x: td.cumulative_sum(x, axis=0)  # noqa: E731
    pulls_back(column, [x.T], np.stack([ct, ct], 1), [np.stack([[10.0, 9, 7, 4]] * 2, 1)], dtype)


def test_the_sign_of_a_sum_of_exponentials() -> None:
    x, b = np.float32([1.0, 2.0, 3.0]), np.float32([1.0, 2.0, -3.0])
    size, sign = td.nn.logsumexp(td.asarray(x), b=b, return_sign=True)
    total = np.sum(b * np.exp(x))
    np.testing.assert_allclose([size, sign], [np.log(-total), -1.0], rtol=1e-6)
    rows = td.nn.logsumexp(td.asarray([x, -np.inf * x]), 1, keepdims=True, return_sign=True)
    np.testing.assert_allclose(rows[0], [[np.log(np.exp(x).sum())], [-np.inf]], rtol=1e-6)
    assert rows[1].tolist() == [[1], [0]]
    assert td.nn.logsumexp(td.asarray([np.inf, 1.0]), return_sign=True)[1].tolist() == 1
