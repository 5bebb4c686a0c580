"""The public namespace `td.random`, further distributions: those made of draws, with arguments as
in `jax.random`.

Receives a key and settings (numbers or arrays, which broadcast), returns arrays. Where only draws,
arithmetic, roots and steady functions meet, the bits are the same outside jit and inside, as for
all of `td.random`; it offers these names and loads this module when the first of them is used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tetrad.arrays.functions import any as any_of
from tetrad.arrays.functions import (
    clip,
    cumulative_sum,
    floor,
    matmul,
    matrix_transpose,
    sqrt,
    take,
    where,
)
from tetrad.arrays.statistics import max as largest
from tetrad.core.dtypes import DType, default_float, default_int, f32, f64, i32
from tetrad.core.errors import DtypeError, ShapeError, UnsupportedError
from tetrad.core.sizes import Shape
from tetrad.linalg import cholesky, diagonal, eigh, qr, svd
from tetrad.random import (
    _float,
    _log,
    _open,
    _shaped,
    bernoulli,
    drawn_shape,
    exponential,
    fold_in,
    normal,
    split,
    uniform,
)  # fmt: skip
from tetrad.random.generators import switchable
from tetrad.special.incomplete import log_gamma_slope
from tetrad.tracing.array import Array, fail
from tetrad.tracing.loops import while_loop
from tetrad.tracing.operands import as_array, broadcast, convert, dtype_of, expand, run, scalar
from tetrad.transforms.custom import custom_jvp, stop_gradient

INF = math.inf
LOG_FACTORIALS = [math.lgamma(k + 1) for k in range(10)]
SMALL_RATE = 10.0  # of Poisson numbers: below it products of uniform numbers are quicker


# -- settings --------------------------------------------------------------------------------------


def _wide(dtype: DType) -> DType:
    """The dtype that draws are computed in."""
    return f64 if dtype is f64 else f32


def _settings(
    name: str, values: Sequence[Any], shape: Any, dtype: DType
) -> tuple[list[Array], Shape]:
    """Settings as arrays of the shape that is asked for, or that they have together."""
    arrays = broadcast(name, [convert(value, dtype) for value in values])
    sizes = arrays[0].shape if shape is None else drawn_shape(name, shape)
    whole = expand(scalar(0.0, dtype), sizes)
    return [_shaped(name, broadcast(name, [x, whole])[0], sizes) for x in arrays], sizes


def _exp(x: Array) -> Array:
    return run("steady_exp", x)


# -- arithmetic on draws ---------------------------------------------------------------------------


@switchable
def rademacher(key: Any, shape: Any = (), dtype: Any = int) -> Array:
    """-1 or 1, equally likely.

    >>> import tetrad as td
    >>> td.random.rademacher(td.random.key(0), 5)
    Array([ 1, -1, -1, -1, -1], int32)
    """
    signs = where(
        bernoulli(key, 0.5, drawn_shape("rademacher", shape)), scalar(1, i32), scalar(-1, i32)
    )
    return convert(signs, default_int() if dtype is None else dtype_of(dtype))


@switchable
def cauchy(key: Any, shape: Any = (), dtype: Any = float) -> Array:
    """Standard Cauchy numbers: quotients of normal ones."""
    wanted = _float("cauchy", dtype)
    n = normal(key, (2, *drawn_shape("cauchy", shape)), _wide(wanted))
    return convert(n[0] / n[1], wanted)


@switchable
def maxwell(key: Any, shape: Any = (), dtype: Any = float) -> Array:
    """Standard Maxwell numbers: lengths of three normal ones."""
    wanted = _float("maxwell", dtype)
    n = normal(key, (3, *drawn_shape("maxwell", shape)), _wide(wanted))
    return convert(sqrt(n[0] * n[0] + n[1] * n[1] + n[2] * n[2]), wanted)


@switchable
def rayleigh(key: Any, scale: Any, shape: Any = None, dtype: Any = float) -> Array:
    """Rayleigh numbers: `scale` times the length of two normal ones."""
    wanted = _float("rayleigh", dtype)
    (factor,), sizes = _settings("rayleigh", (scale,), shape, _wide(wanted))
    return convert(factor * sqrt(2.0 * exponential(key, sizes, _wide(wanted))), wanted)


def weibull_min(
    key: Any, scale: Any, concentration: Any, shape: Any = None, dtype: Any = float
) -> Array:
    """Weibull numbers: `scale` times exponential ones to the power 1 / concentration."""
    wanted = _float("weibull_min", dtype)
    (factor, power), sizes = _settings("weibull_min", (scale, concentration), shape, _wide(wanted))
    return convert(factor * _exp(_log(exponential(key, sizes, _wide(wanted))) / power), wanted)


def pareto(key: Any, b: Any, shape: Any = None, dtype: Any = float) -> Array:
    """Pareto numbers of shape parameter b: at least 1."""
    wanted = _float("pareto", dtype)
    (power,), sizes = _settings("pareto", (b,), shape, _wide(wanted))
    return convert(_exp(exponential(key, sizes, _wide(wanted)) / power), wanted)


def lognormal(key: Any, sigma: Any = 1.0, shape: Any = None, dtype: Any = float) -> Array:
    """Numbers whose logarithms are normal, of mean 0 and standard deviation sigma."""
    wanted = _float("lognormal", dtype)
    (spread,), sizes = _settings("lognormal", (sigma,), shape, _wide(wanted))
    return convert(_exp(spread * normal(key, sizes, _wide(wanted))), wanted)


def triangular(
    key: Any, left: Any, mode: Any, right: Any, shape: Any = None, dtype: Any = float
) -> Array:
    """Numbers from left to right whose density is a triangle with its top at the mode."""
    wanted = _float("triangular", dtype)
    (low, top, high), sizes = _settings("triangular", (left, mode, right), shape, _wide(wanted))
    u, width = uniform(key, sizes, _wide(wanted)), high - low
    rising = low + sqrt(u * width * (top - low))
    return convert(
        where(u * width < top - low, rising, high - sqrt((1.0 - u) * width * (high - top))), wanted
    )


@switchable
def geometric(key: Any, p: Any, shape: Any = None, dtype: Any = int) -> Array:
    """How many trials, each with probability p, until the first succeeds: 1, 2, ..."""
    wanted = default_int() if dtype is None else dtype_of(dtype)
    if not wanted.is_integer:
        fail(DtypeError, f"geometric: expected an integer dtype, got {wanted}")
    (chance,), sizes = _settings("geometric", (p,), shape, f64)
    left = 1.0 - chance
    gone = 1.0 - left  # log(1 - p), exact for small p: the error of 1 - p is in both factors
    rate = where(gone > 0.0, -_log(left) * (chance / where(gone > 0.0, gone, 1.0)), chance)
    return convert(floor(exponential(key, sizes, f64) / rate) + 1.0, wanted)


# -- gamma and what is made of it ------------------------------------------------------------------


@custom_jvp
def _moving(drawn: Array, a: Array) -> Array:
    """Logarithms of gamma numbers, which move with their parameter."""
    return drawn


@_moving.defjvp
def _moving_jvp(primals: Any, tangents: Any) -> Any:
    """Such that the probability of less stays as it is: implicit reparametrisation (Figurnov and
    others 2018)."""
    (drawn, a), (_, da) = primals, tangents
    value = _moving(drawn, a)
    is_good = (a > 0.0) & (a < INF) & (value > -INF)
    parameter, log = (convert(where(is_good, x, 1.0), f64) for x in (a, value))
    slope = convert(log_gamma_slope(parameter, log), a.dtype)
    return value, where(is_good, slope, math.nan) * da


def loggamma(key: Any, a: Any, shape: Any = None, dtype: Any = float) -> Array:
    """Logarithms of gamma numbers: where `a` is small, those are too small for floats. They have a
    derivative in `a`."""
    wanted = _float("loggamma", dtype)
    (given,), sizes = _settings("loggamma", (a,), shape, _wide(wanted))
    drawn = log_gamma_numbers(key, stop_gradient(given), sizes, _wide(wanted))
    return convert(_moving(stop_gradient(drawn), given), wanted)


def gamma(key: Any, a: Any, shape: Any = None, dtype: Any = float) -> Array:
    """Gamma numbers of shape parameter a and scale 1; NaN where a is not positive.

    >>> import tetrad as td
    >>> td.random.gamma(td.random.key(0), 3.0, (2,))
    Array([0.99626875, 7.5945764 ], float32)
    """
    return convert(
        _exp(loggamma(key, a, shape, _wide(_float("gamma", dtype)))), _float("gamma", dtype)
    )


@switchable
def log_gamma_numbers(key: Any, a: Array, sizes: Shape, dtype: DType) -> Array:
    """Marsaglia and Tsang (2000): d times a cube of a normal number, until it is accepted, about
    once in 1.05 times.

    Below 1 it is a number for a + 1 times a uniform number to the power 1 / a.
    """
    draws, last = split(key)
    is_small, is_good = a < 1.0, (a > 0.0) & (a < INF)
    d = where(is_good, where(is_small, a + 1.0, a), 1.0) - 1.0 / 3.0
    c = (1.0 / 3.0) / sqrt(d)

    def attempt(state: Any) -> Any:
        count, done, cube = state
        for_normal, for_uniform = split(fold_in(draws, count))
        x = normal(for_normal, sizes, dtype)
        side = c * x + 1.0
        v = where(side > 0.0, side * side * side, 1.0)
        bound = 0.5 * x * x + (d - d * v) + d * _log(v)
        accepts = (side > 0.0) & (_log(_open(for_uniform, sizes, dtype)) < bound)
        return count + 1, done | accepts, where(done, cube, v)

    start = scalar(0, i32), ~is_good, expand(scalar(1.0, dtype), sizes)
    _, _, cube = while_loop(lambda state: any_of(~state[1]), attempt, start)
    drawn = _log(d) + _log(cube)
    drawn = where(
        is_small, drawn + _log(_open(last, sizes, dtype)) / where(is_small & is_good, a, 1.0), drawn
    )
    edge = where(a == 0.0, -INF, where(a > 0.0, a, math.nan))
    return where(is_good, drawn, edge)  # type: ignore[no-any-return]


def chisquare(key: Any, df: Any, shape: Any = None, dtype: Any = float) -> Array:
    """Chi-squared numbers: sums of squares of df normal ones."""
    wanted = _float("chisquare", dtype)
    return convert(2.0 * gamma(key, 0.5 * convert(df, _wide(wanted)), shape, _wide(wanted)), wanted)


def t(key: Any, df: Any, shape: Any = None, dtype: Any = float) -> Array:
    """Numbers of Student's distribution with df degrees of freedom."""
    wanted = _float("t", dtype)
    inner, (first, second) = _wide(wanted), split(key)
    (freedom,), sizes = _settings("t", (df,), shape, inner)
    half = 0.5 * freedom
    return convert(
        normal(first, sizes, inner) * sqrt(half / gamma(second, half, sizes, inner)), wanted
    )


