"""Special functions: against exact values, against SciPy at their edges, derivatives against
differences."""

from __future__ import annotations

import csv
import math
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import special

import tetrad as td

GOLDEN = Path(__file__).with_name("golden.csv")
PAGE = Path(__file__).parents[2] / "docs" / "special.md"
# units in the last place of f64; those of f32 are 1, for it is rounded from f64
BOUNDS = {
    "gammaln": 3, "gamma": 6, "digamma": 4, "polygamma": 8, "betaln": 64, "beta": 64,
    "poch": 64, "erf": 1, "erfc": 4, "erfcx": 4, "ndtr": 5, "log_ndtr": 4, "ndtri": 6, "erfinv": 6,
    "erfcinv": 6, "logit": 2, "expit": 2, "xlogy": 2, "xlog1py": 2, "entr": 2, "rel_entr": 4,
    "i0": 6, "i0e": 5, "i1": 12, "i1e": 12,
}  # fmt: skip
TINY = 5e-324
WORSE = {  # SciPy underflows or overflows there, or gives no number for a limit
    "gammaln": (-np.inf, TINY, -TINY, 1e-310, -1e-310, 1 - 2.0**-53, 1 + 2.0**-52),
    "loggamma": (TINY, 1e-310, 1 - 2.0**-53, 1 + 2.0**-52),
    "digamma": (-np.inf,),
    "erfcinv": (TINY,),
    "i0": (np.inf, -np.inf, 710.0, -710.0, 713.0),
    "i1": (np.inf, -np.inf, 710.0, -710.0, 713.0),
    "zeta": (TINY, -TINY, 1e-310, -1e-310, -171.5, -190.5, -710.0, -1e16, -1e300, -np.inf),
}
EDGES = np.array(
    [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, np.inf, -np.inf, np.nan, TINY, -TINY, 1e-310,
     -1e-310, 1e-300, 1e300, -1e300, 1.7e308, 171.0, 172.0, -171.5, -190.5, 710.0, -710.0, 713.0,
     1 - 2.0**-53, 1 + 2.0**-52, -3.0, -3.5, 1e16, -1e16, 27.0, -27.0, 38.5, -38.5]
)  # fmt: skip
ONE = ["gammaln", "gamma", "loggamma", "digamma", "gammasgn", "erf", "erfc", "erfcx", "erfinv",
       "erfcinv", "ndtr", "log_ndtr", "ndtri", "logit", "expit", "entr", "i0", "i0e", "i1", "i1e",
       "zeta", "factorial"]  # fmt: skip
TWO = ["xlogy", "xlog1py", "rel_entr", "kl_div", "betaln", "beta", "poch", "zeta", "boxcox",
       "boxcox1p", "comb"]  # fmt: skip


def golden() -> dict[str, np.ndarray]:
    found = defaultdict(list)
    with GOLDEN.open(newline="") as file:
        for name, *numbers in csv.reader(file):
            found[name].append([float(x) for x in numbers])
    return {name: np.array(rows).T for name, rows in found.items()}


def test_the_page_states_these_bounds() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \|", PAGE.read_text(), re.MULTILINE)
    assert {name: int(bound) for name, bound in rows} == BOUNDS


def how_far(got: Any, want: np.ndarray) -> np.ndarray:
    """In units in the last place of what was got; 0 where both are the same or no number."""
    got = np.asarray(got)
    rounded = want.astype(got.dtype)
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    with np.errstate(all="ignore"):
        far = np.abs(got.astype(np.float64) - want) / np.spacing(np.abs(rounded))
    return np.where(same, 0.0, np.where(np.isnan(far), np.inf, far))


@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
def test_exact_values_to_the_last_places(name: str, compiled: bool) -> None:
    *args, want = golden()[name]
    function = getattr(td.special, name)
    function = td.jit(function) if compiled else function
    assert how_far(function(*args), want).max() <= BOUNDS[name]
    small = [x.astype(np.float32) for x in args]
    assert all((x == y).all() for x, y in zip(small, args, strict=True))
    assert function(*small).dtype == td.float32
    assert how_far(function(*small), want).max() <= 1


def same_kind(got: np.ndarray, want: np.ndarray, args: list[np.ndarray], rtol: float) -> None:
    with np.errstate(all="ignore"):
        close = np.isclose(got, want, rtol=rtol, atol=0, equal_nan=True) | (
            # numbers that SciPy flushes, or rounds among subnormal ones
            (np.abs(got - want) < 1e-305) & np.isfinite(got)
        )
    wrong = [(*(x[i] for x in args), got[i], want[i]) for i in np.flatnonzero(~close)]
    assert wrong == []


