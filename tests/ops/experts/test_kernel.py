"""Mixtures of experts: compiled routing and products against their meaning, for few and many
tokens."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tetrad as td
from tetrad import quant
from tetrad.core.errors import BoundsError, DtypeError, RoutingError, ShapeError
from tetrad.core.types import ArrayType
from tetrad.ops.experts.op import grouped_matmul, top_experts
from tetrad.ops.matmul.op import matmul
from tetrad.ops.quantized.op import quantize_rows
from tetrad.quant.lanes import DTYPES, LANES

EXPERTS, OUTPUTS, COLUMNS = 5, 48, 256
TOKENS = {0: td.Dim("tokens", max=256)}


def stacked(format: str, outputs: int = OUTPUTS, columns: int = COLUMNS) -> Any:
    """The matrices of all experts, as an array of the package."""
    numbers = (
        np.random.RandomState(1).standard_normal((EXPERTS * outputs, columns)).astype(np.float32)
    )
    if format not in LANES:
        return td.asarray(
            numbers.astype(
                {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}[format]
            )
        )
    packed = quant.pack(numbers, format).reshape(len(numbers), -1)
    return td.Array.from_bytes(
        LANES[format].interleave(packed), ArrayType(DTYPES[format], numbers.shape)
    )


def inputs(
    tokens: int, used: int, columns: int = COLUMNS, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.RandomState(seed)
    x = rng.standard_normal((tokens, columns)).astype(np.float32)
    return x, rng.randint(-1, EXPERTS, (tokens, used)).astype(np.int32)


def product(w: Any, dims: Any = None) -> Any:
    def run(x: Any, expert: Any) -> Any:
        rows = quantize_rows(x) if w.dtype.is_quantized else x
        return grouped_matmul(rows, w, expert, experts=EXPERTS)

    return td.jit(run, dims={"x": TOKENS, "expert": TOKENS} if dims else None)


# -- routing ---------------------------------------------------------------------------------------


@given(st.data())
def test_the_likeliest_experts_come_first(data: st.DataObject) -> None:
    experts = data.draw(st.sampled_from([1, 3, 8, 16, 17, 128]))
    used = data.draw(st.integers(1, min(experts, 8)))
    values = data.draw(
        st.lists(
            st.sampled_from([0.0, 0.125, 0.25, 0.5]), min_size=experts * 3, max_size=experts * 3
        )
    )
    likelihood = np.array(values, np.float32).reshape(3, experts)
    got = td.jit(lambda x: top_experts(x, used=used))(td.asarray(likelihood))
    np.testing.assert_array_equal(np.asarray(got), top_experts(likelihood, used=used))


@pytest.mark.parametrize("bad", [np.nan, -1.0])
def test_a_likelihood_that_is_none_is_an_error(bad: float) -> None:
    likelihood = np.full((2, 20), 0.05, np.float32)
    likelihood[1, 18] = bad
    for run in (top_experts, td.jit(top_experts, static_argnames="used")):
        with pytest.raises(
            RoutingError, match="expert 18 is NaN or negative for token 1"
        ) as caught:
            run(td.asarray(likelihood), used=2)
        assert (caught.value.token, caught.value.expert) == (1, 18)


# -- products --------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["f32", "f16", "bf16", *LANES])
def test_products_for_few_and_many_tokens(format: str) -> None:
    w = stacked(format)
    x, expert = inputs(70, 2)
    many = np.asarray(product(w, TOKENS)(td.asarray(x), td.asarray(expert)))
    few = np.asarray(product(w)(td.asarray(x[:3]), td.asarray(expert[:3])))
    np.testing.assert_array_equal(few, many[:3])
    eager = run_eagerly(w, x, expert)
    np.testing.assert_allclose(many, eager, atol=2e-6 * np.abs(eager).max() * 16)
    assert not many[expert == -1].any()


def run_eagerly(w: Any, x: np.ndarray, expert: np.ndarray) -> np.ndarray:
    rows = quantize_rows(td.asarray(x)) if w.dtype.is_quantized else td.asarray(x)
    return np.asarray(grouped_matmul(rows, w, td.asarray(expert), experts=EXPERTS))


@pytest.mark.parametrize("format", ["q4_k", "q8_0"])
def test_the_order_is_that_of_a_product_with_one_matrix(format: str) -> None:
    w = stacked(format)
    x, _ = inputs(40, 1)
    whole = np.asarray(
        td.jit(lambda x: matmul(quantize_rows(x), w, transposed=True))(td.asarray(x))
    )
    for expert in range(EXPERTS):
        got = product(w, TOKENS)(td.asarray(x), td.asarray(np.full((40, 1), expert, np.int32)))
        np.testing.assert_array_equal(
            np.asarray(got)[:, 0], whole[:, expert * OUTPUTS : (expert + 1) * OUTPUTS]
        )


@pytest.mark.parametrize(("outputs", "columns"), [(1, 1), (7, 33), (48, 15), (17, 64)])
def test_odd_sizes_of_floats(outputs: int, columns: int) -> None:
    w = stacked("f32", outputs, columns)
    x, expert = inputs(9, 3, columns)
    got = np.asarray(product(w, TOKENS)(td.asarray(x), td.asarray(expert)))
    np.testing.assert_allclose(got, run_eagerly(w, x, expert), atol=1e-4)


@pytest.mark.parametrize("format", ["f32", "q4_0"])
@pytest.mark.parametrize("tokens", [2, 100])
@pytest.mark.parametrize("bad", [-2, EXPERTS])
def test_an_expert_that_is_not_there_stops_the_program(format: str, tokens: int, bad: int) -> None:
    w = stacked(format)
    x, expert = inputs(tokens, 2)
    expert[-1, 1] = bad
    with pytest.raises(BoundsError, match=f"expert {bad} is out of range for 5"):
        product(w)(td.asarray(x), td.asarray(expert))
    with pytest.raises(BoundsError, match="out of range for 5"):
        run_eagerly(w, x, expert)


def test_no_tokens() -> None:
    x, expert = inputs(0, 2)
    for format in ("f32", "q4_0"):
        assert product(stacked(format))(td.asarray(x), td.asarray(expert)).shape == (0, 2, OUTPUTS)


def test_what_does_not_fit_is_said() -> None:
    x, expert = (td.asarray(part) for part in inputs(4, 2))
    with pytest.raises(ShapeError, match="7 matrices"):
        grouped_matmul(x, stacked("f32"), expert, experts=7)
    with pytest.raises(DtypeError, match="takes rows of q8_row"):
        grouped_matmul(x, stacked("q4_0"), expert, experts=EXPERTS)
    with pytest.raises(ShapeError, match="40 rows, expected a multiple of 16"):
        grouped_matmul(quantize_rows(x), stacked("q4_0", 40), expert, experts=EXPERTS)
    with pytest.raises(ShapeError, match="from 1 to 256 experts, asked for 300"):
        top_experts(x, used=300)
