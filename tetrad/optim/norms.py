"""Optim, norms: steps that look at whole leaves: their lengths, those of their parameters, and
factored moments of matrices."""

from __future__ import annotations

from typing import Any, NamedTuple

from tetrad.arrays import functions as td
from tetrad.core.dtypes import bool_, f32, i32
from tetrad.core.floats import guarded
from tetrad.core.tree import flatten, tree_map, unflatten
from tetrad.optim.base import (
    GradientTransformation,
    Leaf,
    Tree,
    map_trees,
    real,
    squared,
    stateless,
)
from tetrad.optim.clipping import global_norm
from tetrad.optim.scaling import counted, needed
from tetrad.optim.settings import check_number, check_positive
from tetrad.random import as_key, normal, split
from tetrad.random import key as key_of
from tetrad.tracing.array import Array
from tetrad.tracing.operands import as_array


class FactoredState(NamedTuple):
    count: Array  # type: ignore[assignment]
    v_row: Tree
    v_col: Tree
    v: Tree


class AddNoiseState(NamedTuple):
    count: Array  # type: ignore[assignment]
    rng_key: Array


class ZeroNansState(NamedTuple):
    found_nan: Tree


def length(x: Leaf, least: float = 0.0) -> Leaf:
    """The root of the sum of squares, at least so much; where it is less, without a derivative."""
    x = as_array(x)
    square = td.sum(real(squared(x)))
    is_short = square <= least * least
    return td.where(is_short, least, td.sqrt(td.where(is_short, 1.0, square)))


def scale_by_trust_ratio(
    min_norm: float = 0.0, trust_coefficient: float = 1.0, eps: float = 0.0
) -> GradientTransformation:
    """Updates as long as their parameters, leaf by leaf (LARS, You and others 2017)."""
    check_number("scale_by_trust_ratio", "eps", eps, 0)

    @guarded
    def update(updates: Tree, params: Tree) -> Tree:
        needed("scale_by_trust_ratio", params)

        def step(u: Leaf, p: Leaf) -> Leaf:
            of_params, of_update = length(p, min_norm), length(u, min_norm)
            is_zero = (of_params == 0.0) | (of_update == 0.0)
            under = td.where(is_zero, 1.0, of_update + eps)
            ratio = td.where(is_zero, 1.0, trust_coefficient * of_params / under)
            return u * td.astype(ratio, as_array(u).dtype)

        return map_trees("scale_by_trust_ratio", step, updates, params)

    return stateless(update)


def scale_by_param_block_norm(min_scale: float = 1e-3) -> GradientTransformation:
    """Updates times the length of their parameters, at least min_scale."""
    return _by_params("scale_by_param_block_norm", lambda p: length(p, min_scale))


def scale_by_param_block_rms(min_scale: float = 1e-3) -> GradientTransformation:
    """Updates times the root mean square of their parameters, at least min_scale."""

    def size(p: Leaf) -> Leaf:
        mean = td.mean(real(squared(p)))
        is_small = mean <= min_scale * min_scale
        return td.where(is_small, min_scale, td.sqrt(td.where(is_small, 1.0, mean)))

    return _by_params("scale_by_param_block_rms", size)


def _by_params(name: str, size: Any) -> GradientTransformation:
    @guarded
    def update(updates: Tree, params: Tree) -> Tree:
        needed(name, params)
        return map_trees(
            name, lambda u, p: u * td.astype(size(p), as_array(u).dtype), updates, params
        )

    return stateless(update)


def scale_by_sign() -> GradientTransformation:
    """The signs of updates."""
    return stateless(lambda updates, params: tree_map(td.sign, updates))


def centralize() -> GradientTransformation:
    """Updates of more than one axis less their mean along all axes but the first."""

    def step(u: Leaf) -> Leaf:
        u = as_array(u)
        around = tuple(range(1, u.ndim))
        return u - td.mean(u, axis=around, keepdims=True) if around else u

    return stateless(lambda updates, params: tree_map(step, updates))


