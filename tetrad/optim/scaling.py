"""Optim, scaling: steps that multiply gradients by something: a number, a schedule, running moments
of the past.

Receives and returns trees (`base.py`). Formulas, places of eps and defaults are those of optax;
moments have the dtype of their parameter unless another is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from tetrad.arrays import functions as td
from tetrad.core.dtypes import f32, f64, i32
from tetrad.core.errors import DtypeError, TraceError
from tetrad.core.floats import guarded
from tetrad.core.tree import flatten, tree_map
from tetrad.optim.base import (
    GradientTransformation,
    Leaf,
    Tree,
    map_trees,
    masked,
    real,
    squared,
    stateless,
)
from tetrad.optim.schedules import Schedule, counts_in_floats, rate_at, takes_floats
from tetrad.optim.settings import check_decay, check_number, check_rate
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import as_array, dtype_of

Rate = float | Array | Schedule
LARGEST_COUNT = 2**31 - 1  # of int32; the count stays there


class ScheduleState(NamedTuple):
    count: Array  # type: ignore[assignment]


class TraceState(NamedTuple):
    trace: Tree


class AdamState(NamedTuple):
    count: Array  # type: ignore[assignment]
    mu: Tree
    nu: Tree


class LionState(NamedTuple):
    mu: Tree


class RmsState(NamedTuple):
    nu: Tree


class CountedRmsState(NamedTuple):
    count: Array  # type: ignore[assignment]
    nu: Tree


class StddevState(NamedTuple):
    mu: Tree
    nu: Tree


class CountedStddevState(NamedTuple):
    count: Array  # type: ignore[assignment]
    mu: Tree
    nu: Tree


class RssState(NamedTuple):
    sum_of_squares: Tree


# -- numbers and schedules -------------------------------------------------------------------------


def scale(step_size: float | Array) -> GradientTransformation:
    """Updates times a number."""
    check_number("scale", "step_size", step_size)
    return stateless(lambda updates, params: tree_map(lambda u: times(step_size, u), updates))


def times(number: Leaf, x: Leaf) -> Leaf:
    """A product in the dtype of the array: a rate in f32 does not widen an update in f16."""
    x = as_array(x)
    return x * (number if isinstance(number, int | float) else td.astype(number, x.dtype))


def counted(count: Leaf) -> Leaf:
    return td.minimum(count, LARGEST_COUNT - 1) + 1


def scale_by_schedule(step_size_fn: Schedule) -> GradientTransformation:
    """Updates times a function of the number of updates before."""

    @guarded
    def update(updates: Tree, state: ScheduleState, params: Tree = None) -> tuple[Tree, Tree]:
        is_wide = any(as_array(u).dtype.real is f64 for u in flatten(updates)[0])
        rate = rate_at(step_size_fn, state.count, is_wide)
        return tree_map(lambda u: times(rate, u), updates), ScheduleState(counted(state.count))

    return GradientTransformation(lambda params: ScheduleState(td.zeros((), dtype=i32)), update)


def scale_by_learning_rate(
    learning_rate: Rate, *, flip_sign: bool = True
) -> GradientTransformation:
    """Updates times a rate or a schedule of rates, downhill."""
    return at_rate("scale_by_learning_rate", learning_rate, -1 if flip_sign else 1)


def at_rate(step: str, learning_rate: Rate, sign: int = -1) -> GradientTransformation:
    """The last step of an optimiser, called `step` in what is said of the rate."""
    if callable(learning_rate):
        schedule: Schedule = learning_rate
        signed: Schedule = lambda count: sign * schedule(count)  # noqa: E731
        return scale_by_schedule(counts_in_floats(signed) if takes_floats(schedule) else signed)
    check_rate(step, learning_rate)
    return scale(sign * learning_rate)


def add_decayed_weights(
    weight_decay: float | Array = 0.0, mask: Tree | Callable[[Tree], Tree] | None = None
) -> GradientTransformation:
    """Updates plus a multiple of the parameters; `mask` chooses the leaves as in `masked`."""
    check_number("add_decayed_weights", "weight_decay", weight_decay, 0)

    @guarded
    def update(updates: Tree, params: Tree) -> Tree:
        needed("add_decayed_weights", params)
        return map_trees(
            "add_decayed_weights", lambda u, p: u + times(weight_decay, p), updates, params
        )

    decay = stateless(update)
    return decay if mask is None else masked(decay, mask)


def needed(step: str, params: Tree) -> None:
    if params is None:
        message = f"{step} needs the parameters"
        fail(TraceError, message, "call update(gradients, state, params)")


# -- moments ---------------------------------------------------------------------------------------


def zeros_for(params: Tree, dtype: Any = None, value: float = 0.0) -> Tree:
    """A moment for each parameter. One of an integer would be rounded to nothing."""
    wanted = None if dtype is None else dtype_of(dtype)

    def zeros(parameter: Leaf) -> Array:
        kept_in = wanted or as_array(parameter).dtype
        if not kept_in.is_float and not kept_in.is_complex:
            message = f"optim: moments are floats, got a parameter {as_array(parameter).type}"
            fail(
                DtypeError, message, "convert it with astype, or leave it out with td.optim.masked"
            )
        return td.full_like(parameter, value, dtype=wanted)

    return tree_map(zeros, params)


def moment(name: str, updates: Tree, before: Tree, decay: float, order: int = 1) -> Tree:
    """(1 - decay) * update**order + decay * before, in the dtypes of `before`."""
    return kept(wide_moment(name, updates, before, decay, order), before)


def kept(tree: Tree, before: Tree) -> Tree:
    """Moments as the state keeps them."""
    return tree_map(lambda new, old: td.astype(new, old.dtype), tree, before)


def wide_moment(name: str, updates: Tree, before: Tree, decay: float, order: int = 1) -> Tree:
    """A moment before it is rounded to what the state keeps: this step uses it as it is, as in
    optax."""

    def step(update: Leaf, old: Leaf) -> Leaf:
        power = update if order == 1 else squared(update)
        return (1 - decay) * power + decay * widened(old, power)

    return map_trees(name, step, updates, before)


def widened(x: Leaf, like: Leaf) -> Leaf:
    """What a state keeps in few digits, ready to be multiplied without losing more of them."""
    return td.astype(x, td.result_type(x, like))


def corrected(tree: Tree, decay: float, count: Array) -> Tree:
    """Moments over 1 - decay**count: what is missing because they began at zero.

    Written with expm1: 1 - 0.999**1 in f32 would be wrong in the fifth digit. One division for all
    elements: dividing each would take the processor longer than reading them.
    """
    exponent = log_of(decay)

    def step(x: Leaf) -> Leaf:
        wide = f32 if x.dtype.bits < 32 else x.dtype
        return x * td.astype(-1 / td.expm1(td.astype(count, wide) * exponent), x.dtype)

    return tree_map(step, tree)


def log_of(decay: Any) -> Any:
    if isinstance(decay, Array):
        return td.log(decay)
    return math.log(decay) if decay > 0 else -math.inf


def trace(
    decay: float, nesterov: bool = False, accumulator_dtype: Any = None
) -> GradientTransformation:
    """Momentum: updates plus `decay` times the sum so far; with `nesterov` one step ahead."""
    check_number("trace", "decay (momentum)", decay, 0, 1)

    @guarded
    def update(updates: Tree, state: TraceState, params: Tree = None) -> tuple[Tree, Tree]:
        def step(update: Leaf, old: Leaf) -> Leaf:
            return update + times(decay, widened(old, update))

        new = map_trees("trace", step, updates, state.trace)
        return (map_trees("trace", step, updates, new) if nesterov else new), TraceState(
            kept(new, state.trace)
        )

    return GradientTransformation(
        lambda params: TraceState(zeros_for(params, accumulator_dtype)), update
    )


def scale_by_adam(
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    mu_dtype: Any = None,
    *,
    nesterov: bool = False,
) -> GradientTransformation:
    """The mean of gradients over the root of the mean of their squares, both running and corrected
    for the start."""
    for name, value in (("b1", b1), ("b2", b2)):
        check_decay("scale_by_adam", name, value)
    for name, value in (("eps", eps), ("eps_root", eps_root)):
        check_number("scale_by_adam", name, value, 0)

    def init(params: Tree) -> AdamState:
        return AdamState(td.zeros((), dtype=i32), zeros_for(params, mu_dtype), zeros_for(params))

    @guarded
    def update(updates: Tree, state: AdamState, params: Tree = None) -> tuple[Tree, Tree]:
        mu = wide_moment("scale_by_adam", updates, state.mu, b1)
        nu = moment("scale_by_adam", updates, state.nu, b2, order=2)
        count = counted(state.count)
        mean = ahead(mu, updates, b1, count) if nesterov else corrected(mu, b1, count)
        squares = corrected(nu, b2, count)
        scaled = tree_map(
            lambda m, s: td.astype(m / (td.sqrt(s + eps_root) + eps), s.dtype), mean, squares
        )
        return scaled, AdamState(count, kept(mu, state.mu), nu)

    return GradientTransformation(init, update)


def ahead(mu: Tree, updates: Tree, decay: float, count: Array) -> Tree:
    """Nesterov's form: the mean as the next step will see it, from this gradient (Dozat 2016)."""
    mean, fresh = corrected(mu, decay, counted(count)), corrected(updates, decay, count)
    return tree_map(lambda m, g: decay * m + (1 - decay) * g, mean, fresh)