def f(key: Any, dfnum: Any, dfden: Any, shape: Any = None, dtype: Any = float) -> Array:
    """Numbers of Fisher's distribution: quotients of chi-squared numbers, each over its degrees of
    freedom."""
    wanted = _float("f", dtype)
    inner, keys = _wide(wanted), split(key)
    both, sizes = _settings("f", (dfden, dfnum), shape, inner)
    under, over = (chisquare(keys[i], df, sizes, inner) / df for i, df in enumerate(both))
    return convert(over / under, wanted)


def beta(key: Any, a: Any, b: Any, shape: Any = None, dtype: Any = float) -> Array:
    """Beta numbers: the share of one gamma number in two. By logarithms: both may be too small for
    floats."""
    wanted = _float("beta", dtype)
    inner, keys = _wide(wanted), split(key)
    both, sizes = _settings("beta", (a, b), shape, inner)
    x, y = (loggamma(keys[i], parameter, sizes, inner) for i, parameter in enumerate(both))
    return convert(1.0 / (_exp(y - x) + 1.0), wanted)


def dirichlet(key: Any, alpha: Any, shape: Any = None, dtype: Any = float) -> Array:
    """Probabilities that add up to 1 along the last axis: shares of gamma numbers with the
    parameters alpha.

    shape   of the result without its last axis; the default is that of alpha
    """
    wanted = _float("dirichlet", dtype)
    given = convert(alpha, _wide(wanted))
    if not given.ndim:
        fail(ShapeError, f"dirichlet: alpha needs an axis, got {given.type}")
    sizes = given.shape if shape is None else (*drawn_shape("dirichlet", shape), given.shape[-1])
    logs = loggamma(key, given, sizes, _wide(wanted))
    parts = _exp(logs - largest(logs, axis=-1, keepdims=True))
    # from left to right, here and compiled
    return convert(parts / cumulative_sum(parts, axis=-1)[..., -1:], wanted)


