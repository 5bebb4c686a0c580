"""What examples of a batch hand to each other, against NumPy; alone, nested, differentiated,
compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.core.errors import ShapeError, TraceError

WAYS = pytest.mark.parametrize("way", [lambda f: f, td.jit], ids=["eager", "compiled"])
X = np.random.default_rng(4).standard_normal((3, 6, 2))


def mapped(f: Any) -> Any:
    return td.vmap(f, axis_name="i")


@WAYS
def test_permuted_examples(way: Any) -> None:
    found = way(mapped(lambda x: td.ppermute({"x": x}, "i", [(0, 2), (2, 1)])["x"]))(X)
    np.testing.assert_array_equal(found, np.stack([0 * X[0], X[2], X[0]]))
    slope = way(td.grad(lambda x: td.sum(mapped(lambda x: td.ppermute(x, "i", [(0, 1)]) * x)(x))))(
        X
    )
    np.testing.assert_allclose(slope, np.stack([X[1], X[0], 0 * X[0]]))
    rows = way(
        mapped(
            td.vmap(
                lambda x: td.ppermute(x, "j", [(n, (n + 1) % 6) for n in range(6)]), axis_name="j"
            )
        )
    )(X)
    np.testing.assert_array_equal(rows, np.roll(X, 1, axis=1))


@WAYS
def test_exchanged_parts(way: Any) -> None:
    x = X[:, :3]  # [giver, part, ...]
    np.testing.assert_array_equal(
        way(mapped(lambda x: td.all_to_all(x, "i", 0, 0)))(x), x.transpose(1, 0, 2)
    )
    np.testing.assert_array_equal(
        way(mapped(lambda x: td.all_to_all(x, "i", 0, 1)))(x), x.transpose(1, 2, 0)
    )
    parts = X.reshape(3, 3, 2, 2)  # of two rows each
    joined = way(mapped(lambda x: td.all_to_all(x, "i", 0, -1, tiled=True)))(X)
    want = np.stack(
        [np.concatenate([parts[giver, taker] for giver in range(3)], axis=1) for taker in range(3)]
    )
    np.testing.assert_array_equal(joined, want)


@WAYS
def test_scattered_sums(way: Any) -> None:
    total = X.sum(0)
    np.testing.assert_allclose(
        way(mapped(lambda x: td.psum_scatter(x[:3], "i")))(X), total[:3], rtol=1e-12
    )
    tiled = way(mapped(lambda x: td.psum_scatter(x, "i", tiled=True)))(X)
    np.testing.assert_allclose(tiled, total.reshape(3, 2, 2), rtol=1e-12)
    slope = way(
        td.grad(lambda x: td.sum(mapped(lambda x: td.psum_scatter(x, "i", tiled=True))(x) ** 2))
    )(X)
    np.testing.assert_allclose(slope, np.broadcast_to(2 * total, X.shape), rtol=1e-12)


@WAYS
@pytest.mark.parametrize("dtype", ["uint8", "uint32", "int8", "int32", "float32"])
def test_the_smallest_of_every_type(way: Any, dtype: str) -> None:
    info = np.iinfo(dtype) if "int" in dtype else np.finfo(dtype)
    x = np.array([1, info.max, info.min, 5], dtype)
    found = np.asarray(way(mapped(lambda x: td.pmin(x, "i")))(x))
    assert found.dtype == x.dtype and (found == info.min).all()


def test_errors() -> None:
    for call, error, message in (
        (
            lambda x: td.ppermute(x, "j", [(0, 1)]),
            TraceError,
            "ppermute: there is no axis named 'j'",
        ),
        (
            lambda x: td.ppermute(x, "i", [(0, 1), (2, 1)]),
            ShapeError,
            "must pair each of 3 examples",
        ),
        (lambda x: td.ppermute(x, "i", [(0, 3)]), ShapeError, "must pair each of 3 examples"),
        (lambda x: td.all_to_all(x, "i", 1, 0), ShapeError, "an axis of 2 has no 3 equal parts"),
        (
            lambda x: td.all_to_all(x, "i", 0, 0),
            ShapeError,
            r"parts of 2 keep their axis(.|\n)*tiled=True",
        ),
        (
            lambda x: td.psum_scatter(x, "i"),
            ShapeError,
            r"parts of 2 keep their axis(.|\n)*test_collectives\.py",
        ),
    ):
        with pytest.raises(error, match=message):
            mapped(call)(X)


@WAYS
def test_shuffled_examples(way: Any) -> None:
    np.testing.assert_array_equal(
        way(mapped(lambda x: td.pshuffle(x, "i", [2, 0, 1])))(X), X[[2, 0, 1]]
    )
    with pytest.raises(ShapeError, match=r"pshuffle: \[0, 0, 1\] is no order of 3 examples"):
        way(mapped(lambda x: td.pshuffle(x, "i", [0, 0, 1])))(X)


def test_pairs_that_are_none() -> None:
    with pytest.raises(ShapeError, match=r"ppermute: \[1, 2, 0\] must be pairs(.|\n)*pshuffle"):
        mapped(lambda x: td.ppermute(x, "i", [1, 2, 0]))(X)