@pytest.mark.parametrize("name", ONE)
def test_edges_are_scipys(name: str) -> None:
    with np.errstate(all="ignore"):
        want = getattr(special, name)(EDGES)
    x = EDGES[~np.isin(EDGES, WORSE.get(name, ()))]
    for function in (getattr(td.special, name), td.jit(getattr(td.special, name))):
        same_kind(np.asarray(function(x)), want[np.isin(EDGES, x) | np.isnan(EDGES)], [x], 1e-12)


def test_logarithms_of_gamma_are_those_of_c() -> None:
    """SciPy loses those of subnormal numbers."""
    x = np.array([TINY, -TINY, 1e-310, -1e-310, -0.3, 1e300])
    assert how_far(td.special.gammaln(x), np.array([math.lgamma(v) for v in x])).max() <= 3


def test_bessel_functions_at_the_end_of_the_range() -> None:
    x = np.array([710.0, 713.0, np.inf, -np.inf])
    got = np.asarray(td.special.i0(x))
    with np.errstate(all="ignore"):
        want = special.i0e(x[:2]) * np.exp(x[:2] / 2) * np.exp(x[:2] / 2)
    np.testing.assert_allclose(got[:2], want, rtol=1e-12)
    assert (got[2:] == np.inf).all()
    assert np.asarray(td.special.i1(x)).tolist()[2:] == [np.inf, -np.inf]


@pytest.mark.parametrize("name", TWO)
def test_edges_of_two_are_scipys(name: str) -> None:
    values = np.array(
        [0.0, 1.0, 2.0, 0.5, 3.7, 10.0, 50.0, -1.0, -0.5, -2.0, np.inf, np.nan, 1e-310]
    )
    a, b = (x.reshape(-1) for x in np.meshgrid(values, values))
    if name == "kl_div":  # SciPy overflows
        a, b = a[b != 1e-310], b[b != 1e-310]
    if name in ("betaln", "beta", "poch", "comb", "zeta"):  # SciPy's poles are not all alike
        keep = (a >= 0) & (b > 0) & np.isfinite(a) & np.isfinite(b)
        keep &= (a != 1e-310) & (b != 1e-310)
        a, b = a[keep], b[keep]
    with np.errstate(all="ignore"):
        want = getattr(special, name)(a, b)
    for function in (getattr(td.special, name), td.jit(getattr(td.special, name))):
        same_kind(np.asarray(function(a, b)), want, [a, b], 1e-11)


# -- derivatives -----------------------------------------------------------------------------------

SMOOTH = {
    "gammaln": [(0.3,), (2.5,), (40.0,), (-1.3,)], "gamma": [(0.3,), (2.5,), (20.0,), (-1.3,)],
    "digamma": [(0.3,), (2.5,), (40.0,), (-1.3,)], "erfcx": [(-1.0,), (0.5,), (20.0,)],
    "erfinv": [(0.1,), (-0.9,)], "erfcinv": [(0.1,), (1.9,)], "ndtri": [(0.1,), (0.9,)],
    "ndtr": [(-3.0,), (0.5,)], "log_ndtr": [(-30.0,), (-3.0,), (0.5,), (4.0,)],
    "logit": [(0.1,), (0.6,)], "entr": [(0.3,)], "i0": [(0.0,), (3.0,), (-20.0,)],
    "i0e": [(1.0,), (-20.0,)], "i1": [(0.0,), (3.0,), (-20.0,)], "i1e": [(1.0,), (-20.0,)],
    "xlogy": [(2.0, 3.0)], "xlog1py": [(2.0, 3.0)], "rel_entr": [(2.0, 3.0)],
    "kl_div": [(2.0, 3.0)], "betaln": [(2.0, 3.0), (20.0, 0.5), (20.0, 30.0)],
    "beta": [(2.0, 3.0), (0.5, 0.2)], "poch": [(2.5, 3.0)], "zeta": [(2.5, 3.0), (4.0, 0.5)],
    "boxcox": [(2.0, 0.5)], "boxcox1p": [(2.0, 0.5)], "comb": [(5.5, 2.5)],
}  # fmt: skip


def difference(function: Any, args: list[np.ndarray], i: int) -> np.ndarray:
    """By Richardson's extrapolation of two central differences."""
    step = 1e-3 * np.maximum(1.0, np.abs(args[i])) * 0.1

    def central(h: Any) -> Any:
        return (
            np.asarray(function(*(x + h * (j == i) for j, x in enumerate(args))))
            - np.asarray(function(*(x - h * (j == i) for j, x in enumerate(args))))
        ) / (2 * h)

    return (4 * central(step / 2) - central(step)) / 3


