"""Products with float weights in place: against NumPy, in any number of rows the same bits."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tetrad as td
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.ops.matmul.op import matmul

FLOATS = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
SIZES = [(1, 1), (7, 33), (24, 16), (25, 64), (100, 600)]  # outputs, columns


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.RandomState(seed).standard_normal(shape).astype(np.float32)


def any_rows() -> Any:
    return td.jit(
        lambda x, w: matmul(x, w, transposed=True), dims={"x": {0: td.Dim("rows", max=64)}}
    )


@pytest.mark.parametrize("format", FLOATS)
@pytest.mark.parametrize(("outputs", "columns"), SIZES)
def test_products_and_their_bits(format: str, outputs: int, columns: int) -> None:
    x, w = numbers(17, columns), numbers(outputs, columns, seed=1).astype(FLOATS[format])
    run, weight = any_rows(), td.asarray(w)
    got = np.asarray(run(td.asarray(x), weight))
    eager = matmul(x, w, transposed=True)
    np.testing.assert_allclose(
        got, eager, atol=columns * 2.0**-24 * np.abs(x).max() * np.abs(w.astype(float)).max()
    )
    for rows in (1, 2, 5):
        np.testing.assert_array_equal(np.asarray(run(td.asarray(x[:rows]), weight)), got[:rows])
    alone = td.jit(lambda x, w: matmul(x, w, transposed=True))(td.asarray(x[3:4]), weight)
    np.testing.assert_array_equal(np.asarray(alone), got[3:4])


def test_the_order_of_a_sum() -> None:
    """Sixteen chains of fma, joined by halving: numbers chosen so that any other order rounds
    differently."""
    x, w = numbers(1, 80), numbers(1, 80, seed=1)
    sums = np.zeros(16, np.float32)
    for c in range(0, 80, 16):
        exact = x[0, c : c + 16].astype(np.float64) * w[0, c : c + 16] + sums
        sums = exact.astype(np.float32)  # a double holds the product and the sum, but for ties
    while len(sums) > 1:
        half = len(sums) // 2
        sums = sums[:half] + sums[half:]
    assert (
        np.asarray(
            td.jit(lambda x, w: matmul(x, w, transposed=True))(td.asarray(x), td.asarray(w))
        )[0, 0]
        == sums[0]
    )


def test_infinities_and_nan_arrive() -> None:
    x, w = numbers(3, 40), numbers(5, 40)
    x[1, 39], w[2, 0] = np.inf, np.nan
    got = np.asarray(any_rows()(td.asarray(x), td.asarray(w)))
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(matmul(x, w, transposed=True)))


def test_what_does_not_fit_is_said() -> None:
    x = td.asarray(numbers(2, 8))
    with pytest.raises(ShapeError, match="inner sizes differ"):
        matmul(x, td.asarray(numbers(3, 9)), transposed=True)
    with pytest.raises(DtypeError, match="expected a weight of f32"):
        matmul(x, td.asarray(np.zeros((3, 8), np.int32)), transposed=True)
