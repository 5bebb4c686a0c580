"""Resizing against vectors, formulas and finite differences."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.nn.vectors import batches, differentiates, gives, in_both_types, pulls_back
from tetrad import nn
from tetrad.errors import SettingError, ShapeError

RNG = np.random.default_rng(15)
TWO = np.array([[1.0, 2], [3, 4]])
BLOCKS = np.array([[1.0, 1, 2, 2], [1, 1, 2, 2], [3, 3, 4, 4], [3, 3, 4, 4]])


@in_both_types
def test_nearest_vector_fix_15_fix_18(dtype: Any) -> None:
    """Two images: every one is read and written in its own place."""
    x = np.stack([TWO, TWO + 4])[:, None]
    double = lambda x: nn.resize(x, scale=2)  # noqa: E731
    gives(double, [x], np.stack([BLOCKS, BLOCKS + 4])[:, None], dtype)
    pulls_back(double, [x], np.ones((2, 1, 4, 4)), [np.full((2, 1, 2, 2), 4)], dtype)


def along(x: np.ndarray, axis: int, places: np.ndarray) -> np.ndarray:
    """Linear interpolation along an axis, ends repeated."""
    line = np.moveaxis(x, axis, -1)
    places = np.clip(places, 0, line.shape[-1] - 1)
    low = np.floor(places).astype(int)
    high = np.minimum(low + 1, line.shape[-1] - 1)
    return np.moveaxis(
        line[..., low] + (line[..., high] - line[..., low]) * (places - low), -1, axis
    )


@pytest.mark.parametrize("size", [(3, 11), (7, 4), (1, 9), (5, 6)])
@pytest.mark.parametrize("corners", [False, True])
@batches
def test_linear(size: tuple[int, int], corners: bool, batch: int) -> None:
    x = RNG.standard_normal((batch, 2, 5, 6))
    want = x
    for axis, new in zip((2, 3), size, strict=True):
        old = x.shape[axis]
        centres = (np.arange(new) + 0.5) * old / new - 0.5
        ends = np.arange(new) * ((old - 1) / (new - 1) if new > 1 else 0)
        want = along(want, axis, ends if corners else centres)
    resize = lambda x: nn.resize(x, size, method="linear", align_corners=corners)  # noqa: E731
    gives(resize, [x], want, np.float64, atol=1e-12)
    gives(resize, [x], want, np.float32)
    differentiates(resize, x)


@pytest.mark.parametrize("method", ["nearest", "nearest_exact", "linear", "cubic"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_every_rank_differentiates(method: str, rank: int) -> None:
    x = RNG.standard_normal((2, 2, 4, 5, 3)[: rank + 2])
    for size in (3, 7):
        differentiates(lambda x, s=size: nn.resize(x, s, method=method), x)


def test_cubic_keeps_straight_lines_and_ends() -> None:
    x = np.arange(10.0)[None, None]
    smooth = nn.resize(x, 20, method="cubic", antialias=True)[0, 0]
    np.testing.assert_allclose(smooth[4:-4], (np.arange(20) + 0.5)[4:-4] / 2 - 0.5, atol=1e-12)
    sharp = nn.resize(x, 20, method="cubic")[0, 0]
    np.testing.assert_allclose(sharp[4:6], [1.703125, 2.296875], atol=1e-12)
    same = nn.resize(x, 19, method="cubic", align_corners=True)
    np.testing.assert_allclose(same[0, 0, ::2], x[0, 0], atol=1e-12)


def test_antialias_means_what_a_pixel_spans() -> None:
    x = RNG.standard_normal((1, 1, 12))
    got = nn.resize(x, 3, method="linear", antialias=True)
    apart = np.abs(np.arange(12) + 0.5 - (np.arange(3) + 0.5)[:, None] * 4) / 4
    weights = np.maximum(1 - apart, 0)
    want = (weights / weights.sum(1, keepdims=True)) @ x[0, 0]
    np.testing.assert_allclose(got[0, 0], want, atol=1e-12)
    differentiates(lambda x: nn.resize(x, 5, method="cubic", antialias=True), x)


def test_what_has_no_weight_takes_no_part() -> None:
    x = np.array([[[1.0, np.inf, 3.0, np.nan]]], np.float32)
    got = td.jit(lambda x: nn.resize(x, 7, method="linear", align_corners=True))(x)
    np.testing.assert_array_equal(np.asarray(got)[0, 0, [0, 4]], [1, 3])
    assert np.isinf(got[0, 0, 2]) and np.isnan(got[0, 0, 6])


def test_layouts_scales_and_types() -> None:
    x = RNG.standard_normal((2, 3, 4, 6)).astype(np.float32)
    first = td.jit(lambda x: nn.resize(x, scale=(1.5, 0.5), method="linear"))(x)
    assert first.shape == (2, 3, 6, 3)
    last = nn.resize(np.moveaxis(x, 1, -1), scale=(1.5, 0.5), method="linear", layout="NHWC")
    np.testing.assert_allclose(np.moveaxis(np.asarray(last), -1, 1), first, atol=1e-6)
    rows = td.vmap(lambda x: nn.resize(x, (6, 3), method="cubic"))(x)
    np.testing.assert_allclose(rows, nn.resize(x, (6, 3), method="cubic"), atol=1e-6)
    numbers = nn.resize(np.arange(4, dtype=np.int32)[None, None], 2)
    np.testing.assert_array_equal(numbers, [[[0, 2]]])
    half = td.jit(lambda x: nn.resize(x, 9, method="linear"))(td.astype(x, td.bfloat16))
    assert half.dtype == td.bfloat16
    want = nn.resize(np.asarray(td.astype(x, td.bfloat16), np.float64), 9, method="linear")
    np.testing.assert_allclose(np.asarray(half, np.float64), want, rtol=1e-2, atol=1e-2)


def test_same_bits_for_any_batch() -> None:
    x = RNG.standard_normal((3, 2, 9, 33)).astype(np.float32)
    resize = td.jit(lambda x: nn.resize(x, (17, 50), method="cubic"))
    np.testing.assert_array_equal(resize(x)[1:2], resize(x[1:2]))


def test_what_cannot_be() -> None:
    x = np.zeros((1, 1, 4))
    with pytest.raises(SettingError, match="a size or a scale, and not both"):
        nn.resize(x)
    with pytest.raises(SettingError, match="align_corners: expected False for nearest"):
        nn.resize(x, 3, align_corners=True)
    with pytest.raises(SettingError, match="nearest, nearest_exact, linear or cubic"):
        nn.resize(x, 3, method="area")
    with pytest.raises(SettingError, match="leave at least one element"):
        nn.resize(x, scale=0.1)
    for scale in (math.inf, math.nan, -1.0):
        with pytest.raises(SettingError, match="scale: expected 1 or 1 positive factors"):
            nn.resize(x, scale=scale)
    with pytest.raises(SettingError, match="size: expected 1 or 1 numbers"):
        nn.resize(x, (3, 3), layout="NCW")
    with pytest.raises(ShapeError, match="linear takes floats"):
        nn.resize(np.zeros((1, 1, 4), int), 3, method="linear")