# -- counts ----------------------------------------------------------------------------------------


@switchable
def poisson(key: Any, lam: Any, shape: Any = None, dtype: Any = int) -> Array:
    """How many events happen where lam are expected; -1 where lam is negative or no number.

    >>> import tetrad as td
    >>> td.random.poisson(td.random.key(0), 3.0, (5,))
    Array([3, 2, 5, 1, 4], int32)
    """
    wanted = default_int() if dtype is None else dtype_of(dtype)
    if not wanted.is_integer:
        fail(DtypeError, f"poisson: expected an integer dtype, got {wanted}")
    (rate,), sizes = _settings("poisson", (lam,), shape, f64)
    few, many = split(key)
    is_small = rate < SMALL_RATE
    counts = where(
        is_small, _few(few, where(is_small, rate, 0.0), sizes), _many(many, rate, ~is_small, sizes)
    )
    most = float(np.iinfo(wanted.np).max)
    return convert(where(rate >= 0.0, clip(counts, None, most), -1.0), wanted)


def _few(key: Any, rate: Array, sizes: Shape) -> Array:
    """So many uniform numbers have a product above exp(-rate) (Knuth); those of no rate are done at
    once."""
    bound = _exp(-rate)

    def attempt(state: Any) -> Any:
        step, left, count = state
        left = left * _open(fold_in(key, step), sizes, f64)
        return step + 1, left, where(left > bound, count + 1.0, count)

    start = scalar(0, i32), expand(scalar(1.0, f64), sizes), expand(scalar(0.0, f64), sizes)
    return while_loop(lambda state: any_of(state[1] > bound), attempt, start)[2]  # type: ignore[no-any-return]


