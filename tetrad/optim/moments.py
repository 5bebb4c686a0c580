"""Optim, moments: further steps that divide gradients by running moments, with the formulas,
places of eps and defaults of optax.

As in `scaling.py`; each is a transformation of trees, most with a state of a count and moments.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

from tetrad.arrays import functions as td
from tetrad.core.dtypes import f64, i32
from tetrad.core.floats import guarded
from tetrad.core.tree import flatten, tree_map, unflatten
from tetrad.optim.base import GradientTransformation, Leaf, Tree, map_trees, real, squared
from tetrad.optim.scaling import (
    AdamState,
    ahead,
    corrected,
    counted,
    kept,
    log_of,
    moment,
    needed,
    wide_moment,
    zeros_for,
)
from tetrad.optim.settings import check_decay, check_number
from tetrad.tracing.array import Array
from tetrad.tracing.operands import as_array


class AmsgradState(NamedTuple):
    count: Array  # type: ignore[assignment]
    mu: Tree
    nu: Tree
    nu_max: Tree


class AdanState(NamedTuple):
    m: Tree
    v: Tree
    n: Tree
    g: Tree
    t: Array


class AdaDeltaState(NamedTuple):
    e_g: Tree
    e_x: Tree


class RpropState(NamedTuple):
    step_sizes: Tree
    prev_updates: Tree


class Sm3State(NamedTuple):
    mu: Tree
    nu: Tree


class OptimisticState(NamedTuple):
    is_initial_step: Array
    previous_gradient: Tree


def check_moments(step: str, *, eps: float, eps_root: float = 0.0, **decays: float) -> None:
    for name, value in decays.items():
        check_decay(step, name, value)
    check_number(step, "eps", eps, 0)
    check_number(step, "eps_root", eps_root, 0)


def start() -> Array:
    return td.zeros((), dtype=i32)


def adam_state(params: Tree) -> AdamState:
    return AdamState(start(), zeros_for(params), zeros_for(params))


def over(mean: Tree, squares: Tree, eps: float, eps_root: float = 0.0) -> Tree:
    return tree_map(lambda m, s: m / (td.sqrt(s + eps_root) + eps), mean, squares)


def scale_by_amsgrad(
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    mu_dtype: Any = None,
    bias_correction_mu: bool = True,
    bias_correction_nu: bool = True,
) -> GradientTransformation:
    """As `scale_by_adam`, but the mean of squares never falls (Reddi and others 2018)."""
    check_moments("scale_by_amsgrad", eps=eps, eps_root=eps_root, b1=b1, b2=b2)

    def init(params: Tree) -> AmsgradState:
        moments = zeros_for(params, mu_dtype), zeros_for(params), zeros_for(params)
        return AmsgradState(start(), *moments)

    @guarded
    def update(updates: Tree, state: AmsgradState, params: Tree = None) -> tuple[Tree, Tree]:
        mu = wide_moment("scale_by_amsgrad", updates, state.mu, b1)
        nu = moment("scale_by_amsgrad", updates, state.nu, b2, order=2)
        count = counted(state.count)
        mean = corrected(mu, b1, count) if bias_correction_mu else mu
        squares = corrected(nu, b2, count) if bias_correction_nu else nu
        most = tree_map(td.maximum, state.nu_max, squares)
        after = AmsgradState(count, kept(mu, state.mu), nu, most)
        return over(mean, most, eps, eps_root), after

    return GradientTransformation(init, update)


def scale_by_adamax(
    b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8
) -> GradientTransformation:
    """The mean of gradients over their largest recent size (Kingma and Ba 2015, section 7)."""
    check_moments("scale_by_adamax", eps=eps, b1=b1, b2=b2)

    @guarded
    def update(updates: Tree, state: AdamState, params: Tree = None) -> tuple[Tree, Tree]:
        mu = moment("scale_by_adamax", updates, state.mu, b1)
        nu = map_trees(
            "scale_by_adamax", lambda g, v: td.maximum(td.abs(g) + eps, b2 * v), updates, state.nu
        )
        count = counted(state.count)
        scaled = tree_map(lambda m, v: m / v, corrected(mu, b1, count), nu)
        return scaled, AdamState(count, mu, nu)

    return GradientTransformation(adam_state, update)


def scale_by_belief(
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-16,
    eps_root: float = 1e-16,
    *,
    nesterov: bool = False,
) -> GradientTransformation:
    """The mean of gradients over how far they are from it (AdaBelief, Zhuang and others 2020)."""
    check_moments("scale_by_belief", eps=eps, eps_root=eps_root, b1=b1, b2=b2)

    @guarded
    def update(updates: Tree, state: AdamState, params: Tree = None) -> tuple[Tree, Tree]:
        mu = moment("scale_by_belief", updates, state.mu, b1)
        errors = tree_map(lambda g, m: g - m, updates, mu)
        nu = moment("scale_by_belief", errors, state.nu, b2, order=2)
        nu = tree_map(lambda v: v + eps_root, nu)
        count = counted(state.count)
        mean = ahead(mu, updates, b1, count) if nesterov else corrected(mu, b1, count)
        return over(mean, corrected(nu, b2, count), eps), AdamState(count, mu, nu)

    return GradientTransformation(adam_state, update)


def scale_by_yogi(
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-3,
    eps_root: float = 0.0,
    initial_accumulator_value: float = 1e-6,
) -> GradientTransformation:
    """As `scale_by_adam`, with squares added or taken off by their sign (Zaheer and others
    2018)."""
    check_moments("scale_by_yogi", eps=eps, eps_root=eps_root, b1=b1, b2=b2)

    def init(params: Tree) -> AdamState:
        mu, nu = (zeros_for(params, value=initial_accumulator_value) for _ in range(2))
        return AdamState(start(), mu, nu)

    @guarded
    def update(updates: Tree, state: AdamState, params: Tree = None) -> tuple[Tree, Tree]:
        def step(g: Leaf, v: Leaf) -> Leaf:
            square = real(squared(g))
            return v - (1 - b2) * td.sign(v - square) * square

        mu = moment("scale_by_yogi", updates, state.mu, b1)
        nu = map_trees("scale_by_yogi", step, updates, state.nu)
        count = counted(state.count)
        scaled = over(corrected(mu, b1, count), corrected(nu, b2, count), eps, eps_root)
        return scaled, AdamState(count, mu, nu)

    return GradientTransformation(init, update)


def scale_by_radam(
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    threshold: float = 5.0,
    *,
    nesterov: bool = False,
) -> GradientTransformation:
    """As `scale_by_adam`, rectified; the mean alone while too few squares were seen (Liu and others
    2020)."""
    check_moments("scale_by_radam", eps=eps, eps_root=eps_root, b1=b1, b2=b2)
    most = 2.0 / (1.0 - b2) - 1.0

    @guarded
    def update(updates: Tree, state: AdamState, params: Tree = None) -> tuple[Tree, Tree]:
        mu = moment("scale_by_radam", updates, state.mu, b1)
        nu = moment("scale_by_radam", updates, state.nu, b2, order=2)
        count = counted(state.count)
        number = td.astype(count, f64)
        gone = td.expm1(number * log_of(b2))  # b2^count - 1, which is small at first
        seen = most + 2.0 * number * (1.0 + gone) / gone
        is_enough = seen >= threshold
        enough = td.where(is_enough, seen, 5.0)
        share = (enough - 4.0) * (enough - 2.0) * most / ((most - 4.0) * (most - 2.0) * enough)
        factor = td.sqrt(share)
        mean = ahead(mu, updates, b1, count) if nesterov else corrected(mu, b1, count)
        scaled = over(mean, corrected(nu, b2, count), eps, eps_root)
        chosen = tree_map(
            lambda u, m: td.where(is_enough, td.astype(factor, u.dtype) * u, m), scaled, mean
        )
        return chosen, AdamState(count, mu, nu)

    return GradientTransformation(adam_state, update)


def scale_by_novograd(
    b1: float = 0.9,
    b2: float = 0.25,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    weight_decay: float = 0.0,
    mu_dtype: Any = None,
) -> GradientTransformation:
    """Gradients over the running length of their leaf, with momentum (Ginsburg and others 2019)."""
    check_moments("scale_by_novograd", eps=eps, eps_root=eps_root, b1=b1, b2=b2)

    def init(params: Tree) -> AdamState:
        nu = tree_map(lambda p: td.zeros((), dtype=as_array(p).dtype), params)
        return AdamState(start(), zeros_for(params, mu_dtype), nu)

    @guarded
    def update(updates: Tree, state: AdamState, params: Tree = None) -> tuple[Tree, Tree]:
        needed("scale_by_novograd", params)
        count = counted(state.count)
        is_first = count == 1

        def lengths(g: Leaf, v: Leaf) -> Leaf:
            square = td.astype(td.sum(squared(g)), v.dtype)
            return td.where(is_first, square, (1 - b2) * square + b2 * v)

        def means(g: Leaf, p: Leaf, v: Leaf, m: Leaf) -> Leaf:
            new = g / (td.sqrt(v + eps_root) + eps) + weight_decay * p
            return td.astype(td.where(is_first, new, b1 * m + new), m.dtype)

        nu = tree_map(lengths, updates, state.nu)
        mu = tree_map(means, updates, params, nu, state.mu)
        return mu, AdamState(count, mu, nu)

    return GradientTransformation(init, update)


def scale_by_adan(
    b1: float = 0.98,
    b2: float = 0.92,
    b3: float = 0.99,
    eps: float = 1e-8,
    eps_root: float = 0.0,
) -> GradientTransformation:
    """Means of gradients and of their changes, over the root of the mean of squares one step ahead
    (Adan, Xie and others 2022)."""
    check_moments("scale_by_adan", eps=eps, eps_root=eps_root, b1=b1, b2=b2, b3=b3)

    def init(params: Tree) -> AdanState:
        m, v, n, g = (zeros_for(params) for _ in range(4))
        return AdanState(m, v, n, g, start())

    @guarded
    def update(updates: Tree, state: AdanState, params: Tree = None) -> tuple[Tree, Tree]:
        change = tree_map(lambda g, old: td.where(state.t == 0, 0.0, g - old), updates, state.g)
        m = moment("scale_by_adan", updates, state.m, b1)
        v = moment("scale_by_adan", change, state.v, b2)
        look = tree_map(lambda g, d: g + (1 - b2) * d, updates, change)
        n = moment("scale_by_adan", look, state.n, b3, order=2)
        t = counted(state.t)
        mean = tree_map(lambda a, b: a + (1 - b2) * b, corrected(m, b1, t), corrected(v, b2, t))
        return over(mean, corrected(n, b3, t), eps, eps_root), AdanState(m, v, n, updates, t)

    return GradientTransformation(init, update)


def scale_by_adadelta(rho: float = 0.9, eps: float = 1e-6) -> GradientTransformation:
    """Gradients times the running size of steps over that of gradients (Zeiler 2012)."""
    check_moments("scale_by_adadelta", eps=eps, rho=rho)

    @guarded
    def update(updates: Tree, state: AdaDeltaState, params: Tree = None) -> tuple[Tree, Tree]:
        e_g = moment("scale_by_adadelta", updates, state.e_g, rho, order=2)
        scaled = tree_map(
            lambda g, size, step: td.sqrt(step + eps) / td.sqrt(size + eps) * g,
            updates, e_g, state.e_x,
        )  # fmt: skip
        return scaled, AdaDeltaState(
            e_g, moment("scale_by_adadelta", scaled, state.e_x, rho, order=2)
        )

    return GradientTransformation(
        lambda params: AdaDeltaState(zeros_for(params), zeros_for(params)), update
    )


def scale_by_rprop(
    learning_rate: float,
    eta_minus: float = 0.5,
    eta_plus: float = 1.2,
    min_step_size: float = 1e-6,
    max_step_size: float = 50.0,
) -> GradientTransformation:
    """Signs of gradients times a step for each element, which grows while the sign stays
    (Riedmiller and Braun 1993)."""
    for name, value in (("eta_minus", eta_minus), ("eta_plus", eta_plus)):
        check_number("scale_by_rprop", name, value, 0)

    @guarded
    def update(updates: Tree, state: RpropState, params: Tree = None) -> tuple[Tree, Tree]:
        def grown(g: Leaf, before: Leaf, size: Leaf) -> Leaf:
            same = g * before
            new = td.where(same > 0, size * eta_plus, size * eta_minus)
            return td.where(same == 0, size, td.clip(new, min_step_size, max_step_size))

        def moved(g: Leaf, before: Leaf, size: Leaf) -> Leaf:
            return td.where(g * before < 0, 0.0, size * td.sign(g))

        def given(g: Leaf, before: Leaf) -> Leaf:  # optax gives the step found one update ago
            return td.where(g * before < 0, 0.0, before)

        sizes = tree_map(grown, updates, state.prev_updates, state.step_sizes)
        steps = tree_map(moved, updates, state.prev_updates, sizes)
        return tree_map(given, updates, state.prev_updates), RpropState(sizes, steps)

    return GradientTransformation(
        lambda params: RpropState(zeros_for(params, value=learning_rate), zeros_for(params)), update
    )


def scale_by_sm3(b1: float = 0.9, b2: float = 1.0, eps: float = 1e-8) -> GradientTransformation:
    """Adagrad with sums of squares for each axis instead of each element (Anil and others 2019)."""
    check_number("scale_by_sm3", "b2", b2, 0, 1)
    check_moments("scale_by_sm3", eps=eps, b1=b1)
    share = 1.0 if b2 == 1.0 else 1.0 - b2

    def covers(g: Leaf, sums: list[Leaf]) -> Leaf:
        parts = [
            td.reshape(part, [1] * axis + [-1] + [1] * (g.ndim - axis - 1))
            for axis, part in enumerate(sums)
        ]
        square = share * g * g
        return square + b2 * reduce(td.minimum, parts) if parts else square

    def bounds(total: Leaf) -> list[Leaf]:
        axes = range(total.ndim)
        return [td.max(total, axis=tuple(j for j in axes if j != i)) if total.ndim > 1 else total
                for i in axes]  # fmt: skip

    def init(params: Tree) -> Sm3State:
        moments = zeros_for(params)
        return Sm3State(tree_map(bounds, moments), moments)

    @guarded
    def update(updates: Tree, state: Sm3State, params: Tree = None) -> tuple[Tree, Tree]:
        leaves, shape = flatten(updates)
        parts = iter(flatten(state.mu)[0])  # as many for each leaf as it has axes
        sums = [[next(parts) for _ in range(as_array(g).ndim)] for g in leaves]
        totals = [covers(as_array(g), part) for g, part in zip(leaves, sums, strict=True)]
        scaled = [
            g * td.where(t > 0, td.rsqrt(t + eps), 0.0) for g, t in zip(leaves, totals, strict=True)
        ]
        nu = moment("scale_by_sm3", unflatten(shape, scaled), state.nu, b1)
        return nu, Sm3State(tree_map(bounds, unflatten(shape, totals)), nu)

    return GradientTransformation(init, update)


def scale_by_optimistic_gradient(alpha: float = 1.0, beta: float = 1.0) -> GradientTransformation:
    """Gradients plus how they changed (optimistic mirror descent)."""

    @guarded
    def update(updates: Tree, state: OptimisticState, params: Tree = None) -> tuple[Tree, Tree]:
        def step(g: Leaf, before: Leaf) -> Leaf:
            old = td.where(state.is_initial_step, g, before)
            return (alpha + beta) * g - beta * old

        changed = map_trees("scale_by_optimistic_gradient", step, updates, state.previous_gradient)
        return changed, OptimisticState(td.asarray(False), updates)

    return GradientTransformation(
        lambda params: OptimisticState(td.asarray(True), zeros_for(params)), update
    )