def normalize_by_update_norm(
    scale_factor: float = 1.0, eps: float = 1e-6
) -> GradientTransformation:
    """Updates over the length of all of them together."""

    def update(updates: Tree, params: Tree) -> Tree:
        total = (global_norm(updates) + eps) / scale_factor
        return tree_map(lambda u: u / td.astype(total, as_array(u).dtype), updates)

    return stateless(update)


def clip_by_block_rms(threshold: float) -> GradientTransformation:
    """Leaves whose root mean square is above a bound are brought down to it."""
    check_positive("clip_by_block_rms", "threshold", threshold)

    def step(u: Leaf) -> Leaf:
        u = as_array(u)
        return u / td.maximum(1.0, td.sqrt(td.mean(real(squared(u)))) / threshold)

    return stateless(lambda updates, params: tree_map(step, updates))


def adaptive_grad_clip(clipping: float, eps: float = 1e-3) -> GradientTransformation:
    """Each unit's gradient is at most so many times as long as its parameters (Brock and others
    2021). Units are columns of a matrix, outputs of a convolution."""
    check_positive("adaptive_grad_clip", "clipping", clipping)

    def unit_norm(x: Leaf) -> Leaf:
        around = tuple(range(x.ndim - 1)) if x.ndim > 1 else tuple(range(x.ndim))
        total = td.sum(real(squared(x)), axis=around, keepdims=True)
        return td.sqrt(total)

    @guarded
    def update(updates: Tree, params: Tree) -> Tree:
        needed("adaptive_grad_clip", params)

        def step(u: Leaf, p: Leaf) -> Leaf:
            u, most = as_array(u), clipping * td.maximum(unit_norm(as_array(p)), eps)
            own = unit_norm(u)
            return td.where(own < most, u, u * (most / td.maximum(own, 1e-6)))

        return map_trees("adaptive_grad_clip", step, updates, params)

    return stateless(update)


def zero_nans() -> GradientTransformation:
    """NaN become 0; the state says in which leaves there were some."""

    def update(updates: Tree, state: Tree, params: Tree = None) -> tuple[Tree, Tree]:
        found = tree_map(lambda u: td.any(td.isnan(u)), updates)
        return tree_map(lambda u: td.where(td.isnan(u), 0.0, u), updates), ZeroNansState(found)

    return GradientTransformation(
        lambda params: ZeroNansState(tree_map(lambda p: td.zeros((), dtype=bool_), params)), update
    )


def keep_params_nonnegative() -> GradientTransformation:
    """Updates that take no parameter below 0."""

    @guarded
    def update(updates: Tree, params: Tree) -> Tree:
        needed("keep_params_nonnegative", params)
        return map_trees(
            "keep_params_nonnegative",
            lambda u, p: td.where(p + u < 0.0, -p, u), updates, params,
        )  # fmt: skip

    return stateless(update)


def set_to_zero() -> GradientTransformation:
    """No updates: for parameters that stay as they are."""
    return stateless(lambda updates, params: tree_map(td.zeros_like, updates))


def add_noise(eta: float, gamma: float, key: Any = 0) -> GradientTransformation:
    """Updates plus normal noise of variance eta / count^gamma (Neelakantan and others 2014). The
    numbers are those of `td.random`."""
    check_number("add_noise", "eta", eta, 0)

    def init(params: Tree) -> AddNoiseState:
        first = key_of(key) if isinstance(key, int) else as_key("add_noise", key)
        return AddNoiseState(td.zeros((), dtype=i32), first)

    @guarded
    def update(updates: Tree, state: AddNoiseState, params: Tree = None) -> tuple[Tree, Tree]:
        count = counted(state.count)
        spread = td.sqrt(eta / td.pow(td.astype(count, f32), gamma))
        after, drawn = split(state.rng_key)
        leaves, shape = flatten(updates)
        keys = split(drawn, max(len(leaves), 1))
        noisy = [
            u + td.astype(spread, u.dtype) * normal(keys[i], u.shape, u.dtype)
            for i, u in enumerate(map(as_array, leaves))
        ]
        return unflatten(shape, noisy), AddNoiseState(count, after)

    return GradientTransformation(init, update)


