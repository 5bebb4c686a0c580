"""Pooling against vectors, a plain loop over windows and finite differences; ties and NaN."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.nn.vectors import batches, differentiates, gives, in_both_types, pulls_back
from tetrad import nn
from tetrad.errors import SettingError, ShapeError

SIXTEEN = np.arange(1.0, 17).reshape(1, 1, 4, 4)
RNG = np.random.default_rng(14)


def image(values: Any) -> np.ndarray:
    return np.array(values, float)[None, None]


def windows(
    x: np.ndarray, kernel: Any, stride: Any, padding: Any, dilation: Any, fold: Any
) -> np.ndarray:
    """fold(elements of a window that are there, taps), for every window of the last axes."""
    count = len(kernel)
    sizes = x.shape[-count:]
    shape = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(sizes, kernel, stride, padding, dilation, strict=True)
    ]
    result = np.empty((*x.shape[:-count], *shape))
    for at in product(*map(range, shape)):
        places = [
            [o * s + t * d - p for t in range(k)]
            for o, k, s, p, d in zip(at, kernel, stride, padding, dilation, strict=True)
        ]
        inside = [
            place
            for place in product(*places)
            if all(0 <= i < n for i, n in zip(place, sizes, strict=True))
        ]
        found = [x[(..., *place)] for place in inside]
        result[(..., *at)] = fold(np.stack(found), np.prod(kernel))
    return result


FOLDS = {
    "max": lambda found, taps: found.max(0),
    "min": lambda found, taps: found.min(0),
    "sum": lambda found, taps: found.sum(0),
    "mean": lambda found, taps: found.sum(0) / taps,
    "prod": lambda found, taps: found.prod(0),
}


@in_both_types
def test_vectors(dtype: Any) -> None:
    pairs = [
        (lambda x: nn.max_pool2d(x, 2), [[6, 8], [14, 16]]),
        (lambda x: nn.avg_pool2d(x, 2), [[3.5, 5.5], [11.5, 13.5]]),
        (lambda x: nn.avg_pool2d(x, 3, 2, 1), [[1.555556, 3.333333], [6.333333, 11]]),
        (lambda x: nn.max_pool2d(x, 3, 2, 1), [[6, 8], [14, 16]]),
    ]
    for function, want in pairs:
        gives(function, [SIXTEEN], image(want), dtype)


@in_both_types
def test_max_pool_gradient_vectors(dtype: Any) -> None:
    pool = lambda x: nn.max_pool2d(x, 2)  # noqa: E731
    want = np.zeros(16)
    want[[5, 7, 13, 15]] = 0.5, 1, 2, 4
    pulls_back(pool, [SIXTEEN], image([[0.5, 1], [2, 4]]), [want.reshape(SIXTEEN.shape)], dtype)
    back = [image([[0, 2], [0, 0]])]
    pulls_back(pool, [image([[1, 3], [2, 0]])], image([[2]]), back, dtype)
    tie = [image([[1, 0], [0, 0]])]
    pulls_back(pool, [image([[7, 7], [7, 7]])], image([[1]]), tie, dtype)


@pytest.mark.parametrize("kind", FOLDS)
@pytest.mark.parametrize("rank", [1, 2, 3])
@batches
def test_every_kind_and_rank_fix_3_fix_16(kind: str, rank: int, batch: int) -> None:
    x = RNG.standard_normal((batch, 3, 9, 7, 8)[: rank + 2])
    settings = [(3, 2, 4), (2, 1, 3), (1, 0, 2), (1, 2, 1)]
    kernel, stride, padding, dilation = (list(one[:rank]) for one in settings)
    want = windows(x, kernel, stride, padding, dilation, FOLDS[kind])
    function = lambda x: nn.pool(x, kernel, stride, padding, kind=kind, dilation=dilation)  # noqa: E731
    gives(function, [x], want, np.float64, atol=1e-12)
    if batch == 1:
        differentiates(function, x)


@pytest.mark.parametrize("width", [5, 16, 17, 32, 45])
@pytest.mark.parametrize(
    ("kernel", "stride", "padding"), [(2, 2, 0), (3, 2, 1), (3, 1, 1), (4, 3, 2)]
)
def test_widths_around_a_vector(width: int, kernel: int, stride: int, padding: int) -> None:
    """Vectors at the ends of a row test what is in range, others do not."""
    x = np.round(RNG.standard_normal((2, 5, width)) * 2).astype(np.float32)
    pair = [kernel] * 2, [stride] * 2, [padding] * 2, [1, 1]
    for kind in ("max", "sum"):
        want = windows(x, *pair, FOLDS[kind])
        pool = lambda x, k=kind: nn.pool(x, *pair[:3], kind=k, layout="NCHW")  # noqa: E731
        np.testing.assert_array_equal(td.jit(pool)(x), want)
        ct = np.round(RNG.standard_normal(want.shape) * 4).astype(np.float32)
        back = lambda x, p=pool, ct=ct: td.vjp(p, x)[1](ct)[0]  # noqa: E731
        np.testing.assert_array_equal(td.jit(back)(x), back(x))


def test_fix_17_nan_is_the_largest_and_the_smallest() -> None:
    x = SIXTEEN.astype(np.float32)
    x[0, 0, 1, 2] = np.nan
    for kind in ("max", "min", "sum", "mean", "prod"):
        got = np.asarray(td.jit(lambda x, k=kind: nn.pool(x, 2, kind=k))(x))
        np.testing.assert_array_equal(np.isnan(got[0, 0]), [[False, True], [False, False]])
    gradient = td.jit(td.grad(lambda x: td.sum(nn.max_pool2d(x, 2))))(x)
    assert gradient[0, 0, 1, 2] == 1 and np.sum(gradient) == 4


def test_padding_is_never_the_largest() -> None:
    x = np.full((1, 1, 2, 2), -5.0, np.float32)
    np.testing.assert_array_equal(td.jit(lambda x: nn.max_pool2d(x, 3, 1, 1))(x), -5)
    alone = td.jit(lambda x: nn.max_pool2d(x, 1, 1, 1))(x)
    assert alone[0, 0, 0, 0] == -np.inf and alone[0, 0, 1, 1] == -5
    back = td.grad(lambda x: td.sum(nn.max_pool2d(x, 1, 1, 1)))(x)
    np.testing.assert_array_equal(back, 1)
    low = np.full((1, 1, 2, 2), -np.inf, np.float32)
    hit = td.jit(td.grad(lambda x: td.sum(nn.max_pool2d(x, 2))))(low)
    np.testing.assert_array_equal(hit, image([[1, 0], [0, 0]]))


def test_counts_without_padding() -> None:
    got = nn.avg_pool2d(SIXTEEN, 3, 2, 1, count_include_pad=False)
    np.testing.assert_allclose(got, image([[3.5, 5], [9.5, 11]]))
    differentiates(lambda x: nn.avg_pool2d(x, 3, 2, 1, count_include_pad=False), SIXTEEN)


def test_ceil_mode_takes_a_last_window_that_begins_inside() -> None:
    x = np.arange(1.0, 6).reshape(1, 1, 5)
    np.testing.assert_array_equal(nn.max_pool1d(x, 2, ceil_mode=True), [[[2, 4, 5]]])
    np.testing.assert_array_equal(nn.avg_pool1d(x, 2, ceil_mode=True), [[[1.5, 3.5, 5]]])
    np.testing.assert_array_equal(nn.max_pool1d(x, 2), [[[2, 4]]])


def test_layouts_and_same_padding() -> None:
    x = RNG.standard_normal((2, 3, 8, 6)).astype(np.float32)
    first = td.jit(lambda x: nn.max_pool2d(x, 3, 2, "SAME"))(x)
    assert first.shape == (2, 3, 4, 3)
    last = td.jit(lambda x: nn.max_pool2d(x, 3, 2, "SAME", layout="NHWC"))(np.moveaxis(x, 1, -1))
    np.testing.assert_array_equal(np.moveaxis(np.asarray(last), -1, 1), first)
    single = nn.max_pool2d(x[0], 3, 2, "SAME")
    np.testing.assert_array_equal(single, first[0])
    pairs = nn.max_pool2d(x, 3, 2, [(0, 1), (0, 1)])
    np.testing.assert_array_equal(pairs, first)
    np.testing.assert_array_equal(td.vmap(lambda x: nn.max_pool2d(x, 3, 2, "SAME"))(x), first)


def test_adaptive_and_global() -> None:
    x = RNG.standard_normal((2, 3, 7, 10))
    for size in (1, 3, (7, 10), (2, 5)):
        rows, columns = (size, size) if isinstance(size, int) else size
        want = np.empty((2, 3, rows, columns))
        top = want.copy()
        for i, j in product(range(rows), range(columns)):
            part = x[:, :, i * 7 // rows : -(-(i + 1) * 7 // rows)]
            part = part[..., j * 10 // columns : -(-(j + 1) * 10 // columns)]
            want[..., i, j], top[..., i, j] = part.mean((2, 3)), part.max((2, 3))
        mean = lambda x, s=size: nn.adaptive_avg_pool2d(x, s)  # noqa: E731
        most = lambda x, s=size: nn.adaptive_max_pool2d(x, s)  # noqa: E731
        gives(mean, [x], want, np.float64, atol=1e-12)
        gives(most, [x], top, np.float64)
        differentiates(mean, x)
        differentiates(most, x)
    gives(nn.global_avg_pool, [x], x.mean((2, 3), keepdims=True), np.float64)
    gives(nn.global_max_pool, [x], x.max((2, 3), keepdims=True), np.float64)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_ties_of_adaptive_pooling_go_to_the_first(size: int) -> None:
    x = np.ones((1, 1, 4, 4), np.float32)
    gradient = td.jit(td.grad(lambda x: td.sum(nn.adaptive_max_pool2d(x, size))))(x)
    assert gradient[0, 0, 0, 0] == 1 and np.sum(gradient) == size * size
    x[0, 0, 2, 1] = np.nan
    nan = td.grad(lambda x: td.sum(nn.global_max_pool(x)))(x)
    assert nan[0, 0, 2, 1] == 1 and np.sum(nan) == 1


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_halves_fix_2(kind: str) -> None:
    x = td.astype(np.full((1, 1, 4, 4), 6e4), getattr(td, kind))
    mean = td.jit(lambda x: nn.avg_pool2d(x, 4))(x)
    assert mean.dtype == x.dtype and np.isfinite(np.asarray(mean, np.float32)).all()
    small = td.astype(RNG.standard_normal((2, 3, 9, 33)), getattr(td, kind))
    top = td.jit(lambda x: nn.max_pool2d(x, 3, 2, 1))(small)
    want = windows(np.asarray(small, np.float64), [3, 3], [2, 2], [1, 1], [1, 1], FOLDS["max"])
    np.testing.assert_array_equal(np.asarray(top, np.float64), want)


def test_integers_and_empty_batches_fix_8() -> None:
    x = np.arange(16, dtype=np.int32).reshape(1, 1, 4, 4)
    np.testing.assert_array_equal(td.jit(lambda x: nn.max_pool2d(x, 2))(x), [[[[5, 7], [13, 15]]]])
    assert nn.avg_pool2d(x, 2).dtype == td.float32
    assert td.jit(lambda x: nn.max_pool2d(x, 2))(np.zeros((0, 3, 4, 4))).shape == (0, 3, 2, 2)


def test_wide_windows() -> None:
    x = np.round(RNG.standard_normal((2, 1, 100)) * 3).astype(np.float32)
    want = windows(x, [40], [3], [10], [1], FOLDS["sum"])
    pool = lambda x: nn.pool(x, [40], 3, 10, kind="sum")  # noqa: E731
    np.testing.assert_array_equal(td.jit(pool)(x), want)
    back = lambda x: td.vjp(pool, x)[1](want.astype(np.float32))[0]  # noqa: E731
    np.testing.assert_array_equal(td.jit(back)(x), back(x))


def test_fix_1_settings_have_one_entry_or_one_for_each_axis() -> None:
    x = SIXTEEN
    np.testing.assert_array_equal(nn.max_pool2d(x, [2], [1]), nn.max_pool2d(x, 2, 1))
    with pytest.raises(SettingError, match="stride: expected 1 or 2 numbers"):
        nn.max_pool2d(x, 2, [1, 1, 1])
    with pytest.raises(SettingError, match="padding: expected 1 or 2 numbers or pairs"):
        nn.max_pool2d(x, 2, 2, [1, 1, 1])
    with pytest.raises(SettingError, match="kernel_size: expected positive integers"):
        nn.max_pool2d(x, 0)
    with pytest.raises(SettingError, match=r"kernel_size: .* got \[1\.5"):
        nn.max_pool2d(x, 1.5)  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="padding: expected 1 or 2 numbers or pairs"):
        nn.max_pool2d(x, 2, 2, 0.5)  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="layout: expected NCHW or NHWC"):
        nn.max_pool2d(x, 2, layout="CHWN")
    with pytest.raises(SettingError, match="kind: expected max, min, mean, sum or prod"):
        nn.pool(x, 2, kind="median")
    with pytest.raises(ShapeError, match="reaches over 5 elements"):
        nn.max_pool2d(x, 5)
    with pytest.raises(ShapeError, match="max_pool1d: x has 1 axes"):
        nn.max_pool1d(x, 2)
