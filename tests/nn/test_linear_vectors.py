"""Products, biases and activations after them against vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.nn.vectors import differentiates, gives, in_both_types
from tetrad import nn

A, B = np.array([[1.0, 2, 3], [4, 5, 6]]), np.array([[1.0, 2], [3, 4], [5, 6]])
CUBE, W = np.arange(12.0).reshape(2, 2, 3), np.array([[1.0, 0], [0, 1], [1, 1]])
STACKED = np.array([[22.0, 28], [49, 64]])


@in_both_types
def test_matmul_vectors_fix_9(dtype: Any) -> None:
    gives(td.matmul, [A, B], STACKED, dtype)
    shared = np.array([[[2.0, 3], [8, 9]], [[14, 15], [20, 21]]])
    gives(td.matmul, [CUBE, W], shared, dtype)
    doubled = shared * np.array([1, 2])[:, None, None]
    gives(td.matmul, [CUBE, np.stack([W, 2 * W])], doubled, dtype)
    many = np.stack([STACKED, 2 * STACKED, 3 * STACKED])
    gives(td.matmul, [A, np.stack([B, 2 * B, 3 * B])], many, dtype)


def test_fix_9_batches_broadcast_both_ways() -> None:
    rng = np.random.default_rng(12)
    a, b = rng.standard_normal((3, 1, 2, 4)), rng.standard_normal((1, 5, 4, 3))
    gives(td.matmul, [a, b], a @ b, np.float64, atol=1e-12)
    differentiates(td.matmul, a, b)
    gives(td.matmul, [a, b[0]], a @ b[0], np.float64, atol=1e-12)
    differentiates(td.matmul, rng.standard_normal((2, 3, 4)), rng.standard_normal((2, 4, 5)))
    differentiates(td.matmul, A, rng.standard_normal((2, 3, 2)))


def test_fix_10_vectors_and_fix_4_sizes() -> None:
    gives(td.matmul, [A, B[:, 0]], A @ B[:, 0], np.float64)
    gives(td.matmul, [A[0], B], A[0] @ B, np.float64)
    gives(td.matmul, [A[0], B[:, 0]], A[0] @ B[:, 0], np.float64)
    for called in (td.matmul, td.jit(td.matmul)):
        with pytest.raises(ValueError, match="matmul"):
            called(A, A)


def test_fix_8_empty_products() -> None:
    assert td.jit(td.matmul)(np.zeros((0, 3)), B).shape == (0, 2)
    np.testing.assert_array_equal(td.jit(td.matmul)(np.zeros((2, 0)), np.zeros((0, 4))), 0)


@in_both_types
def test_fix_11_sums_broadcast_either_side(dtype: Any) -> None:
    rng = np.random.default_rng(13)
    lhs, rhs = rng.standard_normal((2, 3, 4, 3, 4)), rng.standard_normal((2, 3, 4, 1, 4))
    gives(td.add, [lhs, rhs], lhs + rhs, dtype)
    column, row = rng.standard_normal((5, 1)), rng.standard_normal(7)
    gives(td.add, [column, row], column + row, dtype)
    gives(td.add, [row, column], column + row, dtype)
    image, channel = rng.standard_normal((2, 3, 4, 4)), rng.standard_normal((1, 3, 1, 1))
    gives(td.add, [image, channel], image + channel, dtype)
    differentiates(td.add, lhs, rhs)


Z = np.array([[2.1, -1.8, 2.7], [-0.65, -0.3, 1.7]])
ACTIVATIONS: dict[str, tuple[Any, Any]] = {
    "none": (lambda z: z, Z),
    "relu": (nn.relu, [[2.1, 0, 2.7], [0, 0, 1.7]]),
    "gelu": (
        lambda z: nn.gelu(z, approximate=False),
        [[2.062485, -0.064675, 2.690639], [-0.1676, -0.114627, 1.624239]],
    ),
    "silu": (
        nn.silu,
        [[1.870897, -0.255332, 2.529972], [-0.222943, -0.127667, 1.437409]],
    ),
    "tanh": (td.tanh, np.tanh(Z)),
    "sigmoid": (nn.sigmoid, 1 / (1 + np.exp(-Z))),
}


@in_both_types
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_linear_with_an_activation(name: str, dtype: Any) -> None:
    act, want = ACTIVATIONS[name]
    a, w = np.array([[1.0, 2], [-1, 0.5]]), np.array([[1.0, 0, -1], [0.5, -1, 2]])
    b = np.array([0.1, 0.2, -0.3])
    gives(lambda a, w, b: act(nn.linear(a, w.T, b)), [a, w, b], np.array(want), dtype)
    differentiates(lambda a, w, b: act(nn.linear(a, w.T, b)), a, w, b)
