"""Optim, wrappers: optimisers made of others: several steps at a time, slow and fast parameters,
groups of parameters, settings that change."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple

from tetrad.arrays import functions as td
from tetrad.core.dtypes import f32, i32
from tetrad.core.errors import SettingError, TraceError
from tetrad.core.floats import guarded
from tetrad.core.tree import flatten, tree_map
from tetrad.optim.base import GradientTransformation, Leaf, Tree, map_trees, masked
from tetrad.optim.scaling import corrected, counted, kept, wide_moment, zeros_for
from tetrad.optim.settings import check_decay
from tetrad.tracing.array import Array, fail
from tetrad.tracing.loops import cond
from tetrad.tracing.operands import as_array, dtype_of


class EmaState(NamedTuple):
    count: Array  # type: ignore[assignment]
    ema: Tree


class ApplyEvery(NamedTuple):
    count: Array  # type: ignore[assignment]
    grad_acc: Tree


class ApplyIfFiniteState(NamedTuple):
    notfinite_count: Array
    last_finite: Array
    total_notfinite: Array
    inner_state: Tree


class MultiStepsState(NamedTuple):
    mini_step: Array
    gradient_step: Array
    inner_opt_state: Tree
    acc_grads: Tree
    skip_state: Tree = ()


class LookaheadParams(NamedTuple):
    fast: Tree
    slow: Tree

    @staticmethod
    def init_synced(params: Tree) -> LookaheadParams:
        """Both the same, as it begins."""
        return LookaheadParams(params, params)


class LookaheadState(NamedTuple):
    fast_state: Tree
    steps_since_sync: Array


class PartitionState(NamedTuple):
    inner_states: dict[Any, Tree]


class InjectHyperparamsState(NamedTuple):
    count: Array  # type: ignore[assignment]
    hyperparams: dict[str, Array]
    hyperparams_states: dict[str, Tree]
    inner_state: Tree


def start() -> Array:
    return td.zeros((), dtype=i32)


def chosen(flag: Array, one: Tree, other: Tree) -> Tree:
    """One tree or the other, in the dtypes of the other."""
    return tree_map(lambda a, b: td.astype(td.where(flag, a, b), as_array(b).dtype), one, other)


def check_count(name: str, what: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise SettingError(f"{name}: {what}", "an int of at least 1", value)


# -- several steps ---------------------------------------------------------------------------------


def ema(decay: float, debias: bool = True, accumulator_dtype: Any = None) -> GradientTransformation:
    """The running mean of updates, corrected for the start.

    >>> import tetrad as td
    >>> mean = td.optim.ema(0.9)
    >>> mean.update(td.asarray([2.0]), mean.init(td.zeros(1)))[0]
    Array([2.], float32)
    """
    check_decay("ema", "decay", decay)

    @guarded
    def update(updates: Tree, state: EmaState, params: Tree = None) -> tuple[Tree, Tree]:
        count = counted(state.count)
        mean = wide_moment("ema", updates, state.ema, decay)
        given = corrected(mean, decay, count) if debias else mean
        return given, EmaState(count, kept(mean, state.ema))

    return GradientTransformation(
        lambda params: EmaState(start(), zeros_for(params, accumulator_dtype)), update
    )


def apply_every(k: int = 1) -> GradientTransformation:
    """The sum of k updates at every k-th step, nothing in between."""
    check_count("apply_every", "k", k)

    @guarded
    def update(updates: Tree, state: ApplyEvery, params: Tree = None) -> tuple[Tree, Tree]:
        place = state.count % k
        total = map_trees(
            "apply_every", lambda g, a: td.where(place != 0, a, 0.0) + g, updates, state.grad_acc
        )
        given = tree_map(lambda a: td.where(place == k - 1, a, 0.0), total)
        return given, ApplyEvery((state.count + 1) % k, total)

    return GradientTransformation(lambda params: ApplyEvery(start(), zeros_for(params)), update)


class MultiSteps:
    """Gradients of several small batches make one step: init and update as of an optimiser, and
    updates of 0 in between.

    every_k_schedule   how many, or a function of the number of steps taken
    use_grad_mean      whether the step sees their mean, not their sum

    >>> import tetrad as td
    >>> steps = td.optim.MultiSteps(td.optim.sgd(1.0), every_k_schedule=2)
    >>> state = steps.init(td.zeros(1))
    >>> _, state = steps.update(td.asarray([1.0]), state)
    >>> steps.update(td.asarray([3.0]), state)[0]
    Array([-2.], float32)
    """

    def __init__(
        self,
        opt: GradientTransformation,
        every_k_schedule: int | Callable[[Any], Any],
        use_grad_mean: bool = True,
        should_skip_update_fn: Callable[..., Any] | None = None,
        accumulator_dtype: Any = f32,
    ) -> None:
        if not callable(every_k_schedule):
            check_count("MultiSteps", "every_k_schedule", every_k_schedule)
        self.inner_opt, self.every = opt, every_k_schedule
        self.uses_mean, self.skips = use_grad_mean, should_skip_update_fn
        self.dtype = None if accumulator_dtype is None else dtype_of(accumulator_dtype)

    def init(self, params: Tree) -> MultiStepsState:
        skip = self.skips(tree_map(td.zeros_like, params), start(), params)[1] if self.skips else ()
        inner = self.inner_opt.init(params)
        return MultiStepsState(start(), start(), inner, zeros_for(params, self.dtype), skip)

    @guarded
    def update(
        self, updates: Tree, state: MultiStepsState, params: Tree = None
    ) -> tuple[Tree, MultiStepsState]:
        given, after = self._added(updates, state, params)
        if self.skips is None:
            return given, after
        is_skipped, skip = self.skips(updates, state.gradient_step, params)
        nothing = tree_map(td.zeros_like, given)
        one, other = (each._replace(skip_state=()) for each in (state, after))
        given = chosen(is_skipped, nothing, given)
        return given, chosen(is_skipped, one, other)._replace(skip_state=skip)

    def _added(
        self, updates: Tree, state: MultiStepsState, params: Tree
    ) -> tuple[Tree, MultiStepsState]:
        every = self.every(state.gradient_step) if callable(self.every) else self.every

        def add(g: Leaf, total: Leaf) -> Leaf:
            step = td.astype(g, total.dtype)
            if self.uses_mean:
                return total + (step - total) / td.astype(state.mini_step + 1, total.dtype.real)
            return total + step

        total = map_trees("MultiSteps", add, updates, state.acc_grads)
        like = tree_map(lambda a, g: td.astype(a, as_array(g).dtype), total, updates)
        given, inner = self.inner_opt.update(like, state.inner_opt_state, params)
        emits = state.mini_step == every - 1
        return (
            tree_map(lambda u: td.where(emits, u, 0.0), given),
            MultiStepsState(
                td.astype((state.mini_step + 1) % every, i32),
                td.where(emits, counted(state.gradient_step), state.gradient_step),
                chosen(emits, inner, state.inner_opt_state),
                tree_map(lambda a: td.where(emits, 0.0, a), total),
                state.skip_state,
            ),
        )

    def has_updated(self, state: MultiStepsState) -> Array:
        """Whether the last update was one of the optimiser."""
        return (state.mini_step == 0) & (state.gradient_step > 0)  # type: ignore[no-any-return]

    def gradient_transformation(self) -> GradientTransformation:
        return GradientTransformation(self.init, self.update)


def apply_if_finite(
    inner: GradientTransformation, max_consecutive_errors: int
) -> GradientTransformation:
    """Updates that hold NaN or infinities are left out, up to so many one after the other."""

    def init(params: Tree) -> ApplyIfFiniteState:
        return ApplyIfFiniteState(start(), td.asarray(True), start(), inner.init(params))

    @guarded
    def update(updates: Tree, state: ApplyIfFiniteState, params: Tree = None) -> Any:
        is_good = td.asarray(True)
        for leaf in flatten(updates)[0]:
            is_good = is_good & td.all(td.isfinite(leaf))
        bad = td.where(is_good, 0, counted(state.notfinite_count))
        given, after = inner.update(updates, state.inner_state, params)
        applies = is_good | (bad > max_consecutive_errors)
        total = td.where(is_good, state.total_notfinite, counted(state.total_notfinite))
        return chosen(applies, given, tree_map(td.zeros_like, given)), ApplyIfFiniteState(
            bad, is_good, total, chosen(applies, after, state.inner_state)
        )

    return GradientTransformation(init, update)


def lookahead(
    fast_optimizer: GradientTransformation,
    sync_period: int,
    slow_step_size: float,
    reset_state: bool = False,
) -> GradientTransformation:
    """Slow parameters go part of the way to fast ones every so many steps, where those start again
    (Zhang and others 2019). Parameters are `LookaheadParams`, gradients those of the fast ones."""
    check_count("lookahead", "sync_period", sync_period)

    def init(params: Tree) -> LookaheadState:
        fast = params.fast if isinstance(params, LookaheadParams) else params
        return LookaheadState(fast_optimizer.init(fast), start())

    @guarded
    def update(updates: Tree, state: LookaheadState, params: Tree = None) -> tuple[Tree, Tree]:
        if not isinstance(params, LookaheadParams):
            message = "lookahead: parameters are td.optim.LookaheadParams"
            fail(TraceError, message, "make them with LookaheadParams.init_synced(params)")
        given, fast = fast_optimizer.update(updates, state.fast_state, params.fast)
        is_last = state.steps_since_sync == sync_period - 1
        ahead = tree_map(lambda p, u, s: p + u - s, params.fast, given, params.slow)
        slow = tree_map(lambda d: td.where(is_last, slow_step_size * d, 0.0), ahead)
        moved = tree_map(
            lambda u, d: u - td.where(is_last, (1 - slow_step_size) * d, 0.0), given, ahead
        )
        if reset_state:
            fast = chosen(is_last, fast_optimizer.init(params.fast), fast)
        after = LookaheadState(fast, (state.steps_since_sync + 1) % sync_period)
        return LookaheadParams(moved, slow), after

    return GradientTransformation(init, update)


# -- groups of parameters and their settings -------------------------------------------------------


def partition(
    transforms: Mapping[Any, GradientTransformation], param_labels: Tree | Callable[[Tree], Tree]
) -> GradientTransformation:
    """An optimiser for each label, and a label for each parameter.

    param_labels   a tree of labels (of the shape of parameters, or ending above some), or a
                   function from parameters to one

    >>> import tetrad as td
    >>> both = {"all": td.optim.sgd(1.0), "none": td.optim.set_to_zero()}
    >>> optimiser = td.optim.partition(both, {"w": "all", "b": "none"})
    >>> params = {"w": td.zeros(1), "b": td.zeros(1)}
    >>> gradients = {"w": td.ones(1), "b": td.ones(1)}
    >>> optimiser.update(gradients, optimiser.init(params), params)[0]
    {'b': Array([0.], float32), 'w': Array([-1.], float32)}
    """

    def groups(tree: Tree) -> dict[Hashable, GradientTransformation]:
        labels = param_labels(tree) if callable(param_labels) else param_labels
        unknown = {label for label in flatten(labels)[0] if label not in transforms}
        if unknown:
            names = ", ".join(map(repr, sorted(unknown, key=repr)))
            known = ", ".join(map(repr, transforms))
            fail(TraceError, f"partition: there is no optimiser for {names}", f"labels: {known}")
        return {
            group: masked(step, tree_map(lambda label, g=group: label == g, labels))
            for group, step in transforms.items()
        }

    def init(params: Tree) -> PartitionState:
        return PartitionState({name: step.init(params) for name, step in groups(params).items()})

    def update(updates: Tree, state: PartitionState, params: Tree = None) -> tuple[Tree, Tree]:
        after = {}
        for name, step in groups(updates).items():
            updates, after[name] = step.update(updates, state.inner_states[name], params)
        return updates, PartitionState(after)

    return GradientTransformation(init, update)


multi_transform = partition


def inject_hyperparams(
    inner_factory: Callable[..., GradientTransformation],
    static_args: str | tuple[str, ...] | list[str] = (),
    hyperparam_dtype: Any = None,
) -> Callable[..., GradientTransformation]:
    """An optimiser whose settings are in its state, `state.hyperparams`, where they may be changed;
    schedules are followed there.

    static_args   names of settings that stay as they are given

    >>> import tetrad as td
    >>> optimiser = td.optim.inject_hyperparams(td.optim.sgd)(learning_rate=0.5)
    >>> state = optimiser.init(td.zeros(1))
    >>> state.hyperparams["learning_rate"] = td.asarray(2.0)
    >>> optimiser.update(td.ones(1), state)[0]
    Array([-2.], float32)
    """
    fixed = {static_args} if isinstance(static_args, str) else set(static_args)
    signature = inspect.signature(inner_factory)
    wanted = f32 if hyperparam_dtype is None else dtype_of(hyperparam_dtype)

    def make(*args: Any, **named: Any) -> GradientTransformation:
        bound = signature.bind(*args, **named)
        bound.apply_defaults()
        others, schedules, numbers = sorted_settings(dict(bound.arguments), fixed)

        def values(count: Any, given: Mapping[str, Any]) -> dict[str, Array]:
            followed = {name: schedule(count) for name, schedule in schedules.items()}
            both = {**given, **followed}
            return {name: td.astype(td.asarray(x), wanted) for name, x in both.items()}

        def init(params: Tree) -> InjectHyperparamsState:
            now = values(start(), numbers)
            inner = inner_factory(**others, **now).init(params)
            return InjectHyperparamsState(start(), now, {}, inner)

        def update(updates: Tree, state: Any, params: Tree = None) -> tuple[Tree, Tree]:
            told = {name: state.hyperparams[name] for name in numbers}
            now = values(state.count, told)
            given, inner = inner_factory(**others, **now).update(updates, state.inner_state, params)
            after = InjectHyperparamsState(
                counted(state.count), now, state.hyperparams_states, inner
            )
            return given, after

        return GradientTransformation(init, update)

    return make


def sorted_settings(
    given: dict[str, Any], fixed: set[str]
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Settings that stay, schedules, and numbers."""
    others, schedules, numbers = {}, {}, {}
    for name, value in given.items():
        if name in fixed or isinstance(value, bool | str | type(None)):
            others[name] = value
        elif callable(value) and "mask" not in name:
            schedules[name] = value
        elif isinstance(value, int | float | Array):
            numbers[name] = value
        else:
            others[name] = value
    return others, schedules, numbers


def incremental_update(new_tensors: Tree, old_tensors: Tree, step_size: Any) -> Tree:
    """The old tree moved part of the way to the new one."""
    return map_trees(
        "incremental_update",
        lambda new, old: step_size * new + (1.0 - step_size) * old, new_tensors, old_tensors,
    )  # fmt: skip


def periodic_update(new_tensors: Tree, old_tensors: Tree, steps: Any, update_period: int) -> Tree:
    """The new tree at every so many steps, the old one in between."""
    is_due = td.asarray(steps) % update_period == 0
    return cond(is_due, lambda new, old: new, lambda new, old: old, new_tensors, old_tensors)
