"""quant.search: near the best there is."""

from __future__ import annotations

import numpy as np
import pytest

from tetrad.quant.fields import F32
from tetrad.quant.search import fit_signed, fit_with_mins


def best_line(x: F32, top: int) -> float:
    """The least sum of squares over a fine net of steps and lows."""
    steps = np.linspace(0.3, 1.3, 101) * (x.max() - x.min()) / top
    lows = -np.linspace(0.3, 1.1, 81) * x.min()
    step, low = steps[:, None, None], lows[None, :, None]
    codes = np.clip(np.rint((x + low) / step), 0, top)
    return float(((codes * step - low - x) ** 2).sum(axis=2).min())


def best_step(x: F32, half: int) -> float:
    steps = np.linspace(-1.5, 1.5, 3001)[:, None] * np.abs(x).max() / half
    codes = np.clip(np.rint(x / np.where(steps == 0, 1, steps)), -half, half - 1)
    return float(((codes * steps - x) ** 2).sum(axis=1).min())


# Beside the best sum of squares: 7 % for the search alone (scales of 12 bits cost nothing), 12 %
# with scales rounded.
FINE, ROUNDED = 1.07, 1.12
LINES = [(16, 3, 15, ROUNDED), (32, 15, 63, ROUNDED), (32, 31, 63, ROUNDED)]
LINES += [(size, top, 4095, FINE) for size, top, _, _ in LINES]
STEPS = [(4, 32, ROUNDED), (32, 128, ROUNDED), (4, 4096, FINE), (32, 4096, FINE)]


@pytest.mark.parametrize(("size", "top", "scale_top", "allowed"), LINES)
def test_lines_are_near_the_best(size: int, top: int, scale_top: int, allowed: float) -> None:
    x = np.random.default_rng(0).standard_normal((4, 256)).astype(np.float32)
    with np.errstate(all="ignore"):
        fit, codes = fit_with_mins(x, size, top, scale_top)
    scales, lows = fit.factor * fit.scales, fit.min_factor * fit.mins
    numbers = codes.reshape(4, -1, size) * scales[..., None] - lows[..., None]
    error = ((numbers.reshape(4, 256) - x) ** 2).sum()
    assert error <= allowed * sum(best_line(group, top) for group in x.reshape(-1, size))


@pytest.mark.parametrize(("half", "scale_half", "allowed"), STEPS)
def test_steps_are_near_the_best(half: int, scale_half: int, allowed: float) -> None:
    x = np.random.default_rng(0).standard_normal((4, 256)).astype(np.float32)
    with np.errstate(all="ignore"):
        fit, codes = fit_signed(x, 16, half, scale_half)
    numbers = (codes.reshape(4, -1, 16).astype(np.float32) - half) * (fit.factor * fit.scales)[
        ..., None
    ]
    error = ((numbers.reshape(4, 256) - x) ** 2).sum()
    assert error <= allowed * sum(best_step(group, half) for group in x.reshape(-1, 16))


def test_scales_and_codes_stay_in_their_ranges() -> None:
    x = np.random.default_rng(0).standard_t(1, (64, 256)).astype(np.float32)
    with np.errstate(all="ignore"):
        fit, codes = fit_with_mins(x, 32, 15, 63)
        signed, signed_codes = fit_signed(x, 16, 4, 32)
    assert (
        min(fit.scales.min(), fit.mins.min()) >= 0 and max(fit.scales.max(), fit.mins.max()) <= 63
    )
    assert codes.max() <= 15
    assert signed.scales.min() >= -32 and signed.scales.max() <= 31 and signed_codes.max() <= 7


@pytest.mark.parametrize("size", [1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 1e-2])
def test_small_numbers_keep_what_scales_of_f16_can_hold(size: float) -> None:
    """The least f16 is a step of 2^-24: 16 codes of it, and as much for the rounding of a min."""
    x = (size * np.random.default_rng(0).uniform(-1, 1, (16, 256))).astype(np.float32)
    with np.errstate(all="ignore"):
        fit, codes = fit_with_mins(x, 32, 15, 63)
        signed, signed_codes = fit_signed(x, 16, 32, 128)
    numbers = (
        codes.reshape(16, 8, 32) * (fit.factor * fit.scales)[..., None]
        - (fit.min_factor * fit.mins)[..., None]
    )
    assert np.abs(numbers.reshape(x.shape) - x).max() <= 2 * size / 15 + 2**-24
    numbers = (signed_codes.reshape(16, 16, 16) - np.float32(32)) * (signed.factor * signed.scales)[
        ..., None
    ]
    assert np.abs(numbers.reshape(x.shape) - x).max() <= 3 * size / 32 + 2**-24


def test_numbers_that_have_codes_come_back() -> None:
    """Steps and lows that the block can hold exactly, every code in use."""
    codes = np.resize(np.arange(16), (1, 8, 32)).astype(np.float32)
    scales, mins = np.arange(56, 64, dtype=np.float32), np.arange(63, 55, -1, dtype=np.float32)
    x = (codes * scales[None, :, None] / 64 - mins[None, :, None] / 32).reshape(1, 256)
    with np.errstate(all="ignore"):
        fit, found = fit_with_mins(x, 32, 15, 63)
    np.testing.assert_array_equal(found, codes.reshape(1, 256))
    np.testing.assert_array_equal(fit.scales[0], scales)
    np.testing.assert_array_equal(fit.mins[0], mins)


@pytest.mark.parametrize(("half", "scale_half"), [(4, 32), (8, 128)])
def test_signed_numbers_that_have_codes_come_back(half: int, scale_half: int) -> None:
    """Every code, and both ends of the scales: the greatest code and the greatest scale are one
    less than the least."""
    codes = np.resize(np.arange(2 * half), (1, 16, 16)).astype(np.float32)
    scales = np.resize(
        np.float32([-scale_half, scale_half - 1, 1 - scale_half, scale_half - 2]), 16
    )
    x = ((codes - half) * scales[None, :, None] / 64).reshape(1, 256)
    with np.errstate(all="ignore"):
        fit, found = fit_signed(x, 16, half, scale_half)
    np.testing.assert_array_equal(found, codes.reshape(1, 256))
    np.testing.assert_array_equal(fit.scales[0], scales)
    assert fit.factor[0, 0] == 1 / 64
