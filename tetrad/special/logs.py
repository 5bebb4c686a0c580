"""Special functions, logs: logarithms and products with them, defined at their edges: entropies,
log odds, powers."""

from __future__ import annotations

from typing import Any

from tetrad.arrays import functions as td
from tetrad.special.wide import INF, NAN, wide
from tetrad.tracing.array import Array
from tetrad.tracing.operands import run
from tetrad.transforms.custom import custom_jvp


def expit(x: Any, /) -> Array:
    """The logistic function 1 / (1 + exp(-x)).

    >>> import tetrad as td
    >>> td.special.expit(td.asarray([-100.0, 0.0]))
    Array([3.8e-44, 5.0e-01], float32)
    """
    return wide("expit", lambda z: run("sigmoid", z), x)


@custom_jvp
def log_odds(p: Array) -> Array:
    """2 atanh(2 p - 1) about 1/2, where 2 p - 1 is exact."""
    is_near = td.abs(p - 0.5) < 0.25
    near = 2.0 * td.atanh(2.0 * td.where(is_near, p, 0.5) - 1.0)
    return td.where(is_near, near, td.log(p / (1.0 - p)))  # type: ignore[no-any-return]


@log_odds.defjvp
def _log_odds_jvp(primals: Any, tangents: Any) -> Any:
    (p,), (dp,) = primals, tangents
    return log_odds(p), dp / (p * (1.0 - p))


def logit(x: Any, /) -> Array:
    """The log odds log(p / (1 - p)), inverse of `expit`.

    >>> import tetrad as td
    >>> td.special.logit(td.asarray([0.5, 0.9]))
    Array([0.       , 2.1972244], float32)
    """
    return wide("logit", log_odds, x)


@custom_jvp
def times_log(x: Array, y: Array) -> Array:
    is_none = (x == 0.0) & ~td.isnan(y)
    return td.where(is_none, 0.0, x * td.log(td.where(is_none, 1.0, y)))  # type: ignore[no-any-return]


@times_log.defjvp
def _times_log_jvp(primals: Any, tangents: Any) -> Any:
    (x, y), (dx, dy) = primals, tangents
    return times_log(x, y), td.log(y) * dx + x / y * dy


def xlogy(x: Any, y: Any, /) -> Array:
    """x log(y), 0 where x is 0.

    >>> import tetrad as td
    >>> td.special.xlogy(td.asarray([0.0, 2.0]), td.asarray([0.0, 3.0]))
    Array([0.       , 2.1972246], float32)
    """
    return wide("xlogy", times_log, x, y)


@custom_jvp
def times_log1p(x: Array, y: Array) -> Array:
    is_none = (x == 0.0) & ~td.isnan(y)
    return td.where(is_none, 0.0, x * td.log1p(td.where(is_none, 1.0, y)))  # type: ignore[no-any-return]


@times_log1p.defjvp
def _times_log1p_jvp(primals: Any, tangents: Any) -> Any:
    (x, y), (dx, dy) = primals, tangents
    return times_log1p(x, y), td.log1p(y) * dx + x / (1.0 + y) * dy


def xlog1py(x: Any, y: Any, /) -> Array:
    """x log(1 + y), 0 where x is 0.

    >>> import tetrad as td
    >>> td.special.xlog1py(2.0, td.asarray([0.0, 1e-9]))
    Array([0.e+00, 2.e-09], float32)
    """
    return wide("xlog1py", times_log1p, x, y)


def entr(x: Any, /) -> Array:
    """The entropy -x log(x) of a probability; 0 at 0, -inf below.

    >>> import tetrad as td
    >>> td.special.entr(td.asarray([-1.0, 0.0, 0.5]))
    Array([      -inf, -0.       ,  0.3465736], float32)
    """
    return wide("entr", lambda p: td.where(p < 0.0, -INF, -times_log(p, p)), x)


@custom_jvp
def relative_entropy(p: Array, q: Array) -> Array:
    is_both = (p > 0.0) & (q > 0.0)
    over, under = td.where(is_both, p, 1.0), td.where(is_both, q, 1.0)
    ratio = over / under
    is_near = (ratio > 1e-300) & (ratio < INF)
    near = td.where(td.abs(ratio - 1.0) < 0.5, td.log1p((over - under) / under), td.log(ratio))
    logs = td.where(is_near, near, td.log(over) - td.log(under))
    edge = td.where((p == 0.0) & (q >= 0.0), 0.0, INF)
    edge = td.where(td.isnan(p) | td.isnan(q), NAN, edge)
    return td.where(is_both, over * logs, edge)  # type: ignore[no-any-return]


@relative_entropy.defjvp
def _relative_entropy_jvp(primals: Any, tangents: Any) -> Any:
    (p, q), (dp, dq) = primals, tangents
    return relative_entropy(p, q), (td.log(p / q) + 1.0) * dp - p / q * dq


def rel_entr(p: Any, q: Any, /) -> Array:
    """p log(p / q); 0 where p is 0, inf where either is below.

    >>> import tetrad as td
    >>> td.special.rel_entr(0.5, td.asarray([0.25, 0.5]))
    Array([0.3465736, 0.       ], float32)
    """
    return wide("rel_entr", relative_entropy, p, q)


def kl_div(p: Any, q: Any, /) -> Array:
    """p log(p / q) - p + q, whose sum is the Kullback-Leibler divergence.

    >>> import tetrad as td
    >>> td.special.kl_div(0.5, td.asarray([0.25, 0.5]))
    Array([0.09657359, 0.        ], float32)
    """
    return wide("kl_div", _divergence, p, q)


def _divergence(p: Array, q: Array) -> Array:
    value = relative_entropy(p, q)
    is_off = (p < 0.0) | (q < 0.0) | ((p > 0.0) & (q == 0.0))
    return td.where(is_off & ~td.isnan(value), INF, value - p + q)  # type: ignore[no-any-return]


def boxcox(x: Any, lmbda: Any, /) -> Array:
    """The Box-Cox transform (x^lmbda - 1) / lmbda, log(x) where lmbda is 0.

    >>> import tetrad as td
    >>> td.special.boxcox(td.asarray([1.0, 4.0]), 0.5)
    Array([0., 2.], float32)
    """
    return wide("boxcox", lambda z, k: _powered(td.log(z), k), x, lmbda)


def boxcox1p(x: Any, lmbda: Any, /) -> Array:
    """The Box-Cox transform of 1 + x.

    >>> import tetrad as td
    >>> td.special.boxcox1p(td.asarray([0.0, 3.0]), 0.5)
    Array([0., 2.], float32)
    """
    return wide("boxcox1p", lambda z, k: _powered(td.log1p(z), k), x, lmbda)


def _powered(log: Array, k: Array) -> Array:
    is_tiny = td.abs(k) < 1e-150
    power = td.where(is_tiny, 1.0, k)
    curved = log * (1.0 + 0.5 * td.where(is_tiny & td.isfinite(log), k * log, 0.0))
    return td.where(is_tiny, curved, td.expm1(power * log) / power)  # type: ignore[no-any-return]
