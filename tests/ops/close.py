"""Equality of arrays up to units in the last place: NaN equals NaN, zeros keep their sign."""

from __future__ import annotations

import numpy as np

SIGNED = {2: np.int16, 4: np.int32, 8: np.int64}


def ulps_apart(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """How many floats lie between; -0 and +0 are one apart, NaN is infinitely far from everything
    but NaN."""
    distance = np.abs(_position(got) - _position(want))
    one_nan = np.isnan(got) != np.isnan(want)
    return np.where(one_nan, np.inf, np.where(np.isnan(want), 0, distance))


def _position(x: np.ndarray) -> np.ndarray:
    """Floats in their order, as integers."""
    bits = x.view(SIGNED[x.dtype.itemsize]).astype(object)
    lowest = -(1 << (8 * x.dtype.itemsize - 1))
    return np.where(bits < 0, lowest - bits - 1, bits)


def assert_close(got: np.ndarray, want: np.ndarray, ulps: float = 0, what: object = "") -> None:
    assert got.dtype == want.dtype and got.shape == want.shape, (
        got.dtype,
        got.shape,
        want.dtype,
        want.shape,
        what,
    )
    if got.dtype.kind in "iub":
        np.testing.assert_array_equal(got, want, str(what))
        return
    if got.size == 0:
        return
    apart = ulps_apart(np.atleast_1d(got), np.atleast_1d(want))
    worst = np.unravel_index(int(np.argmax(apart)), apart.shape)
    pair = np.atleast_1d(got)[worst], np.atleast_1d(want)[worst]
    assert apart[worst] <= ulps, (
        f"{what}: got {pair[0]!r}, want {pair[1]!r} at {worst}: {apart[worst]} ulps, allowed {ulps}"
    )