def scale_by_lion(
    b1: float = 0.9, b2: float = 0.99, mu_dtype: Any = None
) -> GradientTransformation:
    """The sign of a mix of the gradient and its running mean."""
    for name, value in (("b1", b1), ("b2", b2)):
        check_decay("scale_by_lion", name, value)

    @guarded
    def update(updates: Tree, state: LionState, params: Tree = None) -> tuple[Tree, Tree]:
        def step(update: Leaf, mu: Leaf) -> Leaf:
            return td.sign((1 - b1) * update + b1 * widened(mu, update))

        signs = map_trees("scale_by_lion", step, updates, state.mu)
        return signs, LionState(moment("scale_by_lion", updates, state.mu, b2))

    return GradientTransformation(lambda params: LionState(zeros_for(params, mu_dtype)), update)


def scale_by_rms(
    decay: float = 0.9,
    eps: float = 1e-8,
    initial_scale: float = 0.0,
    eps_in_sqrt: bool = True,
    bias_correction: bool = False,
) -> GradientTransformation:
    """Gradients over the root of the running mean of their squares, corrected for the start if
    asked."""
    check_mean("scale_by_rms", decay, eps, initial_scale)

    def init(params: Tree) -> Tree:
        nu = zeros_for(params, value=initial_scale)
        return CountedRmsState(td.zeros((), dtype=i32), nu) if bias_correction else RmsState(nu)

    @guarded
    def update(updates: Tree, state: Tree, params: Tree = None) -> tuple[Tree, Tree]:
        nu = moment("scale_by_rms", updates, state.nu, decay, order=2)
        (mean,), after = started(state, decay, nu) if bias_correction else ((nu,), RmsState(nu))
        return tree_map(lambda u, n: u * inverse_root(n, eps, eps_in_sqrt), updates, mean), after

    return GradientTransformation(init, update)


