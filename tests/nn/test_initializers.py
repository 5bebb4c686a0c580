"""How weights begin: their spread against the formulas, their shape, and JAX's counts of what goes
in and out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.nn import initializers as init

KEY = td.random.key(7)
SPREAD = {
    "glorot_uniform": 2 / (300 + 500), "glorot_normal": 2 / (300 + 500), "lecun_uniform": 1 / 300,
    "lecun_normal": 1 / 300, "he_uniform": 2 / 300, "he_normal": 2 / 300,
}  # fmt: skip


@pytest.mark.parametrize("name", SPREAD)
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_spread(name: str, dtype: str) -> None:
    w = np.asarray(getattr(init, name)()(KEY, (300, 500), dtype), np.float64)
    std = math.sqrt(SPREAD[name])
    assert abs(w.mean()) < 5 * std / math.sqrt(w.size)
    np.testing.assert_allclose(w.std(), std, rtol=0.01)
    most = math.sqrt(3) if name.endswith("uniform") else 2 / 0.8796
    assert 0.99 * most * std < np.abs(w).max() <= 1.001 * most * std


@pytest.mark.parametrize(
    ("shape", "axes", "fans"),
    [
        ((3, 3, 8, 16), (-2, -1, ()), (72, 144)),
        ((8, 4, 16), ((0, 1), 2, ()), (32, 16)),
        ((5, 8, 16), (1, 2, 0), (8, 16)),
        ((16, 8, 3), (1, 0, ()), (24, 48)),
    ],
)
def test_what_goes_in_and_out(
    shape: tuple[int, ...], axes: tuple[Any, Any, Any], fans: tuple[int, int]
) -> None:
    assert init.fans(shape, *axes) == fans
    for mode, count in (("fan_in", fans[0]), ("fan_out", fans[1]), ("fan_avg", sum(fans) / 2)):
        w = init.variance_scaling(3.0, mode, "uniform", *axes)(KEY, shape)
        assert w.shape == shape and float(td.max(td.abs(w))) <= 3 / math.sqrt(count) * 1.0001
    assert init.MODES["fan_geo_avg"](4, 9) == 6


def test_simple_ones() -> None:
    assert init.zeros(KEY, (2, 3)).tolist() == [[0] * 3] * 2 and init.ones(
        KEY, 2, "int32"
    ).tolist() == [1, 1]
    assert init.constant([1.0, 2.0])(KEY, (2, 2)).tolist() == [[1, 2], [1, 2]]
    assert init.constant(3)(KEY, (1,), "int8").dtype is td.int8
    w = np.asarray(init.uniform(0.5)(KEY, (1000,)))
    assert w.min() >= 0 and 0.49 < w.max() < 0.5
    np.testing.assert_allclose(np.asarray(init.normal(0.1)(KEY, (10000,))).std(), 0.1, rtol=0.03)
    assert (
        0.0095
        < np.abs(np.asarray(init.truncated_normal(lower=-1.0, upper=1.0)(KEY, (1000,)))).max()
        <= 0.01
    )
    assert init.normal(dtype="bfloat16")(KEY, (2,)).dtype is td.bfloat16


@pytest.mark.parametrize(
    ("shape", "axis"), [((6, 4), -1), ((4, 6), -1), ((3, 2, 5), 0), ((2, 3, 4), 1)]
)
def test_orthogonal(shape: tuple[int, ...], axis: int) -> None:
    w = td.jit(lambda key: init.orthogonal(2.0, axis, "float64")(key, shape))(KEY)
    assert w.shape == shape
    rows = np.moveaxis(np.asarray(w), axis, 0).reshape(shape[axis], -1)
    small = rows @ rows.T if rows.shape[0] <= rows.shape[1] else rows.T @ rows
    np.testing.assert_allclose(small, 4 * np.eye(len(small)), atol=1e-12)


def test_the_same_numbers_in_compiled_code() -> None:
    make = init.he_normal()
    np.testing.assert_array_equal(td.jit(lambda key: make(key, (4, 5)))(KEY), make(KEY, (4, 5)))


def test_errors() -> None:
    with pytest.raises(td.errors.SettingError, match="variance_scaling: mode"):
        init.variance_scaling(1.0, "fan", "normal")
    with pytest.raises(td.errors.SettingError, match="variance_scaling: distribution"):
        init.variance_scaling(1.0, "fan_in", "cauchy")
    for make in (init.he_normal(), init.orthogonal()):
        with pytest.raises(
            td.errors.ShapeError, match=r"at least two axes, all of known size, got shape \[3\]"
        ):
            make(KEY, (3,))
