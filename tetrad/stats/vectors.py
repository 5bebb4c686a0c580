"""Stats, vectors: distributions of vectors."""

from __future__ import annotations

from typing import Any

from tetrad.arrays import functions as td
from tetrad.core.dtypes import f64
from tetrad.core.errors import ShapeError
from tetrad.core.promotion import as_float
from tetrad.linalg import cholesky, diagonal, eigh, triangular_solve
from tetrad.special.gamma import log_gamma
from tetrad.special.logs import times_log
from tetrad.special.wide import INF, NAN, is_whole
from tetrad.stats.distribution import Distribution
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import common_dtype, convert

SUM_TOLERANCE = 1e-6  # how far from 1 the sum of shares may be
LOG_TAU = 1.8378770664093453


def log_dirichlet(x: Any, alpha: Any) -> Array:
    """The logarithm of the density of shares x, along the first axis. The last share may be left
    out.

    >>> import tetrad as td
    >>> td.stats.dirichlet.logpdf(td.asarray([0.2, 0.8]), td.asarray([1.0, 2.0]))
    Array(0.47000363, float32)
    """
    dtype = as_float(common_dtype((x, alpha)))
    shares, powers = convert(x, f64), convert(alpha, f64)
    if powers.ndim != 1 or not shares.ndim:
        message = f"dirichlet: alpha is a vector, x has its size first; got {powers.type}"
        fail(ShapeError, f"{message} and {shares.type}")
    if shares.shape[0] + 1 == powers.shape[0]:
        shares = td.concat([shares, 1.0 - td.sum(shares, axis=0, keepdims=True)], axis=0)
    if shares.shape[0] != powers.shape[0]:
        fail(ShapeError, f"dirichlet: {shares.type} are no shares for alpha {powers.type}")
    constant = td.sum(log_gamma(powers)) - log_gamma(td.sum(powers))
    weights = td.reshape(powers, (-1, *(1,) * (shares.ndim - 1)))
    is_out = td.any(shares < 0.0, axis=0) | (td.abs(td.sum(shares, axis=0) - 1.0) > SUM_TOLERANCE)
    inside = td.where(is_out, 1.0 / powers.shape[0], shares)
    value = td.where(is_out, -INF, td.sum(times_log(weights - 1.0, inside), axis=0) - constant)
    value = td.where(td.any(td.isnan(shares), axis=0) | ~td.all(powers > 0.0), NAN, value)
    return convert(value, dtype)


def log_multinomial(x: Any, n: Any, p: Any) -> Array:
    """The logarithm of the probability of counts x, which add up to n, along the last axis.

    >>> import tetrad as td
    >>> td.stats.multinomial.pmf(td.asarray([1, 1]), 2, td.asarray([0.5, 0.5]))
    Array(0.5, float32)
    """
    dtype = as_float(common_dtype((x, p)))
    counts, total, chances = convert(x, f64), convert(n, f64), convert(p, f64)
    is_out = td.any((counts < 0.0) | ~is_whole(counts), axis=-1)
    is_out = is_out | (td.sum(counts, axis=-1) != total)
    inside = td.where(is_out[..., None], 0.0, counts)
    parts = times_log(inside, chances) - log_gamma(inside + 1.0)
    value = log_gamma(total + 1.0) + td.sum(parts, axis=-1)
    return convert(td.where(is_out, -INF, value), dtype)


def log_multivariate_normal(
    x: Any, mean: Any, cov: Any, allow_singular: bool | None = None
) -> Array:
    """The logarithm of the density of vectors along the last axis; mean and covariance may be
    numbers, and have leading axes that broadcast.

    allow_singular   whether the covariance may be singular: then the density is that on its span

    >>> import tetrad as td
    >>> td.stats.multivariate_normal.logpdf(td.zeros(2), td.zeros(2), td.eye(2))
    Array(-1.837877, float32)
    """
    dtype = as_float(common_dtype((x, mean, cov)))
    point, middle, spread = (convert(v, f64) for v in (x, mean, cov))
    if not middle.ndim:
        value = -0.5 * (point - middle) ** 2 / spread - 0.5 * (LOG_TAU + td.log(spread))
        return convert(value, dtype)
    n = middle.shape[-1]
    away = point - middle
    if not spread.ndim:
        squares, log = td.sum(away * away, axis=-1) / spread, n * td.log(spread)
    else:
        if spread.ndim < 2 or spread.shape[-2:] != (n, n):
            message = f"multivariate_normal: expected a covariance [..., {n}, {n}]"
            fail(ShapeError, f"{message}, got {spread.type}")
        squares, log = (_on_span if allow_singular else _whole)(away, spread)
    value = -0.5 * squares - 0.5 * (n * LOG_TAU + log)
    return convert(value, dtype)


def _whole(away: Array, cov: Array) -> tuple[Array, Array]:
    """The squared length of a vector in units of the covariance, and the log of its
    determinant."""
    root = cholesky(cov)
    solved = triangular_solve(root, away[..., None])[..., 0]
    return td.sum(solved * solved, axis=-1), 2.0 * td.sum(td.log(diagonal(root)), axis=-1)


def _on_span(away: Array, cov: Array) -> tuple[Array, Array]:
    """Likewise without directions in which nothing varies; a vector that has one of these has no
    density. The log is less by log(2 pi) for each."""
    values, vectors = eigh(cov)
    limit = td.max(td.abs(values), axis=-1, keepdims=True) * (1e6 * 2.0**-52)
    is_kept = values > limit
    safe = td.where(is_kept, values, 1.0)
    along = td.sum(vectors * away[..., None], axis=-2)
    squares = td.sum(td.where(is_kept, along * along / safe, 0.0), axis=-1)
    off = td.sum(td.where(is_kept, 0.0, along * along), axis=-1)
    reach = 1e-10 * (1.0 + td.sum(away * away, axis=-1))
    log = td.sum(td.where(is_kept, td.log(safe), -LOG_TAU), axis=-1)
    return td.where(off > reach, INF, squares), log


def density_of(log: Any) -> Any:
    def density(*args: Any, **named: Any) -> Array:
        return td.exp(log(*args, **named))

    density.__doc__ = (log.__doc__ or "").replace("The logarithm of the", "The", 1).split("\n\n")[0]
    return density


dirichlet = Distribution(
    "dirichlet", "alpha", {"logpdf": log_dirichlet, "pdf": density_of(log_dirichlet)}
)
multinomial = Distribution(
    "multinomial", "n, p", {"logpmf": log_multinomial, "pmf": density_of(log_multinomial)}
)
multivariate_normal = Distribution(
    "multivariate_normal",
    "mean, cov, allow_singular=None",
    {"logpdf": log_multivariate_normal, "pdf": density_of(log_multivariate_normal)},
)