def scale_by_stddev(
    decay: float = 0.9,
    eps: float = 1e-8,
    initial_scale: float = 0.0,
    eps_in_sqrt: bool = True,
    bias_correction: bool = False,
) -> GradientTransformation:
    """Gradients over their running standard deviation, corrected for the start if asked."""
    check_mean("scale_by_stddev", decay, eps, initial_scale)

    def init(params: Tree) -> Tree:
        moments = zeros_for(params), zeros_for(params, value=initial_scale)
        return (
            CountedStddevState(td.zeros((), dtype=i32), *moments)
            if bias_correction
            else StddevState(*moments)
        )

    @guarded
    def update(updates: Tree, state: Tree, params: Tree = None) -> tuple[Tree, Tree]:
        moments = tuple(
            moment("scale_by_stddev", updates, before, decay, order)
            for order, before in ((1, state.mu), (2, state.nu))
        )
        used, after = (
            started(state, decay, *moments) if bias_correction else (moments, StddevState(*moments))
        )

        def step(update: Leaf, m: Leaf, n: Leaf) -> Leaf:
            return update * inverse_root(n - squared(m), eps, eps_in_sqrt)

        return tree_map(step, updates, *used), after

    return GradientTransformation(init, update)


def started(state: Tree, decay: float, *moments: Tree) -> tuple[tuple[Tree, ...], Tree]:
    """Moments corrected for the start, and the next state, which counts."""
    count = counted(state.count)
    return tuple(corrected(m, decay, count) for m in moments), type(state)(count, *moments)


def check_mean(step: str, decay: float, eps: float, initial_scale: float) -> None:
    check_decay(step, "decay", decay)
    check_number(step, "eps", eps, 0)
    check_number(step, "initial_scale", initial_scale, 0)


def inverse_root(x: Leaf, eps: float, eps_in_sqrt: bool) -> Leaf:
    return td.rsqrt(real(x) + eps) if eps_in_sqrt else 1 / (td.sqrt(real(x)) + eps)


def scale_by_rss(
    initial_accumulator_value: float = 0.1, eps: float = 1e-7
) -> GradientTransformation:
    """Gradients over the root of the sum of all their squares; nothing where the sum is zero."""
    check_number("scale_by_rss", "initial_accumulator_value", initial_accumulator_value, 0)
    check_number("scale_by_rss", "eps", eps, 0)

    @guarded
    def update(updates: Tree, state: RssState, params: Tree = None) -> tuple[Tree, Tree]:
        def step(update: Leaf, old: Leaf) -> Leaf:
            return td.astype(squared(update) + old, old.dtype)

        sums = map_trees("scale_by_rss", step, updates, state.sum_of_squares)
        scaled = tree_map(
            lambda u, s: u * td.where(real(s) > 0, td.rsqrt(real(s) + eps), 0), updates, sums
        )
        return scaled, RssState(sums)

    return GradientTransformation(
        lambda params: RssState(zeros_for(params, value=initial_accumulator_value)), update
    )