def _many(key: Any, rate: Array, wanted: Array, sizes: Shape) -> Array:
    """Transformed rejection (Hörmann 1993, algorithm PTRS), for rates of at least 10."""
    is_good = wanted & (rate < INF)
    lam = where(is_good, rate, SMALL_RATE)
    b = 2.53 * sqrt(lam) + 0.931
    a = 0.02483 * b - 0.059
    inverse, limit, log_rate = 1.1328 / (b - 3.4) + 1.1239, 0.9277 - 3.6224 / (b - 2.0), _log(lam)

    def attempt(state: Any) -> Any:
        step, done, found = state
        first, second = split(fold_in(key, step))
        u, v = _open(first, sizes, f64) - 0.5, _open(second, sizes, f64)
        room = 0.5 - abs(u)
        k = floor((2.0 * a / room + b) * u + lam + 0.43)
        inside = (k >= 0.0) & ((room >= 0.013) | (v <= room))
        whole = where(k >= 0.0, k, 0.0)
        likely = _log(
            v * inverse / (a / (room * room) + b)
        ) <= whole * log_rate - lam - _log_factorial(whole)
        accepts = ((room >= 0.07) & (v <= limit)) | (inside & likely)
        return step + 1, done | accepts, where(done, found, whole)

    start = scalar(0, i32), ~is_good, expand(scalar(0.0, f64), sizes)
    _, _, found = while_loop(lambda state: any_of(~state[1]), attempt, start)
    return where(is_good, found, rate)  # type: ignore[no-any-return]


