"""Products with panels: the bits of a product with the transposed weight, for any rows."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tetrad as td
from tetrad.core.dtypes import i32
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.core.machine import LANES, Machine, RegisterTile
from tetrad.kernel.build import KernelBuilder
from tetrad.kernel.evaluate import evaluate
from tetrad.ops.matmul.plan import MatmulSize
from tetrad.ops.panels.kernel import AHEAD, plan_panels, steps_ahead
from tetrad.ops.panels.op import byte_rows, panel_matmul
from tetrad.quant.panels import in_bytes, panels_of, weight_of

SIZES = [(16, 1), (48, 33), (80, 384), (32, 1030), (528, 64)]  # outputs, columns


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.RandomState(seed).standard_normal(shape).astype(np.float32)


def any_rows() -> Any:
    return td.jit(lambda x, w: panel_matmul(x, w), dims={"x": {0: td.Dim("rows", max=512)}})


def test_panels_are_the_weight_again() -> None:
    w = numbers(48, 7)
    assert panels_of(w).shape == (3, 7, 16)
    np.testing.assert_array_equal(weight_of(panels_of(w)), w)


@pytest.mark.parametrize(("outputs", "columns"), SIZES)
def test_the_bits_of_a_product_for_any_number_of_rows(outputs: int, columns: int) -> None:
    x, w = numbers(300, columns), numbers(outputs, columns, seed=1)
    run, laid = any_rows(), td.asarray(panels_of(w))
    got = np.asarray(run(td.asarray(x), laid))
    np.testing.assert_array_equal(got, np.asarray(td.jit(td.matmul)(x, w.T.copy())))
    for rows in (1, 7, 8, 129):
        np.testing.assert_array_equal(np.asarray(run(td.asarray(x[:rows]), laid)), got[:rows])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_halves_are_widened_as_they_are_read(dtype: Any) -> None:
    x, w = numbers(9, 40), numbers(32, 40, seed=1).astype(dtype)
    got = any_rows()(x, td.asarray(panels_of(w)))
    wide = any_rows()(x, td.asarray(panels_of(w.astype(np.float32))))
    np.testing.assert_array_equal(np.asarray(got), np.asarray(wide))


@pytest.mark.parametrize(("outputs", "columns"), [(16, 4), (48, 384), (528, 64), (32, 4 * 1030)])
def test_bytes_are_multiplied_exactly(outputs: int, columns: int) -> None:
    rng = np.random.RandomState(0)
    x = rng.randint(0, 256, (150, columns)).astype(np.uint8)
    w = rng.randint(-128, 128, (outputs, columns)).astype(np.int8)
    run, laid = any_rows(), td.asarray(panels_of(w, 4))
    for rows in (1, 9, 150):
        got = np.asarray(run(td.asarray(x[:rows]), laid))
        np.testing.assert_array_equal(got, x[:rows].astype(np.int32) @ w.astype(np.int32).T)


@pytest.mark.parametrize(("outputs", "columns"), [(16, 2), (48, 384), (528, 64), (32, 2060)])
def test_halves_meet_in_pairs(outputs: int, columns: int) -> None:
    """Near the product of what they stand for; the same bits for any number of rows."""
    x = numbers(150, columns).astype(ml_dtypes.bfloat16)
    w = numbers(outputs, columns, seed=1).astype(ml_dtypes.bfloat16)
    run, laid = any_rows(), td.asarray(panels_of(w, 2))
    got = np.asarray(run(td.asarray(x), laid))
    wide = [side.astype(np.float64) for side in (x, w)]
    most = columns * 2.0**-24 * (np.abs(wide[0]) @ np.abs(wide[1]).T)  # of so many roundings
    assert got.dtype == np.float32 and (np.abs(got - wide[0] @ wide[1].T) <= most).all()
    for rows in (1, 8, 129):
        np.testing.assert_array_equal(np.asarray(run(td.asarray(x[:rows]), laid)), got[:rows])


def test_the_second_of_a_pair_comes_first() -> None:
    """1 + 2**-24 is 1 again, twice; 2**-24 twice is enough to be seen."""
    x = np.array([[2.0**-12, 2.0**-12, 0, 1]], ml_dtypes.bfloat16)
    w = np.tile(np.array([2.0**-12, 2.0**-12, 0, 1], ml_dtypes.bfloat16), (16, 1))
    one = np.float32(1)
    for order, expected in (([0, 1, 2, 3], one + np.float32(2.0**-23)), ([0, 3, 1, 2], one)):
        got = td.jit(panel_matmul)(x[:, order], panels_of(w[:, order], 2))
        np.testing.assert_array_equal(np.asarray(got), np.full((1, 16), expected))


def test_rows_and_weights_in_bytes_are_near_the_product() -> None:
    x, w = numbers(20, 256), numbers(48, 256, seed=1)
    panels, scale, offset = in_bytes(w)

    def product(x: Any) -> Any:
        codes, sizes = byte_rows(x)
        return (panel_matmul(codes, panels) + offset).astype("float32") * (sizes * scale)

    for found in (product(td.asarray(x)), td.jit(product)(x)):
        assert np.abs(np.asarray(found) - x @ w.T).std() < 0.012 * (x @ w.T).std()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_row_of_bytes_that_is_no_number_has_no_scale(value: float) -> None:
    x = numbers(3, 40)
    x[1, 7], x[2] = value, 0
    codes, scale = td.jit(byte_rows)(x)
    assert np.isnan(np.asarray(scale)).ravel().tolist() == [False, True, False]
    assert (np.asarray(codes)[2] == 128).all() and np.asarray(codes)[0].min() >= 1


def test_work_on_the_result_is_one_kernel_with_it() -> None:
    # sums are exact in any order: gelu far in its tail makes much of the last digits of a product
    w, bias = panels_of(np.round(numbers(32, 24) * 8) / 8), numbers(32)
    x = np.round(numbers(5, 24, seed=1) * 8) / 64

    def layer(x: Any, w: Any) -> Any:
        return td.nn.gelu(panel_matmul(x, w) + bias, approximate=False)

    assert len(td.explain(layer)(x, w).kernels) == 1
    np.testing.assert_allclose(td.jit(layer)(x, w), layer(td.asarray(x), td.asarray(w)), rtol=2e-5)


def test_derivatives_and_batches() -> None:
    x, w = td.asarray(numbers(3, 20)), td.asarray(panels_of(numbers(32, 20, seed=1)))
    plain = td.asarray(weight_of(np.asarray(w)))

    def ours(x: Any, w: Any) -> Any:
        return td.sum(td.sin(panel_matmul(x, w)))

    def theirs(x: Any, w: Any) -> Any:
        return td.sum(td.sin(x @ w.T))

    dx, dw = td.grad(ours, argnums=(0, 1))(x, w)
    ex, ew = td.grad(theirs, argnums=(0, 1))(x, plain)
    np.testing.assert_allclose(dx, ex, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(weight_of(np.asarray(dw)), ew, rtol=1e-5, atol=1e-5)
    many = td.asarray(numbers(4, 3, 20, seed=2))
    batched = td.vmap(panel_matmul, in_axes=(0, None))(many, w)
    np.testing.assert_allclose(batched[2], panel_matmul(many[2], w), rtol=1e-6)


def test_plans_keep_inside_the_panels() -> None:
    """A tile of two vectors of columns would read past an odd number of panels."""
    machine = Machine(512, RegisterTile(12, 2), RegisterTile(6, 2), 8, parallel_groups=4)
    size = MatmulSize((), td.Dim("rows", max=99), 48, 64)
    assert plan_panels(size, machine.f32_tile, machine).tile.vectors == 1
    even = MatmulSize((), 5, 64, 64)
    assert plan_panels(even, machine.f32_tile, machine).tile.vectors == 2


def test_what_does_not_fit_is_said() -> None:
    with pytest.raises(DtypeError, match="expected rows of f32, f64, bf16, u8"):
        td.jit(panel_matmul)(np.zeros((2, 3), np.int32), np.zeros((1, 3, 16), np.float32))
    with pytest.raises(DtypeError, match="panels of f64"):
        td.jit(panel_matmul)(np.zeros((2, 3)), np.zeros((1, 3, 16), np.float32))
    with pytest.raises(ShapeError, match=r"panels \[m, k / 1, 16\](.|\n)*panels_of"):
        td.jit(panel_matmul)(np.zeros((2, 3), np.float32), np.zeros((1, 4, 16), np.float32))


@pytest.mark.parametrize("vectors", [1, 2, 3])
@pytest.mark.parametrize("depth", [64, 384, 400, 1536])
def test_every_step_of_every_panel_is_asked_for_before_it_is_read(depth: int, vectors: int) -> None:
    """Tiles read as many panels as they have vectors, side by side."""
    k = KernelBuilder("steps_ahead", LANES)
    y = k.buffer("y", i32, "write", depth * LANES)
    further = k.cast(steps_ahead(k, k.group_id(), k.index(depth), vectors), i32)
    k.store(y, k.group_id() * LANES + k.lane(), k.broadcast(further))
    found = {"y": np.zeros(depth * LANES, np.int32)}
    evaluate(k.finish(), found, {}, (depth, 1, 1))
    ahead = found["y"][::LANES]
    tile, v, step = np.ogrid[:30, :vectors, :depth]
    read, times = (tile * vectors + v) * depth + step, tile * depth + step + 0 * v
    end = read.max() + 1
    asked = np.full(end + ahead.max() + 1, np.iinfo(np.int64).max)
    np.minimum.at(asked, read + ahead, times)
    first = AHEAD + vectors * depth  # what is read before is not asked for
    late = (asked[read] >= times) & (read >= first)
    assert not late.any()