# -- factored moments ------------------------------------------------------------------------------


def factored_axes(shape: tuple[Any, ...], factored: bool, least: int) -> tuple[int, int] | None:
    """The second largest and the largest axis, if both are large enough to be factored."""
    if not factored or len(shape) < 2:
        return None
    order = sorted(range(len(shape)), key=lambda i: shape[i])
    return (order[-2], order[-1]) if shape[order[-2]] >= least else None


def scale_by_factored_rms(
    factored: bool = True,
    decay_rate: float = 0.8,
    step_offset: int = 0,
    min_dim_size_to_factor: int = 128,
    epsilon: float = 1e-30,
) -> GradientTransformation:
    """Gradients over the root of their running mean square, which for large matrices is kept as
    means of rows and of columns (Adafactor, Shazeer and Stern 2018)."""

    def axes(shape: tuple[Any, ...]) -> tuple[int, int] | None:
        return factored_axes(shape, factored, min_dim_size_to_factor)

    def init(params: Tree) -> FactoredState:
        leaves, shape = flatten(params)
        parts = [_first_moments(as_array(p), axes(as_array(p).shape)) for p in leaves]
        columns = zip(*parts, strict=True) if parts else ((), (), ())
        made = (unflatten(shape, list(column)) for column in columns)
        return FactoredState(td.zeros((), dtype=i32), *made)

    @guarded
    def update(updates: Tree, state: FactoredState, params: Tree = None) -> tuple[Tree, Tree]:
        needed("scale_by_factored_rms", params)
        number = td.astype(state.count - step_offset, f32) + 1.0
        decay = 1.0 - td.pow(number, -decay_rate)
        leaves, shape = flatten(updates)
        old = [flatten(tree)[0] for tree in (state.v_row, state.v_col, state.v)]
        done = [
            _factored(g, row, column, whole, decay, axes(as_array(g).shape), epsilon)
            for g, row, column, whole in zip(leaves, *old, strict=True)
        ]
        columns = zip(*done, strict=True) if done else ((), (), (), ())
        scaled, *moments = (unflatten(shape, list(column)) for column in columns)
        return scaled, FactoredState(counted(state.count), *moments)

    return GradientTransformation(init, update)


def _first_moments(p: Array, axes: tuple[int, int] | None) -> tuple[Array, Array, Array]:
    """Zeros for the means of rows and of columns, or for those of all elements."""
    none = td.zeros((1,), dtype=p.dtype)
    if axes is None:
        return none, none, td.zeros_like(p)
    row, column = (
        td.zeros(tuple(n for i, n in enumerate(p.shape) if i != gone), dtype=p.dtype)
        for gone in reversed(axes)
    )
    return row, column, none


def _factored(
    g: Leaf, row: Array, column: Array, whole: Array, decay: Array,
    axes: tuple[int, int] | None, epsilon: float,
) -> tuple[Array, Array, Array, Array]:  # fmt: skip
    """A scaled leaf and its moments."""
    g = as_array(g)
    square, decay = real(squared(g)) + epsilon, td.astype(decay, g.dtype)
    if axes is None:
        whole = td.astype(decay * whole + (1.0 - decay) * square, whole.dtype)
        return g * td.rsqrt(whole), row, column, whole
    low, high = axes
    row = decay * row + (1.0 - decay) * td.mean(square, axis=high)
    column = decay * column + (1.0 - decay) * td.mean(square, axis=low)
    mean = td.mean(row, axis=low - 1 if low > high else low, keepdims=True)
    by_row = td.expand_dims(td.rsqrt(row / mean), axis=high)
    by_column = td.expand_dims(td.rsqrt(column), axis=low)
    return g * by_row * by_column, row, column, whole