def _log_factorial(k: Array) -> Array:
    """log(k!) of whole numbers: a table, then Stirling's series."""
    x = where(k < 10.0, 10.0, k) + 1.0
    square = 1.0 / (x * x)
    rest = ((square * (1 / 1260) - 1 / 360) * square + 1 / 12) / x
    series = (x - 0.5) * _log(x) - x + (0.5 * math.log(2 * math.pi)) + rest
    known = take(as_array(np.array(LOG_FACTORIALS)), convert(clip(k, 0.0, 9.0), i32))
    return where(k < 10.0, known, series)  # type: ignore[no-any-return]


# -- vectors ---------------------------------------------------------------------------------------

FACTORS = ("cholesky", "eigh", "svd")


def multivariate_normal(
    key: Any, mean: Any, cov: Any, shape: Any = None, dtype: Any = None, method: str = "cholesky"
) -> Array:
    """Normal vectors of a mean [..., n] and a covariance [..., n, n]; both may be differentiated.

    shape   of the result without its last axis; the default is that of mean and covariance together
    method  how the covariance is taken apart: "cholesky", or "eigh" or "svd" if it is singular

    >>> import tetrad as td
    >>> td.random.multivariate_normal(td.random.key(0), td.zeros(2), td.eye(2), (3,)).shape
    (3, 2)
    """
    middle, spread = as_array(mean), as_array(cov)
    wanted = _float("multivariate_normal", default_float() if dtype is None else dtype)
    if method not in FACTORS:
        fail(
            UnsupportedError,
            f"multivariate_normal: there is no method {method!r}",
            f"methods: {', '.join(FACTORS)}",
        )
    if not middle.ndim or spread.ndim < 2 or spread.shape[-2:] != (middle.shape[-1],) * 2:
        expected = "expected a mean [..., n] and a covariance [..., n, n]"
        fail(ShapeError, f"multivariate_normal: {expected}, got {middle.type} and {spread.type}")
    inner, n = _wide(wanted), middle.shape[-1]
    root = _root(convert(spread, inner), method)
    together = broadcast("multivariate_normal", [middle[..., 0], spread[..., 0, 0]])[0].shape
    sizes = together if shape is None else drawn_shape("multivariate_normal", shape)
    drawn = matmul(root, normal(key, (*sizes, n), inner)[..., None])[..., 0]
    return convert(
        _shaped("multivariate_normal", drawn + convert(middle, inner), (*sizes, n)), wanted
    )


def _root(cov: Array, method: str) -> Array:
    """A matrix whose product with its transpose is the covariance."""
    if method == "cholesky":
        return cholesky(cov)
    if method == "eigh":
        values, vectors = eigh(cov)
        return vectors * sqrt(clip(values, 0.0, None))[..., None, :]  # type: ignore[no-any-return]
    u, s, _ = svd(cov)
    return u * sqrt(s)[..., None, :]  # type: ignore[no-any-return]


def orthogonal(
    key: Any, n: int, shape: Any = (), dtype: Any = float, m: int | None = None
) -> Array:
    """Orthogonal matrices [*shape, n, n], all equally likely; with `m` [*shape, n, m], whose
    shorter side is orthonormal."""
    wanted, sizes = _float("orthogonal", dtype), drawn_shape("orthogonal", shape)
    if m is not None and m > n:
        return matrix_transpose(orthogonal(key, m, shape, dtype, n))
    q, r = qr(normal(key, (*sizes, n, n if m is None else m), _wide(wanted)))
    return convert(q * where(diagonal(r) < 0.0, -1.0, 1.0)[..., None, :], wanted)
