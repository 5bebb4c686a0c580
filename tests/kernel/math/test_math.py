"""Transcendental functions: special values exactly, every other value within the ulps the table
declares."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from tests.kernel.programs import edges, elementwise, same_bits
from tests.kernel.ulps import (
    BINARY,
    CASES,
    HAS_WIDE_OF_F64,
    ORACLES,
    compute,
    hard,
    spread,
    want,
    worst,
)
from tetrad.core.dtypes import REAL_DTYPES, DType, f16, f32, f64, i32
from tetrad.core.errors import DtypeError
from tetrad.kernel.build import KernelBuilder
from tetrad.kernel.math import exponential as km
from tetrad.kernel.math.ulps import ULPS
from tetrad.kernel.text import to_text

INF, NAN = math.inf, math.nan
BINARY_CASES = [case for case in CASES if case[0] in BINARY]
UNARY_CASES = [case for case in CASES if case[0] not in BINARY]


def ids(value: object) -> str:
    return str(value)


def test_every_function_has_an_oracle_and_a_bound() -> None:
    assert set(ORACLES) == set(ULPS)
    assert all(1 <= bound <= 4 for row in ULPS.values() for bound in row.values())


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "dtype"), UNARY_CASES, ids=ids)
def test_error_over_all_bit_patterns_and_where_it_is_hard(name: str, dtype: DType) -> None:
    if dtype is f64 and not HAS_WIDE_OF_F64:
        pytest.skip("longdouble is no wider than f64 here: no oracle")
    count = 100_000 if dtype is f32 else 20_000
    points = np.concatenate([spread(dtype, count, seed=1), hard(dtype, count // 4, seed=2)])
    error, where = worst(name, dtype, points)
    assert error <= ULPS[name][dtype], where


@pytest.mark.parametrize(("name", "dtype"), BINARY_CASES, ids=ids)
def test_error_of_functions_of_two_values(name: str, dtype: DType) -> None:
    rng, count = np.random.default_rng(3), 100_000 if dtype is f32 else 20_000
    ordinary = (
        np.exp(rng.normal(0, 2, count)).astype(dtype.np),
        rng.normal(0, 20, count).astype(dtype.np),
    )
    wild = spread(dtype, count, seed=4), rng.permutation(spread(dtype, count, seed=5))
    for x, y in (ordinary, wild):
        error, where = worst(name, dtype, x, y)
        assert error <= ULPS[name][dtype], where


# -- special values --------------------------------------------------------------------------------

# Pairs, not dicts: as keys 0.0 and -0.0 are one.
SPECIAL: dict[str, list[tuple[float, float]]] = {
    "exp": [(0.0, 1), (-0.0, 1), (INF, INF), (-INF, 0), (NAN, NAN), (1e30, INF), (-1e30, 0)],
    "exp2": [(0.0, 1), (-0.0, 1), (INF, INF), (-INF, 0), (NAN, NAN), (10, 1024), (-3, 0.125), (1e30,
    INF), (-1e30, 0)],
    "expm1": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -1), (NAN, NAN), (1e30, INF), (-1e30,
    -1)],
    "log": [(0.0, -INF), (-0.0, -INF), (1, 0.0), (INF, INF), (-INF, NAN), (NAN, NAN), (-1, NAN),
    (-1e-40, NAN)],
    "log2": [
        (0.0, -INF), (-0.0, -INF), (1, 0.0), (INF, INF),
        (-INF, NAN), (NAN, NAN), (-1, NAN), (1024, 10), (0.125, -3),
    ],
    "log10": [(0.0, -INF), (-0.0, -INF), (1, 0.0), (INF, INF), (-INF, NAN), (NAN, NAN), (-1, NAN)],
    "log1p": [(0.0, 0.0), (-0.0, -0.0), (-1, -INF), (INF, INF), (-INF, NAN), (NAN, NAN), (-2, NAN)],
    "tanh": [(0.0, 0.0), (-0.0, -0.0), (INF, 1), (-INF, -1), (NAN, NAN), (40, 1), (-40, -1)],
    "sigmoid": [(0.0, 0.5), (-0.0, 0.5), (INF, 1), (-INF, 0.0), (NAN, NAN), (1e30, 1), (-1e30,
    0.0)],
    "rsqrt": [(0.0, INF), (-0.0, -INF), (INF, 0.0), (-INF, NAN), (NAN, NAN), (-1, NAN), (4, 0.5),
    (1, 1)],
    "sin": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (NAN, NAN)],
    "cos": [(0.0, 1), (-0.0, 1), (INF, NAN), (-INF, NAN), (NAN, NAN)],
    "tan": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (NAN, NAN)],
    "erf": [(0.0, 0.0), (-0.0, -0.0), (INF, 1), (-INF, -1), (NAN, NAN), (8, 1), (-8, -1)],
    "erfc": [(0.0, 1), (-0.0, 1), (INF, 0.0), (-INF, 2), (NAN, NAN), (30, 0.0), (-30, 2)],
    "sinh": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (NAN, NAN), (1e30, INF), (-1e30,
    -INF)],
    "cosh": [(0.0, 1), (-0.0, 1), (INF, INF), (-INF, INF), (NAN, NAN), (1e30, INF), (-1e30, INF)],
    "asin": [
        (0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN),
        (NAN, NAN), (1.5, NAN), (-1.5, NAN), (1, math.pi / 2), (-1, -math.pi / 2),
    ],
    "acos": [
        (1, 0.0), (0.0, math.pi / 2), (-0.0, math.pi / 2), (-1, math.pi),
        (INF, NAN), (-INF, NAN), (NAN, NAN), (1.5, NAN), (-1.5, NAN),
    ],
    "atan": [(0.0, 0.0), (-0.0, -0.0), (INF, math.pi / 2), (-INF, -math.pi / 2), (NAN, NAN)],
    "asinh": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (NAN, NAN)],
    "acosh": [(1, 0.0), (INF, INF), (-INF, NAN), (NAN, NAN), (0.5, NAN), (-1, NAN), (-3, NAN),
    (-1e30, NAN)],
    "atanh": [
        (0.0, 0.0), (-0.0, -0.0), (1, INF), (-1, -INF),
        (INF, NAN), (-INF, NAN), (NAN, NAN), (2, NAN), (-1e30, NAN),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("name", "dtype"), UNARY_CASES, ids=ids)
def test_special_values_are_exact(name: str, dtype: DType) -> None:
    x, y = (np.array(column, dtype.np) for column in zip(*SPECIAL[name], strict=True))
    got = compute(name, dtype, x)
    wrong = ~same_bits(got, y)
    assert not wrong.any(), list(zip(x[wrong], got[wrong], y[wrong], strict=True))


@pytest.mark.parametrize(("name", "dtype"), BINARY_CASES, ids=ids)
def test_special_pairs_follow_c99(name: str, dtype: DType) -> None:
    whole = 2.0 ** (np.finfo(dtype.np).nmant + 1)  # from here on every number is even
    values = [
        *edges(dtype),
        2.0,
        -2.0,
        3.0,
        -3.0,
        whole + 2,
        -whole - 2,
        whole / 2 + 1,
        -whole / 2 - 1,
    ]
    x, y = np.array(list(itertools.product(values, values)), dtype.np).T.copy()
    got, true = compute(name, dtype, x, y), want(name, dtype, x, y)
    with np.errstate(all="ignore"):
        exact = true.astype(dtype.np)
    special = ~np.isfinite(exact) | (exact == 0) | (np.abs(exact) == 1)
    wrong = ~same_bits(got, exact) & special
    assert not wrong.any(), list(zip(x[wrong], y[wrong], got[wrong], exact[wrong], strict=True))
    assert worst(name, dtype, x, y)[0] <= ULPS[name][dtype]


@pytest.mark.parametrize("dtype", [f32, f64], ids=ids)
@pytest.mark.parametrize(
    "name", ["expm1", "log1p", "tanh", "sinh", "asinh", "atanh", "sin", "tan", "asin", "atan"]
)
def test_tiny_values_are_their_own_image(name: str, dtype: DType) -> None:
    info = np.finfo(dtype.np)
    tiny = np.array(
        [info.smallest_subnormal, 3 * info.smallest_subnormal, info.tiny, info.tiny * 1.7, 1e-30],
        dtype.np,
    )
    tiny = np.concatenate([tiny, -tiny])
    assert same_bits(compute(name, dtype, tiny), tiny).all()


# (function, type): the largest argument with a finite result, the most negative one with a result
# above 0.
OVERFLOW = {
    ("exp", f32): 88.72283, ("exp2", f32): 127.99999, ("expm1", f32): 88.72283, ("sinh",
    f32): 89.415985,
    ("cosh", f32): 89.415985, ("exp", f64): 709.782712893384, ("exp2", f64): 1023.9999999999999,
    ("expm1", f64): 709.782712893384, ("sinh", f64): 710.4758600739439, ("cosh",
    f64): 710.4758600739439,
}  # fmt: skip
UNDERFLOW = {
    ("exp", f32): -103.97207, ("sigmoid", f32): -103.97207, ("exp2", f32): -149.99998, ("exp",
    f64): -745.13321,
    ("exp_nonpositive", f32): -103.97207, ("exp_nonpositive", f64): -745.13321,
}  # fmt: skip


@pytest.mark.parametrize(("case", "last"), OVERFLOW.items(), ids=ids)
def test_overflow_begins_where_it_should(case: tuple[str, DType], last: float) -> None:
    name, dtype = case
    x = np.array([last], dtype.np)
    x = np.concatenate([x, np.nextafter(x, dtype.np.type(INF))])
    finite, infinite = compute(name, dtype, x)
    assert np.isfinite(finite) and infinite == INF


@pytest.mark.parametrize(("case", "last"), UNDERFLOW.items(), ids=ids)
def test_underflow_ends_in_the_smallest_subnormal(case: tuple[str, DType], last: float) -> None:
    name, dtype = case
    got = compute(name, dtype, np.array([last, last - 0.01], dtype.np))
    assert got.tolist() == [float(np.finfo(dtype.np).smallest_subnormal), 0.0]


@pytest.mark.parametrize("dtype", [f32, f64], ids=ids)
def test_exp_of_what_is_never_positive_has_the_same_bits(dtype: DType) -> None:
    points = np.concatenate([hard(dtype, 200_000, seed=8), spread(dtype, 200_000, seed=9)])
    points = -np.abs(np.concatenate([points, np.array(edges(dtype), dtype.np)]))
    np.testing.assert_array_equal(
        compute("exp_nonpositive", dtype, points), compute("exp", dtype, points)
    )
    at_zero = compute("exp_nonpositive", dtype, np.array([0.0, -0.0], dtype.np))
    assert at_zero.tolist() == [1.0, 1.0]


# The numbers of each type that lie closest to a multiple of pi/2 (J.-M. Muller, Elementary
# Functions, chapter 11).
CLOSEST = {f32: 16367173.0 * 2.0**72, f64: 6381956970095103.0 * 2.0**797}


@pytest.mark.parametrize("dtype", [f32, f64], ids=ids)
@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_huge_angles_keep_every_bit(name: str, dtype: DType) -> None:
    info = np.finfo(dtype.np)
    powers = np.ldexp(dtype.np.type(1), np.arange(10, info.maxexp))
    single = np.array(
        [CLOSEST[dtype], info.max, 1.5707964e9, 105615.0, 105615.01, 1e9, 1e9 + 1], dtype.np
    )
    error, where = worst(name, dtype, np.concatenate([powers, single, -single]))
    assert error <= ULPS[name][dtype], where


@pytest.mark.parametrize(("dtype", "most"), [(f32, 110), (f64, 190)], ids=str)
def test_huge_angles_are_little_code(dtype: DType, most: int) -> None:
    """They are rare, and all of it is compiled for every sine. Constants stand in the instructions
    that use them."""
    k = KernelBuilder("sine")
    y = k.buffer("y", dtype, "write")
    k.store(y, k.lane(), km.sin(k, k.load(k.buffer("x", dtype), k.lane())))
    lines = to_text(k.finish()).splitlines()
    assert sum(" const(" not in line for line in lines) <= most


# -- properties that callers lean on ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("tanh", -1, 1),
        ("sigmoid", 0, 1),
        ("erf", -1, 1),
        ("erfc", 0, 2),
        ("sin", -1, 1),
        ("cos", -1, 1),
    ],
)
def test_results_stay_in_their_interval(name: str, low: float, high: float) -> None:
    for dtype in ULPS[name]:
        points = hard(dtype, 20_000, seed=6)
        got = compute(name, dtype, points[np.isfinite(points)])
        assert low <= got.min() and got.max() <= high


@pytest.mark.parametrize("dtype", [f32, f64], ids=ids)
def test_powers_of_two_are_exact(dtype: DType) -> None:
    exponents = np.arange(
        np.finfo(dtype.np).minexp - np.finfo(dtype.np).nmant, np.finfo(dtype.np).maxexp
    )
    powers = np.ldexp(dtype.np.type(1), exponents)
    assert (compute("exp2", dtype, exponents.astype(dtype.np)) == powers).all()
    assert (compute("log2", dtype, powers) == exponents).all()


def test_whole_powers_are_exact_while_they_fit() -> None:
    base, exponent = np.array(
        [(b, e) for b in range(-15, 16) for e in range(7)], np.float32
    ).T.copy()
    true = base.astype(np.float64) ** exponent.astype(np.float64)
    fits = np.abs(true) < 2**24
    assert (compute("pow", f32, base, exponent)[fits] == true[fits]).all()


# -- types -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(ULPS))
def test_other_types_are_refused(name: str) -> None:
    computed = [d for d in REAL_DTYPES if not d.storage_only]
    for dtype in set(computed) - set(ULPS[name]):
        with pytest.raises(DtypeError, match=f"{name}: no kernel for {dtype}"):
            elementwise(getattr(km, name), *[dtype] * (2 if name in BINARY else 1))


def test_the_error_lists_what_is_possible() -> None:
    with pytest.raises(
        DtypeError, match=r"exp: no kernel for i32\n  hint: cast to one of: f32, f64"
    ):
        elementwise(km.exp, i32)
    with pytest.raises(DtypeError, match="f16"):
        elementwise(km.exp, f16)