@pytest.mark.parametrize("name", SMOOTH)
def test_derivatives_are_those_of_differences(name: str) -> None:
    function = getattr(td.special, name)
    for i in range(len(SMOOTH[name][0])):
        args = [np.array(x) for x in zip(*SMOOTH[name], strict=True)]
        slope = td.vmap(td.grad(function, i))
        got = np.asarray(slope(*args))
        np.testing.assert_allclose(got, difference(function, args, i), rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(np.asarray(td.jit(slope)(*args)), got, rtol=1e-11, atol=1e-14)
        if name != "zeta" or i:  # its derivative in x has none
            twice = td.jit(td.vmap(td.grad(td.grad(function, i), i)))
            np.testing.assert_allclose(
                np.asarray(twice(*args)), difference(slope, args, i), rtol=1e-7, atol=1e-8
            )


def test_derivatives_of_polygamma_follow_each_other() -> None:
    x = np.array([0.3, 2.0, 30.0])
    for n in range(3):
        slope = td.vmap(td.grad(lambda z, n=n: td.special.polygamma(n, z)))(x)
        np.testing.assert_allclose(np.asarray(slope), special.polygamma(n + 1, x), rtol=1e-13)
    below = np.array([-0.3, -2.5])
    mirrored = special.polygamma(1, 1 - below)
    want = (np.pi / np.sin(np.pi * below)) ** 2 - mirrored
    np.testing.assert_allclose(np.asarray(td.special.polygamma(1, below)), want, rtol=1e-13)


# -- the rest --------------------------------------------------------------------------------------


def test_bernoulli_numbers_are_scipys() -> None:
    np.testing.assert_allclose(np.asarray(td.special.bernoulli(30)), special.bernoulli(30), 1e-6)


@pytest.mark.parametrize("d", [1, 2, 5])
def test_multigammaln_is_scipys(d: int) -> None:
    a = np.array([2.6, 5.0, 30.0])
    want = special.multigammaln(a, d)
    np.testing.assert_allclose(np.asarray(td.special.multigammaln(a, d)), want, rtol=1e-14)


def test_counts_of_choices_are_whole() -> None:
    n = np.arange(40.0)
    want = special.comb(n, 7)
    assert (np.asarray(td.special.comb(n, 7.0)) == want).all()
    want = special.comb(n, 3, repetition=True)
    got = np.asarray(td.special.comb(n, 3.0, repetition=True))
    np.testing.assert_allclose(got, want, rtol=1e-13)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_rounded_once(dtype: str) -> None:
    x = td.asarray([0.1, 1.5, 7.0], dtype=getattr(td, dtype))
    got = td.special.gammaln(x)
    assert got.dtype == x.dtype
    want = td.special.gammaln(x.astype(td.float64)).astype(x.dtype)
    assert bool(td.all(got == want))


def test_integers_give_the_default_float() -> None:
    assert td.special.gammaln(td.asarray([3, 4])).dtype == td.float32
    assert td.special.xlogy(2, 3).dtype == td.float32


def test_complex_numbers_are_no_arguments() -> None:
    with pytest.raises(td.errors.DtypeError, match="gammaln: expected real numbers, got c64"):
        td.special.gammaln(td.asarray([1j]))


def test_the_functions_that_networks_use_are_the_same() -> None:
    assert td.special.logsumexp is td.nn.logsumexp
    assert td.special.softmax is td.nn.softmax
    with pytest.raises(AttributeError, match=r"there is td\.special\.gammaln"):
        _ = td.special.gammalnn


@pytest.mark.parametrize("name", ["lgamma", "gamma", "lbeta", "erf_inv", "ndtri", "digamma"])
def test_functions_are_found_by_what_others_call_them(name: str) -> None:
    with pytest.raises(AttributeError, match=r"; here it is td\.special\.\w+$"):
        getattr(td, name)


def test_gamma_next_to_its_pole_at_0() -> None:
    with td.config.context(default_float="float64"):
        x = np.array(
            [s * a for a in (1e-307, 1e-200, 1e-155, 1e-100, 1e-17, 1e-16) for s in (1, -1)]
        )
        for f in (td.special.gamma, td.jit(td.special.gamma)):
            np.testing.assert_allclose(np.asarray(f(x)), special.gamma(x), rtol=1e-15)
