"""Norms against vectors, formulas in float64 and finite differences; where one-pass variances
fail."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.nn.vectors import batches, differentiates, gives, in_both_types, pulls_back
from tetrad import nn
from tetrad.errors import SettingError, ShapeError

RNG = np.random.default_rng(4)
X = np.array([[1.0, 2, 3, 4], [2, 0, -2, 4]])
GAMMA, BETA = np.array([1, 2, 0.5, 1]), np.array([0, 0, 1.0, -1])


def normalised(x: np.ndarray, axes: Any, eps: float) -> np.ndarray:
    mean, var = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return (x - mean) / np.sqrt(var + eps)


def along(values: np.ndarray, axis: int, rank: int) -> np.ndarray:
    return values.reshape([-1 if a == axis else 1 for a in range(rank)])


# -- layer_norm, rms_norm --------------------------------------------------------------------------


@in_both_types
def test_layer_norm_vector(dtype: Any) -> None:
    want = [
        [-1.341635, -0.894424, 1.223606, 0.341635],
        [0.447213, -0.894426, 0.32918, 0.341639],
    ]
    gives(nn.layer_norm, [X, GAMMA, BETA], np.array(want), dtype)
    dx = [
        [0.26833, -0.357768, -0.089443, 0.178882],
        [0.290689, -0.849705, 0.469574, 0.089443],
    ]
    dgamma, dbeta = [-1.118029, 0.447213, -2.683279, 0], [1.5, -1, 2, 0]
    ct = [[1, 0, 0, 0], [0.5, -1, 2, 0]]
    pulls_back(nn.layer_norm, [X, GAMMA, BETA], ct, (dx, dgamma, dbeta), dtype)


def test_layer_norm_differentiates() -> None:
    x, w, b = RNG.standard_normal((3, 7)), RNG.standard_normal(7), RNG.standard_normal(7)
    differentiates(nn.layer_norm, x, w, b)
    differentiates(lambda x: nn.layer_norm(x, axis=(0, 2)), RNG.standard_normal((2, 3, 5)))
    differentiates(nn.rms_norm, x, w, b)


def test_fix_19_a_large_mean_does_not_cancel() -> None:
    x = (np.array([[1, 2, 3, 4]]) + 1e4).astype(np.float32)
    want = normalised(x.astype(np.float64), -1, 1e-5)
    residual = lambda x: nn.residual_layer_norm(x, td.zeros_like(x))[0]  # noqa: E731
    for function in (nn.layer_norm, residual):
        for called in (function, td.jit(function)):
            np.testing.assert_allclose(called(x), want, atol=1e-5)
    batch = td.jit(lambda x: nn.batch_norm(x, (td.zeros(1), td.ones(1)), training=True)[0])
    np.testing.assert_allclose(batch(x.T), want.T, atol=1e-5)
    group = td.jit(lambda x: nn.group_norm(x, 1))
    np.testing.assert_allclose(group(x[:, :, None])[:, :, 0], want, atol=1e-5)


def test_fix_20_any_axis_with_or_without_weights() -> None:
    x, w = RNG.standard_normal((3, 4, 5)), RNG.standard_normal(4)
    want = normalised(x, 1, 1e-5) * w[:, None]
    gives(lambda x, w: nn.layer_norm(x, w, axis=1), [x, w], want, np.float64, atol=1e-10)
    gives(lambda x: nn.layer_norm(x, axis=-3), [x], normalised(x, 0, 1e-5), np.float64)
    root = np.sqrt((x**2).mean(1, keepdims=True) + 1e-6)
    gives(lambda x, w: nn.rms_norm(x, w, axis=1), [x, w], x / root * w[:, None], np.float64)


@in_both_types
def test_rms_norm_vector_fix_21(dtype: Any) -> None:
    x, gamma, beta = np.array([[3.0, 4], [1, -1]]), np.array([1.0, 2]), np.array([0, 0.5])
    norm = lambda x, w, b: nn.rms_norm(x, w, b, eps=1e-5)  # noqa: E731
    want = np.array([[0.848528, 2.762741], [0.999995, -1.49999]])
    gives(norm, [x, gamma, beta], want, dtype)
    dx = [[0.181019, -0.135764], [-0.749984, -0.750009]]
    wants = (dx, [1.348525, 0.999995], [1.5, -1])
    pulls_back(norm, [x, gamma, beta], [[1, 0], [0.5, -1]], wants, dtype)


@in_both_types
def test_residual_norm_vectors_fix_24(dtype: Any) -> None:
    operands = [np.array(v) for v in ([1.0, 2, 3], [0.5, 0, -1], [0, 1.0, 0])]
    total = np.array([1.5, 3, 2])
    layer = lambda x, r, b: nn.residual_layer_norm(x, r, input_bias=b, eps=1e-12)  # noqa: E731
    gives(layer, operands, (np.array([-1.069045, 1.336306, -0.267261]), total), dtype)
    rms = lambda x, r, b: nn.residual_rms_norm(x, r, input_bias=b, eps=1e-6)  # noqa: E731
    gives(rms, operands, (np.array([0.665299, 1.330598, 0.887065]), total), dtype)


def test_residual_norms_give_one_gradient_to_both() -> None:
    x, r, w = (RNG.standard_normal((3, 5)) for _ in range(3))
    b = RNG.standard_normal(5)
    function = lambda x, r, b: nn.residual_layer_norm(x, r, input_bias=b)[0] * w  # noqa: E731
    dx, dr, db = td.vjp(function, x, r, b)[1](np.ones((3, 5)))
    np.testing.assert_array_equal(dx, dr)
    np.testing.assert_allclose(db, np.sum(dx, 0), atol=1e-12)
    differentiates(function, x, r, b)
    with pytest.raises(ShapeError, match="x and residual have one shape"):
        nn.residual_rms_norm(x, r[0])


# -- layer_norm2d, group_norm, instance_norm -------------------------------------------------------


@in_both_types
def test_layer_norm2d_vectors(dtype: Any) -> None:
    x = np.arange(1.0, 9).reshape(1, 2, 2, 2)
    want = np.stack([np.full((2, 2), -0.999999), np.full((2, 2), 0.999999)])[None]
    gives(lambda x: nn.layer_norm2d(x, eps=1e-5), [x], want, dtype)
    x = np.array([[[1.0, 2], [3, 4]], [[2, 0], [5, 1]]])[None]
    norm = lambda x, w, b: nn.layer_norm2d(x, w, b, eps=0.25)  # noqa: E731
    y = [
        [[-0.707107, 0.894427], [-0.894427, 0.948683]],
        [[1.414214, -1.788854], [1.788854, -1.897367]],
    ]
    operands = [x, np.array([1.0, 2]), np.zeros(2)]
    gives(norm, operands, np.array([y]), dtype)
    ct = np.zeros((1, 2, 2, 2))
    ct[0, 0, 0, 0] = ct[0, 1, 0, 1] = 1
    dx = [[[0.353553, -0.178885], [0, 0]], [[-0.353553, 0.178885], [0, 0]]]
    wants = ([dx], [-0.707107, -0.894427], [1, 1])
    pulls_back(norm, operands, ct, wants, dtype)


GROUPS = np.array([[1.0, 2], [3, 4], [10, 20], [30, 40]]).reshape(2, 2, 1, 2)
OF_ONE = [
    [-1.341635, -0.447212],
    [1.894424, 3.683271],
    [-1.341641, -0.447214],
    [1.894427, 3.683281],
]
OF_TWO = [[-0.99998, 0.99998], [-0.99996, 2.99996], [-1, 1], [-1, 3]]


@in_both_types
@pytest.mark.parametrize("rank", [3, 4])
def test_group_norm_vectors_fix_18_fix_22(dtype: Any, rank: int) -> None:
    shape = (2, 2, 2) if rank == 3 else (2, 2, 1, 2)
    operands = [GROUPS.reshape(shape), np.array([1.0, 2]), np.array([0.0, 1])]
    for groups, want in [(1, OF_ONE), (2, OF_TWO)]:
        norm = lambda x, w, b, g=groups: nn.group_norm(x, g, w, b)  # noqa: E731
        gives(norm, operands, np.reshape(want, shape), dtype, atol=1e-5)
    ct = np.array([[1, 0], [0, 1], [0, 1], [-1, 0]]).reshape(shape)
    dx = [[0.626093, -0.536655], [-0.80498, 0.715542], [-0.017889, 0.098387], [-0.143108, 0.06261]]
    wants = (np.reshape(dx, shape), [-1.788849, 0.894422], [2, 0])
    pulls_back(lambda x, w, b: nn.group_norm(x, 1, w, b), operands, ct, wants, dtype)


@batches
def test_groups_and_instances(batch: int) -> None:
    x = RNG.standard_normal((batch, 6, 3, 5))
    w, b = RNG.standard_normal(6), RNG.standard_normal(6)
    want = normalised(x.reshape(batch, 3, 2 * 15), 2, 1e-5).reshape(x.shape)
    want = want * along(w, 1, 4) + along(b, 1, 4)
    group = lambda x, w, b: nn.group_norm(x, 3, w, b)  # noqa: E731
    gives(group, [x, w, b], want, np.float64, atol=1e-10)
    last = lambda x, w, b: nn.group_norm(x, 3, w, b, channel_axis=-1)  # noqa: E731
    gives(last, [np.moveaxis(x, 1, -1), w, b], np.moveaxis(want, 1, -1), np.float64, atol=1e-10)
    single = normalised(x, (2, 3), 1e-5) * along(w, 1, 4) + along(b, 1, 4)
    gives(nn.instance_norm, [x, w, b], single, np.float64, atol=1e-10)
    differentiates(group, x, w, b)
    differentiates(nn.instance_norm, x, w, b)


def test_groups_that_do_not_divide_are_an_error() -> None:
    with pytest.raises(ShapeError, match="do not make 4 groups"):
        nn.group_norm(np.zeros((2, 6, 3)), 4)
    with pytest.raises(ShapeError, match="has 6 channels along axis 1, got f64"):
        nn.group_norm(np.zeros((2, 6, 3)), 3, np.zeros(3))
    with pytest.raises(SettingError, match="channel_axis"):
        nn.group_norm(np.zeros((2, 6, 3)), 2, channel_axis=0)
    with pytest.raises(ShapeError, match="is not"):
        nn.instance_norm(np.zeros((2, 6)))


# -- batch_norm ------------------------------------------------------------------------------------


@in_both_types
def test_batch_norm_vector_fix_23(dtype: Any) -> None:
    state = (np.array([2.0, 20]), np.array([4.0, 25]))
    x, w, b = np.array([[1.0, 10], [3, 30]]), np.array([1.0, 2]), np.array([0.0, 1])
    inference = lambda x, w, b, m, v: nn.batch_norm(x, (m, v), w, b, eps=0.0)  # noqa: E731
    gives(inference, [x, w, b, *state], np.array([[-0.5, -3], [0.5, 5]]), dtype)
    zero = np.zeros(2)
    wants = ([[0.5, 0.4], [0.5, -0.4]], [0, -4], [2, 0], zero, zero)
    pulls_back(inference, [x, w, b, *state], [[1, 1], [1, -1]], wants, dtype)
    first = lambda x, w, b, m, v: nn.batch_norm(x, (m, v), w, b, eps=0.0, channel_axis=1)  # noqa: E731
    many = np.stack([x, x], axis=2)
    want = np.stack([np.array([[-0.5, -3], [0.5, 5]])] * 2, axis=2)
    gives(first, [many, w, b, *state], want, dtype)


@pytest.mark.parametrize("axis", [1, -1])
def test_batch_norm_in_training(axis: int) -> None:
    x = RNG.standard_normal((4, 5, 5)) * 2 + 1
    w, b, mean, var = (RNG.uniform(1, 2, 5) for _ in range(4))
    axes = tuple(a for a in range(3) if a != axis % 3)
    want = normalised(x, axes, 1e-5) * along(w, axis % 3, 3) + along(b, axis % 3, 3)
    train = lambda x, w, b, m, v: nn.batch_norm(  # noqa: E731
        x, (m, v), w, b, training=True, momentum=0.2, channel_axis=axis
    )
    state = 0.8 * mean + 0.2 * x.mean(axes), 0.8 * var + 0.2 * x.var(axes, ddof=1)
    gives(train, [x, w, b, mean, var], (want, *state), np.float64, atol=1e-10)
    differentiates(lambda x, w, b: train(x, w, b, mean, var)[0], x, w, b)
    kept = td.grad(lambda x: td.sum(train(x, w, b, mean, var)[1][0]))(x)
    np.testing.assert_array_equal(kept, 0)


def test_batch_norm_needs_a_batch_and_channels_that_fit() -> None:
    state = np.zeros(3), np.ones(3)
    with pytest.raises(ShapeError, match="has one number, and no variance"):
        nn.batch_norm(np.zeros((1, 3)), state, training=True)
    with pytest.raises(ShapeError, match="has 4 channels along axis 1"):
        nn.batch_norm(np.zeros((2, 4)), state)


# -- types, batches --------------------------------------------------------------------------------

STATE = td.ones(4), td.ones(4)
NORMS: dict[str, Any] = {
    "layer": nn.layer_norm,
    "rms": nn.rms_norm,
    "group": lambda x: nn.group_norm(x, 2),
    "instance": nn.instance_norm,
    "layer 2d": nn.layer_norm2d,
    "batch": lambda x: nn.batch_norm(x, (td.zeros(4), td.ones(4)), training=True, channel_axis=1)[
        0
    ],
    "batch inference": lambda x: nn.batch_norm(x, STATE, channel_axis=1),
}


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_halves_are_computed_wide_fix_2(name: str, kind: str) -> None:
    x = td.astype(RNG.standard_normal((3, 4, 6)) * 3 + 100, getattr(td, kind))
    got = td.jit(NORMS[name])(x)
    want = NORMS[name](np.asarray(x, np.float64))
    assert got.dtype == x.dtype and got.shape == x.shape
    np.testing.assert_allclose(np.asarray(got, np.float64), want, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("name", [n for n in NORMS if n != "batch"])
def test_a_row_has_the_same_bits_in_any_batch(name: str) -> None:
    x = RNG.standard_normal((3, 4, 6)).astype(np.float32)
    many, one = td.jit(NORMS[name])(x), td.jit(NORMS[name])(x[1:2])
    np.testing.assert_array_equal(many[1:2], one)
    stacked = td.vmap(NORMS[name])(x[:, None])
    np.testing.assert_allclose(stacked[:, 0], many, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [n for n in NORMS if n != "batch"])
def test_empty_batches_fix_8(name: str) -> None:
    assert td.jit(NORMS[name])(np.zeros((0, 4, 6), np.float32)).shape == (0, 4, 6)
