"""Solvers: a minimum of a function of a vector, by BFGS. Receives the function, gives the minimum
and how it was found; works inside `jit` and `vmap` as it does outside."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tetrad.arrays import functions as td
from tetrad.core.dtypes import i32
from tetrad.core.errors import SettingError, ShapeError
from tetrad.tracing.array import Array, fail
from tetrad.tracing.loops import while_loop
from tetrad.tracing.operands import as_array
from tetrad.transforms.derivatives import value_and_grad

DECREASE, CURVATURE = 1e-4, 0.9  # Wolfe's conditions (Nocedal and Wright 2006, 3.1)
OPTIONS = ("gtol", "line_search_maxiter", "maxiter", "norm")


class OptimizeResults(NamedTuple):
    """What `minimize` found. `status`: 0 a minimum, 1 the iterations ran out, 3 no step along the
    direction was good enough."""

    x: Array
    success: Array
    status: Array
    fun: Array
    jac: Array
    hess_inv: Array
    nfev: Array
    njev: Array
    nit: Array


class DescentStep(NamedTuple):
    """A point along a direction; it is between `low` and `high`."""

    size: Array
    low: Array
    high: Array
    value: Array
    slope: Array
    is_good: Array
    tries: Array


def minimize(
    fun: Callable[..., Any],
    x0: Any,
    args: tuple[Any, ...] = (),
    *,
    method: str = "BFGS",
    tol: float | None = None,
    options: Mapping[str, Any] | None = None,
) -> OptimizeResults:
    """The minimum of fun(x, *args) near the vector x0, by BFGS with steps that meet Wolfe's
    conditions. Reverse mode cannot pass its loop; `td.custom_root` of the gradient has derivatives.

    options   gtol (1e-5, or `tol`): the norm of the gradient to stop at; norm (inf): its order;
              maxiter (200 for each element); line_search_maxiter (30): evaluations for one step

    >>> import tetrad as td
    >>> found = td.minimize(lambda x: td.sum((x - 2.0) ** 2), td.zeros(2))
    >>> td.round(found.x, 4), bool(found.success)
    (Array([2., 2.], float32), True)
    """
    start = as_array(x0)
    settings = chosen(method, tol, options or {}, start)
    both = value_and_grad(lambda x: fun(x, *args))
    value, slope = both(start)
    one = td.eye(start.shape[0], dtype=start.dtype)
    status = td.where(size_of(slope, settings) <= settings["gtol"], 0, 1)
    zero = td.asarray(0, dtype=i32)
    begun = (start, zero > 0, td.astype(status, i32), value, slope, one)
    first = OptimizeResults(*begun, nfev=zero + 1, njev=zero + 1, nit=zero)

    def goes_on(state: OptimizeResults) -> Array:
        return (state.status == 1) & (state.nit < settings["maxiter"])  # type: ignore[no-any-return]

    found = while_loop(goes_on, lambda state: iterated(both, state, settings), first)
    return found._replace(success=found.status == 0)  # type: ignore[no-any-return]


def chosen(method: str, tol: Any, options: Mapping[str, Any], start: Array) -> dict[str, Any]:
    if method.upper() != "BFGS":
        raise SettingError("minimize: method", "'BFGS'", method)
    if unknown := sorted(set(options) - set(OPTIONS)):
        raise SettingError("minimize: options", ", ".join(OPTIONS), unknown[0])
    if start.ndim != 1 or not start.dtype.is_float:
        fail(ShapeError, f"minimize: x0 is a vector of floats, got {start.type}")
    defaults = {
        "gtol": 1e-5 if tol is None else tol, "norm": math.inf,
        "maxiter": 200 * int(start.shape[0]), "line_search_maxiter": 30,
    }  # fmt: skip
    return defaults | dict(options)


def size_of(slope: Array, settings: Mapping[str, Any]) -> Array:
    order, sizes = settings["norm"], td.abs(slope)
    if order == math.inf:
        return td.max(sizes) if slope.shape[0] else td.sum(sizes)
    return td.sum(sizes**order) ** (1 / order)  # type: ignore[no-any-return]


def iterated(both: Any, state: OptimizeResults, settings: Mapping[str, Any]) -> OptimizeResults:
    direction = -td.matmul(state.hess_inv, state.jac)
    step = searched(both, state, direction, settings["line_search_maxiter"])
    moved = step.size * direction
    inverse = updated(state.hess_inv, moved, step.slope - state.jac)
    is_done = size_of(step.slope, settings) <= settings["gtol"]
    status = td.where(step.is_good, td.where(is_done, 0, 1), 3)

    def kept(new: Array, old: Array) -> Array:
        return td.where(step.is_good, new, old)  # type: ignore[no-any-return]

    return OptimizeResults(
        kept(state.x + moved, state.x), state.success, td.astype(status, i32),
        kept(step.value, state.fun), kept(step.slope, state.jac), kept(inverse, state.hess_inv),
        state.nfev + step.tries, state.njev + step.tries, state.nit + 1,
    )  # fmt: skip


def searched(both: Any, state: OptimizeResults, direction: Array, most: int) -> DescentStep:
    """By halving what is too long and doubling what is too short (Lewis and Overton 2013)."""
    rate = td.sum(direction * state.jac)

    def goes_on(step: DescentStep) -> Array:
        return ~step.is_good & (step.tries < most)  # type: ignore[no-any-return]

    def tried(step: DescentStep) -> DescentStep:
        bounded = step.high < math.inf
        middle = (step.low + td.where(bounded, step.high, 0)) / 2
        size = td.where(step.tries == 0, 1, td.where(bounded, middle, 2 * step.low))
        value, slope = both(state.x + size * direction)
        is_less = value <= state.fun + DECREASE * size * rate
        is_flat = td.sum(direction * slope) >= CURVATURE * rate
        low, high = td.where(is_less, size, step.low), td.where(is_less, step.high, size)
        return DescentStep(size, low, high, value, slope, is_less & is_flat, step.tries + 1)

    zero = td.zeros_like(state.fun)
    nothing = td.asarray(0, dtype=i32)
    start = DescentStep(zero, zero, zero + math.inf, state.fun, state.jac, nothing > 0, nothing)
    return while_loop(goes_on, tried, start)  # type: ignore[no-any-return]


def updated(inverse: Array, moved: Array, change: Array) -> Array:
    """H <- (1 - s y^T / y^T s) H (1 - y s^T / y^T s) + s s^T / y^T s."""
    both = td.sum(moved * change)
    share = td.where(both > 0, 1 / td.where(both > 0, both, 1), 0)
    turned = td.matmul(inverse, change)
    mixed = moved[:, None] * turned[None, :]
    grown = share * (1 + share * td.sum(change * turned))
    return inverse + grown * (moved[:, None] * moved[None, :]) - share * (mixed + mixed.mT)  # type: ignore[no-any-return]
