"""Functions of single elements, of running lines and of what is not NaN, against NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.arrays.numpy.against import check, floats
from tetrad.core.errors import DtypeError, SettingError, ShapeError, UnsupportedError

X = floats(3, 4)
Y = floats(3, 4)
EDGES = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -2.5, 1e300, -1e-310])
SMALL = np.array([-128, -7, -1, 0, 1, 7, 127], np.int8)
INTS = np.array([-9, -4, 0, 3, 8, 12])
OTHERS = np.array([4, -6, 5, 0, 12, -8])
HOLES = np.where(floats(4, 5) > 0.7, np.nan, floats(4, 5))
HOLES[0], HOLES[:, 0] = np.nan, [np.nan, 1, 2, np.inf]


@pytest.mark.parametrize("name", [
    "fabs", "modf", "cbrt", "sinc", "deg2rad", "rad2deg", "degrees", "radians", "isneginf",
    "isposinf", "iscomplex", "isreal", "nan_to_num", "frexp", "spacing", "rint", "angle",
])  # fmt: skip
def test_of_one_number(name: str) -> None:
    is_smooth = name not in ("frexp", "spacing", "rint", "angle")
    check(name, X, grad=is_smooth, rtol=1e-14)
    if name not in ("spacing", "angle"):
        check(name, EDGES, grad=False, rtol=2e-15)
    check(name, np.zeros((0, 2)), grad=False)


@pytest.mark.parametrize("name", [
    "fmod", "float_power", "logaddexp2", "fmax", "fmin", "heaviside", "divmod", "copysign",
    "nextafter", "hypot",
])  # fmt: skip
def test_of_two_numbers(name: str) -> None:
    is_smooth = name in ("fmax", "fmin", "hypot", "logaddexp2", "fmod")
    first = np.abs(X) if name == "float_power" else X
    second = 2 + np.abs(Y) if name == "fmod" else Y  # away from where it jumps
    check(name, first, second, grad=is_smooth)
    check(name, first, Y[0], grad=False)
    if name not in ("divmod", "float_power", "nextafter"):
        check(name, np.repeat(EDGES, 9), np.tile(EDGES, 9), grad=False)
    if name in ("fmod", "fmax", "fmin"):
        check(name, INTS, np.array([4, -6, 5, 1, 12, -8]))
    if name in ("fmax", "fmin"):
        check(name, X > 0, Y > 0)


def test_powers_of_two() -> None:
    powers = np.array([0, 3, -3, 60, -1074, 2100, -2200, 5])
    numbers = np.array([1.5, -0.75, 3.0, 1e-300, 2.0**60, 2.0**-1074, 1.0, np.inf])
    check("ldexp", numbers, powers)
    check("ldexp", numbers.astype(np.float32), powers)
    tiny = np.array([2.0**-1074, 3 * 2.0**-1070, 2.0**-1022, 1.0, 0.5, 1 - 2.0**-53, 2.0**1023])
    check("frexp", tiny, grad=False)
    check("frexp", np.array([2.0**-149, 2.0**-126, 1 - 2.0**-24, 4.0], np.float32))


def test_of_integers() -> None:
    for x in (SMALL, SMALL.astype(np.uint8), SMALL.astype(np.int64) << 50, INTS.astype(np.int32)):
        check("bitwise_count", x)
    assert td.bitwise_count(td.asarray([7])).dtype is td.uint8
    check("gcd", INTS, OTHERS)
    check("lcm", INTS, OTHERS)
    check("gcd", INTS[:, None], OTHERS)
    with pytest.raises(DtypeError, match="gcd: takes integers"):
        td.gcd(X, X)
    with pytest.raises(DtypeError, match="bitwise_count: takes integers"):
        td.bitwise_count(X)


def test_roots_are_nearly_exact() -> None:
    x = np.concatenate([floats(1000) * 10.0**RANGE for RANGE in (-30, -3, 0, 5, 30)])
    single = x.astype(np.float32)
    want = np.cbrt(single.astype(np.float64))
    got = np.asarray(td.jit(td.cbrt)(single)).astype(np.float64)
    assert np.max(np.abs(got - want) / np.spacing(np.abs(want).astype(np.float32))) <= 1
    got = np.asarray(td.jit(td.cbrt)(x))
    assert np.max(np.abs(got - np.cbrt(x)) / np.spacing(np.abs(np.cbrt(x)))) <= 2


def test_sinc_has_all_its_derivatives_at_zero() -> None:
    slope = td.grad(td.sinc)
    assert float(slope(0.0)) == 0
    np.testing.assert_allclose(td.grad(slope)(td.asarray(0.0, td.float64)), -(math.pi**2) / 3)
    np.testing.assert_allclose(
        td.grad(slope)(td.asarray(0.0095, td.float64)),
        td.grad(slope)(td.asarray(0.0096, td.float64)), rtol=1e-3,
    )  # fmt: skip


def test_numbers_in_place_of_nan() -> None:
    check("nan_to_num", EDGES, True, 7.0, 8.0, -9.0, grad=False)
    both = np.stack([EDGES, EDGES[::-1]], axis=-1).view(np.complex128)[:, 0]
    check("nan_to_num", both, grad=False)
    check("nan_to_num", INTS)
    assert td.nan_to_num(td.asarray(np.inf, td.float16)).item() == 65504
    assert td.nan_to_num(td.asarray(-np.inf, td.bfloat16)).item() < -3e38


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 1)])
@pytest.mark.parametrize("name", [
    "nansum", "nanprod", "nanmax", "nanmin", "nanmean", "nanvar", "nanstd", "nanmedian",
])  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_without_nan(name: str, axis: Any) -> None:
    finite = np.where(np.isinf(HOLES), 3.0, HOLES)
    is_smooth = name in ("nansum", "nanprod")
    check(name, finite, axis, grad=False, rtol=1e-12)
    check(name, finite, axis, keepdims=True, grad=False)
    check(name, X, axis)
    check(name, INTS.reshape(2, 3), axis)
    check(name, finite[1:, 1:], axis, grad=is_smooth)
    if name in ("nanmax", "nanmin", "nansum"):
        check(name, HOLES, axis, grad=False)
        check(name, finite, axis, initial=0.5, grad=False)
    if name in ("nanvar", "nanstd"):
        check(name, finite, axis, ddof=1, grad=False)


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_running_without_nan(axis: Any) -> None:
    for name in ("nancumsum", "nancumprod"):
        check(name, np.where(np.isinf(HOLES), 3.0, HOLES), axis, grad=False)
        check(name, INTS.reshape(2, 3), axis)
    some = HOLES.copy()
    some[0] = [np.nan, -np.inf, -np.inf, np.nan, -np.inf]
    for name in ("nanargmax", "nanargmin"):
        if axis != 0:
            check(name, some[1:], axis)
        check(name, X, axis)
        check(name, INTS.reshape(2, 3), axis)
    assert int(td.nanargmax(td.asarray([np.nan, np.nan]))) == -1
    assert int(td.nanargmax(td.asarray([np.nan, -np.inf]))) == 1  # NumPy finds the NaN
    assert int(td.nanargmin(td.asarray([np.nan, np.inf, np.nan]))) == 1


METHODS = [
    "linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf", "averaged_inverted_cdf",
    "closest_observation", "interpolated_inverted_cdf", "hazen", "weibull", "median_unbiased",
    "normal_unbiased",
]  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
def test_quantiles(method: str) -> None:
    shares = [0.0, 0.1, 0.25, 0.5, 0.6, 0.75, 1.0]
    check("quantile", X, shares, method=method)
    check("quantile", X, 0.3, 0, method=method)
    check("percentile", X, [10, 50], 1, None, False, method, True)
    check("nanquantile", HOLES[1:, 1:], shares, 1, method=method, grad=False)
    check("nanpercentile", HOLES[1:, 1:], 40, method=method, grad=False)
    check("quantile", np.arange(8.0), shares, method=method, grad=False)


def test_quantiles_of_what_has_none() -> None:
    check("median", X, 0, keepdims=True)
    check("percentile", INTS, 30)
    assert np.isnan(td.quantile(HOLES, 0.5).item())
    with pytest.raises(SettingError, match="quantile: method"):
        td.quantile(X, 0.5, method="best")
    with pytest.raises(ShapeError, match="median: needs elements"):
        td.median(np.zeros(0))


def test_averages() -> None:
    check("ptp", X, 0)
    check("ptp", X, (0, 1), keepdims=True)
    check("average", X)
    check("average", X, 1, None, True)
    check("average", X, None, np.abs(Y))
    check("average", X, 1, np.abs(Y[0]), True)
    check("average", X, 0, np.abs(Y), keepdims=True)
    check("average", INTS)
    with pytest.raises(ShapeError, match="average: weights"):
        td.average(X, 0, Y[0])


def test_covariances() -> None:
    counts, weights = np.array([1, 2, 0, 3]), np.abs(floats(4))
    for settings in ({}, {"rowvar": False}, {"bias": True}, {"ddof": 0}, {"ddof": 2}):
        check("cov", X, **settings)
    check("cov", X, Y)
    check("cov", X[0])
    check("cov", X[0], Y[0])
    check("cov", X + 1j * Y)
    check("cov", X, fweights=counts)
    check("cov", X, aweights=weights)
    check("cov", X, fweights=counts, aweights=weights, ddof=0)
    check("cov", X, fweights=counts, aweights=weights)
    check("corrcoef", X)
    check("corrcoef", X, Y, False)
    check("corrcoef", X[0])
    check("corrcoef", X + 1j * Y)
    with pytest.raises(ShapeError, match="cov: weights are one for each"):
        td.cov(X, aweights=weights[:2])


def test_slopes() -> None:
    places = np.cumsum(np.abs(floats(4)))
    cube = floats(3, 4, 3)
    for order in (1, 2):
        check("gradient", cube, edge_order=order)
        check("gradient", cube, 0.5, edge_order=order)
        check("gradient", cube, 0.5, places, 2.0, edge_order=order)
        check("gradient", cube, 0.25, axis=1, edge_order=order)
        check("gradient", cube, 0.25, places, axis=(0, 1), edge_order=order)
    check("gradient", X[0])
    check("gradient", X[0], places)
    check("gradient", INTS)
    check("ediff1d", X)
    check("ediff1d", X, to_end=[1.0, 2.0], to_begin=0.5)
    with pytest.raises(ShapeError, match="gradient: needs 3 elements"):
        td.gradient(X[:2], edge_order=2)


def test_angles_without_jumps() -> None:
    turning = np.cumsum(floats(3, 20) * 3, axis=1)
    wrapped = np.angle(np.exp(1j * turning))
    check("unwrap", wrapped)
    check("unwrap", wrapped, axis=0)
    check("unwrap", wrapped * 2, period=4.0, grad=False)
    check("unwrap", wrapped, 4.0, grad=False)
    check("unwrap", np.array([0, 1, 2, -1, 0, 7, 3]), period=4)
    check("unwrap", np.array([0, 1, 2, -1, 0, 7, 3]), period=5)
    check("angle", X + 1j * Y, True)


def test_truth_is_computed_with_as_in_numpy() -> None:
    a, b = X > 0, Y > 0
    for name in ("add", "multiply", "maximum", "minimum"):
        check(name, a, b)
    for name in ("abs", "floor", "real"):
        check(name, a)
    for name in ("sort", "argsort", "argmax", "argmin"):
        check(name, a, 1)
    check("cumsum", a)
    with pytest.raises(DtypeError):
        td.subtract(a, b)


TRUTHS = np.array([[True, False], [False, False]])


@pytest.mark.parametrize("name", ["isnan", "isinf", "isfinite", "isposinf", "isneginf", "imag"])
def test_booleans_are_numbers_that_are_never_special(name: str) -> None:
    check(name, TRUTHS, grad=False)


@pytest.mark.parametrize("a", [SMALL, np.uint8([0, 255]), INTS, TRUTHS], ids=lambda a: str(a.dtype))
def test_signs_of_integers(a: np.ndarray) -> None:
    want = a < 0  # NumPy's signbit takes no booleans
    for f in (td.signbit, td.jit(td.signbit)):
        assert f(a).tolist() == want.tolist()


def test_powers_of_booleans_are_integers() -> None:
    for f in (td.square, lambda x: x**2, lambda x: td.power(x, 2), lambda x: x**3):
        for g in (f, td.jit(f)):
            found = g(td.asarray(TRUTHS))
            assert found.dtype == np.int32 and found.tolist() == TRUTHS.astype(int).tolist()
    check("bitwise_count", TRUTHS, grad=False)


def test_bounds_beyond_a_dtype() -> None:
    a = np.uint8([0, 5, 255])
    for low, high in ((-1, 7), (3, 300), (-5, 1000), (None, 256), (-1, None)):
        check("clip", a, low, high, grad=False)
        check("clip", SMALL, low, high, grad=False)


def test_tens_of_unsigned_integers() -> None:
    check("round", np.uint8([4, 5, 15, 25, 249]), -1, grad=False)


def test_quotient_and_remainder_by_pythons_name() -> None:
    for other in (2, 2.5, np.float32([3, -3, 0.5])):
        for left, right in ((np.float32([7, -7, 9]), other), (other, np.float32([7, -7, 9]))):
            want = divmod(left, right)
            a, b = (td.asarray(x) if isinstance(x, np.ndarray) else x for x in (left, right))
            for f in (divmod, td.jit(divmod)):
                for one, known in zip(f(a, b), want, strict=True):
                    np.testing.assert_allclose(one, known, rtol=1e-6)


def test_toward_zero() -> None:
    a = np.array([2.7, -2.7, -0.0, np.nan, np.inf])
    np.testing.assert_array_equal(td.fix(a), np.trunc(a))
    with pytest.raises(UnsupportedError, match="fix: out= is not supported"):
        td.fix(a, out=a)


def test_steps_that_are_no_integers() -> None:
    with pytest.raises(ShapeError, match=r"roll: shift is an int, or a tuple of ints, got 0\.5"):
        td.roll(X, 0.5)
    with pytest.raises(ShapeError, match=r"roll: axis is an int, or a tuple of ints, got 1\.5"):
        td.roll(X, 1, axis=1.5)
